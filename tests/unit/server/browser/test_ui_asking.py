"""Questions asked on the page: streamed, drafted, stopped, failed, behind a key."""

from __future__ import annotations

import json
import re

import httpx
import pytest

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_an_answer_streams_and_is_the_one_of_the_api(gate, tab, reach_step):
    tab.ask(documents="a", max_new_tokens="12", decode="full")
    reach_step(9)
    tab.wait_for(".card.running .final:not(:empty)")
    assert tab.page.get_attribute(".answer", "aria-busy") == "true"
    gate.open()
    tab.wait_for(".card.done")
    assert tab.page.get_attribute(".answer", "aria-busy") == "false"
    asked = {"query": "What was lit?", "documents": ["a"], "max_new_tokens": 12, "decode": "full"}
    answer = httpx.post(f"{tab.url}/generate", json=asked, timeout=60).json()
    assert tab.text_of(".final") == (answer["answer"] or "(The model gave no text.)")


def test_figures_are_those_of_the_answer(tab):
    told = []

    def overhear(route):
        response = route.fetch()
        told.append(response.text())
        route.fulfill(response=response)

    tab.page.route("**/generate", overhear)
    tab.answer(documents="b\na", max_new_tokens="8")
    events = re.findall(r"^data: (.*)$", told[0], re.MULTILINE)
    answer = json.loads(events[-1])
    usage = answer["usage"]
    assert tab.page.locator(".card .group .name").all_text_contents() == ["b", "a", "question"]
    segments = [int(text) for text in tab.page.locator(".segment b").all_text_contents()]
    assert sum(segments) == usage["prompt_tokens"]
    packets = [packet for document in answer["documents"] for packet in document["packets"]]
    assert segments[:-1] == [packet["tokens"] for packet in packets]
    said = f"{usage['cached_tokens']} of {usage['prompt_tokens']} tokens were not computed again"
    assert said in tab.text_of(".card .readout")
    saved = [mark.get_attribute("aria-label") for mark in tab.page.locator(".segment").all()]
    counts = [int(re.search(r"(\d+) (?:saved|not computed)", one)[1]) for one in saved]
    assert counts[:-1] == segments[:-1]
    assert sum(counts) == usage["cached_tokens"]
    assert "to the first token" in tab.text_of(".headline")


def test_drafted_text_is_dim_until_it_is_final(gate, tab, reach_step):
    tab.ask(documents="c", decode="verified", max_new_tokens="40")
    drafted = tab.page.locator(".drafted")
    reach_step(1)
    for step in range(2, 30):
        gate.let_a_step_through()
        reach_step(step)
        tab.page.wait_for_timeout(60)  # what a step drafted is on its way
        if drafted.text_content():
            break
    assert drafted.text_content()
    colours = tab.page.evaluate(
        "[...document.querySelectorAll('.final, .drafted')].map(e => getComputedStyle(e).color)"
    )
    assert colours[0] != colours[1]
    gate.open()
    tab.wait_for(".card.done")
    assert drafted.text_content() == ""


@pytest.mark.parametrize("how", ["button", "key"])
def test_stopping_stops_the_decoding(gate, tab, cancelled, how, reach_step):
    tab.ask(documents="a", max_new_tokens="200")
    reach_step(5)
    if how == "button":
        tab.page.click(".card button:has-text('Stop')")
    else:
        tab.page.keyboard.press("Escape")
    tab.wait_for(".card.stopped")
    assert cancelled[0].wait(60)
    gate.open()
    after = {"query": "q", "documents": ["a"], "max_new_tokens": 1}
    assert httpx.post(f"{tab.url}/generate", json=after, timeout=60).status_code == 200
    assert gate.num_steps == 5
    metrics = httpx.get(f"{tab.url}/stats").json()["metrics"]
    assert metrics['kvpacket_requests_total{outcome="cancelled"}'] == 1


def test_what_went_wrong_is_said(tab):
    tab.ask(documents="nobody")
    tab.wait_for(".card.failed")
    assert "Not found (404)" in tab.text_of(".problem")
    assert "nobody" in tab.text_of(".problem p")
    assert tab.page.get_attribute(".problem", "role") == "alert"
    [complaint] = tab.complaints  # which the browser makes of any such status
    assert "404" in complaint
    tab.complaints.clear()


@pytest.mark.parametrize(
    ("events", "said"),
    [
        (
            'event: error\ndata: {"title": "The store is full", "detail": "make room"}\n\n',
            "make room",
        ),
        ("", "The answer ended early"),
    ],
)
def test_a_stream_that_breaks_off_keeps_its_text_and_says_why(tab, events, said):
    body = f'data: {{"text": "It was"}}\n\n{events}'
    tab.page.route(
        "**/generate", lambda route: route.fulfill(body=body, content_type="text/event-stream")
    )
    tab.ask()
    tab.wait_for(".card.failed")
    assert tab.text_of(".final") == "It was"
    assert said in tab.text_of(".problem")


def test_a_server_that_is_gone_is_said(app, running, open_tab):
    with running(app) as (_, url):
        tab = open_tab(url)
        tab.wait_for(".tiles")
    tab.ask()
    tab.wait_for(".card.failed")
    assert "cannot be reached" in tab.text_of(".card .problem")
    tab.complaints.clear()


class Locked:
    """An app behind a key, as far as the page can tell."""

    def __init__(self, app):
        self._app = app

    async def __call__(self, scope, receive, send):
        if scope["type"] == "http" and scope["path"] != "/ui":
            given = dict(scope["headers"]).get(b"authorization")
            if given != b"Bearer sesame":
                body = json.dumps({"title": "Unauthorized", "status": 401, "detail": "send a key"})
                headers = [(b"content-type", b"application/problem+json")]
                await send({"type": "http.response.start", "status": 401, "headers": headers})
                await send({"type": "http.response.body", "body": body.encode()})
                return
        await self._app(scope, receive, send)


def test_a_key_is_asked_for_kept_in_the_tab_and_forgotten(app, running, open_tab):
    with running(Locked(app)) as (_, url):
        tab = open_tab(url)
        tab.wait_for("#key-dialog[open]")
        assert tab.text_of("#key-detail") == "send a key"
        tab.page.fill("#key", "wrong")
        tab.page.keyboard.press("Enter")
        tab.wait_for("#figures .problem")
        assert "401" in tab.text_of("#figures .problem")
        tab.page.click("#refresh")
        tab.wait_for("#key-dialog[open]")
        tab.page.fill("#key", "sesame")
        tab.page.click("text=Use it")
        tab.wait_for(".tiles")
        tab.answer(documents="a", max_new_tokens="2")
        assert tab.page.evaluate("localStorage.length") == 0
        assert tab.page.input_value("#key") == ""
        tab.page.click("#forget")
        assert tab.page.evaluate("sessionStorage.length") == 0
        assert all("401" in complaint for complaint in tab.complaints)
        tab.complaints.clear()
