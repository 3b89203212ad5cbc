"""Two people and a character on one document, each person in a browser of their own."""

from __future__ import annotations

from playwright.sync_api import Browser, Page, expect

from tests.e2e.conftest import Site, Watched
from tests.e2e.draft_document import Paper, another, change, lines, open_document, type_at_end_of


def same_text(paper: Paper, *pages: Page) -> str:
    """The text in Git, after checking that all pages show it."""
    for page in pages:
        expect(page.locator("[data-live]")).to_have_text("Saved")
    text = paper.text()
    for page in pages:
        assert lines(page).rstrip("\n") == text.rstrip("\n")
    return text


def test_f9_two_people_type_in_one_document(site: Site, browser: Browser, watched: Watched) -> None:
    paper = Paper(site)
    with another(browser, paper) as theirs:
        ana, bo = open_document(watched.context.new_page(), paper), open_document(theirs.context.new_page(), paper)
        expect(ana.locator(".status-end")).to_have_text("You are Ana")
        expect(bo.locator(".status-end")).to_have_text("You are Bo")
        for page, line in ((ana, "The boats"), (bo, "The boats")):
            page.locator(".cm-line", has_text=line).click()
            page.keyboard.press("End")
        # Both at the same position, in turns.
        for mine, yours in zip("abcdefghij", "ABCDEFGHIJ", strict=True):
            ana.keyboard.type(mine)
            bo.keyboard.type(yours)
        type_at_end_of(bo, "# The lamp", " at sea")
        for page in (ana, bo):
            expect(page.locator(".cm-line", has_text="at sea")).to_be_visible()
            page.wait_for_function("() => /winter\\.\\w{20}$/m.test(document.querySelector('.cm-content').innerText)")
        text = same_text(paper, ana, bo)
        typed = text.rstrip("\n").rpartition("winter.")[2]
        assert "".join(filter(str.islower, typed)) == "abcdefghij"
        assert "".join(filter(str.isupper, typed)) == "ABCDEFGHIJ"
        authors = {str(one["author"]) for one in paper.history()}
        assert authors & {"Ana", "Bo"}


def test_f8_f12_proposals_and_notifications_of_two_people(site: Site, browser: Browser, watched: Watched) -> None:
    paper = Paper(site)
    thread = paper.thread()
    with another(browser, paper) as theirs:
        ana, bo = (
            open_document(watched.context.new_page(), paper),
            open_document(theirs.context.new_page(), paper, f"?thread={thread}"),
        )
        site.script.replies.append(
            change("The lamp burns every night, and every night it burns.", "It burns.", "Plain.")
            + change("Nobody asks.", "Nobody dares.", "Stronger.")
        )
        bo.keyboard.press("/")
        bo.keyboard.type("What would you change?")
        bo.keyboard.press("Enter")
        for page in (ana, bo):
            expect(page.locator("#waiting")).to_have_text("2")
            expect(page.locator("del.mark-deleted").first).to_be_visible()
        bo.keyboard.press("Escape")
        bo.locator("#cards-tab").click()
        bo.locator(".proposal", has_text="Plain.").get_by_role("button", name="Accept").click()
        for page in (ana, bo):
            expect(page.locator("#waiting")).to_have_text("1")
            expect(page.locator(".cm-content")).to_contain_text("It burns.")
        newest = paper.history()[0]
        assert (newest["author"], newest["subject"]) == ("Bo", "Plain.")
        # Ana deletes the original text of the other proposal: it is stale for both, and fresh again when it is back.
        type_at_end_of(ana, "Nobody knows", "")
        for _ in range(len("asks.")):
            ana.keyboard.press("Backspace")
        for page in (ana, bo):
            expect(page.locator(".proposal[data-stale]")).to_have_count(1)
        ana.keyboard.type("asks.")
        for page in (ana, bo):
            expect(page.locator(".proposal[data-state=pending]:not([data-stale])")).to_have_count(1)
        bo.locator(".decided summary").click()
        bo.locator(".decided").get_by_role("button", name="Undo").click()
        for page in (ana, bo):
            expect(page.locator("#waiting")).to_have_text("2")
        assert "and every night it burns" in same_text(paper, ana, bo)
        ana.keyboard.press("Escape")
        ana.locator(".proposal", has_text="Stronger.").get_by_role("button", name="Decline").click()
        ana.keyboard.press("Control+Enter")
        for page in (ana, bo):
            expect(page.locator("#waiting")).to_have_text("1")

        # Ana writes in the thread: Bo, who wrote before, is notified once; Ana is not notified of her own message.
        site.script.replies.append("So be it.")
        ana.locator("#thread-tab").click()
        ana.locator(f"#th-{thread}").click()
        ana.locator("#message-field").fill("I declined one. Is that right?")
        ana.locator("#message-field").press("Enter")
        expect(ana.locator("#messages")).to_contain_text("So be it.")
        expect(bo.locator("#messages")).to_contain_text("I declined one. Is that right?")
        (share,) = site.app.draft.sharing.of_document(paper.workspace, paper.name)
        expect(ana.locator("#inbox")).to_have_attribute("data-unread", "1")  # the reply to her
        turns = {turn.id: turn.text for turn in site.app.draft.timeline.latest(f"room:{thread}", 50)}
        texts = [turns[one.message] for one in site.app.draft.notifications.of_person(share.person)]
        assert len(texts) == 3  # the character's two replies, and Ana's message
        assert texts.count("I declined one. Is that right?") == 1 and "What would you change?" not in texts
        ana.goto("/draft/inbox")
        expect(ana.locator(".inbox li").filter(has_text="I declined one.")).to_have_count(0)
        ana.get_by_role("button", name="Mark all as read").click()
        expect(ana.locator(".inbox li[data-unread]")).to_have_count(0)


