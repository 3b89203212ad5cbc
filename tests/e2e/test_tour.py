"""The whole way with the model that comes with Coterie: no key, from the first page to the tenth turn.

What it says is its own affair; that it is asked, heard, kept and shown is ours. `COTERIE_TOUR_PICTURES=FOLDER` keeps a
picture of each stage to look at.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.axe import serious
from tests.e2e.browser import shown
from tests.e2e.conftest import Watched
from tests.e2e.server_process import Server

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


def picture(page: Page, name: str) -> None:
    if folder := os.environ.get("COTERIE_TOUR_PICTURES"):
        page.screenshot(path=Path(folder) / f"tour-{name}.png")


def test_s10_from_the_first_page_to_the_tenth_turn_without_a_key(browser: Browser, served: Server) -> None:
    watched = Watched(browser.new_context(base_url=served.address, viewport={"width": 1280, "height": 800}))
    page = watched.context.new_page()
    page.set_default_timeout(TIMEOUT_MS)
    page.goto("/")
    expect(page.get_by_role("heading", name="Who are you?")).to_be_visible()
    picture(page, "1-welcome")
    page.keyboard.type("Ana")
    page.keyboard.press("Enter")
    picture(page, "2-meet")
    page.get_by_role("button", name="Meet Maren").click()
    expect(page).to_have_url(re.compile("/kickoff$"))
    page.get_by_role("button", name="Start chat").wait_for()
    picture(page, "3-kickoff")
    expect(page.get_by_label("Place", exact=True)).to_have_value("the lighthouse kitchen")
    page.get_by_role("button", name="Start chat").click()
    expect(page).to_have_url(re.compile("/chats/"), timeout=TIMEOUT_MS)
    saved = page.locator("[data-live]")
    expect(saved).to_have_text("Saved", timeout=TIMEOUT_MS)
    before = page.locator(".turn").count()
    for number, text in enumerate(TURNS, start=1):
        page.locator("#message-field").fill(text)
        page.locator("#send").click()
        expect(page.locator(".turn")).to_have_count(before + 2 * number, timeout=TIMEOUT_MS)
        expect(page.locator(".turn[data-state=open]")).to_have_count(0, timeout=TIMEOUT_MS)
        assert shown(page.locator(".turn").last.locator(".turn-text")).strip(), f"reply {number} is empty"
    expect(saved).to_have_text("Saved")
    picture(page, "4-tenth-turn")
    assert serious(page) == []
    said = page.locator(".turn-you .turn-text").all_text_contents()
    assert len(said) == len(TURNS)
    page.reload()
    expect(page.locator(".turn")).to_have_count(before + 2 * len(TURNS))
    assert page.locator(".turn-you .turn-text").all_text_contents() == said, "a reload shows the same"
    page.get_by_role("button", name="Story details").click()
    expect(page.locator("#drawer-content")).to_contain_text("Scene")
    picture(page, "5-behind")
    page.goto("/ops")
    expect(page.locator("main")).to_contain_text("embedded/smollm2")
    picture(page, "6-workshop")
    chats = served.client.get(page.url.replace("/ops", "/chats"), headers={"Accept": "application/json"}).json()
    assert len(chats) == 1
    watched.context.close()
    assert watched.errors == []
