"""Reports as one HTML file: no script, nothing fetched, readable in the dark and on paper."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from kvpacket_store.durable import written_whole
from kvpacket_store.errors import UsageError

__all__ = ["cell", "html_table", "page", "write_text"]

_STYLE = """
:root { color-scheme: light dark; --ink: #1f2933; --paper: #ffffff; --quiet: #697785;
  --line: #d5dbe1; --ours: #2b6cb0; --theirs: #9aa5b1; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e9ee; --paper: #14191f; --quiet: #94a1ae;
  --line: #36404a; --ours: #63a4e8; --theirs: #6b7783; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; } p { color: var(--quiet); }
table { border-collapse: collapse; } div.wide { overflow-x: auto; }
th, td { padding: .2rem .7rem .2rem 0; border-bottom: 1px solid var(--line); text-align: right;
  font-variant-numeric: tabular-nums; } th:first-child, td:first-child { text-align: left; }
svg { max-width: 100%; height: auto; font: 12px system-ui, sans-serif; }
svg text { fill: var(--ink); }
""".strip()


def page(title: str, parts: Iterable[str]) -> str:
    """Return a whole page around parts that are HTML already.

    Examples
    --------
    >>> "<h1>1 &lt; 2</h1>" in page("1 < 2", ["<p>so it is</p>"])
    True
    """
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>\n"
        f"<h1>{escape(title)}</h1>\n" + "\n".join(parts) + "\n</body></html>\n"
    )


def html_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table; what is None stays empty.

    Examples
    --------
    >>> "<tr><td>fast</td><td>10.25</td></tr>" in html_table(["codec", "bits"], [["fast", 10.254]])
    True
    """
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell(value))}</td>" for value in row) + "</tr>"
        for row in rows
    )
    return (
        f'<div class="wide"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def cell(value: object) -> str:
    """Return a value as people read it.

    Examples
    --------
    >>> cell(10.254), cell(1234.5), cell(1234567), cell(True), cell(None)
    ('10.25', '1,234', '1,234,567', 'yes', '')
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def write_text(path: Path, text: str) -> None:
    """Write a file, whole or not at all.

    Raises
    ------
    UsageError
        It cannot be written there.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(path) as scratch:
            scratch.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be written ({error.strerror}); name another") from error
