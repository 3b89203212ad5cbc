"""A document in the browser: proposals in the text and in the sidebar, threads, history, branches."""

from __future__ import annotations

import pytest
from playwright.sync_api import APIResponse, Page, Route, expect

from coterie.llm.recording import RecordedCall, RecordedError
from tests.e2e.conftest import Site
from tests.e2e.draft_document import Paper, change, lines, open_document, type_at_end_of

NIGHT = change("The lamp burns every night, and every night it burns.", "The lamp burns every night.")
ASKS = change("Nobody asks.", "Nobody dares to ask.", "Stronger.")


@pytest.fixture
def paper(site: Site) -> Paper:
    return Paper(site)


def test_f14_a_proposal_is_marked_in_the_text_and_accepted_by_key(page: Page, paper: Paper) -> None:
    thread = paper.thread()
    paper.propose(thread, NIGHT, ASKS)
    open_document(page, paper)
    expect(page.locator(".proposal[data-state=pending]")).to_have_count(2)
    expect(page.locator("del.mark-deleted").first).to_have_text(", and every night it burns")
    expect(page.locator("ins.mark-inserted")).to_have_text(["dares to ask"])
    page.keyboard.press("j")
    expect(page.locator(".proposal[aria-current]")).to_contain_text("Shorter.")
    page.keyboard.press("a")
    expect(page.locator(".proposal[data-state=pending]")).to_have_count(1)
    expect(page.locator(".cm-content")).to_contain_text("The lamp burns every night.")
    expect(page.locator("del.mark-deleted")).to_have_text(["asks"])
    page.keyboard.press("a")
    expect(page.locator("#no-cards")).to_be_visible()
    assert paper.will_contain("The lamp burns every night.\n\nNobody knows who lights it. Nobody dares to ask.")
    newest = paper.history()[0]
    assert (newest["subject"], newest["author"], newest["thread"]) == ("Stronger.", "Ana", thread)


def test_f8_an_undone_proposal_is_pending_again(page: Page, paper: Paper) -> None:
    paper.propose(paper.thread(), NIGHT)
    open_document(page, paper)
    page.keyboard.press("j")
    page.keyboard.press("a")
    expect(page.locator("#no-cards")).to_be_visible()
    page.keyboard.press("u")
    expect(page.locator(".proposal[data-state=pending]")).to_have_count(1)
    expect(page.locator("del.mark-deleted")).to_be_visible()
    assert paper.will_contain("and every night it burns")


def test_f10_decline_with_a_comment_and_edit_before_accepting(page: Page, paper: Paper) -> None:
    thread = paper.thread()
    paper.propose(thread, NIGHT, ASKS)
    open_document(page, paper, f"?thread={thread}")
    page.keyboard.press("j")
    page.keyboard.press("d")
    page.keyboard.type("The echo is meant.")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".proposal[data-state=pending]")).to_have_count(1)
    page.get_by_role("tab", name="Discussion").click()
    expect(page.locator(".thread-note")).to_contain_text("Ana declined a proposal: The echo is meant.")
    page.get_by_role("tab", name="Proposals").click()
    page.keyboard.press("j")
    page.keyboard.press("e")
    field = page.locator(".proposal-form textarea")
    expect(field).to_have_value("Nobody dares to ask.")
    field.fill("Nobody would ask.")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#no-cards")).to_be_visible()
    assert paper.will_contain("Nobody would ask.")
    assert [one["state"] for one in paper.changes()] == ["declined", "edited-and-accepted"]


def test_f7_edits_make_a_proposal_stale_and_fresh_again(page: Page, paper: Paper) -> None:
    paper.propose(paper.thread(), ASKS)
    open_document(page, paper)
    type_at_end_of(page, "Nobody knows", " Never")
    page.keyboard.press("Home")
    page.locator(".cm-line", has_text="Nobody knows").click()
    page.keyboard.press("End")
    for _ in range(len(" asks. Never")):
        page.keyboard.press("Backspace")
    expect(page.locator(".proposal[data-stale]")).to_contain_text("no longer in the document")
    expect(page.locator("del.mark-deleted")).to_have_count(0)
    page.keyboard.press("End")
    page.keyboard.type(" asks.")
    expect(page.locator(".proposal:not([data-stale])[data-state=pending]")).to_have_count(1)
    expect(page.locator("ins.mark-inserted")).to_have_text("dares to ask")
    assert paper.will_contain("Nobody asks.")


