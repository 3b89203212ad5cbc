"""Changing turns in a browser: edit, hide, delete, continue, several replies, bookmarks, quick replies, commands."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, Page, expect

from coterie.llm.recording import RecordedCall
from tests.e2e.axe import serious
from tests.e2e.conftest import Site
from tests.e2e.test_chat import quiet, say, turns


@pytest.fixture
def chat(site: Site, page: Page) -> str:
    """A chat with two exchanges, open in the browser."""
    path = site.begin()
    site.say(path, "The key is mauve.", "A mauve key.")
    site.say(path, "It rains.", "It does.")
    page.goto(path)
    quiet(page)
    return path


def choose(page: Page, turn: Locator, item: str) -> None:
    turn.get_by_role("button", name="More for this turn").click()
    page.locator("#turn-menu").get_by_role("menuitem", name=item, exact=True).click()


def test_s22_any_turn_can_be_edited_and_its_former_text_used_again(site: Site, page: Page, chat: str) -> None:
    choose(page, turns(page).nth(1), "Edit the text")
    field = page.get_by_label("Edit the text")
    expect(field).to_have_value("A mauve key.")
    field.fill("A green key.")
    page.keyboard.press("Enter")
    expect(turns(page).nth(1)).to_contain_text("A green key.")
    expect(turns(page).nth(1)).to_contain_text("edited")
    choose(page, turns(page).nth(1), "Earlier wordings")
    dialog = page.get_by_role("dialog", name="Earlier wordings")
    expect(dialog).to_contain_text("A mauve key.")
    dialog.get_by_role("button", name="Use this").click()
    expect(turns(page).nth(1)).to_contain_text("A mauve key.")
    assert site.texts(chat)[1] == "A mauve key."
    choose(page, turns(page).last, "Edit the text")
    page.get_by_label("Edit the text").fill("It pours.")
    page.keyboard.press("Enter")
    expect(turns(page).last).to_contain_text("It pours.")
    expect(turns(page).last.locator(".turn-swipes")).to_contain_text("2 / 2")


def test_s22_turns_are_deleted_hidden_and_restored(site: Site, page: Page, chat: str) -> None:
    choose(page, turns(page).nth(0), "Begin a selection here")
    choose(page, turns(page).nth(1), "Delete the selection to here")
    expect(turns(page)).to_have_count(2)
    toast = page.locator("#toasts")
    expect(toast).to_contain_text("2 turns deleted.")
    toast.get_by_role("button", name="Undo").click()
    expect(turns(page)).to_have_count(4)
    choose(page, turns(page).nth(3), "Delete")
    expect(turns(page)).to_have_count(3)
    page.reload()
    page.get_by_role("button", name="More for this chat").click()
    page.get_by_role("menuitem", name="Deleted turns").click()
    page.get_by_role("dialog", name="Deleted turns").get_by_role("button", name="Restore").click()
    expect(turns(page)).to_have_count(4)
    choose(page, turns(page).nth(0), "Hide from prompts")
    expect(turns(page).nth(0)).to_contain_text("hidden from prompts")
    site.say(chat, "Which colour?", "None.")
    assert "The key is mauve." not in site.script.prompt()
    choose(page, turns(page).nth(0), "Use in prompts again")
    expect(turns(page).nth(0)).not_to_contain_text("hidden from prompts")
    assert serious(page) == []


def test_a_reply_goes_on_and_another_character_replies(site: Site, page: Page, chat: str) -> None:
    site.script.replies.append(" And it will.")
    page.locator("#scroll").focus()
    page.keyboard.press("c")
    expect(turns(page).last).to_contain_text("It does. And it will.")
    expect(turns(page)).to_have_count(4)
    quiet(page)
    site.ask("POST", "/characters/ready/teodor")
    page.reload()
    page.get_by_role("button", name="Guests").click()
    page.get_by_role("menuitem", name="Invite Teodor").first.click()
    expect(page.locator(".timeline-notice")).to_contain_text("Teodor Vask joined.")
    expect(page.locator("#chat-head .chat-cast a")).to_have_count(2)
    site.script.replies.append("I am here.")
    page.get_by_role("button", name="More ways to continue").click()
    page.get_by_role("menuitem", name="Add a reply").click()
    expect(turns(page)).to_have_count(5)
    expect(turns(page).last.locator(".turn-name")).to_contain_text("Teodor")
    expect(turns(page).last).to_contain_text("I am here.")
    quiet(page)
    page.get_by_label("Say something").fill("Hello @Teo")
    expect(page.locator("#completion").get_by_role("option", name="Teodor Vask")).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.get_by_label("Say something")).to_have_value("Hello @Teodor Vask ")
    page.get_by_label("Say something").fill("")
    page.reload()
    expect(page.locator(".timeline-notice")).to_have_count(1)
    expect(turns(page)).to_have_count(5)


def test_who_joins_while_a_menu_is_open_is_shown_when_it_is_closed(site: Site, page: Page, chat: str) -> None:
    guest = site.ask("POST", "/characters/ready/teodor")
    page.get_by_role("button", name="Guests").click()
    with page.expect_response(lambda response: response.url.endswith(f"{chat}/head")):
        site.ask("POST", f"{chat}/guests", {"character": guest["id"]})
    expect(page.locator("#chat-head .chat-cast a")).to_have_count(1)
    page.keyboard.press("Escape")
    expect(page.locator("#chat-head .chat-cast a")).to_have_count(2)
    page.get_by_label("Say something").fill("Hello @Teo")
    expect(page.locator("#completion").get_by_role("option", name="Teodor Vask")).to_be_visible()


def test_a_message_is_drafted_sent_without_a_reply_and_kept_over_a_reload(site: Site, page: Page, chat: str) -> None:
    site.script.replies.append("I take the key.")
    page.get_by_role("button", name="More ways to continue").click()
    page.get_by_role("menuitem", name="Write for me").click()
    field = page.get_by_label("Say something")
    expect(field).to_have_value("I take the key.")
    page.reload()
    expect(field).to_have_value("I take the key.")
    assert len(site.texts(chat)) == 4
    field.focus()
    page.keyboard.press("Control+Enter")
    expect(turns(page)).to_have_count(5)
    expect(field).to_have_value("")
    quiet(page)
    assert site.texts(chat)[-1] == "I take the key."
    say(page, "((only a note))")
    expect(turns(page)).to_have_count(6)
    quiet(page)
    assert len(site.texts(chat)) == 6


def test_bookmarks_commands_and_quick_replies(site: Site, page: Page, chat: str) -> None:
    choose(page, turns(page).nth(1), "Bookmark")
    expect(turns(page).nth(1).get_by_role("img", name="Bookmarked")).to_be_visible()
    field = page.get_by_label("Say something")
    field.fill("/bookm")
    expect(page.get_by_role("option", name="/bookmarks")).to_be_visible()
    field.fill("/bookmarks")
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Bookmarks")
    expect(dialog).to_contain_text("A mauve key.")
    dialog.get_by_role("button", name="Show").click()
    expect(turns(page).nth(1)).to_be_focused()
    expect(turns(page).nth(1)).to_be_in_viewport()
    field.fill("/weather snow")
    page.keyboard.press("Enter")
    expect(page.locator("#chat-head")).to_contain_text("snow")
    field.fill("/unknown thing")
    site.script.replies.append("What?")
    page.keyboard.press("Enter")
    expect(turns(page)).to_have_count(6)  # not a command: a message like any other
    quiet(page)
    page.get_by_role("button", name="More ways to continue").click()
    page.get_by_role("menuitem", name="Quick replies …").click()
    page.locator("#quick-replies-lines").fill("Nod: *nods*\nAsk:: Tell me about ")
    page.get_by_role("button", name="Save").click()
    site.script.replies.append("Good.")
    page.get_by_role("button", name="Nod", exact=True).click()
    expect(turns(page)).to_have_count(8)
    quiet(page)
    assert site.texts(chat)[-2:] == ["*nods*", "Good."]
    page.get_by_role("button", name="Ask", exact=True).click()
    expect(field).to_have_value("Tell me about ")


def test_s22_greetings_are_swiped(site: Site, page: Page) -> None:
    data = {"name": "Mara", "first_mes": "Come in.", "alternate_greetings": ["You again?"], "description": "Mara."}
    card = {"spec": "chara_card_v2", "spec_version": "2.0", "data": data}
    answer = site.client.post("/characters/import?name=mara.json", json=card)
    assert answer.is_success, answer.text
    host = answer.json()["character"]["id"]
    opening = site.ask("GET", f"/characters/{host}/kickoff")["opening"]
    path = f"/chats/{site.ask('POST', f'/characters/{host}/kickoff', opening)['id']}"
    page.goto(path)
    expect(turns(page).last.locator(".turn-swipes")).to_contain_text("1 / 2")
    turns(page).last.get_by_role("button", name="Next reply").click()
    expect(turns(page).last).to_contain_text("You again?")
    site.script.replies.append("A third greeting.")
    turns(page).last.hover()
    turns(page).last.get_by_role("button", name="Another reply").click()
    expect(turns(page).last).to_contain_text("A third greeting.")


def test_s24_a_rewind_that_cannot_be_undone_offers_a_fork(site: Site, page: Page, chat: str) -> None:
    first = site.ask("GET", f"{chat}/turns")["turns"][1]["id"]
    site.ask("POST", f"{chat}/rewind", {"turn": first})
    site.say(chat, "New.", "New, too.")
    page.get_by_role("button", name="More for this chat").click()
    page.get_by_role("menuitem", name="Undo the last rewind").click()
    page.locator("#toasts").get_by_role("button", name="Fork there").click()
    expect(page.get_by_role("heading", name="The lighthouse (fork)")).to_be_visible()
    expect(turns(page)).to_have_count(4)
    expect(turns(page).last).to_contain_text("It does.")


def test_s14_a_memory_that_was_not_updated_is_said_at_the_reply_and_tried_again(page: Page, site: Site) -> None:
    chat = site.begin()
    site.script.shapes["TurnAnalysis"] = RecordedCall(say="I would rather not.")
    page.goto(chat)
    site.say(chat, "My brother died.", "She nods.")
    notice = page.locator(".turn-notice")
    expect(notice).to_contain_text("Memory not updated: the model did not answer in the right form.")
    assert serious(page) == []
    page.reload()
    expect(notice).to_have_count(1)
    site.script.shapes["TurnAnalysis"] = {"significance": 3}
    notice.get_by_role("button", name="Retry to update the memory").click()
    expect(notice).to_have_count(0)
    expect(page.locator(".turn").last).to_contain_text("She nods.")
