"""The documents hold together: links lead somewhere, and no number waits to be filled in."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "bench" / "README.md"])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    text = page.read_text()
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        if not target.startswith(("http:", "https:")):
            assert (page.parent / target).exists(), target
    assert "MEASURED_TABLE" not in text


def test_every_decision_is_listed():
    folder = ROOT / "docs" / "adr"
    index = (folder / "README.md").read_text()
    assert [p.name for p in sorted(folder.glob("0*.md")) if f"({p.name})" not in index] == []


def test_every_public_name_is_there_and_sorted():
    import kvpacket_store

    assert sorted(kvpacket_store.__all__) == kvpacket_store.__all__
    for name in kvpacket_store.__all__:
        assert getattr(kvpacket_store, name)
