"""S19: all tabs show the same chat, after any actions and connection losses."""

from __future__ import annotations

import os
import random
import time
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.browser import shown
from tests.e2e.conftest import TIMEOUT_MS, Site, Watched

OPERATIONS = int(os.environ.get("COTERIE_TAB_OPERATIONS", "60"))
"""Set to 1000 before a release."""

VIEW = """() => {
    const words = turn => turn.querySelector(".turn-text").textContent.trim().split(/\\s+/).join(" ");
    return [...document.querySelectorAll("#timeline .turn")].slice(-50)
        .map(turn => [turn.dataset.turn, turn.dataset.state, words(turn)]);
}"""
HIDE = """hidden => { Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
    document.dispatchEvent(new Event("visibilitychange")); }"""


WATCH = """() => { window.changed_at = Date.now();
    new MutationObserver(() => { window.changed_at = Date.now(); }).observe(document.querySelector("#timeline"),
        { childList: true, subtree: true, characterData: true }); }"""


def view(page: Page) -> list[list[str]]:
    return page.evaluate(VIEW)  # type: ignore[no-any-return]


def server_view(site: Site, chat: str) -> list[list[str]]:
    """The turns that every tab should show."""
    turns = site.ask("GET", f"{chat}/turns?limit=50")["turns"]
    return [[turn["id"], turn["state"], " ".join(turn["text"].split())] for turn in turns]


def converge(site: Site, chat: str, tabs: list[Page], within_s: float = 30) -> float:
    """Seconds until all tabs show the turns of the server."""
    began, now = time.monotonic(), time.time()
    expected = server_view(site, chat)
    while True:
        seen = [view(tab) for tab in tabs]
        if all(one == expected for one in seen):
            changed = [float(tab.evaluate("window.changed_at ?? 0")) / 1_000 for tab in tabs]
            return max(0.0, max(changed) - now)
        assert time.monotonic() - began < within_s, f"{expected[-4:]}\n" + "\n".join(str(one[-4:]) for one in seen)
        time.sleep(0.02)
        expected = server_view(site, chat)


class TabActions:
    """Random actions in random tabs."""

    def __init__(self, site: Site, chat: str, tabs: list[Page], chance: random.Random) -> None:
        self.site, self.chat, self.tabs, self.chance = site, chat, tabs, chance
        self.said = 0
        self.hidden: set[int] = set()

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """A request from a random tab; a refusal (a reply is running, nothing to undo) is a valid answer."""
        tab = self.chance.choice(self.tabs)
        return tab.evaluate(
            """([method, path, body]) => fetch(path, {method, body: body === null ? undefined : JSON.stringify(body),
                headers: {"Content-Type": "application/json", Accept: "application/json"}}).then(a => a.json())""",
            [method, f"{self.chat}{path}", body],
        )

    def say(self) -> None:
        self.said += 1
        self.ask("POST", f"/turns{self.chance.choice(['', '?wait=true'])}", {"text": f"Message {self.said}."})

    def stop_a_reply(self) -> None:
        self.site.script.paused = True
        self.ask("POST", "/turns", {"text": "Speak slowly."})
        self.site.step(self.chance.randrange(4))
        self.ask("POST", "/stop")
        self.site.script.paused = False

    def regenerate(self) -> None:
        self.ask("POST", "/regenerate", self.chance.choice([{}, {"text": f"Changed {self.chance.random()}."}]))

    def choose(self) -> None:
        replies = self.ask("GET", "/alternatives")
        if isinstance(replies, list) and replies:
            self.ask("POST", "/choose", {"reply": self.chance.choice(replies)["reply"]})

    def rewind(self) -> None:
        turns = self.site.ask("GET", f"{self.chat}/turns?limit=12")["turns"]
        if turns:
            self.ask("POST", "/rewind", {"turn": self.chance.choice(turns)["id"]})

    def undo(self) -> None:
        self.ask("POST", "/undo")

    def hide_or_show(self) -> None:
        number = self.chance.randrange(len(self.tabs))
        self.hidden ^= {number}
        self.tabs[number].evaluate(HIDE, number in self.hidden)

    def reload(self) -> None:
        number = self.chance.randrange(len(self.tabs))
        self.hidden.discard(number)
        self.tabs[number].reload()

    def show_all(self) -> None:
        for number in sorted(self.hidden):
            self.tabs[number].evaluate(HIDE, False)
        self.hidden.clear()


