"""`GET /ui` is one response that needs nothing else, and may do nothing else."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser

import pytest

pytestmark = pytest.mark.anyio
VOID = {"meta", "link", "input", "br", "img", "hr"}


class Reader(HTMLParser):
    """Takes a page apart; every element must be closed in its turn."""

    def __init__(self, html):
        super().__init__()
        self.open, self.elements, self.inline = [], [], {}
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in {"style", "script"}:
            self.inline.setdefault(self.open[-1], []).append(data)


@pytest.fixture
async def response(client):
    response = await client.get("/ui")
    assert response.status_code == 200
    return response


def policy_of(response):
    directives = response.headers["content-security-policy"].split("; ")
    return dict(directive.split(" ", 1) for directive in directives)


async def test_it_is_html_that_is_whole(response):
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert response.text.startswith("<!doctype html>")
    page = Reader(response.text)
    assert page.open == []
    ids = [attrs["id"] for _, attrs in page.elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    labels = {attrs["for"] for tag, attrs in page.elements if tag == "label" and "for" in attrs}
    assert labels <= set(ids)
    assert ("html", {"lang": "en"}) in page.elements


async def test_nothing_in_it_leads_elsewhere(response):
    addresses = set(re.findall(r"\w+://[^\s'\"]*", response.text))
    assert addresses == {"http://www.w3.org/2000/svg"}  # a name, of the icon's format
    page = Reader(response.text)
    for tag, attrs in page.elements:
        assert "src" not in attrs, tag
        assert attrs.get("href", "#").startswith(("#", "data:image/svg+xml,")), tag
        assert not any(name == "style" or name.startswith("on") for name in attrs), tag


async def test_the_policy_allows_its_own_script_and_style_alone(response):
    policy, page = policy_of(response), Reader(response.text)
    for directive, tag in (("script-src", "script"), ("style-src", "style")):
        [text] = page.inline[tag]
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert policy[directive] == f"'sha256-{digest}'"
    nothing = {"default-src", "base-uri", "form-action", "frame-ancestors", "trusted-types"}
    assert {policy[directive] for directive in nothing} == {"'none'"}
    assert policy["connect-src"] == "'self'"
    assert policy["img-src"] == "data:"
    assert policy["require-trusted-types-for"] == "'script'"


async def test_it_is_not_kept_framed_or_guessed_at(response):
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["referrer-policy"] == "no-referrer"


async def test_its_script_makes_no_markup_of_text(response):
    [script] = Reader(response.text).inline["script"]
    for way in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "srcdoc",
    ):
        assert way not in script


async def test_every_metric_that_it_shows_is_counted(client, response):
    await client.app.state.services.loaded.wait()
    [script] = Reader(response.text).inline["script"]
    block = re.search(r"const METRICS = \{(.*?)\};", script, re.DOTALL)[1]
    shown = re.findall(r"""["'](kvpacket_.+?)["'],\n""", block)
    assert len(shown) > 15
    metrics = (await client.get("/stats")).json()["metrics"]
    assert [name for name in shown if name not in metrics] == []
