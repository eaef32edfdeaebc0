"""The page itself: its figures, its width, its keys, and what it never does."""

from __future__ import annotations

import re

import pytest

import kvpacket_store as kv

pytestmark = [pytest.mark.browser, pytest.mark.slow]
HOSTILE = '<img src=x onerror="document.title=1">'


def test_the_store_is_shown_as_the_metrics_have_it(tab, engine):
    tab.answer(documents="a", max_new_tokens="4")
    tab.page.reload()
    tab.wait_for(".tiles")
    figures = tab.text_of("#figures")
    assert tab.page.locator(".tiles dd").all_text_contents()[0] == "3"
    stats = engine.memory.stats()
    assert f"hits, misses{stats.hits}, {stats.misses}" in figures
    assert "answers1" in figures
    layers = engine.store.stats().layers
    assert tab.page.locator(".heat tbody td").count() == 2 * len(layers)
    ratio = 8 * engine.store.kv_dtype.itemsize_bytes / layers[0]["k"]
    assert f"{ratio:.2f}\u00a0×" in tab.page.locator(".heat tbody td").first.get_attribute(
        "aria-label"
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_narrow_screen_does_not_scroll_sideways(url, open_tab, scheme):
    narrow = {"width": 360, "height": 640}
    tab = open_tab(url, viewport=narrow, color_scheme=scheme)
    tab.wait_for(".tiles")
    tab.answer("W" * 300, documents="a\nb\nc", max_new_tokens="30")
    assert tab.page.evaluate("document.documentElement.scrollWidth") == narrow["width"]
    paper = tab.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", paper))) < 3 * 128) == (scheme == "dark")


def test_who_wants_less_motion_gets_none(url, open_tab, gate, reach_step):
    tab = open_tab(url, reduced_motion="reduce")
    tab.ask(documents="a")
    reach_step(3)
    tab.wait_for(".card.running")
    moving = "getComputedStyle(document.querySelector('.answer'), '::after').animationName"
    assert tab.page.evaluate(moving) == "none"
    gate.open()
    tab.wait_for(".card.done")


def test_all_of_it_is_reached_by_keys(tab):
    tab.answer(documents="a\nb", max_new_tokens="4")
    segments = tab.page.locator(".segment")
    segments.first.focus()
    assert tab.text_of(".card .readout").startswith("a, packet 1 of 2: ")
    tab.page.keyboard.press("ArrowRight")
    assert tab.text_of(".card .readout").startswith("a, packet 2 of 2: ")
    assert segments.nth(1).evaluate("mark => getComputedStyle(mark).outlineStyle") == "solid"
    assert segments.evaluate_all("marks => marks.map(mark => mark.tabIndex)") == [-1, 0, -1, -1]
    tab.page.locator(".heat tbody td").first.focus()
    tab.page.keyboard.press("ArrowDown")
    assert tab.text_of("#figures .readout").startswith("Layer 0, V")


def test_ids_and_answers_are_text_and_never_markup(store, url, open_tab):
    store.ingest([kv.Document(id=HOSTILE, text="It was lit in 1811.")])
    tab = open_tab(url)
    tab.answer(HOSTILE, documents=HOSTILE, max_new_tokens="4")
    assert tab.page.locator("img").count() == 0
    assert tab.page.title() == "kvpacket-store"
    assert tab.text_of(".card h3") == tab.text_of(".card .name") == HOSTILE


def test_a_field_that_is_not_valid_is_shown(tab):
    tab.ask(max_new_tokens="0")
    assert tab.page.locator(".card").count() == 0
    assert tab.page.locator("#options").get_attribute("open") is not None