@pytest.mark.timeout(3600)
def test_s19_three_tabs_show_the_same_after_random_actions(browser: Browser, site: Site, watched: Watched) -> None:
    chat = site.begin()
    other = Watched(browser.new_context(base_url=site.address))
    other.context.set_default_timeout(TIMEOUT_MS)
    tabs = [watched.context.new_page(), watched.context.new_page(), other.context.new_page()]
    for tab in tabs:
        tab.add_init_script(f"addEventListener('DOMContentLoaded', {WATCH})")
        tab.goto(chat)
    chance = random.Random(19)
    crowd = TabActions(site, chat, tabs, chance)
    weights = {crowd.say: 8, crowd.stop_a_reply: 2, crowd.regenerate: 3, crowd.choose: 3, crowd.rewind: 1,
               crowd.undo: 2, crowd.hide_or_show: 3, crowd.reload: 1}  # fmt: skip
    slowest = 0.0
    for number in range(OPERATIONS):
        chance.choices(list(weights), list(weights.values()))[0]()
        if number % 20 == 19 or number == OPERATIONS - 1:
            crowd.show_all()
            site.step(1000)
            site.do(site.app.story.replies.wait(f"room:{chat.removeprefix('/chats/')}"))
            slowest = max(slowest, converge(site, chat, tabs))
            print(f"{number + 1} operations, slowest convergence {slowest:.2f} s", flush=True)
    ids = [turn for turn, _, _ in view(tabs[0])]
    assert len(ids) == len(set(ids)), "a turn is shown twice"
    other.context.close()
    assert other.errors == []


def test_s19_twenty_tabs_of_one_browser_all_work(site: Site, watched: Watched) -> None:
    chats = [site.begin(), site.begin("teodor")]
    tabs = [watched.context.new_page() for _ in range(20)]
    for number, tab in enumerate(tabs):
        tab.goto(chats[number % 2])
        expect(tab.locator("[data-live]")).to_have_text("Saved")
    for chat in chats:
        site.say(chat, "Does everybody hear this?", "Everybody does.")
    for number, tab in enumerate(tabs):
        expect(tab.locator(".turn").last).to_contain_text("Everybody does.")
        assert view(tab) == server_view(site, chats[number % 2])


def test_s19_a_tab_opened_during_a_reply_shows_every_word_once(site: Site, watched: Watched) -> None:
    chat = site.begin()
    first = watched.context.new_page()
    first.goto(chat)
    words = " ".join(f"word{number}" for number in range(40)) + "\n\n" + " ".join(f"late{n}" for n in range(40))
    site.script.paused = True
    site.script.replies.append(words)
    site.ask("POST", f"{chat}/turns", {"text": "Speak."})
    tabs = [first]
    for _ in range(4):
        site.step(13)
        tabs.append(watched.context.new_page())
        tabs[-1].goto(chat)
        tabs[0].evaluate(HIDE, len(tabs) % 2 == 0)
    tabs[0].evaluate(HIDE, False)
    site.step(200)
    expect(first.locator(".turn[data-state=open]")).to_have_count(0)
    converge(site, chat, tabs)
    for tab in tabs:
        assert " ".join(shown(tab.locator(".turn-text .block").last).split()) == words.split("\n\n")[1]


def test_s19_a_lost_connection_catches_up_without_a_reload(site: Site, watched: Watched) -> None:
    chat = site.begin()
    page = watched.context.new_page()
    page.goto(chat)
    expect(page.locator("[data-live]")).to_have_text("Saved")
    page.evaluate("() => { window.sameDocument = true; }")
    page.evaluate(HIDE, True)
    for number in range(3):
        site.say(chat, f"Unheard {number}.", f"Unheard reply {number}.")
    turn = site.ask("GET", f"{chat}/turns")["turns"][3]["id"]
    site.ask("POST", f"{chat}/rewind", {"turn": turn})
    site.say(chat, "After.", "After that.")
    page.evaluate(HIDE, False)
    converge(site, chat, [page])
    assert page.evaluate("window.sameDocument")


def test_without_shared_workers_a_tab_has_its_own_connection(site: Site, watched: Watched) -> None:
    chat = site.begin()
    page = watched.context.new_page()
    page.add_init_script("delete window.SharedWorker")
    page.goto(chat)
    site.say(chat, "Hello?", "I hear you.")
    expect(page.locator(".turn").last).to_contain_text("I hear you.")
