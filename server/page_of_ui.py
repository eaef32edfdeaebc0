"""The page of ``GET /ui``: its source files as one response, and a policy for it alone."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

__all__ = ["Page", "assembled_page"]

_STYLES = re.compile(r'(?:\s*<link rel="stylesheet" href="([\w-]+\.css)">)+')
_SCRIPTS = re.compile(r'(?:\s*<script type="module" src="([\w-]+\.js)"></script>)+')
_NAMED = re.compile(r'(?:href|src)="([\w-]+\.(?:css|js))"')

# It may run its own script, have its own style, and speak to this server; its icon is `data:`.
_POLICY = (
    "default-src 'none'; script-src 'sha256-{script}'; style-src 'sha256-{style}'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)


@dataclass(frozen=True, slots=True)
class Page:
    """One HTML text, and what the response says beside it."""

    html: str
    headers: dict[str, str]


def assembled_page(folder: Traversable | None = None) -> Page:
    """Return the page: files that ``page.html`` names stand inside it, in their order.

    Parameters
    ----------
    folder : Traversable, optional
        Where the sources lie; None: those of this package.
    """
    folder = files(__package__) / "ui" if folder is None else folder
    html = (folder / "page.html").read_text("utf-8")
    html, style = _inlined(html, _STYLES, folder, "<style>", "</style>")
    html, script = _inlined(html, _SCRIPTS, folder, '<script type="module">', "</script>")
    headers = {
        "Content-Security-Policy": _POLICY.format(script=_digest(script), style=_digest(style)),
        "Cache-Control": "no-store",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }
    return Page(html, headers)


def _inlined(
    html: str, named: re.Pattern[str], folder: Traversable, opening: str, closing: str
) -> tuple[str, str]:
    """Put the files that stand in a row where they are named; return the page, and their text.

    Scripts share one scope, as they would in a bundle.
    """
    row = named.search(html)
    if row is None:
        raise AssertionError(f"the page names no file that is {named.pattern}")
    text = "\n" + "\n".join(
        (folder / name).read_text("utf-8") for name in _NAMED.findall(row.group())
    )
    return f"{html[: row.start()]}\n{opening}{text}{closing}{html[row.end() :]}", text


def _digest(text: str) -> str:
    """Return what a policy calls an inline text by."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