def test_f7_a_stale_proposal_is_proposed_again(page: Page, paper: Paper) -> None:
    paper.propose(paper.thread(), NIGHT)
    open_document(page, paper)
    type_at_end_of(page, "The lamp burns", "")
    for _ in range(len("burns.")):
        page.keyboard.press("Backspace")
    page.keyboard.type("glows.")
    expect(page.locator(".proposal[data-stale]")).to_have_count(1)
    page.get_by_role("button", name="Propose again").click()
    expect(page.locator(".proposal[data-state=pending]:not([data-stale])")).to_have_count(1)
    expect(page.locator("del.mark-deleted").first).to_contain_text("glows")


def test_f2_a_message_sent_while_its_thread_loads_goes_to_that_thread(page: Page, site: Site) -> None:
    Paper(site, character="maren")  # another character, which is the first one in the list
    paper = Paper(site, character="maren")
    thread = paper.thread()
    open_document(page, paper)
    held: list[Route] = []
    page.route("**/messages", lambda route: held.append(route), times=1)
    page.locator("#thread-tab").click()
    page.locator(f"#th-{thread}").click()
    page.locator("#message-field").fill("Are you the one?")
    site.script.replies.append("I am.")
    page.locator("#message-field").press("Enter")
    expect(page.locator("#send")).to_have_attribute("aria-busy", "true")
    held[0].continue_()
    expect(page.locator("#messages")).to_contain_text("I am.")


def test_f4_a_proposal_is_shown_while_the_reply_is_streamed(page: Page, site: Site, paper: Paper) -> None:
    open_document(page, paper)
    site.script.paused = True
    site.script.replies.append(f"First this. {NIGHT} Then **that** too.")
    page.keyboard.press("/")
    page.keyboard.type("What is too long?")
    page.keyboard.press("Enter")
    expect(page.locator(".message[data-state=open]")).to_be_visible()
    expect(page.locator("[data-live]")).to_have_text("Maren Oke is writing")
    site.step(3)
    expect(page.locator(".message[data-state=open] .message-text")).to_contain_text("First")
    while not paper.changes():
        site.step()
        page.wait_for_timeout(50)
    expect(page.locator("#waiting")).to_have_text("1")
    expect(page.locator(".message[data-state=open]")).to_be_visible()
    expect(page.locator("del.mark-deleted").first).to_be_visible()
    site.script.paused = False
    site.step(1_000)
    expect(page.locator(".message").last).to_have_attribute("data-state", "done")
    expect(page.locator(".message .message-text").last).to_contain_text("First this.")
    expect(page.locator(".message .message-text strong")).to_have_text("that")
    assert "<change>" not in page.locator("#messages").inner_text()
    page.locator(".message-proposal").click()
    expect(page.locator(".proposal[aria-current]")).to_be_focused()


def test_f4_a_late_response_does_not_remove_streamed_text(page: Page, site: Site, paper: Paper) -> None:
    open_document(page, paper)
    site.script.paused = True
    site.script.replies.append("First this. Then that.")
    page.keyboard.press("/")
    page.keyboard.type("What is too long?")
    page.keyboard.press("Enter")
    expect(page.locator("[data-live]")).to_have_text("Maren Oke is writing")
    late: list[tuple[Route, APIResponse]] = []
    page.route("**/messages", lambda route: late.append((route, route.fetch())))
    page.locator(".thread-tab:not(#th-new)[aria-pressed=true]").click()  # "New" is pressed until the list is loaded
    while not late:
        page.wait_for_timeout(20)
    site.step(3)
    streamed = page.locator(".message[data-state=open] .message-text")
    expect(streamed).to_contain_text("First")
    for route, answer in late:
        route.fulfill(response=answer)
    page.unroute("**/messages")
    page.wait_for_timeout(300)
    expect(streamed).to_contain_text("First")
    site.script.paused = False
    site.step(1_000)
    expect(page.locator(".message .message-text").last).to_contain_text("First this. Then that.")


def test_f3_a_thread_about_a_selection_keeps_its_position_or_is_orphaned(page: Page, site: Site, paper: Paper) -> None:
    open_document(page, paper)
    page.locator(".cm-line", has_text="The boats").click()
    page.keyboard.press("Home")
    page.keyboard.press("Shift+End")
    site.script.replies.append("They do.")
    page.get_by_role("button", name="Discuss this").click()
    expect(page.locator("#selection")).to_contain_text("The boats come late in winter.")
    page.keyboard.type("Is this so?")
    page.keyboard.press("Enter")
    expect(page.locator("#messages")).to_contain_text("They do.")
    expect(page.locator(".mark-thread")).to_have_text("The boats come late in winter.")
    page.keyboard.press("Escape")
    type_at_end_of(page, "# The lamp", " at sea")
    expect(page.locator(".mark-thread")).to_have_text("The boats come late in winter.")
    assert paper.will_contain("# The lamp at sea")
    page.locator(".cm-line", has_text="The boats").click()
    page.keyboard.press("End")
    page.keyboard.press("Shift+Home")
    page.keyboard.press("Backspace")
    expect(page.locator(".thread-tab", has_text="The boats")).to_contain_text("orphaned")


