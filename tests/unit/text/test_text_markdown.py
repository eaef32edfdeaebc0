"""Markdown: titles and outlines."""

from __future__ import annotations

import pytest

from kvpacket_store.text.files import document_from_bytes
from kvpacket_store.text.markdown import markdown_outline, markdown_title

TEXT = """---
title: "Front matter"
---
Intro paragraph.

# One

Text with a fence:

```
# not a heading

still the fence
```

Two
---

- item

  more of the item

### Three
"""


@pytest.mark.parametrize(
    ("text", "title"),
    [
        (TEXT, "Front matter"),
        ("---\nauthor: x\n---\n\n# A `code` *title* [link](http://x)\n", "A code title link"),
        ("Underlined\n==========\n", "Underlined"),
        ("---\n\nA rule, no front matter.\n\n---\n\n# Title\n", "Title"),
        ("```\n# in a fence\n```\n", None),
        ("no heading", None),
        ("#\n", None),
    ],
)
def test_the_title_is_in_the_front_matter_or_the_first_heading(text, title):
    assert markdown_title(text) == title


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_headings_and_blocks_begin_where_they_are_written(newline):
    text = TEXT.replace("\n", newline)
    outline = markdown_outline(text)

    def lines(offsets):
        return [text[offset:].splitlines()[0] for offset in offsets]

    assert lines(outline.headings[0]) == ["# One"]
    assert lines(outline.headings[1]) == ["# One", "Two"]
    assert lines(outline.headings[2]) == ["# One", "Two", "### Three"]
    assert outline.headings[2] == outline.headings[5]
    assert lines(outline.blocks) == [
        "Intro paragraph.",
        "# One",
        "Text with a fence:",
        "```",
        "Two",
        "- item",
        "### Three",
    ]


def test_the_text_stays_as_it_is_written():
    document = document_from_bytes("a.md", "a.md", TEXT.encode(), "docs/a.md")

    assert document.text == TEXT
    assert document.metadata["media_type"] == "text/markdown"
    assert document.metadata["source"] == "docs/a.md"
