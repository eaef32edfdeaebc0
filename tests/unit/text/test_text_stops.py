"""Stop strings: never shown, never missed, whatever the pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvpacket_store.errors import UsageError
from kvpacket_store.text import StopMatcher


def run(stops: list[str], pieces: list[str]) -> tuple[str, bool]:
    matcher = StopMatcher(stops)
    shown = ""
    for piece in pieces:
        text, stopped = matcher.push(piece)
        shown += text
        if stopped:
            return shown, True
    return shown + matcher.finish(), False


def first_stop(stops: list[str], text: str) -> tuple[str, bool]:
    """The readable meaning: stop where the text first ends with a stop string."""
    for end in range(len(text) + 1):
        lengths = [len(stop) for stop in stops if text[:end].endswith(stop)]
        if lengths:
            return text[: end - max(lengths)], True
    return text, False


def test_without_stops_everything_is_shown_at_once():
    assert StopMatcher([]).push("anything") == ("anything", False)


def test_a_stop_over_several_pieces_is_found_and_never_shown():
    matcher = StopMatcher(["\n\nUser:"])

    shown = [matcher.push(piece) for piece in ["Hello\n", "\nUs", "er", ": next"]]

    assert shown == [("Hello", False), ("", False), ("", False), ("", True)]


def test_text_that_only_began_like_a_stop_is_shown_when_that_is_clear():
    matcher = StopMatcher(["END"])

    assert matcher.push("the EN") == ("the ", False)
    assert matcher.push("ormous") == ("ENormous", False)


def test_text_that_is_held_back_comes_out_at_the_end():
    matcher = StopMatcher(["END"])
    matcher.push("the EN")

    assert matcher.finish() == "EN"
    assert matcher.finish() == ""


def test_nothing_is_shown_after_a_stop():
    matcher = StopMatcher(["."])
    assert matcher.push("a.b.c") == ("a", True)

    assert matcher.push("more") == ("", True)
    assert matcher.finish() == ""


def test_overlapping_repetitions_are_found():
    assert run(["aab"], ["aa", "aab", "x"]) == ("aa", True)


@pytest.mark.parametrize("stops", [[""], ["a", ""], "abc"])
def test_an_empty_stop_or_a_bare_string_is_refused(stops):
    with pytest.raises(UsageError):
        StopMatcher(stops)


def test_a_long_stop_costs_linear_time():
    steps = 20_000
    matcher = StopMatcher(["a" * steps + "b"])

    shown = [matcher.push("a")[0] for _ in range(2 * steps)]

    assert "".join(shown) == "a" * steps
    assert matcher.push("b") == ("", True)


@pytest.mark.property
@given(
    stops=st.lists(st.text("ab", min_size=1, max_size=5), max_size=4),
    pieces=st.lists(st.text("abc", max_size=6), max_size=12),
)
def test_pieces_do_not_matter(stops, pieces):
    assert run(stops, pieces) == first_stop(stops, "".join(pieces))
