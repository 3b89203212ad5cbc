"""The style guide: every component, in both themes, by keyboard, and to axe."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.axe import serious


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_component_keeps_anybody_out(page: Page, theme: str) -> None:
    page.emulate_media(color_scheme=theme, reduced_motion="reduce")  # type: ignore[arg-type]
    page.goto("/styleguide")
    page.wait_for_timeout(400)  # the skeleton shows itself late
    assert serious(page) == []


def test_a_menu_by_keyboard(page: Page) -> None:
    page.goto("/styleguide")
    opener = page.get_by_role("button", name="What else")
    opener.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("menuitem", name="Rewind to here")).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("menuitem", name="Fork here")).to_be_focused()
    page.keyboard.press("Escape")
    expect(opener).to_be_focused()


def test_a_dialog_holds_the_focus_and_gives_it_back(page: Page) -> None:
    page.goto("/styleguide")
    opener = page.get_by_role("button", name="Open a dialog")
    opener.press("Enter")
    expect(page.get_by_role("dialog", name="Rewind to here?")).to_be_visible()
    expect(page.get_by_label("A note")).to_be_focused()
    page.keyboard.press("Escape")
    expect(opener).to_be_focused()


def test_tabs_follow_the_arrows(page: Page) -> None:
    page.goto("/styleguide")
    page.get_by_role("tab", name="Who").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="Voice")).to_have_attribute("aria-selected", "true")
    expect(page.get_by_role("tabpanel", name="Voice")).to_be_visible()


def test_a_toast_offers_the_way_back(page: Page) -> None:
    page.goto("/styleguide")
    page.get_by_role("button", name="Say something", exact=True).click()
    page.locator("#toasts").get_by_role("button", name="Undo").click()
    expect(page.locator("#toasts")).to_contain_text("They are back.")


def test_question_mark_lists_the_shortcuts_and_the_palette_goes_places(page: Page) -> None:
    page.goto("/styleguide")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("ControlOrMeta+k")
    page.keyboard.type("about")
    page.keyboard.press("Enter")
    expect(page).to_have_url("/about")


def test_the_theme_can_be_switched_and_stays(page: Page) -> None:
    page.emulate_media(color_scheme="light")
    page.goto("/styleguide")
    page.get_by_role("button", name="Light or dark").click()
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
