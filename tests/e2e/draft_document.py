"""A document for browser tests, and a second person with a browser of their own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote

from playwright.sync_api import Browser, Page, expect

from tests.e2e.conftest import TIMEOUT_MS, Site, Watched

LAMP = """# The lamp

The lamp burns every night, and every night it burns.

Nobody knows who lights it. Nobody asks.

The boats come late in winter.
"""


def change(original: str, proposed: str, reason: str = "Shorter.") -> str:
    return f"<change><original>{original}</original><proposed>{proposed}</proposed><reason>{reason}</reason></change>"


class Paper:
    """One document of a site, over HTTP as its owner."""

    def __init__(
        self, site: Site, text: str = LAMP, name: str = "lamp.md", character: str = "maren", bot: str | None = None
    ) -> None:
        """With a new character from a template, or with an existing one."""
        self.site = site
        site.ask("PUT", "/you", {"name": "Ana"})
        self.bot = (
            site.ask("POST", f"/characters/ready/{character}") if bot is None else site.ask("GET", f"/characters/{bot}")
        )
        self.workspace = site.ask("POST", "/draft/workspaces", {"name": "The coast"})["id"]
        self.base = f"/draft/workspaces/{self.workspace}"
        self.name = name
        site.ask("PUT", f"{self.base}/documents/{quote(name)}", {"text": text})
        self.address = f"{self.base}/documents/{quote(name)}"

    def thread(self) -> str:
        request = {"document": self.name, "members": [{"bot": self.bot["id"]}], "title": "About it"}
        return str(self.site.ask("POST", f"{self.base}/threads", request)["id"])

    def propose(self, thread: str, *blocks: str, say: str = "What would you change?") -> None:
        self.site.script.replies.append("I would: " + " And ".join(blocks))
        answer = self.site.client.post(f"/draft/threads/{thread}/turns", json={"text": say})
        assert answer.is_success, answer.text

    def will_contain(self, words: str) -> bool:
        """Whether the text contains these words within ten seconds: typed text is sent after a moment."""
        for _ in range(100):
            if words in self.text():
                return True
            time.sleep(0.1)
        return False

    def text(self) -> str:
        self.site.ask("POST", f"{self.base}/flush/{quote(self.name)}")
        return str(self.site.ask("GET", self.address)["text"])

    def history(self) -> list[dict[str, object]]:
        commits: list[dict[str, object]] = self.site.ask("GET", f"{self.base}/history?document={quote(self.name)}")
        return commits

    def changes(self) -> list[dict[str, object]]:
        proposals: list[dict[str, object]] = self.site.ask("GET", f"{self.base}/changes/{quote(self.name)}")
        return proposals


def open_document(page: Page, paper: Paper, more: str = "") -> Page:
    page.goto(paper.address + more)
    expect(page.locator(".cm-content")).to_be_visible()
    expect(page.locator("[data-live]")).to_have_text("Saved")
    return page


def lines(page: Page) -> str:
    """The text in the editor, without proposed insertions."""
    return str(
        page.evaluate(
            """() => [...document.querySelectorAll(".cm-line")].map((line) => {
                const copy = line.cloneNode(true);
                for (const one of copy.querySelectorAll("ins.mark-inserted")) one.remove();
                return copy.textContent;
            }).join("\\n")"""
        )
    )


def type_at_end_of(page: Page, line: str, text: str) -> None:
    """Type at the end of the line that contains these words."""
    page.locator(".cm-line", has_text=line).click()
    page.keyboard.press("End")
    page.keyboard.type(text)


@contextmanager
def another(browser: Browser, paper: Paper, name: str = "Bo", role: str = "writer") -> Iterator[Watched]:
    """A guest in a browser of their own, invited to the document by a link."""
    site = paper.site
    context = browser.new_context(base_url=site.address, viewport={"width": 1280, "height": 800})
    context.set_default_timeout(TIMEOUT_MS)
    recorder = Watched(context)
    link = site.ask("POST", f"{paper.base}/guests/{quote(paper.name)}", {"name": name, "role": role})["link"]
    page = context.new_page()
    page.goto(link)
    page.wait_for_url("**/documents/**")
    expect(page.locator(".status-end")).to_have_text(f"You are {name}")
    page.close()
    yield recorder
    context.close()
    assert recorder.errors == []
