"""Two people and a character on one document, each in a browser of their own. F8, F9, F12, must-show 5"""

from __future__ import annotations

from playwright.sync_api import Browser, Page, expect

from tests.e2e.conftest import Site, Watched
from tests.e2e.draft_document import Paper, another, change, lines, opened, put_at_end_of


def same_text(paper: Paper, *pages: Page) -> str:
    """Everybody sees what Git has."""
    for page in pages:
        expect(page.locator("[data-live]")).to_have_text("Saved")
    text = paper.text()
    for page in pages:
        assert lines(page).rstrip("\n") == text.rstrip("\n")
    return text


def test_f9_two_people_type_in_one_document_and_nothing_is_lost(site: Site, browser: Browser, watched: Watched) -> None:
    paper = Paper(site)
    with another(browser, site) as theirs:
        ana, bo = opened(watched.context.new_page(), paper), opened(theirs.context.new_page(), paper)
        expect(ana.locator(".status-end")).to_have_text("You are Ana")
        expect(bo.locator(".status-end")).to_have_text("You are Bo")
        for page, line in ((ana, "The boats"), (bo, "The boats")):
            page.locator(".cm-line", has_text=line).click()
            page.keyboard.press("End")
        # Both at the very same place, key by key.
        for mine, yours in zip("abcdefghij", "ABCDEFGHIJ", strict=True):
            ana.keyboard.type(mine)
            bo.keyboard.type(yours)
        put_at_end_of(bo, "# The lamp", " at sea")
        for page in (ana, bo):
            expect(page.locator(".cm-line", has_text="at sea")).to_be_visible()
            page.wait_for_function("() => /winter\\.\\w{20}$/m.test(document.querySelector('.cm-content').innerText)")
        text = same_text(paper, ana, bo)
        typed = text.rstrip("\n").rpartition("winter.")[2]
        assert "".join(filter(str.islower, typed)) == "abcdefghij"
        assert "".join(filter(str.isupper, typed)) == "ABCDEFGHIJ"
        authors = {str(one["author"]) for one in paper.history()}
        assert authors & {"Ana", "Bo"}


def test_f8_f12_proposals_accepts_undo_stale_and_notices_once(site: Site, browser: Browser, watched: Watched) -> None:
    paper = Paper(site)
    thread = paper.thread()
    with another(browser, site) as theirs:
        ana, bo = (
            opened(watched.context.new_page(), paper),
            opened(theirs.context.new_page(), paper, f"?thread={thread}"),
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
        # Ana takes the words of the other one away by hand; for both it is stale, and fresh when they are back.
        put_at_end_of(ana, "Nobody knows", "")
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

        # Ana answers in the thread: Bo, who wrote before, is told once; Ana is not told of her own words.
        site.script.replies.append("So be it.")
        ana.locator("#thread-tab-button").click()
        ana.locator(f"#th-{thread}").click()
        ana.locator("#message-field").fill("I declined one.")
        ana.locator("#message-field").press("Enter")
        expect(ana.locator("#messages")).to_contain_text("So be it.")
        expect(bo.locator("#messages")).to_contain_text("I declined one.")
        expect(bo.locator("#inbox")).to_have_attribute("data-unread", "3")
        bo.goto("/draft/inbox")
        told = bo.locator(".inbox li")
        expect(told).to_have_count(3)  # the character's two replies, and Ana's message
        expect(told.filter(has_text="I declined one.")).to_have_count(1)
        expect(told.filter(has_text="What would you change?")).to_have_count(0)
        ana.goto("/draft/inbox")
        expect(ana.locator(".inbox li").filter(has_text="I declined one.")).to_have_count(0)
        bo.get_by_role("button", name="Mark all as read").click()
        expect(bo.locator(".inbox li[data-unread]")).to_have_count(0)


def test_f9_a_page_from_before_a_restart_merges_what_it_typed_or_is_refused_with_the_difference(
    site: Site, page: Page
) -> None:
    paper = Paper(site)
    opened(page, paper)
    # The server forgets the sheet, as a restart does, and the document moves on while the page hears nothing.
    page.context.set_offline(True)
    put_at_end_of(page, "The boats", " Or never.")
    site.do(site.house.draft.close())
    moved = paper.text().replace("# The lamp", "# The lamp at sea")
    base = site.ask("GET", paper.address)["base"]
    site.ask("PUT", paper.address, {"text": moved, "base": base})
    page.context.set_offline(False)
    expect(page.locator(".cm-content")).to_contain_text("# The lamp at sea")
    expect(page.locator(".cm-content")).to_contain_text("Or never.")
    assert "winter. Or never." in same_text(paper, page)
    page.context.set_offline(True)
    put_at_end_of(page, "The boats", " Sometimes.")
    site.do(site.house.draft.close())
    base = site.ask("GET", paper.address)["base"]
    site.ask("PUT", paper.address, {"text": paper.text().replace("Or never.", "Always"), "base": base})
    page.context.set_offline(False)
    expect(page.locator("#clash")).to_be_visible()
    expect(page.locator("#difference")).to_contain_text("Sometimes.")
    page.get_by_role("button", name="Take the text as it is").click()
    expect(page.locator(".cm-content")).to_contain_text("Always")
    assert "Sometimes" not in paper.text()
