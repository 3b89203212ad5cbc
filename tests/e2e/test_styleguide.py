"""The style guide: every component with axe in both themes, and by keyboard."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.axe import serious


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_components_have_no_serious_accessibility_issue(page: Page, theme: str) -> None:
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


def test_a_dialog_traps_and_restores_the_focus(page: Page) -> None:
    page.goto("/styleguide")
    opener = page.get_by_role("button", name="Open a dialog")
    opener.press("Enter")
    expect(page.get_by_role("dialog", name="Rewind to here?")).to_be_visible()
    expect(page.get_by_label("A note")).to_be_focused()
    page.keyboard.press("Escape")
    expect(opener).to_be_focused()


def test_tabs_are_switched_with_arrow_keys(page: Page) -> None:
    page.goto("/styleguide")
    page.get_by_role("tab", name="Who").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="Voice")).to_have_attribute("aria-selected", "true")
    expect(page.get_by_role("tabpanel", name="Voice")).to_be_visible()


def test_a_toast_offers_undo(page: Page) -> None:
    page.goto("/styleguide")
    page.get_by_role("button", name="Say something", exact=True).click()
    page.locator("#toasts").get_by_role("button", name="Undo").click()
    expect(page.locator("#toasts")).to_contain_text("They are back.")


def test_question_mark_lists_shortcuts_and_the_palette_navigates(page: Page) -> None:
    page.goto("/styleguide")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("ControlOrMeta+k")
    page.keyboard.type("about")
    page.keyboard.press("Enter")
    expect(page).to_have_url("/about")


def test_the_theme_is_switched_and_saved(page: Page) -> None:
    page.emulate_media(color_scheme="light")
    page.goto("/styleguide")
    page.get_by_role("button", name="Theme").click()
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
