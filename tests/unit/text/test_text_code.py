"""Where definitions begin, and where sentences end."""

from __future__ import annotations

import itertools

import pytest

from kvpacket_store.text.definitions import code_blocks, python_definitions
from kvpacket_store.text.media_types import media_type_of
from kvpacket_store.text.sentences import sentence_ends

MODULE = '''"""Docstring with
def no_definition(): here
"""
import os

# About A.
# More about A.
@decorator(
    1)
@another
class A:
    x = 1

    # About f.
    @property
    def f(self):
        def inner(): ...
        return inner

    async def g(self): ...

async def h():
    class Inner:
        def k(self): ...

if os:
    def conditional(): ...

def last(): ...
'''


def first_lines(text: str, offsets: list[int]) -> list[str]:
    return [text[offset:].splitlines()[0] for offset in offsets]


def test_python_definitions_come_with_their_comments_and_decorators():
    top_level, in_classes = python_definitions(MODULE)

    assert first_lines(MODULE, top_level) == ["# About A.", "async def h():", "def last(): ..."]
    assert first_lines(MODULE, in_classes) == [
        "# About A.",
        "    # About f.",
        "    async def g(self): ...",
        "async def h():",
        "def last(): ...",
    ]


@pytest.mark.parametrize("broken", ["def f(:\n  'x\n", '"""', "  x\n y\n", "(", "\t\tx = 1 +\n"])
def test_a_syntax_error_moves_no_cut_before_it(broken):
    text = MODULE + "\n\n" + broken + "\n\nafter = 1\n"

    top_level, in_classes = python_definitions(text)

    assert top_level[:3] == python_definitions(MODULE)[0]
    assert in_classes[:5] == python_definitions(MODULE)[1]
    assert all(offset > in_classes[4] for offset in in_classes[5:])


def test_other_languages_are_cut_before_unindented_lines():
    text = "int a;\nint b;\n\nint f() {\n\n  return 1;\n\n}\n \n\n// g\nint g() {\n}\n"

    assert first_lines(text, code_blocks(text)) == ["int f() {", "// g"]


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two! Three? Four", ["One.", " Two!", " Three?", " Four"]),
        ("Mr. J. R. Smith of the U.S. Army left.", ["Mr. J. R. Smith of the U.S. Army left."]),
        ("It is 3.14, e.g. about pi. Yes.", ["It is 3.14, e.g. about pi.", " Yes."]),
        ("He left at 5 p.m. yesterday.", ["He left at 5 p.m. yesterday."]),
        ('"Stop!" she said. "Now."', ['"Stop!"', " she said.", ' "Now."']),
        ("So am I. Good.", ["So am I.", " Good."]),
        ("你好。你是谁？我是「人」！好", ["你好。", "你是谁？", "我是「人」！", "好"]),
        ("他说：「走。」然后走了。", ["他说：「走。」", "然后走了。"]),
        ("كيف حالك؟ بخير.", ["كيف حالك؟", " بخير."]),
        ("Wait... what? ", ["Wait... what?", " "]),
        ("", []),
    ],
)
def test_sentences_end_where_a_reader_would_say(text, sentences):
    ends = [*sentence_ends(text, 0, len(text))]
    edges = sorted({0, *ends, len(text)})

    assert [text[start:end] for start, end in itertools.pairwise(edges)] == sentences


def test_a_run_of_marks_takes_linear_time():
    text = "." * 200_000 + "x" + "!)" * 200_000

    assert [*sentence_ends(text, 0, len(text))] == []


@pytest.mark.parametrize(
    ("name", "media_type"),
    [
        ("a.TXT", "text/plain"),
        ("src/a.rs", "text/x-rust"),
        ("Makefile", "text/x-makefile"),
        ("a.b.hpp", "text/x-c++"),
        ("a.unknown", None),
        (".md", None),
    ],
)
def test_names_tell_media_types(name, media_type):
    assert media_type_of(name) == media_type
