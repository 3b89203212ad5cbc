"""Characters in a browser: first run, the opening scene, writing and editing, cards, reset and delete.

All tests share one server and one browser; later tests may see data of earlier ones.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from coterie.characters.cards import export_card
from coterie.characters.identity import Identity
from coterie.llm.recording import RecordedCall
from tests.e2e.axe import check
from tests.e2e.conftest import Site

OPENING = {
    "title": "The lamp room",
    "place": {"name": "the lamp room"},
    "time": "2024-10-03T18:40:00",
    "weather": "rain",
    "you": {"posture": "in the doorway", "holding": ["a wet coat"]},
    "character": {"posture": "at the bench", "action": {"verb": "soldering", "attention": "high"}},
    "facts": ["You wrote to her twice."],
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    running = Site(tmp_path_factory.mktemp("meeting") / "home")
    yield running
    running.close()


# --- first run, in order ------------------------------------------------------------------------------------


def test_s10_from_nothing_to_the_first_chat(page: Page, site: Site) -> None:
    page.goto("/")
    expect(page).to_have_url("/settings")
    expect(page.get_by_role("heading", name="Who are you?")).to_be_visible()
    expect(page.get_by_label("Name")).to_be_focused()
    check(page)
    page.keyboard.type("Ana")
    page.keyboard.press("Enter")
    expect(page).to_have_url("/characters/new")
    expect(page.get_by_role("button", name="Meet")).to_have_count(3)
    check(page)
    page.get_by_role("button", name="Meet Maren").click()
    expect(page).to_have_url(re.compile("/kickoff$"))
    expect(page.locator(".opening-prose")).to_contain_text("The kettle has just begun to complain")
    expect(page.get_by_label("Say something", exact=True)).to_be_focused()
    expect(page.get_by_label("Place", exact=True)).to_be_hidden()
    check(page)
    page.get_by_role("button", name="Edit scene").click()
    expect(page.get_by_label("Place", exact=True)).to_have_value("the lighthouse kitchen")
    expect(page.get_by_label("Story time")).to_have_value(re.compile("T17:40$"))
    expect(page.get_by_label("How Maren Oke sees you")).to_have_value(re.compile("about a radio"))
    check(page)
    page.get_by_role("button", name="Begin", exact=True).click()
    expect(page).to_have_url(re.compile("/chats/"))
    expect(page.get_by_label("Say something", exact=True)).to_be_focused()
    page.goto("/")
    expect(page.get_by_role("heading", name="Hello, Ana")).to_be_visible()
    check(page)


@pytest.fixture(scope="module")
def hale(site: Site) -> str:
    """A character whose opening scene is read by the classifier."""
    site.ask("PUT", "/you", {"name": "Ana"})
    return str(
        site.ask("POST", "/characters", {"name": "Hale", "kickoff": "Hale looks up from the bench: rain again."})["id"]
    )


def test_s8_the_proposed_scene_is_corrected_and_used(page: Page, site: Site, hale: str) -> None:
    site.script.shapes["Opening"] = OPENING
    page.goto(f"/characters/{hale}/kickoff")
    page.get_by_role("button", name="Edit scene").click()
    expect(page.get_by_label("Place", exact=True)).to_have_value("the lamp room")
    expect(page.get_by_label("Story time")).to_have_value("2024-10-03T18:40")
    page.get_by_label("Weather").fill("snow")
    page.get_by_label("What Hale knows about you").fill("You are late.\nYou brought bread.")
    page.get_by_role("button", name="Start chat").click()
    expect(page).to_have_url(re.compile("/chats/"))
    chat = "/chats/" + page.url.split("?")[0].split("#")[0].rsplit("/", 1)[1]
    drawer = site.ask("GET", f"{chat}/drawer")
    assert drawer["weather"] == "snow"
    assert drawer["clock"].startswith("2024-10-03T18:40")
    assert drawer["activities"]["you"]["holding"] == ["a wet coat"]
    assert drawer["activities"][hale]["action"]["attention"] == "high"
    (edge,) = [edge for edge in drawer["edges"] if edge["toward"] == "you"]
    assert edge["knowledge"] == ["You are late.", "You brought bread."]


def test_s8_a_classifier_that_fails_leaves_a_form_and_a_notice(page: Page, site: Site, hale: str) -> None:
    site.script.shapes["Opening"] = RecordedCall(say="I would rather not.")
    page.goto(f"/characters/{hale}/kickoff")
    page.get_by_role("button", name="Edit scene").click()
    expect(page.get_by_text("Fill it in by hand")).to_be_visible()
    page.get_by_label("Place", exact=True).fill("the jetty")
    page.get_by_role("button", name="Start chat").click()
    expect(page).to_have_url(re.compile("/chats/"))


def test_s8_the_form_can_be_filled_in_without_the_classifier(page: Page, hale: str) -> None:
    page.route("**/kickoff/form", lambda route: None)  # it never answers
    page.goto(f"/characters/{hale}/kickoff")
    page.get_by_role("button", name="Edit scene").click()
    expect(page.get_by_text("Reading Hale’s opening prose")).to_be_visible()
    expect(page.locator(".skeleton").first).to_be_visible()
    page.get_by_role("button", name="Fill it in yourself").click()
    expect(page.get_by_label("Place", exact=True)).to_have_value("")


def test_s8_a_first_message_begins_the_chat_before_the_scene_is_read(page: Page, site: Site, hale: str) -> None:
    page.route("**/kickoff/form", lambda route: None)  # it never answers
    site.script.replies.append("Rain it is.")
    page.goto(f"/characters/{hale}/kickoff")
    page.get_by_label("Say something", exact=True).fill("Is it raining?")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/chats/"))
    log = page.locator("#timeline")
    expect(log).to_contain_text("Hale looks up from the bench")
    expect(log).to_contain_text("Is it raining?")
    expect(log).to_contain_text("Rain it is.")


# --- characters --------------------------------------------------------------------------------------------


def test_s1_s7_a_character_is_created_and_edited(page: Page, site: Site) -> None:
    page.goto("/characters/new")
    page.get_by_label("Name").fill("   ")
    page.get_by_label("Persona").fill("Keeps bees.")
    page.get_by_label("Traits").fill("brisk, fair ,, tired")
    page.get_by_label("Voice samples").fill("Mind the smoke.\n---\nThey know.")
    page.get_by_role("button", name="Save and continue").click()
    expect(page.locator(".field-error")).to_be_visible()
    expect(page.get_by_label("Name")).to_be_focused()
    expect(page.get_by_label("Persona")).to_have_value("Keeps bees.")
    page.reload()
    expect(page.get_by_label("Traits")).to_have_value("brisk, fair ,, tired")
    page.get_by_label("Name").fill("Hale")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/kickoff$"))
    character = page.url.split("/")[-2]
    made = site.ask("GET", f"/characters/{character}")
    assert (made["traits"], made["voice_samples"]) == (["brisk", "fair", "tired"], ["Mind the smoke.", "They know."])
    page.goto("/characters/new")
    expect(page.get_by_label("Persona")).to_have_value("")
    page.goto(f"/characters/{character}/edit")
    page.get_by_label("Persona").fill("Keeps bees, and keeps to herself.")
    page.get_by_role("button", name="Save").click()
    expect(page).to_have_url(f"/characters/{character}")
    page.get_by_role("tab", name="Versions").click()
    expect(page.locator(".diff-added")).to_contain_text("keeps to herself")
    page.get_by_text("Version 1").click()
    page.get_by_text("Show full text").last.click()
    expect(page.get_by_text("Keeps bees.", exact=True).last).to_be_visible()
    check(page)


def test_s9_a_card_is_dropped_on_the_page_and_exported(page: Page, site: Site, tmp_path: Path) -> None:
    card = export_card(Identity(name="Corvin", persona="Counts crows.").to_card(), "json").data
    page.goto("/characters")
    encoded = base64.b64encode(card).decode()
    page.evaluate(
        """(encoded) => {
          const data = new DataTransfer();
          data.items.add(new File([Uint8Array.from(atob(encoded), (c) => c.charCodeAt(0))], "corvin.json"));
          for (const kind of ["dragenter", "dragover", "drop"])
            document.querySelector("h1").dispatchEvent(
              new DragEvent(kind, { dataTransfer: data, bubbles: true, cancelable: true }));
        }""",
        encoded,
    )
    expect(page.get_by_role("heading", name="Corvin")).to_be_visible()
    page.get_by_role("button", name="More for Corvin").click()
    with page.expect_download() as got:
        page.get_by_role("menuitem", name="Export as a card (JSON)").click()
    assert json.loads(Path(got.value.path()).read_text())["data"]["name"] == "Corvin"


def test_s9_an_invalid_card_shows_an_error_beside_the_file(page: Page, tmp_path: Path) -> None:
    bad = tmp_path / "<img src=x onerror=alert(1)>.json"
    bad.write_text('{"hello": "<script>alert(1)</script>"}')
    page.goto("/characters")
    page.locator("#import input").set_input_files(bad)
    expect(page.locator(".drop-bad")).to_contain_text("<img src=x")
    expect(page).to_have_url("/characters")


def test_s25_reset_and_delete_require_the_name(page: Page, site: Site) -> None:
    character = site.ask("POST", "/characters", {"name": "Brief"})["id"]
    page.goto(f"/characters/{character}")
    page.get_by_role("button", name="More for Brief").click()
    page.get_by_role("menuitem", name="Reset").click()
    field = page.get_by_label("Type Brief to confirm").first
    field.fill("brief?")
    page.locator("#reset").get_by_role("button", name="Reset").click()
    expect(page.locator("#toasts")).to_contain_text("Brief")
    field.fill("Brief")
    page.locator("#reset").get_by_role("button", name="Reset").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.get_by_role("button", name="More for Brief").click()
    page.get_by_role("menuitem", name="Delete").click()
    page.locator("#delete-name").fill("Brief")
    page.locator("#delete").get_by_role("button", name="Delete").click()
    expect(page).to_have_url("/characters")
    expect(page.get_by_role("link", name="Brief")).to_have_count(0)
