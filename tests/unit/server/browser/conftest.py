"""The page in a real browser of this machine."""

from __future__ import annotations

import asyncio
import shutil
import threading

import pytest
from kvpacket_store._server import create_app

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


class Tab:
    """A page that is open, with what its console and its network saw."""

    def __init__(self, page, url):
        self.page, self.url = page, url
        self.complaints, self.asked = [], []
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.asked.append(request.url))

    def _heard(self, message):
        if message.type in {"error", "warning"}:
            self.complaints.append(message.text)

    def ask(self, query="What was lit?", **fields):
        if fields:
            self.page.evaluate("document.getElementById('options').open = true")
        for name, value in fields.items():
            field = self.page.locator(f"[name={name}]")
            is_choice = field.evaluate("field => field.tagName") == "SELECT"
            (field.select_option if is_choice else field.fill)(value)
        self.page.fill("#query", query)
        self.page.press("#query", "Enter")

    def wait_for(self, selector, state="visible"):
        return self.page.wait_for_selector(selector, state=state, timeout=60_000)

    def text_of(self, selector):
        return self.page.locator(selector).first.text_content()

    def answer(self, query="What was lit?", **fields):
        """Ask, and wait for the whole answer."""
        self.ask(query, **fields)
        self.wait_for(".card.done")


@pytest.fixture(scope="module")
def browser():
    api = pytest.importorskip(
        "playwright.sync_api", reason="no playwright is installed: pip install -e '.[browser]'"
    )
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed: apt-get install chromium")
    with api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def app(store, engine):
    return create_app(store, engine=engine)


@pytest.fixture
def open_tab(browser):
    """A function: address → a tab at its page. None may complain, or speak to another origin."""
    opened = []

    def open_one(url, **options):
        tab = Tab(browser.new_context(**options).new_page(), url)
        opened.append(tab)
        tab.page.goto(f"{url}/ui")
        return tab

    yield open_one
    for tab in opened:
        tab.page.context.close()
        assert tab.complaints == []
        assert [one for one in tab.asked if not one.startswith((f"{tab.url}/", "data:"))] == []


@pytest.fixture
def url(app, running):
    with running(app) as (_, url):
        yield url


@pytest.fixture
def tab(url, open_tab):
    tab = open_tab(url)
    tab.wait_for(".tiles")
    return tab


@pytest.fixture
def reach_step(gate):
    """A function: let the decoding come to a step. The driver's loop runs in this thread."""

    def reach(number):
        waiting = threading.Thread(target=asyncio.run, args=(gate.reach_step(number),))
        waiting.start()
        waiting.join(60)
        assert gate.num_steps == number

    return reach


@pytest.fixture
def cancelled(engine, monkeypatch):
    """The cancel events that the engine was given, in order."""
    given, begin = [], engine.begin

    def spied(query, options, timings, cancel, policy):
        given.append(cancel)
        return begin(query, options, timings, cancel, policy)

    monkeypatch.setattr(engine, "begin", spied)
    return given
