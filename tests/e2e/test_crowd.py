"""C10, C16, C17, C19 in a browser: a room, its chat with 100,000 lines, moderation, and the overlay."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, Route, expect

from tests.e2e.axe import serious
from tests.e2e.conftest import Site

ATTIC = """
name = "attic"
title = "The attic"
about = "A small room for a short evening."
roster = ["nonna_exe", "salt_lamp", "crit_happens", "bread_ian", "moss_granny"]
[tempo]
tick_s = 0.2
lines_per_minute = 120
rest_s = 2
typing_per_s = 200
[limits]
burst = 100
"""
TALE = "".join(
    f'[[line]]\nat = {number}\nsay = "chat, which door, number {number}?"\nevent = "chat_question"\n'
    for number in range(600)
)
FILL = """([from, many]) => document.getElementById("crowd").virtual.append(Array.from({ length: many }, (_, at) => ({
    number: from + at, id: `attic-${from + at}`, author: { name: `reader_${at % 40}`, kind: "persona" },
    text: `line ${from + at} ${"of the evening ".repeat(at % 9)}` })))"""


@pytest.fixture(scope="module")
def _site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("crowd")
    rooms = folder / "home" / "configs" / "rooms"
    rooms.mkdir(parents=True)
    (rooms / "attic.toml").write_text(ATTIC)
    streams = rooms.with_name("streams")
    streams.mkdir()
    (streams / "tale.toml").write_text(TALE)
    running = Site(folder / "home")
    running.ask("PUT", "/you", {"name": "Ana"})
    yield running
    running.close()


@pytest.fixture
def tale() -> str:
    return "tale.toml"


@pytest.fixture
def attic(site: Site, page: Page) -> Iterator[Page]:
    page.goto("/crowd/attic")
    page.locator("[data-live][data-state=live]").wait_for()
    yield page
    site.ask("POST", "/crowd/attic/stop")


def until(page: Page, true: str) -> None:
    """Poll, since the Content-Security-Policy forbids `wait_for_function`."""
    while not page.evaluate(true):
        page.wait_for_timeout(50)


def begin(page: Page, tale: str) -> None:
    page.get_by_role("button", name="Start", exact=True).first.click()
    page.get_by_label("Stream to watch").fill(tale)
    page.get_by_label("Text source").select_option("phrasebook")
    page.get_by_role("dialog").get_by_role("button", name="Start", exact=True).click()


def test_c19_c10_a_session_from_start_to_stop(attic: Page, tale: str) -> None:
    begin(attic, tale)
    expect(attic.locator("#crowd-state")).to_have_text("live")
    expect(attic.locator("#crowd-words")).to_contain_text("which door")
    expect(attic.locator("#crowd-events li").first).to_contain_text("asked the chat")
    attic.locator(".line").first.click()
    expect(attic.locator(".stages li").last).to_contain_text("admitted")
    expect(attic.locator(".stages")).to_contain_text(re.compile(r"decided\s*\d+\.\d\d s"))
    expect(attic.locator(".message-decision")).to_contain_text("base")
    attic.get_by_role("button", name="Show profile").click()
    expect(attic.locator(".person .drift")).to_have_count(5)
    attic.get_by_role("button", name="Stop", exact=True).click()
    expect(attic.locator("#crowd-state")).to_have_text("stopped")


def test_c19_the_last_requested_member_is_shown(attic: Page) -> None:
    held: list[Route] = []  # everybody, asked for when the tab opens, comes after somebody alone
    attic.route(re.compile("/people$"), lambda route: held.append(route))
    attic.locator("#crowd-people-tab").click()
    attic.evaluate("document.body.insertAdjacentHTML('beforeend', '<button data-member=\"nonna_exe\">ask</button>')")
    attic.locator("body > [data-member]").click()
    expect(attic.locator(".person .drift")).to_have_count(5)
    with attic.expect_response(re.compile("/people$")):
        held.pop().continue_()
    attic.wait_for_timeout(200)
    expect(attic.locator(".person .drift")).to_have_count(5)


def test_c19_a_message_is_answered(attic: Page, tale: str) -> None:
    begin(attic, tale)
    expect(attic.locator("#crowd-state")).to_have_text("live")
    attic.get_by_label("Say something, as Ana").fill("@nonna_exe is there soup?")
    attic.keyboard.press("Enter")
    mine = attic.locator(".line", has_text="is there soup?")
    expect(mine).to_be_visible()
    expect(attic.locator(".line-mine").first).to_contain_text("nonna_exe")


def test_c16_a_refused_message_is_logged_and_rulings_can_be_undone(site: Site, attic: Page) -> None:
    attic.get_by_label("Say something, as Ana").fill("look at http://spam.example/win")
    attic.keyboard.press("Enter")
    expect(attic.locator("#crowd-error")).to_contain_text("links")
    attic.get_by_role("tab", name="Moderation").click()
    expect(attic.locator(".audit li").first).to_contain_text("refused")
    attic.get_by_label("Switch the room off").check(force=True)
    expect(attic.locator(".audit li").first).to_contain_text("killed")
    refused = site.client.post("/crowd/attic/messages", json={"text": "anybody?"})
    assert refused.status_code == 422
    attic.get_by_label("Switch the room off").uncheck(force=True)
    expect(attic.locator(".audit li").first).to_contain_text("revived")
    site.ask("POST", "/crowd/attic/messages", {"text": "somebody"})
    attic.locator(".line", has_text="somebody").click()
    attic.get_by_role("button", name="Ban", exact=True).click()
    expect(attic.locator(".audit li").first).to_contain_text("ban")
    attic.locator(".toast").get_by_role("button", name="Undo", exact=True).click()
    expect(attic.locator(".audit li").first).to_contain_text("pardon")


def test_c5_room_rules_are_changed_and_saved(site: Site, attic: Page) -> None:
    attic.get_by_role("tab", name="Moderation").click()
    attic.get_by_text("Room rules").click()
    attic.get_by_label("Messages per minute").fill("140")
    attic.get_by_label("Twitch channel", exact=True).fill("streamer")
    attic.get_by_role("button", name="Save rules", exact=True).click()
    expect(attic.locator(".toast")).to_contain_text("Saved")
    rules = site.ask("GET", "/crowd/attic/rules")
    assert rules["tempo"]["lines_per_minute"] == 140
    assert rules["twitch"] == {"channel": "streamer", "send": "nothing"}


def test_c17_what_if_shows_the_difference(site: Site, attic: Page, tale: str) -> None:
    before = site.ask("GET", "/crowd/attic")["last"]
    begin(attic, tale)
    spoke = ""
    while not spoke:
        attic.wait_for_timeout(200)
        said = [each for each in site.ask("GET", "/crowd/attic/messages") if each["number"] > before]
        spoke = next((each["author"]["name"] for each in said if not each["reply_to"] and len(said) > 4), "")
    site.ask("POST", "/crowd/attic/stop")
    attic.get_by_role("tab", name="What if").click()
    attic.get_by_label("Who", exact=True).select_option(spoke)
    expect(attic.get_by_label("How they write")).not_to_have_value("")
    attic.get_by_label("Talkativeness").fill("0")
    attic.get_by_role("button", name="Replay").click()
    expect(attic.locator("#what-if-result .diff-removed").first).to_contain_text(str(spoke))


def test_c19_of_a_hundred_thousand_lines_only_the_near_ones_are_rendered(attic: Page) -> None:
    attic.evaluate(FILL, [1_000_000, 99_000])
    expect(attic.locator(".line").last).to_contain_text("line 1098999")
    assert attic.locator(".line").count() < 150
    attic.evaluate("document.getElementById('crowd-scroll').scrollTop /= 2")
    expect(attic.locator("#crowd-pill")).to_be_visible()
    pill = attic.locator("#crowd-pill").bounding_box()
    assert pill is not None and pill["height"] < 60, "it covers the chat"
    expect(attic.locator(".line").first).not_to_contain_text("line 10989")
    middle = attic.locator(".line").nth(30).text_content()
    top = attic.evaluate("document.getElementById('crowd-scroll').scrollTop")
    attic.evaluate(FILL, [2_000_000, 300])
    attic.wait_for_timeout(200)
    assert attic.evaluate("document.getElementById('crowd-scroll').scrollTop") == top
    assert attic.locator(".line").nth(30).text_content() == middle
    assert attic.locator(".line").count() < 150
    attic.locator("#crowd-pill").click()
    expect(attic.locator(".line").last).to_contain_text("line 2000299")
    expect(attic.locator("#crowd-pill")).to_be_hidden()


def test_c19_older_messages_load_on_scroll(site: Site, attic: Page) -> None:
    async def many() -> None:
        from coterie.modes.crowd import ChatAuthor, ChatPost

        room = await site.app.crowd.room("attic")
        for number in range(300):
            author = ChatAuthor(name=f"guest{number % 50}", kind="human")
            await room.gateway.post(ChatPost(id=f"h{number}", room="attic", author=author, text=f"earlier {number}."))

    site.do(many())
    attic.reload()
    expect(attic.locator(".line").last).to_contain_text("earlier 299.")
    attic.locator("#crowd-scroll").evaluate("scroll => (scroll.scrollTop = 0)")
    until(attic, "document.getElementById('crowd').virtual.length >= 300")


def test_c19_hostile_text_is_shown_as_text(site: Site, attic: Page) -> None:
    site.ask("POST", "/crowd/attic/messages", {"text": "<img src=x onerror=alert(1)> <b>bold</b> {{7*7}}"})
    line = attic.locator(".line", has_text="<img src=x onerror=alert(1)>")
    expect(line).to_contain_text("{{7*7}}")
    line.click()
    expect(attic.locator(".message-text")).to_contain_text("<b>bold</b>")
    assert attic.locator("#crowd img").count() == 0


def test_c19_the_overlay_shows_only_messages(site: Site, page: Page) -> None:
    site.ask("POST", "/crowd/attic/messages", {"text": "hello, broadcast"})
    page.goto("/crowd/attic/overlay")
    page.get_by_label("Text size in pixels").fill("32")
    page.get_by_label("Lines", exact=True).fill("2")
    page.get_by_label("Whose lines").select_option("people")
    address = page.get_by_label("Address").input_value()
    assert "size=32" in address
    assert "colour" not in address, "defaults are left out"
    page.goto(address)
    expect(page.locator(".line").last).to_contain_text("hello, broadcast")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgba(0, 0, 0, 0)"
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgba(0, 0, 0, 0)"
    assert page.evaluate("getComputedStyle(document.querySelector('.line')).fontSize") == "32px"
    for text in ("and again", "and a third time"):
        site.ask("POST", "/crowd/attic/messages", {"text": text})
        expect(page.locator(".line").last).to_contain_text(text)
    expect(page.locator(".line")).to_have_count(2)


def test_c19_lines_of_the_overlay_fade(site: Site, page: Page) -> None:
    page.goto("/crowd/attic/overlay")
    page.get_by_label("Remove lines after seconds").fill("1")
    page.goto(page.get_by_label("Address").input_value())
    site.ask("POST", "/crowd/attic/messages", {"text": "a passing thought"})
    expect(page.locator(".line", has_text="a passing thought")).to_be_visible()
    expect(page.locator(".line", has_text="a passing thought")).to_have_count(0)


@pytest.mark.parametrize(("theme", "width"), [("light", 390), ("dark", 1440)])
def test_c19_no_serious_issue(site: Site, page: Page, theme: str, width: int) -> None:
    site.ask("POST", "/crowd/attic/messages", {"text": f"hello from {theme} {width}"})
    page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
    page.set_viewport_size({"width": width, "height": 900})
    page.goto("/crowd")
    assert serious(page) == []
    page.goto("/crowd/attic/overlay")
    assert serious(page) == []
    page.goto("/crowd/attic")
    page.locator(".line").last.click()
    page.locator(".message").wait_for()
    assert serious(page) == []
    for tab in ("Stream", "Members", "Moderation", "What if"):
        page.get_by_role("tab", name=tab).click()
        page.wait_for_timeout(100)
        assert serious(page) == [], tab
