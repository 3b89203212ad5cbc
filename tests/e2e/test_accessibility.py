"""Accessibility: axe, keyboard only, small screens, and reduced motion."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Page, expect

from coterie.llm.recording import RecordedCall, RecordedError
from tests.e2e.axe import serious
from tests.e2e.conftest import Site


@pytest.fixture
def chat(site: Site) -> str:
    path = site.begin()
    site.ask("POST", "/characters/ready/teodor")
    site.say(path, '*waves* "Hello." ((a note))', "She nods.\n\n> *A line.*")
    fault = RecordedError(kind="KeyRejected", what="It refused.", fix="Check it.", status=401)
    site.script.faults.append(RecordedCall(say="Half", error=fault))
    site.say(path, "And?")
    return path


@pytest.mark.parametrize(("theme", "width"), [("light", 390), ("dark", 1280)])
def test_chat_pages_have_no_serious_issue(page: Page, chat: str, theme: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 844})
    page.emulate_media(color_scheme=theme, reduced_motion="reduce")  # type: ignore[arg-type]
    page.goto("/chats")
    assert serious(page) == []
    page.goto(chat)
    expect(page.locator("[data-live]")).to_have_text("Saved")
    assert serious(page) == []
    page.get_by_role("button", name="Story details").click()
    expect(page.locator("#drawer-content")).to_contain_text("Scene")
    assert serious(page) == []
    page.locator("#drawer").get_by_role("button", name="Close", exact=True).click()
    page.get_by_role("button", name="More for this chat").click()
    assert serious(page) == []
    page.keyboard.press("Escape")
    page.locator(".turn").first.get_by_role("button", name="More for this turn").click()
    page.get_by_role("menuitem", name="Rewind to here").click()
    expect(page.get_by_role("dialog", name="Rewind to here?")).to_contain_text("turns")
    assert serious(page) == []


@pytest.mark.parametrize("path", ["/about", "/nothing-here"])
def test_other_pages_have_no_serious_issue(page: Page, path: str) -> None:
    page.goto(path)
    assert serious(page) == []


def test_a_chat_works_with_the_keyboard_alone(site: Site, page: Page, chat: str) -> None:
    site.script.replies += ["First answer.", "Second answer."]
    page.goto("/chats")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    for _ in range(25):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.closest('.row-link') !== null"):
            break
    page.keyboard.press("Enter")
    page.wait_for_url("**/chats/*")
    expect(page.locator("[data-live]")).to_have_text("Saved")
    page.keyboard.press("/")
    page.keyboard.type("By keyboard.")
    page.keyboard.press("Enter")
    expect(page.locator(".turn").last).to_contain_text("First answer.")
    expect(page.locator("[data-live]")).to_have_text("Saved")
    page.locator("#scroll").focus()
    page.keyboard.press("r")
    expect(page.locator(".turn").last).to_contain_text("Second answer.")
    expect(page.locator("[data-live]")).to_have_text("Saved")
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".turn").last).to_contain_text("First answer.")
    page.keyboard.press("d")
    expect(page.locator("#drawer")).to_be_visible()
    page.keyboard.press("d")
    expect(page.locator("#drawer")).to_be_hidden()


def test_a_reply_is_announced_to_screen_readers_once(site: Site, page: Page, chat: str) -> None:
    page.goto(chat)
    expect(page.get_by_role("log", name="Timeline")).to_be_visible()
    expect(page.locator("[data-live]")).to_have_text("Saved")
    site.script.paused = True
    site.script.replies.append("All of it at once.")
    site.ask("POST", f"{chat}/turns", {"text": "Say it."})
    expect(page.locator(".turn[data-state=open]")).to_have_count(1)
    site.step(20)
    expect(page.locator("#announcer")).to_have_text("Maren Oke: All of it at once.")


def test_reduced_motion_disables_animations(page: Page, chat: str) -> None:
    page.emulate_media(reduced_motion="reduce")
    page.goto(chat)
    moving = page.evaluate(
        """() => [...document.querySelectorAll("*")].map(e => getComputedStyle(e)).filter(s =>
            parseFloat(s.transitionDuration) > 0.001 ||
            (s.animationName !== "none" && parseFloat(s.animationDuration) > 0.001)).length"""
    )
    assert moving == 0


SMALL = """() => [...document.querySelectorAll("a.button, button, select, summary, .rail-link, [role=tab]")]
    .filter(e => e.checkVisibility({ visibilityProperty: true })).map(e => [e, e.getBoundingClientRect()])
    .filter(([, r]) => r.height && (r.width < 43.5 || r.height < 43.5))
    .map(([e, r]) => `${e.tagName} ${e.className} ${e.textContent.trim().slice(0, 20)} ${r.width}x${r.height}`)"""


def test_touch_targets_are_large_enough_on_every_page(browser: object, site: Site, chat: str) -> None:
    assert isinstance(browser, Browser)
    context = browser.new_context(
        base_url=site.address, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True
    )
    page = context.new_page()
    character = site.ask("GET", chat)["host"]["id"]
    for path in (
        chat,
        "/",
        "/chats",
        "/characters",
        "/characters/new",
        f"/characters/{character}",
        "/settings",
        "/memory",
        "/ops",
        "/search",
        "/about",
    ):
        page.goto(path)
        assert page.evaluate(SMALL) == [], path
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
    context.close()
