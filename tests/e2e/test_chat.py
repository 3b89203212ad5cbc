"""The chat page on a real server with a scripted model: S18, S20–S26 in a browser."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from coterie.llm.recording import RecordedCall, RecordedError
from tests.e2e.conftest import Site, Watched


def turns(page: Page) -> Locator:
    return page.locator("#timeline .turn")


def say(page: Page, text: str) -> None:
    page.get_by_label("Say something").fill(text)
    page.keyboard.press("Enter")


def quiet(page: Page) -> None:
    expect(page.locator("[data-live]")).to_have_text("Saved")


@pytest.fixture
def chat(site: Site, page: Page) -> str:
    """A chat with one exchange, open in the browser."""
    path = site.begin()
    site.say(path, '*waves* "Hello."', 'She nods.\n\n"You\'re **late**."')
    page.goto(path)
    quiet(page)
    return path


def test_s18_prose_is_formatted_with_the_speaker_in_the_margin(site: Site, page: Page, chat: str) -> None:
    site.say(chat, "I sit. ((softly))", "*She smiles.*\n\n> An old line.")
    said, reply = turns(page).nth(2), turns(page).nth(3)
    expect(reply.locator("em")).to_have_text("She smiles.")
    expect(reply.locator("blockquote")).to_have_text("An old line.")
    expect(reply.locator(".turn-name")).to_have_text("Maren Oke")
    expect(said.locator(".ooc")).to_have_text("((softly))")
    assert page.evaluate("getComputedStyle(document.querySelector('.turn-text')).fontFamily").startswith("Literata")


def test_a_message_and_its_reply(site: Site, page: Page, chat: str) -> None:
    site.script.replies.append("The kettle sings.")
    say(page, '"Is there tea?"')
    expect(turns(page)).to_have_count(4)
    expect(turns(page).nth(2)).to_contain_text("Is there tea?")
    expect(turns(page).nth(3)).to_contain_text("The kettle sings.")
    expect(page.get_by_label("Say something")).to_have_value("")
    quiet(page)
    assert site.texts(chat)[-1] == "The kettle sings."


def test_s20_words_are_streamed_and_sending_is_disabled_with_a_reason(site: Site, page: Page, chat: str) -> None:
    site.script.paused = True
    site.script.replies.append("One two\n\nthree four")
    say(page, "Go on.")
    expect(page.locator("[data-live]")).to_have_text("Maren Oke is thinking")
    expect(page.locator("#status-model")).to_have_text("embedded/script")
    site.step(2)
    expect(turns(page).last).to_contain_text("One")
    expect(page.locator("[data-live]")).to_have_text("Maren Oke is speaking")
    page.get_by_label("Say something").fill("Wait.")
    page.keyboard.press("Enter")
    expect(page.locator("#composer-status")).to_contain_text("Maren Oke is speaking. Stop, or wait.")
    expect(page.get_by_label("Say something")).to_have_value("Wait.")
    site.step(50)
    quiet(page)
    expect(turns(page).last.locator(".block")).to_have_count(2)
    expect(page.locator("#composer-status")).to_have_text("")
    assert len(site.texts(chat)) == 4


def test_s20_stop_keeps_the_partial_reply_and_offers_another(site: Site, page: Page, chat: str) -> None:
    site.script.paused = True
    site.script.replies.append("It was a long and winding tale")
    say(page, "Tell me.")
    site.step(3)
    expect(turns(page).last).to_contain_text("It was")
    page.get_by_role("button", name="Stop", exact=True).click()
    expect(turns(page).last).to_contain_text("You stopped this reply.")
    assert site.texts(chat)[-1].startswith("It was")
    site.script.paused = False
    site.script.replies.append("A short one.")
    turns(page).last.locator(".banner").get_by_role("button", name="Regenerate").click()
    expect(turns(page).last).to_contain_text("A short one.")
    expect(turns(page)).to_have_count(4)


@pytest.mark.parametrize(
    ("status", "kind", "title", "button"),
    [
        (401, "KeyRejected", "The provider refused the key.", "Retry"),
        (429, "RateLimited", "The provider asks to slow down.", "Retry"),
        (500, "ServerFault", "The provider failed.", "Retry"),
        (None, "Unreachable", "Connection lost, partial reply saved.", "Regenerate"),
    ],
)
def test_s20_each_error_has_its_banner(
    site: Site, page: Page, chat: str, status: int | None, kind: str, title: str, button: str
) -> None:
    what = "The model has trouble." if status else "The connection to the model failed."
    fault = RecordedError(kind=kind, what=what, fix="Look into it.", status=status)
    site.script.faults.append(RecordedCall(say="Half a", error=fault))
    say(page, "Hello?")
    banner = turns(page).last.locator(".banner")
    expect(banner).to_contain_text(title)
    expect(turns(page).last.locator(".turn-text")).to_contain_text("Half a")
    site.script.replies.append("Here I am.")
    banner.get_by_role("button", name=button).click()
    expect(turns(page).last).to_contain_text("Here I am.")
    expect(page.locator(".banner")).to_have_count(0)


def test_s22_regenerate_swipe_and_edit(site: Site, page: Page, chat: str) -> None:
    site.script.replies.append("Another answer.")
    turns(page).last.hover()
    turns(page).last.get_by_role("button", name="Another reply").click()
    expect(turns(page).last).to_contain_text("Another answer.")
    expect(turns(page).last.locator(".turn-swipes")).to_contain_text("2 / 2")
    turns(page).last.get_by_role("button", name="Previous reply").click()
    expect(turns(page).last).to_contain_text("She nods.")
    page.locator("#scroll").focus()
    page.keyboard.press("ArrowRight")
    expect(turns(page).last).to_contain_text("Another answer.")
    quiet(page)

    site.script.replies.append("To the changed words.")
    page.keyboard.press("e")
    field = page.get_by_label("Edit your message")
    expect(field).to_have_value('*waves* "Hello."')
    field.fill('"Good evening."')
    page.keyboard.press("Enter")
    expect(turns(page).last).to_contain_text("To the changed words.")
    expect(turns(page).first).to_contain_text("Good evening.")
    expect(turns(page)).to_have_count(2)
    quiet(page)
    assert site.texts(chat) == ['"Good evening."', "To the changed words."]


def test_s23_rewind_shows_its_impact_and_can_be_undone(site: Site, page: Page, chat: str) -> None:
    for number in range(3):
        site.say(chat, f"Number {number}.", f"Reply {number}.")
    expect(turns(page)).to_have_count(8)
    before = site.texts(chat)
    turns(page).nth(1).get_by_role("button", name="More for this turn").click()
    page.get_by_role("menuitem", name="Rewind to here").click()
    dialog = page.get_by_role("dialog", name="Rewind to here?")
    expect(dialog).to_contain_text("6 turns")
    dialog.get_by_text("Show all").click()
    expect(dialog.locator(".impact-list")).to_contain_text("Reply 2.")
    dialog.get_by_role("button", name="Rewind", exact=True).click()
    expect(turns(page)).to_have_count(2)
    assert site.texts(chat) == before[:2]
    toast = page.locator("#toasts")
    expect(toast).to_contain_text("Rewound 6 turns.")
    toast.get_by_role("button", name="Undo").click()
    expect(turns(page)).to_have_count(8)
    assert site.texts(chat) == before


def test_s23_undo_is_in_the_menu_until_a_new_message(site: Site, page: Page, chat: str) -> None:
    site.say(chat, "More.", "More.")
    first = site.ask("GET", f"{chat}/turns")["turns"][1]["id"]
    site.ask("POST", f"{chat}/rewind", {"turn": first})
    expect(turns(page)).to_have_count(2)
    page.reload()
    page.get_by_role("button", name="More for this chat").click()
    page.get_by_role("menuitem", name="Undo the last rewind").click()
    expect(turns(page)).to_have_count(4)
    site.ask("POST", f"{chat}/rewind", {"turn": first})
    site.say(chat, "New.", "New.")
    page.get_by_role("button", name="More for this chat").click()
    page.get_by_role("menuitem", name="Undo the last rewind").click()
    expect(page.locator("#toasts")).to_contain_text("Fork at the turn you want back instead.")


def test_s24_a_fork_is_another_chat_with_the_same_turns(site: Site, page: Page, chat: str) -> None:
    site.say(chat, "Later.", "Later, too.")
    expect(turns(page)).to_have_count(4)
    turns(page).nth(1).get_by_role("button", name="More for this turn").click()
    page.get_by_role("menuitem", name="Fork here").click()
    expect(page.get_by_role("heading", name="The lighthouse (fork)")).to_be_visible()
    assert chat not in page.url
    expect(turns(page)).to_have_count(2)
    fork = page.url.rpartition("/")[2]
    page.goto("/chats")
    expect(page.locator(f'.row-link[data-chat="{fork}"]')).to_contain_text("fork")


def test_s25_reset_requires_the_name(site: Site, page: Page, chat: str) -> None:
    page.get_by_role("button", name="More for this chat").click()
    page.get_by_role("menuitem", name="Reset character…").click()
    page.get_by_label("Type Maren Oke to confirm").fill("Maren")
    page.get_by_role("button", name="Reset Maren Oke").click()
    expect(page.locator("#toasts")).to_contain_text("has to be typed exactly")
    page.get_by_label("Type Maren Oke to confirm").fill("Maren Oke")
    page.get_by_role("button", name="Reset Maren Oke").click()
    expect(page.get_by_role("heading", name="Maren Oke was reset")).to_be_visible()
    assert site.client.get(chat).status_code == 404
    before = turns(page)
    page.get_by_role("button", name="Undo the reset").click()
    expect(before.first).to_be_visible()
    assert len(site.texts(chat)) > 1
    site.ask("POST", f"/characters/{site.host(chat)}/reset", {"confirm": "Maren Oke"})
    page.get_by_role("button", name="Begin again").click()
    expect(page.locator("#composer")).to_be_visible()
    assert len(site.texts(chat)) < 2
    site.script.replies.append("So you are back.")
    say(page, "Here I am.")
    expect(turns(page).last).to_contain_text("So you are back.")


@pytest.mark.parametrize(
    ("name", "ending"),
    [("Export as Markdown", ".md"), ("Export as JSON", ".json"), ("Export for SillyTavern", ".jsonl"),
     ("Export the whole character", ".character.json")],
)  # fmt: skip
def test_s26_export(page: Page, chat: str, name: str, ending: str) -> None:
    page.get_by_role("button", name="More for this chat").click()
    with page.expect_download() as started:
        page.get_by_role("menuitem", name=name, exact=True).click()
    assert started.value.suggested_filename.endswith(ending)
    text = Path(started.value.path()).read_text(encoding="utf-8")
    assert "late" in text
    if ending == ".jsonl":
        assert [json.loads(line) for line in text.splitlines()]


def test_s6_a_guest_is_invited_speaks_and_is_removed(site: Site, page: Page, chat: str) -> None:
    site.ask("POST", "/characters/ready/teodor")
    page.reload()
    expect(page.locator("#who")).to_be_hidden()
    page.get_by_role("button", name="Guests").click()
    page.get_by_role("menuitem", name="Invite Teodor").first.click()
    expect(page.locator(".chat-cast a")).to_have_count(2)
    page.get_by_label("Reply from").select_option(label=page.locator(".chat-cast a").nth(1).get_attribute("title"))
    site.script.replies.append("I am here as well.")
    say(page, "Hello, both.")
    expect(turns(page).last.locator(".turn-name")).to_contain_text("Teodor")
    expect(turns(page).last).to_contain_text("I am here as well.")
    quiet(page)
    page.get_by_role("button", name="Guests").click()
    page.get_by_role("menuitem", name="Remove").click()
    expect(page.locator(".chat-cast a")).to_have_count(1)
    expect(turns(page).last.locator(".turn-name")).to_contain_text("Teodor")


def test_s20_a_failed_save_opens_a_blocking_dialog(site: Site, page: Page, chat: str) -> None:
    full = {"error": "The disk is full.", "fix": "Make room."}
    page.route("**/turns", lambda route: route.fulfill(status=503, json=full))
    say(page, "Remember this.")
    dialog = page.get_by_role("dialog", name="This could not be saved")
    expect(dialog).to_contain_text("The disk is full.")
    dialog.get_by_role("button", name="Try again").click()
    expect(page.get_by_label("Say something")).to_have_value("Remember this.")
    page.unroute("**/turns")
    page.reload()
    expect(page.get_by_label("Say something")).to_have_value("Remember this.")


def test_new_turns_keep_the_scroll_position_and_show_a_pill(site: Site, page: Page, chat: str) -> None:
    for number in range(8):
        site.say(chat, f"Number {number}.", f"Reply {number}.\n\n" + "More of it. " * 40)
    expect(turns(page)).to_have_count(18)
    scroll = page.locator("#scroll")
    bottom = "e => e.scrollHeight - e.scrollTop - e.clientHeight"
    expect.soft(scroll).to_be_visible()
    assert scroll.evaluate(bottom) < 2
    scroll.evaluate("e => { e.scrollTop = 300; }")
    expect(page.locator("#pill")).to_be_visible()
    page.wait_for_timeout(100)
    where = turns(page).nth(3).bounding_box()
    site.say(chat, "One more.", "And its reply.")
    expect(page.locator("#pill")).to_have_text("2 new")
    assert turns(page).nth(3).bounding_box() == where
    page.locator("#pill").click()
    assert scroll.evaluate(bottom) < 2
    expect(page.locator("#pill")).to_be_hidden()
    site.say(chat, "At the bottom.", "It stays there.")
    expect(turns(page).last).to_be_in_viewport()


def test_older_turns_load_on_scroll(site: Site, page: Page, chat: str) -> None:
    site.add_exchanges(chat, 70)
    page.goto(chat)
    expect(turns(page)).to_have_count(50)
    scroll = page.locator("#scroll")
    while page.locator("#start").is_hidden():
        scroll.evaluate("e => { e.scrollTop = Math.max(0, e.scrollTop - 700); }")
        page.wait_for_timeout(30)
    seen = page.evaluate("[...document.querySelectorAll('.turn')].map(t => t.dataset.turn)")
    assert seen == [turn["id"] for turn in site.ask("GET", f"{chat}/turns?limit=500")["turns"]]


def test_a_failed_background_job_is_announced(site: Site, page: Page, chat: str) -> None:
    from coterie.eventstore import NewEvent
    from coterie.eventstore.jobs import JobDied

    died = JobDied(job=1, job_kind="story_remember", key="k", attempts=5, error="<b>It broke.</b>")
    site.do(site.app.store.append([NewEvent("instance", died)]))
    expect(page.locator("#toasts")).to_contain_text("A background job failed")


def test_s17_the_list_shows_unread_replies_until_they_are_read(site: Site, page: Page, chat: str) -> None:
    page.goto("/about")
    site.say(chat, "Anything new?", "*She looks up.* The boat is **early**.")
    page.goto("/chats")
    row = page.locator(f'.row-link[data-chat="{chat.removeprefix("/chats/")}"]')
    expect(row).to_contain_text("1 new")
    expect(row).to_contain_text("Maren Oke She looks up. The boat is early.")
    row.get_by_role("link").click()
    with page.expect_response("**/read"):
        quiet(page)
    page.goto("/chats")
    expect(row).not_to_contain_text("new")


def test_s10_a_new_instance_offers_three_characters(new_site: Site, watched: Watched) -> None:
    page = watched.context.new_page()
    page.goto(f"{new_site.address}/chats")
    expect(page.get_by_role("heading", name="Three people to meet")).to_be_visible()
    expect(page.locator(".meet .card")).to_have_count(3)
    page.get_by_role("button", name="Meet Teodor").click()
    page.wait_for_url("**/characters/*/kickoff")
    assert [bot["name"] for bot in new_site.ask("GET", "/characters")] == ["Teodor Vask"]
