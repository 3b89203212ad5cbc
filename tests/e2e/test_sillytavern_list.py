"""What a player of SillyTavern does in the first minutes, as docs/how-to/sillytavern.md lists it, each tried."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.e2e import axe
from tests.e2e.conftest import Site
from tests.e2e.test_chat import quiet, say, turns
from tests.modes.story.sillytavern.tavern_folder import BOOK, CHAT, HEADER, make_folder

ROOT = Path(__file__).parents[2]
TRIED = {
    "test_meeting.test_s9_a_card_is_dropped_on_the_page_and_exported": (1, 4),
    "test_meeting.test_s1_s7_a_character_is_created_and_edited": (2,),
    "test_chat_list.test_a_portrait_is_chosen_and_cropped": (3,),
    "test_meeting.test_s25_reset_and_delete_require_the_name": (5,),
    "test_sillytavern_list.test_a_folder_is_previewed_and_imported": (6,),
    "test_sillytavern_list.test_a_chat_is_imported_from_its_file": (7,),
    "test_meeting.test_s10_from_nothing_to_the_first_chat": (8,),
    "test_turns.test_s22_greetings_are_swiped": (9, 10),
    "test_chat.test_a_message_and_its_reply": (11,),
    "test_chat.test_s20_stop_keeps_the_partial_reply_and_offers_another": (12,),
    "test_chat.test_s22_regenerate_swipe_and_edit": (13, 14, 15),
    "test_turns.test_s22_any_turn_can_be_edited_and_its_former_text_used_again": (16,),
    "test_turns.test_s22_turns_are_deleted_hidden_and_restored": (17, 18, 19),
    "test_turns.test_a_reply_goes_on_and_another_character_replies": (20, 42, 43),
    "test_turns.test_a_message_is_drafted_sent_without_a_reply_and_kept_over_a_reload": (21, 22, 23, 24),
    "test_turns.test_bookmarks_commands_and_quick_replies": (25, 26, 27),
    "test_chat.test_s23_rewind_shows_its_impact_and_can_be_undone": (28,),
    "test_chat.test_s24_a_fork_is_another_chat_with_the_same_turns": (29,),
    "test_chat_list.test_the_list_beside_a_chat_and_the_tree": (30, 31),
    "test_chat_list.test_a_chat_is_pinned_tagged_renamed_deleted_and_comes_back": (32, 33, 34),
    "test_sillytavern_list.test_a_chat_is_archived_and_duplicated": (35, 36),
    "test_pages.test_the_palette_finds_chats_characters_and_messages": (37,),
    "test_chat.test_s26_export": (38,),
    "test_chat.test_s6_a_guest_is_invited_speaks_and_is_removed": (39, 40),
    "test_sillytavern_list.test_the_order_of_replies_is_set_and_a_character_muted": (41,),
    "test_chat_list.test_a_persona_is_written_and_chosen": (44,),
    "test_lorebooks.test_a_lorebook_is_written_tried_and_used": (45, 46),
    "test_sillytavern_list.test_world_info_is_imported": (47,),
    "test_sillytavern_list.test_samplers_presets_and_the_authors_note_are_set": (48, 49, 50, 51),
    "test_models.test_s10_a_newcomer_connects_a_provider_by_the_page_only": (52,),
    "test_models.test_l5_an_instruction_is_shown_changed_and_reset": (53,),
    "test_pictures.test_l6_pictures_are_added_kept_over_a_reload_sent_and_described": (54,),
    "test_pictures.test_an_expression_follows_the_mood_and_a_background_the_place": (55, 56, 57),
    "test_drawer.test_memories_are_pinned_rated_and_deleted": (58,),
    "test_chat.test_s20_each_error_has_its_banner": (59,),
    "test_styleguide.test_the_theme_is_switched_and_saved": (60,),
    "test_accessibility.test_a_chat_works_with_the_keyboard_alone": (61,),
}
"""The test of each line of the list, by number."""


def test_every_line_of_the_list_is_tried_in_a_browser() -> None:
    text = (ROOT / "docs/how-to/sillytavern.md").read_text(encoding="utf-8")
    listed = [int(number) for number in re.findall(r"^\| (\d+) \|", text, flags=re.M)]
    assert len(listed) >= 40
    assert sorted(number for numbers in TRIED.values() for number in numbers) == listed
    for name in TRIED:
        module, function = name.split(".")
        tree = ast.parse((Path(__file__).parent / f"{module}.py").read_text(encoding="utf-8"))
        assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, name


def test_a_folder_is_previewed_and_imported(site: Site, page: Page) -> None:
    make_folder(site.app.sillytavern.drop_folder)
    page.goto("/imports")
    page.get_by_role("button", name="Preview ").first.click()
    preview = page.locator("#import-preview")
    expect(preview.get_by_role("checkbox", name=re.compile("Characters: 2"))).to_be_checked()
    axe.check(page)
    preview.get_by_role("button", name="Import").click()
    expect(page.get_by_text("Finished:")).to_be_visible()
    axe.check(page)
    page.get_by_role("link", name="Open First trip").click()
    expect(turns(page).last).to_contain_text("Mind the step.")
    expect(turns(page).filter(has_text="Two coins.")).to_have_count(1)


def test_a_chat_is_imported_from_its_file(site: Site, page: Page) -> None:
    host = site.host(site.begin())
    lines = "\n".join(json.dumps(line) for line in (HEADER, *CHAT[:4]))
    page.goto(f"/characters/{host}")
    page.get_by_role("button", name="More for").click()
    with page.expect_file_chooser() as chooser:
        page.get_by_role("menuitem", name="Import a chat of SillyTavern …").click()
    chooser.value.set_files({"name": "A trip.jsonl", "mimeType": "application/x-ndjson", "buffer": lines.encode()})
    expect(page.get_by_role("heading", name="A trip")).to_be_visible()
    expect(turns(page).last).to_contain_text("And hold on.")


def test_a_chat_is_archived_and_duplicated(site: Site, page: Page) -> None:
    chat = site.begin(title="Calm water")
    site.say(chat, "Hello.", "Good evening.")
    page.goto("/chats")
    row = page.locator(f'[data-chat="{chat.removeprefix("/chats/")}"]')
    row.get_by_role("button", name="Organise Calm water").click()
    page.get_by_role("menuitem", name="Duplicate").click()
    expect(page.get_by_role("heading", name="Calm water (copy)")).to_be_visible()
    expect(turns(page).last).to_contain_text("Good evening.")
    page.goto("/chats")
    row.get_by_role("button", name="Organise Calm water").click()
    page.get_by_role("menuitem", name="Archive").click()
    expect(row).to_be_hidden()
    page.get_by_label("Show").select_option("archived")
    expect(row).to_be_visible()


def test_the_order_of_replies_is_set_and_a_character_muted(site: Site, page: Page) -> None:
    chat = site.begin()
    guest = site.ask("POST", "/characters/ready/teodor")
    site.ask("POST", f"{chat}/guests", {"character": guest["id"]})
    page.goto(chat)
    quiet(page)
    page.get_by_label("Say something").fill("/order everyone")
    page.keyboard.press("Enter")
    site.script.replies += ["The first.", "The second."]
    say(page, "Both of you?")
    expect(turns(page)).to_have_count(3)
    expect(turns(page).last).to_contain_text("The second.")
    quiet(page)
    page.keyboard.press("Escape")
    page.locator("#scroll").focus()
    page.keyboard.press("d")
    part = page.locator("#drawer details").filter(has=page.get_by_role("heading", name="Who replies"))
    part.locator("summary").click()
    muted = part.locator('[data-field="muted"]')
    muted.get_by_role("button").click()
    muted.get_by_role("textbox").fill(guest["name"])
    page.keyboard.press("Enter")
    expect(muted).to_contain_text(guest["name"])
    say(page, "And now?")
    expect(turns(page)).to_have_count(5)
    quiet(page)
    expect(turns(page)).to_have_count(5)


def test_world_info_is_imported(site: Site, page: Page) -> None:
    page.goto("/lorebooks")
    page.locator("#import input").set_input_files(
        {"name": "Harbour.json", "mimeType": "application/json", "buffer": json.dumps(BOOK).encode()}
    )
    expect(page.get_by_role("heading", name="Harbour")).to_be_visible()
    expect(page.locator(".lore-entry")).to_have_count(2)


def test_samplers_presets_and_the_authors_note_are_set(site: Site, page: Page) -> None:
    chat = site.begin()
    site.say(chat, "Hello.", "Good evening.")
    page.goto(chat)
    page.get_by_role("button", name="More for this chat").click()
    page.get_by_role("menuitem", name="Model and author’s note …").click()
    panel = page.get_by_role("dialog", name="Model")
    expect(panel.get_by_text("The next prompt")).to_be_visible()
    panel.locator("[data-import-preset]").set_input_files(
        {"name": "Warm.json", "mimeType": "application/json", "buffer": json.dumps({"temp": 1.2}).encode()}
    )
    expect(page.locator("#toasts")).to_contain_text("Warm")
    panel.locator("#chat-model-preset").select_option("Warm")
    panel.locator("#chat-model-note").fill("It must rain soon.")
    panel.locator("#chat-model-depth").fill("1")
    axe.check(page)
    panel.get_by_role("button", name="Save").first.click()
    expect(page.locator("#toasts")).to_contain_text("Saved: it applies to the next reply.")
    site.say(chat, "And the weather?", "Wet.")
    request = site.script.asked[-1]
    assert request.prompt.temperature == 1.2
    *_, note, message = request.prompt.messages
    assert ("It must rain soon." in note.text, "And the weather?" in message.text) == (True, True)
