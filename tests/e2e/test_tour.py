"""The whole way of a newcomer, from the first page to the tenth turn: with the demo model, and with a provider that is
connected by the page only.

`COTERIE_TOUR_PICTURES=FOLDER` keeps a picture of each stage, and the seconds it took, to look at.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.e2e.axe import serious
from tests.e2e.browser import shown
from tests.e2e.conftest import Watched
from tests.e2e.server_process import Server
from tests.model_server import ModelServer, serving

pytestmark = [pytest.mark.xdist_group("embedded"), pytest.mark.timeout(1200)]
TURNS = (
    '*knocks on the open door* "Is somebody there?"',
    "I am Ana. I walked up from the village.",
    "*sits down by the stove*",
    "Do you live here alone?",
    "What do you write in the book?",
    "((keep it short))\n\nI brought you some bread.",
    "*listens to the wind for a while*",
    "When did you last go down to the village?",
    "I have to leave before it gets dark.",
    '"Good night, Maren."',
)
SHORT = """[story]
reply_tokens = 24
narrative_budget_soft = 600
narrative_budget_hard = 900
classifier_budget_hard = 600
retrieval_k = 2
"""
"""A small model on a small machine reads about as slowly as it writes: short prompts, short replies."""
TIMEOUT_MS = 240_000


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Server]:
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.toml").write_text(SHORT)
    server = Server(home, "coterie")
    yield server
    server.close()


class Tour:
    """A browser that goes through the stages; only the name is filled in."""

    def __init__(self, browser: Browser, served: Server, name: str) -> None:
        self.watched = Watched(browser.new_context(base_url=served.address, viewport={"width": 1280, "height": 800}))
        self.page = self.watched.context.new_page()
        self.page.set_default_timeout(TIMEOUT_MS)
        self._name = name
        self._since = time.monotonic()

    def stage(self, name: str) -> None:
        if folder := os.environ.get("COTERIE_TOUR_PICTURES"):
            self.page.screenshot(path=Path(folder) / f"tour-{self._name}-{name}.png", caret="initial")
            with (Path(folder) / "tour-seconds.txt").open("a") as times:
                times.write(f"{self._name} {name}: {time.monotonic() - self._since:.1f} s\n")
        self._since = time.monotonic()

    def enter_name(self) -> None:
        self.page.goto("/")
        expect(self.page.get_by_role("heading", name="Who are you?")).to_be_visible()
        self.stage("1-welcome")
        self.page.keyboard.type("Ana")
        self.page.keyboard.press("Enter")
        expect(self.page.get_by_role("heading", name="Choose a model")).to_be_visible()
        self.stage("2-model")

    def meet_and_talk(self) -> int:
        """Ten turns with a ready-made character; returns the number of turns before the first."""
        page = self.page
        page.get_by_role("button", name="Meet Maren").click()
        expect(page).to_have_url(re.compile("/kickoff$"))
        expect(page.locator(".opening-prose")).to_contain_text("The kettle has just begun to complain")
        expect(page.locator("#message-field")).to_be_focused()
        self.stage("3-opening")
        page.get_by_role("button", name="Begin", exact=True).click()
        expect(page).to_have_url(re.compile("/chats/"), timeout=TIMEOUT_MS)
        saved = page.locator("[data-live]")
        expect(saved).to_have_text("Saved", timeout=TIMEOUT_MS)
        expect(page.locator("#message-field")).to_be_focused()
        before = page.locator(".turn").count()
        for number, text in enumerate(TURNS, start=1):
            page.locator("#message-field").fill(text)
            page.locator("#send").click()
            expect(page.locator(".turn")).to_have_count(before + 2 * number, timeout=TIMEOUT_MS)
            expect(page.locator(".turn[data-state=open]")).to_have_count(0, timeout=TIMEOUT_MS)
            assert shown(page.locator(".turn").last.locator(".turn-text")).strip(), f"reply {number} is empty"
            if number == 1:
                self.stage("4-first-reply")
        expect(saved).to_have_text("Saved")
        self.stage("5-tenth-turn")
        return before

    def close(self) -> None:
        self.watched.context.close()
        assert self.watched.errors == []


def test_s10_from_the_first_page_to_the_tenth_turn_with_a_provider_connected_by_the_page(
    browser: Browser, tmp_path: Path
) -> None:
    provider = ModelServer()
    assert provider.key is not None
    with serving(provider), closing(Server(tmp_path / "home")) as served:
        tour = Tour(browser, served, "provider")
        tour.enter_name()
        page = tour.page
        page.get_by_label("Provider", exact=True).select_option("openai-compatible")
        page.get_by_label("Address", exact=True).fill(provider.base_url)
        page.get_by_label("Key", exact=True).fill(provider.key)
        page.get_by_role("button", name="List models").click()
        page.get_by_label("Model", exact=True).fill("large-70b")
        page.get_by_role("button", name="Test and use", exact=True).click()
        expect(page.locator("[data-choose-status]")).to_contain_text("Saved and in use.")
        page.get_by_role("link", name="Continue", exact=True).click()
        tour.meet_and_talk()
        assert page.get_by_text(provider.reply).count() >= len(TURNS)
        expect(page.locator("#demo-model")).to_have_count(0)
        tour.close()


def test_s10_from_the_first_page_to_the_tenth_turn_without_a_key(browser: Browser, served: Server) -> None:
    tour = Tour(browser, served, "demo")
    tour.enter_name()
    page = tour.page
    page.get_by_role("link", name="Continue with the demo model").click()
    before = tour.meet_and_talk()
    expect(page.locator("#demo-model")).to_be_visible()
    assert serious(page) == []
    said = page.locator(".turn-you .turn-text").all_text_contents()
    assert len(said) == len(TURNS)
    page.reload()
    expect(page.locator(".turn")).to_have_count(before + 2 * len(TURNS))
    assert page.locator(".turn-you .turn-text").all_text_contents() == said, "a reload shows the same"
    page.get_by_role("button", name="Story details").click()
    expect(page.locator("#drawer-content")).to_contain_text("Scene")
    tour.stage("6-details")
    page.goto("/ops")
    expect(page.locator("main")).to_contain_text("embedded/smollm2")
    tour.stage("7-status")
    chats = served.client.get(page.url.replace("/ops", "/chats"), headers={"Accept": "application/json"}).json()
    assert len(chats) == 1
    tour.close()
