"""S21: the story details drawer shows the state, can be edited in place, and updates live."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.e2e.conftest import Site


@pytest.fixture
def chat(site: Site, page: Page) -> str:
    path = site.begin(weather="rain")
    page.goto(path)
    site.say(path, '"I lost the red key at the harbour."', "She nods slowly, and writes it down.")
    page.get_by_role("button", name="Story details").click()
    expect(page.locator("#drawer .memory").first).to_be_visible()
    return path


def line(page: Page, field: str) -> Locator:
    return page.locator(f'#drawer .edit[data-field="{field}"]')


def edits(site: Site, chat: str) -> list[dict[str, Any]]:
    room = f"room:{chat.removeprefix('/chats/')}"
    events = site.do(site.app.store.read(room, kinds=["manual_edit"], limit=50))
    return [event.payload.model_dump() for event in events]


def test_a_value_is_edited_in_place(site: Site, page: Page, chat: str) -> None:
    weather = line(page, "weather")
    weather.get_by_role("button").click()
    field = weather.get_by_role("textbox")
    expect(field).to_be_focused()
    expect(field).to_have_value("rain")
    field.fill("fog")
    page.keyboard.press("Enter")
    expect(weather).to_contain_text("fog")
    expect(page.locator(".toolbar-title")).to_contain_text("fog")
    assert site.ask("GET", f"{chat}/drawer")["weather"] == "fog"
    assert [(one["what"], one["prior"]) for one in edits(site, chat)] == [("weather", "rain")]


def test_escape_cancels_an_edit(site: Site, page: Page, chat: str) -> None:
    weather = line(page, "weather")
    weather.get_by_role("button").press("Enter")
    page.keyboard.type("hail")
    page.keyboard.press("Escape")
    expect(weather.get_by_role("button")).to_be_focused()
    expect(weather).to_contain_text("rain")
    assert edits(site, chat) == []


def test_relationship_clock_activity_and_knowledge_are_edited(site: Site, page: Page, chat: str) -> None:
    character = site.ask("GET", chat)["host"]["id"]
    page.evaluate("() => document.querySelectorAll('#drawer details').forEach(part => { part.open = true; })")
    for field, typed in [
        (f"edge.{character}.you.affinity", "72"),
        (f"edge.{character}.you.summary", "Warmer than she shows."),
        (f"edge.{character}.you.knowledge", "Lost the red key"),
        (f"activity.{character}.posture", "leaning"),
        (f"activity.{character}.holding", "a pencil, a ledger"),
        ("clock", "2031-05-06T07:08"),
    ]:
        line(page, field).get_by_role("button").click()
        page.locator("#drawer form :is(input, textarea)").fill(typed)
        page.keyboard.press("Enter")
        expect(page.locator("#drawer form")).to_have_count(0)
    drawer = site.ask("GET", f"{chat}/drawer")
    edge = next(edge for edge in drawer["edges"] if edge["of"] == character)
    assert (edge["affinity"], edge["summary"]) == (72, "Warmer than she shows.")
    assert edge["knowledge"] == ["Lost the red key"]
    assert drawer["activities"][character]["posture"] == "leaning"
    assert drawer["activities"][character]["holding"] == ["a pencil", "a ledger"]
    assert drawer["clock"].startswith("2031-05-06T07:08")


def test_an_invalid_value_shows_an_error(site: Site, page: Page, chat: str) -> None:
    character = site.ask("GET", chat)["host"]["id"]
    line(page, f"edge.{character}.you.trust").get_by_role("button").click()
    page.locator("#drawer form input").fill("400")
    page.keyboard.press("Enter")
    expect(page.locator("#toasts")).not_to_be_empty()
    assert edits(site, chat) == []


def test_memories_are_pinned_rated_and_deleted(site: Site, page: Page, chat: str) -> None:
    memory = page.locator("#drawer .memory").first
    memory.get_by_role("button", name="Pin").click()
    expect(page.locator("#drawer")).to_contain_text("1 of 8 pinned")
    expect(page.locator("#drawer .memory").first.get_by_role("button", name="Unpin")).to_be_visible()
    page.locator("#drawer .memory").first.get_by_role("button", name="Unpin").click()
    expect(page.locator("#drawer")).to_contain_text("0 of 8 pinned")
    count = page.locator("#drawer .memory").count()
    page.locator("#drawer .memory").first.get_by_role("button", name="Forget").click()
    expect(page.locator("#toasts")).to_contain_text("Forget this memory? It cannot be restored.")
    expect(page.locator("#drawer .memory")).to_have_count(count)
    page.locator("#toasts").get_by_role("button", name="Forget it").click()
    expect(page.locator("#drawer .memory")).to_have_count(count - 1)


def test_another_tab_shows_an_edit(site: Site, page: Page, chat: str) -> None:
    other = page.context.new_page()
    other.goto(chat)
    other.keyboard.press("d")
    expect(line(other, "weather")).to_contain_text("rain")
    line(page, "weather").get_by_role("button").click()
    page.keyboard.type("snow")
    page.keyboard.press("Enter")
    expect(line(other, "weather")).to_contain_text("snow")


def test_the_scene_is_closed_from_the_drawer(site: Site, page: Page, chat: str) -> None:
    scene = site.ask("GET", chat)["scene"]
    page.locator("#drawer").get_by_role("button", name="End scene").click()
    expect(page.locator("#toasts")).to_contain_text("The scene is closed")
    assert site.ask("GET", chat)["scene"] != scene
