"""Accessibility of document pages (axe), and hostile text in every field."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.axe import serious
from tests.e2e.conftest import Site
from tests.e2e.draft_document import LAMP, Paper, change, open_document

HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>"
BIDI = "safe\u202etxt.exe\u2066\u200b"


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (390, "dark")])
def test_document_pages_have_no_serious_accessibility_issue(page: Page, site: Site, width: int, theme: str) -> None:
    paper = Paper(site)
    thread = paper.thread()
    paper.propose(thread, change("Nobody asks.", "Nobody dares."), change("not in it at all, these words", "x"))
    page.set_viewport_size({"width": width, "height": 844})
    page.emulate_media(color_scheme=theme, reduced_motion="reduce")  # type: ignore[arg-type]
    page.goto("/draft")
    assert serious(page) == []
    open_document(page, paper, f"?thread={thread}")
    expect(page.locator(".message").last).to_be_visible()
    assert serious(page) == []
    page.locator("#cards-tab").click()
    expect(page.locator(".proposal").first).to_be_visible()
    assert serious(page) == []
    page.locator("#history-tab").click()
    expect(page.locator(".history-row").first).to_be_visible()
    assert serious(page) == []
    for address in ("/draft/inbox", f"{paper.base}/compare", "/join"):
        page.goto(address)
        assert serious(page) == []


def test_hostile_text_is_never_markup(page: Page, site: Site) -> None:
    paper = Paper(site, f"# {HOSTILE}\n\n{BIDI} [a](javascript:alert(3))\n\n{LAMP}", name="harm.md")
    thread = paper.thread()
    paper.propose(
        thread, change("Nobody asks.", f"{HOSTILE} {BIDI}", f"Because {HOSTILE} {BIDI}"), say=f"{HOSTILE} {BIDI}"
    )
    open_document(page, paper, f"?thread={thread}")
    expect(page.locator("#messages")).to_contain_text("onerror=alert(1)")
    expect(page.locator(".cm-specialChar").first).to_have_text("⟨U+202E⟩")
    expect(page.locator(".cm-content")).to_contain_text(HOSTILE)
    page.locator("#cards-tab").click()
    expect(page.locator(".wording ins")).to_contain_text(HOSTILE)
    expect(page.locator("ins.mark-inserted")).to_contain_text(HOSTILE)
    assert "\u202e" not in page.locator("#sidebar").inner_text()
    assert (
        page.locator("#draft img:not(.cm-widgetBuffer, .avatar img), #draft script, #draft a[href^=javascript]").count()
        == 0
    )
    page.keyboard.press("j")
    page.keyboard.press("a")
    expect(page.locator("#no-cards")).to_be_visible()
    page.locator("#history-tab").click()
    expect(page.locator(".history-row").first).to_contain_text("Because")
    for address in ("/draft", "/draft/inbox"):
        page.goto(address)
        expect(page.locator("h1")).to_be_visible()
        assert page.locator("main img, main script").count() == 0
