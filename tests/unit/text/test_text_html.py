"""HTML pages to what a reader sees."""

from __future__ import annotations

import pytest

from kvpacket_store.errors import DocumentError
from kvpacket_store.text.files import document_from_bytes
from kvpacket_store.text.html import read_html

PAGE = """<?xml version="1.0"?><!DOCTYPE html>
<html><head><title>The
  Normans</title><style>p { color: red }</style><script>var hidden = 1;</script></head>
<body><nav><a href="/">Home</a></nav><!-- a comment -->
<h1>Normans</h1><p>They gave their
   name to <b>Normandy</b>, a <i>region</i> in France.</p><p>Second.<br>Line.</p>
<ul><li>one</li><li>two &amp; three</li></ul>
<table><tr><td>a</td><td>b</td></tr><tr><td>c</td><td>d</td></tr></table>
<pre>def f():
    return 1</pre></body></html>"""


def test_a_page_becomes_readable_text_with_a_line_for_every_block():
    text, title = read_html("a", PAGE)

    assert title == "The Normans"
    assert text.split("\n\n") == [
        "Normans",
        "They gave their name to Normandy, a region in France.",
        "Second.\nLine.",
        "one\ntwo & three",
        "a b\nc d",
        "def f():\n    return 1",
    ]


def test_the_first_heading_is_the_title_where_there_is_no_other():
    assert read_html("a", "<h1>A <em>b</em></h1><p>x</p>")[1] == "A b"
    assert read_html("a", "<p>x</p>")[1] is None


def test_text_without_tags_is_kept():
    assert read_html("a", "notes.html and &lt;more&gt;")[0] == "notes.html and <more>"


def test_missing_end_tags_lose_nothing():
    assert read_html("a", "<head><title>T</title><body><p>a<p>b<li>c")[0] == "a\n\nb\nc"


def test_pages_nested_deeper_than_python_recurses_are_read():
    depth = 5_000

    assert read_html("a", "<div>" * depth + "deep" + "</div>" * depth)[0] == "deep"


@pytest.mark.parametrize("declared", ["iso-8859-1", "windows-1252"])
def test_the_declared_encoding_is_used(declared):
    page = f"<meta charset={declared}><title>Wärme</title><p>Größe</p>".encode(declared)

    document = document_from_bytes("a.html", "a.html", page, "a.html")

    assert document.text == "Größe"
    assert dict(document.metadata) == {
        "source": "a.html",
        "media_type": "text/html",
        "title": "Wärme",
    }


@pytest.mark.parametrize("declared", ["utf-16", "no-such-encoding", "hex", ""])
def test_a_declaration_that_cannot_hold_is_ignored(declared):
    page = f'<meta charset="{declared}"><p>Größe</p>'.encode()

    assert document_from_bytes("a.html", "a.html", page, "a.html").text == "Größe"


def test_markup_that_the_parser_refuses_is_an_error_of_the_document():
    """Newer versions of the standard library's parser read it as a comment."""
    try:
        outcome = read_html("page", "<p>x</p><![;y")[0]
    except DocumentError as error:
        outcome = error.document_id

    assert outcome in ("page", "x")
