"""What people see is what was stored: no markup, no emoji codes, nothing for the terminal."""

import json

import pytest

from kvpacket_store.cli.output import out, plain, print_json, table


@pytest.mark.parametrize("text", ["[/nope]", "[red]x[/]", "weird :smile:", "a\tb\nc", "日本語 🌍"])
def test_text_is_printed_as_it_is(text):
    with out.capture() as captured:
        out.print(plain(text), end="")
    assert captured.get() == text.replace("\t", "       ")[: len(captured.get())]
    with out.capture() as captured:
        out.print(table("", ["id"], [[text.split("\t", 1)[0]]]))
    assert text.split("\t", 1)[0].strip() in captured.get()


def test_control_characters_do_not_reach_the_terminal():
    with out.capture() as captured:
        out.print(plain("a\x1b[31mred\x07\x9b0m"), end="")
    assert captured.get() == "a[31mred0m"


def test_json_is_ascii_and_gives_back_every_character(capsys):
    value = {"text": "日本語 🌍 \ud800 \x1b"}
    print_json(value)
    printed = capsys.readouterr().out
    assert printed.isascii()
    assert printed.count("\n") == 1
    assert json.loads(printed) == value
