"""The home page and a character's places, in a browser: coming back, going on from there, and nobody kept out."""

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
from tests.e2e.test_hostile import HOSTILE, never_live

AWAY = timedelta(hours=9)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("home") / "house")
    yield made
    made.close()


@pytest.fixture(scope="module")
def chat(site: Site) -> str:
    """Left yesterday; since then somebody answered, and proposed."""
    site.clock.behind = AWAY
    chat = site.begin()
    site.ask("POST", "/you/here")
    site.clock.behind = timedelta()
    site.say(chat, "Is the lamp lit?", "*She nods.* It has been for an hour.")
    paper = Paper(site)
    paper.propose(paper.thread(), change("Nobody asks.", "Nobody ever asks."))
    return chat


def away(page: Page) -> str:
    return page.get_by_role("region", name="Inbox").inner_text()


def test_whoever_comes_back_is_told_and_led_there(page: Page, site: Site, chat: str) -> None:
    page.goto("/")
    expect(page.get_by_role("heading", name="Welcome back, Ana")).to_be_visible()
    assert "Maren Oke left 1 proposal for The lamp" in away(page)
    page.get_by_role("link", name="Maren Oke answered").first.click()
    page.wait_for_url(f"**{chat}")
    expect(page.locator(".turn").last).to_contain_text("It has been for an hour.")
    with page.expect_response(lambda answer: answer.url.endswith("/read")):
        page.reload()
    page.get_by_title("Home").click()
    page.wait_for_url(f"{site.address}/")
    expect(page.get_by_role("heading", name="Welcome back, Ana")).to_be_visible()
    assert "answered" not in away(page), "what was read is no news"
    assert "1 proposal" in away(page), "what waits goes on waiting"
    page.get_by_role("link", name="Maren Oke left 1 proposal").click()
    page.wait_for_url("**/documents/lamp.md*")


def test_home_shows_every_mode_and_everybody(page: Page, chat: str) -> None:
    page.goto("/")
    for name in ("Stories", "Drafts", "Crowd", "Desk"):
        expect(page.get_by_role("region", name=name)).to_be_visible()
    expect(page.get_by_role("region", name="Stories").get_by_role("link", name="The lighthouse")).to_be_visible()
    expect(page.get_by_role("region", name="Drafts").get_by_role("link", name="The lamp")).to_be_visible()
    expect(page.get_by_role("region", name="Desk")).to_contain_text("Give a character a task.")
    page.get_by_role("list", name="Characters").get_by_role("link", name="Maren Oke").first.click()
    expect(page.get_by_role("heading", name="Maren Oke")).to_be_visible()


def test_a_desk_that_was_looked_at_is_no_news(page: Page, site: Site, chat: str) -> None:
    bot = site.ask("GET", chat)["host"]["id"]
    desk = site.ask("POST", "/desk", {"character": bot, "title": "The garden"})["id"]
    site.script.replies.append("Good morning.")
    site.ask("POST", f"/desk/{desk}/messages?wait=true", {"text": "Are you there?"})
    page.goto("/")
    assert "The garden" in away(page)
    with page.expect_response(lambda answer: answer.url.endswith("/read")):
        page.get_by_role("link", name="Maren Oke replied").click()
    page.goto("/")
    assert "The garden" not in away(page)


def test_keys_and_the_palette_lead_home(page: Page, site: Site, chat: str) -> None:
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


def test_a_character_leads_to_its_stories_drafts_and_memories(page: Page, site: Site, chat: str) -> None:
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


def test_c5_a_character_takes_a_seat_in_a_room_of_the_crowd(page: Page, site: Site, chat: str) -> None:
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
def test_home_keeps_nobody_out(browser: Browser, site: Site, chat: str, theme: Theme, width: int) -> None:
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
    assert watched.complaints == []


def test_hostile_names_never_act(page: Page, site: Site, chat: str) -> None:
    bot = site.ask("POST", "/characters", {"name": HOSTILE[1] + "\u202e"})["id"]
    opening = {"title": HOSTILE[0], "place": {"name": HOSTILE[2]}}
    hostile = f"/chats/{site.ask('POST', f'/characters/{bot}/kickoff', opening)['id']}"
    site.say(hostile, "Hello.", HOSTILE[2])
    site.ask("POST", "/draft/workspaces", {"name": HOSTILE[0]})
    for path in ("/", f"/characters/{bot}"):
        page.goto(path)
        expect(page.locator("#main")).to_contain_text("<img src=x")
        never_live(page)
        assert "\u202e" not in page.content()


def test_a_new_house_sends_newcomers_on(new_site: Site, browser: Browser) -> None:
    page = browser.new_page(base_url=new_site.address)
    page.goto("/")
    page.wait_for_url("**/settings")
    new_site.ask("PUT", "/you", {"name": "Ana"})
    page.goto("/")
    page.wait_for_url("**/characters/new")
    new_site.ask("POST", "/characters/ready/maren")
    page.goto("/")
    expect(page.get_by_role("heading", name="Hello, Ana")).to_be_visible()
    expect(page.get_by_text("Nothing is waiting.")).to_be_visible()
    assert serious(page) == []
    page.close()
