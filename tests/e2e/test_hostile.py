"""Hostile text from a person, a model and a card, on every page: it is shown as text and runs nothing. S18"""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.browser import shown
from tests.e2e.conftest import Site

HOSTILE = [
    "<script>window.hit = 1</script>",
    '<img src=x onerror="window.hit = 1">',
    '"><svg onload="window.hit = 1"></svg>',
    "[press me](javascript:window.hit=1) ![x](http://127.0.0.1:1/x.png) <http://127.0.0.1:1/>",
    "</textarea></template><iframe srcdoc='<script>parent.hit=1</script>'></iframe>",
    "{{ 7 * 7 }} {% raw %} ${window.hit=1}",
    "user\u202etxt.exe\u202c \u2066isolated\u2069 zero\u200bwidth \ufeffmark",
    "&lt;script&gt;window.hit=1&lt;/script&gt;",
    "*<b onmouseover=window.hit=1>bold*</b> **<i>**",
    "<style>*{display:none}</style><meta http-equiv=refresh content='0;url=//e'>",
]
ALL = "\n\n".join(HOSTILE)
LIVE = """() => {
    const kinds = ["script", "iframe", "img", "style", "meta", "object", "svg[onload]"];
    const tags = kinds.map(tag => `#main ${tag}, dialog ${tag}`);
    const acts = ({ name, value }) =>
        /^on/.test(name) || (/^(href|src|action|xlink:href)$/.test(name) && /javascript:/.test(value));
    const portraits = ".avatar, .cover-face, .character-head-portrait";
    return [...document.querySelectorAll(tags)].filter(e => !e.closest(portraits)).map(e => e.outerHTML)
        .concat([...document.querySelectorAll("*")].flatMap(e => [...e.attributes]).filter(acts).map(a => a.name));
}"""


def assert_nothing_runs(page: Page) -> None:
    assert page.evaluate("window.hit") is None
    assert page.evaluate(LIVE) == []


def make_card_character(site: Site) -> str:
    body = {"name": '<b onclick="window.hit=1">Eve\u202e</b>', "persona": ALL, "kickoff": ALL, "backstory": ALL,
            "traits": HOSTILE[:3], "initial_relationship": ALL}  # fmt: skip
    return str(site.ask("POST", "/characters", body)["id"])


@pytest.fixture
def chat(site: Site) -> str:
    site.ask("PUT", "/you", {"name": "<i onfocus=window.hit=1>Mallory\u202e", "persona": ALL})
    character = make_card_character(site)
    opening = {"title": HOSTILE[0] + "\u202e", "place": {"name": HOSTILE[1]}, "weather": HOSTILE[2]}
    return f"/chats/{site.ask('POST', f'/characters/{character}/kickoff', opening)['id']}"


def test_hostile_messages_and_replies_in_the_timeline(site: Site, page: Page, chat: str) -> None:
    page.goto(chat)
    site.say(chat, ALL, ALL)
    expect(page.locator(".turn").last).to_contain_text("<script>window.hit = 1</script>")
    assert_nothing_runs(page)
    assert "usertxt.exe" in shown(page.locator(".turn").last)
    assert not any(mark in page.content() for mark in "\u202e\u200b\u2066")
    page.reload()
    expect(page.locator(".turn").last).to_contain_text("press me")
    assert_nothing_runs(page)
    assert page.locator(".turn a").count() == 0, "no link is live"


def test_hostile_text_while_it_is_streamed(site: Site, page: Page, chat: str) -> None:
    page.goto(chat)
    site.script.paused = True
    site.script.replies.append(ALL)
    site.ask("POST", f"{chat}/turns", {"text": "Go."})
    for _ in range(12):
        site.step(4)
        page.wait_for_timeout(60)
        assert_nothing_runs(page)
    site.step(500)
    expect(page.locator("[data-live]")).to_have_text("Saved")
    assert_nothing_runs(page)


@pytest.mark.parametrize("path", ["/", "/chats", "/about", "/nothing/<script>window.hit=1</script>"])
def test_hostile_card_on_the_other_pages(site: Site, page: Page, chat: str, path: str) -> None:
    site.say(chat, ALL, ALL)
    page.goto(path)
    assert_nothing_runs(page)
    page.keyboard.press("ControlOrMeta+k")
    page.locator("#palette").get_by_role("combobox").fill("eve")
    expect(page.locator("#palette-list")).to_contain_text("Eve")
    assert_nothing_runs(page)


def test_hostile_text_in_the_rewind_dialog_and_the_drawer(site: Site, page: Page, chat: str) -> None:
    site.say(chat, "First.", "First.")
    site.say(chat, ALL, ALL)
    page.goto(chat)
    page.locator(".turn").nth(-3).get_by_role("button", name="More for this turn").click()
    page.get_by_role("menuitem", name="Rewind to here").click()
    page.get_by_text("Show all").click()
    assert_nothing_runs(page)
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Story details").click()
    expect(page.locator("#drawer-content")).to_contain_text("Scene")
    assert_nothing_runs(page)


def test_hostile_text_in_a_provider_error(site: Site, page: Page, chat: str) -> None:
    from coterie.llm.recording import RecordedCall, RecordedError

    page.goto(chat)
    fault = RecordedError(kind="ServerFault", what=f"It said {ALL}", fix="<b>Wait.</b>", status=500)
    site.script.faults.append(RecordedCall(say="Half", error=fault))
    site.ask("POST", f"{chat}/turns?wait=true", {"text": "Hello."})
    expect(page.locator(".banner")).to_contain_text("<script>")
    assert_nothing_runs(page)