def test_f9_after_a_restart_typed_text_is_merged_or_refused_with_the_difference(site: Site, page: Page) -> None:
    paper = Paper(site)
    open_document(page, paper)
    # The server drops the live document, as a restart does, and the document changes while the page is offline.
    page.context.set_offline(True)
    type_at_end_of(page, "The boats", " Or never.")
    site.do(site.app.draft.close())
    moved = paper.text().replace("# The lamp", "# The lamp at sea")
    base = site.ask("GET", paper.address)["base"]
    site.ask("PUT", paper.address, {"text": moved, "base": base})
    page.context.set_offline(False)
    expect(page.locator(".cm-content")).to_contain_text("# The lamp at sea")
    expect(page.locator(".cm-content")).to_contain_text("Or never.")
    assert "winter. Or never." in same_text(paper, page)
    page.context.set_offline(True)
    type_at_end_of(page, "The boats", " Sometimes.")
    site.do(site.app.draft.close())
    base = site.ask("GET", paper.address)["base"]
    site.ask("PUT", paper.address, {"text": paper.text().replace("Or never.", "Always"), "base": base})
    page.context.set_offline(False)
    expect(page.locator("#clash")).to_be_visible()
    expect(page.locator("#difference")).to_contain_text("Sometimes.")
    page.get_by_role("button", name="Load the current text").click()
    expect(page.locator(".cm-content")).to_contain_text("Always")
    assert "Sometimes" not in paper.text()


def test_f12_the_owner_invites_a_guest_and_revokes_the_link(site: Site, browser: Browser, watched: Watched) -> None:
    paper = Paper(site)
    ana = open_document(watched.context.new_page(), paper)
    ana.get_by_role("button", name="More for this document").click()
    ana.get_by_role("menuitem", name="Invite").click()
    ana.locator("#invite-name").fill("Cleo")
    ana.locator("#invite-role").select_option("commenter")
    ana.get_by_role("button", name="Create link").click()
    expect(ana.locator("#invite-links li")).to_contain_text("Cleo")
    link = ana.locator(".invite-code").inner_text()
    context = browser.new_context(base_url=site.address)
    cleo = context.new_page()
    cleo.goto(link)
    expect(cleo.locator(".status-end")).to_have_text("You are Cleo")
    expect(cleo.locator(".cm-content")).to_contain_text("The boats")
    expect(cleo.locator("nav.rail")).to_have_count(0)
    type_at_end_of(cleo, "The boats", " Mine.")
    expect(cleo.locator(".cm-content")).not_to_contain_text("Mine.")
    for address in ("/", "/draft", "/settings", "/chats", "/memory"):
        answer = cleo.request.get(address)
        assert answer.status == 403, address
    ana.get_by_role("button", name="Revoke the link of Cleo").click()
    expect(ana.locator("#invite-links li")).to_have_count(0)
    cleo.goto(paper.address)
    expect(cleo.get_by_text("Your link is no longer valid.")).to_be_visible()
    context.close()


def test_f12_a_reader_sees_the_document_and_its_discussion(site: Site, browser: Browser, watched: Watched) -> None:
    paper = Paper(site)
    thread = paper.thread()
    paper.propose(thread, change("Nobody asks.", "Nobody dares.", "Stronger."))
    with another(browser, paper, "Dora", "reader") as theirs:
        dora = open_document(theirs.context.new_page(), paper, f"?thread={thread}")
        expect(dora.locator("#messages")).to_contain_text("What would you change?")
        expect(dora.locator("#thread-form-element")).to_have_count(0)
        dora.locator("#cards-tab").click()
        card = dora.locator(".proposal", has_text="Stronger.")
        expect(card).to_be_visible()
        expect(card.get_by_role("button", name="Accept")).to_have_count(0)
        ana = open_document(watched.context.new_page(), paper)
        type_at_end_of(ana, "The boats", " Always.")
        expect(dora.locator(".cm-content")).to_contain_text("Always.")
