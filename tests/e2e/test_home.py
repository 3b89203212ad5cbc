"""The home page and the activity of a character, in a browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.axe import serious
from tests.e2e.browser import Theme, window
from tests.e2e.conftest import Site, Watched
from tests.e2e.draft_document import Paper, change
from tests.e2e.test_hostile import HOSTILE, assert_nothing_runs

AWAY = timedelta(hours=9)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    running = Site(tmp_path_factory.mktemp("home") / "home")
    yield running
    running.close()


@pytest.fixture(scope="module")
def chat(site: Site) -> str:
    """The last visit was yesterday; since then there is a reply and a proposal."""
    site.clock.behind = AWAY
    chat = site.begin()
    site.ask("POST", "/you/here")
    site.clock.behind = timedelta()
    site.say(chat, "Is the lamp lit?", "*She nods.* It has been for an hour.")
    paper = Paper(site)
    paper.propose(paper.thread(), change("Nobody asks.", "Nobody ever asks."))
    return chat


def inbox_text(page: Page) -> str:
    return page.get_by_role("region", name="Inbox").inner_text()


def test_the_inbox_links_to_new_replies_and_proposals(page: Page, site: Site, chat: str) -> None:
    page.goto("/")
    expect(page.get_by_role("heading", name="Welcome back, Ana")).to_be_visible()
    assert "Maren Oke left 1 proposal for The lamp" in inbox_text(page)
    page.get_by_role("link", name="Maren Oke answered").first.click()
    page.wait_for_url(f"**{chat}")
    expect(page.locator(".turn").last).to_contain_text("It has been for an hour.")
    with page.expect_response(lambda answer: answer.url.endswith("/read")):
        page.reload()
    page.get_by_title("Home").click()
    page.wait_for_url(f"{site.address}/")
    expect(page.get_by_role("heading", name="Welcome back, Ana")).to_be_visible()
    assert "answered" not in inbox_text(page), "read replies are not listed"
    assert "1 proposal" in inbox_text(page), "pending proposals stay listed"
    page.get_by_role("link", name="Maren Oke left 1 proposal").click()
    page.wait_for_url("**/documents/lamp.md*")


def test_home_shows_every_mode_and_all_characters(page: Page, chat: str) -> None:
    page.goto("/")
    for name in ("Stories", "Drafts", "Crowd", "Desk"):
        expect(page.get_by_role("region", name=name)).to_be_visible()
    expect(page.get_by_role("region", name="Stories").get_by_role("link", name="The lighthouse")).to_be_visible()
    expect(page.get_by_role("region", name="Drafts").get_by_role("link", name="The lamp")).to_be_visible()
    expect(page.get_by_role("region", name="Desk")).to_contain_text("Give a character a task.")
    page.get_by_role("list", name="Characters").get_by_role("link", name="Maren Oke").first.click()
    expect(page.get_by_role("heading", name="Maren Oke")).to_be_visible()


def test_a_read_desk_conversation_is_not_in_the_inbox(page: Page, site: Site, chat: str) -> None:
    bot = site.ask("GET", chat)["host"]["id"]
    desk = site.ask("POST", "/desk", {"character": bot, "title": "The garden"})["id"]
    site.script.replies.append("Good morning.")
    site.ask("POST", f"/desk/{desk}/messages?wait=true", {"text": "Are you there?"})
    page.goto("/")
    assert "The garden" in inbox_text(page)
    with page.expect_response(lambda answer: answer.url.endswith("/read")):
        page.get_by_role("link", name="Maren Oke replied").click()
    page.goto("/")
    assert "The garden" not in inbox_text(page)


def test_shortcut_and_palette_open_the_home_page(page: Page, site: Site, chat: str) -> None:
    page.goto("/memory")
    page.keyboard.press("g")
    page.keyboard.press("h")
    page.wait_for_url(f"{site.address}/")
    expect(page.locator(".rail-brand")).to_have_attribute("aria-current", "page")
    page.goto("/memory")
    page.keyboard.press("ControlOrMeta+k")
    page.keyboard.type("home")
    page.keyboard.press("Enter")
    page.wait_for_url(f"{site.address}/")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('.home-characters') !== null")


def test_a_character_page_links_to_its_stories_drafts_and_memories(page: Page, site: Site, chat: str) -> None:
    bots = site.ask("GET", "/characters")
    page.goto(f"/characters/{site.ask('GET', chat)['host']['id']}")
    page.get_by_role("tab", name="Activity").click()
    expect(page.get_by_role("region", name="Stories").get_by_role("link", name="The lighthouse")).to_be_visible()
    assert serious(page) == []
    page.get_by_role("tab", name="Memory").click()
    assert serious(page) == []
    writer = next(bot["id"] for bot in bots if site.app.draft.thread_queries.of_character(bot["id"]))
    page.goto(f"/characters/{writer}")
    page.get_by_role("tab", name="Activity").click()
    page.get_by_role("region", name="Drafts").get_by_role("link", name="About it").click()
    page.wait_for_url(re.compile("/documents/lamp.md.*thread="))


def test_c5_a_character_is_added_to_a_crowd_room(page: Page, site: Site, chat: str) -> None:
    maren = f"/characters/{site.ask('GET', chat)['host']['id']}"
    page.goto(maren)
    page.get_by_role("tab", name="Activity").click()
    crowd = page.get_by_role("region", name="Crowd")
    expect(crowd).to_contain_text("is not a member of any room")
    page.get_by_role("button", name="Kitchen radio").click()
    page.wait_for_url("**/crowd/kitchen-radio")
    page.goto(maren)
    page.get_by_role("tab", name="Activity").click()
    expect(crowd.get_by_role("link", name="Kitchen radio")).to_be_visible()
    expect(page.get_by_role("button", name="Kitchen radio")).to_have_count(0)
    assert serious(page) == []


@pytest.mark.parametrize(("theme", "width"), [("light", 390), ("light", 820), ("dark", 1440)])
def test_home_has_no_serious_accessibility_issue(
    browser: Browser, site: Site, chat: str, theme: Theme, width: int
) -> None:
    context = window(browser, site.address, width, 844, theme)
    watched = Watched(context)
    page = context.new_page()
    page.goto("/")
    assert serious(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    if width < 500:
        page.get_by_role("button", name="More", exact=True).click()
        expect(page.get_by_role("menuitem", name="Home")).to_be_visible()
    context.close()
    assert watched.errors == []


def test_hostile_names_are_shown_as_text(page: Page, site: Site, chat: str) -> None:
    bot = site.ask("POST", "/characters", {"name": HOSTILE[1] + "\u202e"})["id"]
    opening = {"title": HOSTILE[0], "place": {"name": HOSTILE[2]}}
    hostile = f"/chats/{site.ask('POST', f'/characters/{bot}/kickoff', opening)['id']}"
    site.say(hostile, "Hello.", HOSTILE[2])
    site.ask("POST", "/draft/workspaces", {"name": HOSTILE[0]})
    for path in ("/", f"/characters/{bot}"):
        page.goto(path)
        expect(page.locator("#main")).to_contain_text("<img src=x")
        assert_nothing_runs(page)
        assert "\u202e" not in page.content()


def test_a_new_instance_redirects_to_the_first_steps(new_site: Site, browser: Browser) -> None:
    page = browser.new_page(base_url=new_site.address)
    page.goto("/")
    page.wait_for_url("**/settings")
    new_site.ask("PUT", "/you", {"name": "Ana"})
    page.goto("/")
    page.wait_for_url("**/characters/new")
    new_site.ask("POST", "/characters/ready/maren")
    page.goto("/")
    expect(page.get_by_role("heading", name="Hello, Ana")).to_be_visible()
    expect(page.get_by_text("Nothing new.")).to_be_visible()
    assert serious(page) == []
    page.close()
