"""M2, M6 in a browser, over modes: told in a story, known at the desk, in the crowd, beside a document; where it may.

The model knows nothing by itself. Asked where something is, it answers from its prompt or not at all, whichever mode
asks it; so an answer on a page shows what stood in the prompt.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from coterie.llm.messages import CompletionRequest
from coterie.llm.recording import RecordedCall
from tests.e2e.browser import shown
from tests.e2e.conftest import Site
from tests.e2e.draft_document import Paper, opened
from tests.surfaces.web.conftest import Paced

ATTIC = """
name = "attic"
title = "The attic"
about = "A small room for a short evening."
roster = ["nonna_exe"]
[tempo]
tick_s = 0.2
lines_per_minute = 1
typing_per_s = 500
line_deadline_s = 60
[limits]
burst = 100
"""
TALE = "".join(f'[[line]]\nat = {number * 5}\nsay = "and so it goes on"\n' for number in range(200))
_ASKED = re.compile(r"[Ww]here is the (\w+)\?")
UNKNOWN = "nobody told me"


class Honest(Paced):
    """Where something is it knows from its prompt or not at all."""

    def __init__(self) -> None:
        super().__init__()
        self.unknown = 0

    def answer(self, request: CompletionRequest) -> RecordedCall:
        told = [message.text for message in request.prompt.messages]
        wanted = _ASKED.search(told[-1])
        if request.model == "cortex":
            return RecordedCall(say=" ".join(told))  # the worst that a bulletin could say: everything
        if request.prompt.output_schema is not None or wanted is None:
            return super().answer(request)
        place = re.search(rf"{wanted[1]} lies behind the (\w+) stone", "\n".join(told))
        if place is None:
            self.unknown += 1  # in the crowd nobody says the same twice
            return RecordedCall(say=f"{UNKNOWN} {self.unknown} {wanted[1]}")
        return RecordedCall(say=f"the {place[1]} one hides {wanted[1]}")


@pytest.fixture(scope="module")
def _site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("carry")
    rooms = folder / "house" / "configs" / "rooms"
    rooms.mkdir(parents=True)
    (rooms / "attic.toml").write_text(ATTIC)
    (folder / "tale.toml").write_text(TALE)
    made = Site(folder / "house", script=Honest())
    made.begin()
    made.ask("POST", "/crowd/attic/people", {"character": "Maren Oke"})
    yield made
    made.close()


@pytest.fixture
def maren(site: Site) -> str:
    return str(
        next(character["id"] for character in site.ask("GET", "/characters") if character["name"] == "Maren Oke")
    )


@pytest.fixture
def chat(site: Site, maren: str) -> str:
    told = {"title": "The lighthouse", "place": {"name": "the lamp room"}}
    return f"/chats/{site.ask('POST', f'/characters/{maren}/kickoff', told)['id']}"


def tell(page: Page, chat: str, text: str) -> None:
    """In the story, on its page."""
    page.goto(chat)
    before = page.locator("#timeline .turn").count()
    page.get_by_label("Say something").fill(text)
    page.keyboard.press("Enter")
    expect(page.locator("#timeline .turn")).to_have_count(before + 2)
    expect(page.locator("#timeline .turn").last).to_have_attribute("data-state", "done")


def whisper(site: Site, chat: str, maren: str, text: str) -> None:
    site.ask("POST", f"{chat}/turns?wait=true", {"text": text, "to": [maren]})


def remembered(site: Site, maren: str, text: str, *, there: bool = True) -> None:
    """Remembering is a job that follows the reply."""
    while (text in [memory.text for memory in site.call(lambda: list(site.app.memory.browse(owner=maren)))]) != there:
        time.sleep(0.05)


def in_the_bulletin(site: Site, text: str) -> None:
    """It is written now and then; here at once, if that was not done a moment ago."""
    desk = site.app.desk
    while not any(
        text in told for told in site.call(lambda: [desk.bulletins.text(one) for one in desk.queries.chats()])
    ):
        site.do(desk.maintenance.tick())
        time.sleep(0.05)


def in_story(page: Page, chat: str, thing: str) -> str:
    tell(page, chat, f"Where is the {thing}?")
    return shown(page.locator("#timeline .turn").last)


def at_the_desk(page: Page, thing: str) -> str:
    page.goto("/desk")
    page.get_by_label("About").fill(thing)
    page.get_by_role("button", name="Start conversation").click()
    expect(page.locator("[data-state=live]")).to_be_visible()
    page.get_by_label("Say something").fill(f"Where is the {thing}?")
    page.keyboard.press("Enter")
    answer = page.locator("#messages").get_by_text(re.compile(f"hides {thing}|{UNKNOWN}"))
    expect(answer).to_be_visible()
    return shown(answer)


def in_the_crowd(site: Site, page: Page, thing: str) -> str:
    page.goto("/crowd/attic")
    page.locator("[data-live][data-state=live]").wait_for()
    page.get_by_role("button", name="Start").first.click()
    page.get_by_label("Stream to watch").fill(str(site._home.root.parent / "tale.toml"))
    page.get_by_label("Lines are written by").select_option("model")
    page.get_by_role("dialog").get_by_role("button", name="Start").click()
    expect(page.locator("#crowd-state")).to_have_text("live")
    page.get_by_label("Say something, as Ana").fill(f"@maren_oke where is the {thing}?")
    page.keyboard.press("Enter")
    answer = page.locator(".line", has_text="maren_oke").filter(
        has_text=re.compile(f"hides {thing}|{UNKNOWN} .*{thing}")
    )
    expect(answer).to_be_visible()
    said = shown(answer)
    page.get_by_role("button", name="Stop", exact=True).click()
    expect(page.locator("#crowd-state")).to_have_text("quiet")
    return said


def beside_a_document(site: Site, page: Page, maren: str, thing: str) -> str:
    opened(page, Paper(site, bot=maren))
    page.keyboard.press("/")
    page.keyboard.type(f"Where is the {thing}?")
    page.keyboard.press("Enter")
    answer = page.locator("#messages").get_by_text(re.compile(f"hides {thing}|{UNKNOWN}"))
    expect(answer).to_be_visible()
    return shown(answer)


def test_m2_told_in_a_story_it_is_known_at_the_desk_in_the_crowd_and_beside_a_document(
    site: Site, page: Page, chat: str, maren: str
) -> None:
    assert UNKNOWN in at_the_desk(page, "key")
    tell(page, chat, "The key lies behind the blue stone.")
    remembered(site, maren, "The key lies behind the blue stone.")
    assert "the blue one" in at_the_desk(page, "key")
    assert "the blue one" in in_the_crowd(site, page, "key")
    assert "the blue one" in beside_a_document(site, page, maren, "key")


def test_m2_whispered_in_a_story_it_is_known_to_who_whispered_it_and_not_before_everybody(
    site: Site, page: Page, chat: str, maren: str
) -> None:
    whisper(site, chat, maren, "The letter lies behind the green stone.")
    remembered(site, maren, "The letter lies behind the green stone.")
    assert UNKNOWN in in_the_crowd(site, page, "letter")
    assert "the green one" in at_the_desk(page, "letter")
    assert "the green one" in beside_a_document(site, page, maren, "letter")
    assert UNKNOWN in in_the_crowd(site, page, "letter")


def test_m2_what_a_person_makes_private_is_not_known_in_the_crowd_any_more(
    site: Site, page: Page, chat: str, maren: str
) -> None:
    tell(page, chat, "The ring lies behind the white stone.")
    remembered(site, maren, "The ring lies behind the white stone.")
    (kept,) = [one for one in site.call(lambda: list(site.app.memory.browse(owner=maren))) if "ring" in one.text]
    site.ask("PATCH", f"/memories/{kept.id}", {"private": True})
    assert UNKNOWN in in_the_crowd(site, page, "ring")
    assert "the white one" in at_the_desk(page, "ring")


def test_m6_what_was_rewound_in_the_story_is_known_nowhere(site: Site, page: Page, chat: str, maren: str) -> None:
    tell(page, chat, "Good evening.")
    tell(page, chat, "The map lies behind the red stone.")
    remembered(site, maren, "The map lies behind the red stone.")
    assert "the red one" in at_the_desk(page, "map")
    # The bulletin knows it too, and has to forget it too.
    in_the_bulletin(site, "The map lies behind the red stone.")
    page.goto(chat)
    page.locator("#timeline .turn").nth(1).get_by_role("button", name="More for this turn").click()
    page.get_by_role("menuitem", name="Rewind to here").click()
    page.get_by_role("dialog", name="Rewind to here?").get_by_role("button", name="Rewind", exact=True).click()
    expect(page.locator("#timeline .turn")).to_have_count(2)
    remembered(site, maren, "The map lies behind the red stone.", there=False)
    assert UNKNOWN in at_the_desk(page, "map")
    assert UNKNOWN in in_the_crowd(site, page, "map")
    assert UNKNOWN in beside_a_document(site, page, maren, "map")
    assert UNKNOWN in in_story(page, chat, "map")


def test_m2_m6_a_forks_line_does_not_tell_the_other_and_what_it_takes_back_is_known_nowhere(
    site: Site, page: Page, chat: str, maren: str
) -> None:
    tell(page, chat, "Good evening.")
    first = site.ask("GET", f"{chat}/turns")["turns"][-1]["id"]
    fork = f"/chats/{site.ask('POST', f'{chat}/fork', {'turn': first})['id']}"
    tell(page, fork, "The coin lies behind the grey stone.")
    remembered(site, maren, "The coin lies behind the grey stone.")
    assert UNKNOWN in in_story(page, chat, "coin")
    assert "the grey one" in at_the_desk(page, "coin")
    site.ask("POST", f"{fork}/rewind", {"turn": first})
    remembered(site, maren, "The coin lies behind the grey stone.", there=False)
    assert UNKNOWN in at_the_desk(page, "coin")
    assert UNKNOWN in in_the_crowd(site, page, "coin")