def test_f14_a_line_leads_to_its_commit_and_thread(page: Page, paper: Paper) -> None:
    thread = paper.thread()
    paper.propose(thread, NIGHT, say="Shorten it, please.")
    open_document(page, paper)
    page.keyboard.press("j")
    page.keyboard.press("a")
    expect(page.locator("#no-cards")).to_be_visible()
    page.locator(".cm-line", has_text="The lamp burns").click()
    page.keyboard.press("Escape")
    page.keyboard.press("b")
    row = page.locator(".history-row[aria-current]")
    expect(row).to_contain_text("Shorter.")
    expect(row).to_contain_text("proposed by Maren")
    row.get_by_role("button", name="discussion").click()
    expect(page.locator("#messages")).to_contain_text("Shorten it, please.")


def test_f9_typed_text_is_committed_after_a_pause_and_survives_a_reload(page: Page, paper: Paper) -> None:
    thread = paper.thread()
    open_document(page, paper, f"?thread={thread}")
    type_at_end_of(page, "The boats", " Or not at all: 🦀")
    expect(page.locator("[data-live]")).to_have_text("Saved")
    expect(page.locator("#messages")).to_contain_text("Ana edited the document.")
    page.reload()
    expect(page.locator(".cm-content")).to_contain_text("Or not at all: 🦀")
    assert paper.history()[0]["subject"] == "Edit lamp.md"
    assert lines(page).rstrip("\n") == paper.text().rstrip("\n")


def test_create_a_workspace_and_a_document_by_keyboard(page: Page, site: Site) -> None:
    site.ask("PUT", "/you", {"name": "Ana"})
    page.goto("/draft")
    page.get_by_role("button", name="New folder").or_(page.get_by_role("button", name="New", exact=True)).click()
    page.get_by_label("Name required").first.fill("Letters")
    page.keyboard.press("Enter")
    page.get_by_role("region", name="Letters").get_by_role("button", name="New document").click()
    page.get_by_label("Title").fill("To the sea")
    page.keyboard.press("Enter")
    page.wait_for_url("**/documents/to-the-sea.md")
    page.keyboard.press("i")
    page.keyboard.press("Control+End")
    page.keyboard.type("Dear sea,")
    expect(page.locator("[data-live]")).to_have_text("Saved")
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("d")
    page.wait_for_url("**/draft")
    expect(page.get_by_role("link", name="To the sea")).to_be_visible()


def test_f11_a_branch_is_compared_and_merged(page: Page, paper: Paper) -> None:
    open_document(page, paper)
    page.get_by_role("button", name="More for this document").click()
    page.get_by_role("menuitem", name="New branch").click()
    page.locator("#branch-name").fill("winter")
    page.keyboard.press("Enter")
    page.wait_for_url("**branch=winter")
    type_at_end_of(page, "The boats", " And leave early.")
    expect(page.locator("[data-live]")).to_have_text("Saved")
    page.goto(f"{paper.base}/compare?source=winter&target=main")
    expect(page.locator(".diff-added")).to_have_text("+added: The boats come late in winter. And leave early.")
    page.get_by_role("button", name="Merge winter into main").click()
    page.wait_for_url("**/draft")
    assert paper.will_contain("And leave early.")


def test_f4_a_failed_reply_shows_why_and_is_retried(site: Site, page: Page) -> None:
    paper = Paper(site)
    thread = paper.thread()
    refused = RecordedError(kind="KeyRejected", what="The key was refused.", fix="Change it.", status=401)
    site.script.faults.append(RecordedCall(say="", error=refused))
    open_document(page, paper, f"?thread={thread}")
    page.locator("#message-field").fill("Shorter?")
    page.locator("#message-field").press("Enter")
    banner = page.locator("#messages .banner")
    expect(banner).to_contain_text("The provider refused the key.")
    site.script.replies.append("It is short enough.")
    banner.get_by_role("button", name="Retry").click()
    expect(page.locator("#messages")).to_contain_text("It is short enough.")
    expect(page.locator("[data-retry]")).to_have_count(0)
