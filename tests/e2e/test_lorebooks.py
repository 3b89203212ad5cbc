"""S9: lorebooks in the browser: write, try, assign, delete and undo."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.e2e import axe
from tests.e2e.conftest import Site


def test_a_lorebook_is_written_tried_and_used(site: Site, page: Page) -> None:
    chat = site.begin()
    page.goto("/lorebooks")
    page.get_by_role("button", name="New lorebook").click()
    page.get_by_label("Name").fill("Coast")
    page.get_by_role("button", name="Create lorebook").click()
    page.get_by_role("button", name="Add entry").click()
    entry = page.locator(".lore-entry")
    expect(entry.get_by_label("Keys", exact=True)).to_be_visible()
    entry.get_by_label("Name").fill("Lamp")
    entry.get_by_label("Keys", exact=True).fill("lamp\n/lantern(s)?/i")
    entry.get_by_label("Content").fill("It burns whale oil.")
    entry.get_by_role("button", name="Save entry").click()
    expect(page.get_by_text("Saved.")).to_be_visible()
    expect(entry.locator("summary strong")).to_have_text("Lamp")
    page.get_by_label("Text", exact=True).fill("Two lanterns.")
    page.get_by_role("button", name="Try", exact=True).click()
    expect(page.locator(".lore-fires")).to_have_text("Lamp used: “/lantern(s)?/i” said")
    axe.check(page)
    page.get_by_text("In every chat").click()
    expect(page.get_by_text("Saved.").last).to_be_visible()
    site.say(chat, "The lamp!")
    assert "It burns whale oil." in site.script.prompt()
    page.get_by_role("button", name="More for this lorebook").click()
    page.get_by_role("menuitem", name="Delete lorebook").click()
    expect(page.get_by_role("link", name="Coast")).to_have_count(0)
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("heading", name="Coast")).to_be_visible()


def test_an_entry_that_was_removed_comes_back(site: Site, page: Page) -> None:
    book = site.ask("POST", "/lorebooks", {"name": "Customs"})["id"]
    site.ask("POST", f"/lorebooks/{book}/entries", {"name": "Tea", "keys": ["tea"], "content": "At five."})
    page.goto(f"/lorebooks/{book}")
    page.locator(".lore-entry summary").first.click()
    page.get_by_role("button", name="Remove").click()
    expect(page.locator(".lore-entry")).to_be_hidden()
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".lore-entry")).to_be_visible()
    assert [one["content"] for one in site.ask("GET", f"/lorebooks/{book}")["fields"].values()] == ["At five."]
