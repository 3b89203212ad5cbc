"""M2, M6 in a browser: a memory from a story is used at the desk, in the crowd and in a document, where allowed.

The scripted model answers questions only from its prompt, so an answer on a page shows what the prompt contained.
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
from tests.e2e.draft_document import Paper, open_document
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


class PromptOnlyModel(Paced):
    """Answers where something is from its prompt."""

    def __init__(self) -> None:
        super().__init__()
        self.unknown = 0

    def answer(self, request: CompletionRequest) -> RecordedCall:
        texts = [message.text for message in request.prompt.messages]
        question = _ASKED.search(texts[-1])
        if request.model == "cortex":
            return RecordedCall(say=" ".join(texts))  # the bulletin contains the whole prompt
        if request.prompt.output_schema is not None or question is None:
            return super().answer(request)
        place = re.search(rf"{question[1]} lies behind the (\w+) stone", "\n".join(texts))
        if place is None:
            self.unknown += 1  # the crowd drops repeated lines
            return RecordedCall(say=f"{UNKNOWN} {self.unknown} {question[1]}")
        return RecordedCall(say=f"the {place[1]} one hides {question[1]}")


@pytest.fixture(scope="module")
def _site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("carry")
    rooms = folder / "home" / "configs" / "rooms"
    rooms.mkdir(parents=True)
    (rooms / "attic.toml").write_text(ATTIC)
    streams = rooms.with_name("streams")
    streams.mkdir()
    (streams / "tale.toml").write_text(TALE)
    running = Site(folder / "home", script=PromptOnlyModel())
    running.begin()
    running.ask("POST", "/crowd/attic/people", {"character": "Maren Oke"})
    yield running
    running.close()


@pytest.fixture
def maren(site: Site) -> str:
    return str(
        next(character["id"] for character in site.ask("GET", "/characters") if character["name"] == "Maren Oke")
    )


@pytest.fixture
def chat(site: Site, maren: str) -> str:
    body = {"title": "The lighthouse", "place": {"name": "the lamp room"}}
    return f"/chats/{site.ask('POST', f'/characters/{maren}/kickoff', body)['id']}"


def send_message(page: Page, chat: str, text: str) -> None:
    """Send a message on the chat page and wait for the reply."""
    page.goto(chat)
    before = page.locator("#timeline .turn").count()
    page.get_by_label("Say something").fill(text)
    page.keyboard.press("Enter")
    expect(page.locator("#timeline .turn")).to_have_count(before + 2)
    expect(page.locator("#timeline .turn").last).to_have_attribute("data-state", "done")


def whisper(site: Site, chat: str, maren: str, text: str) -> None:
    site.ask("POST", f"{chat}/turns?wait=true", {"text": text, "to": [maren]})


def wait_for_memory(site: Site, maren: str, text: str, *, exists: bool = True) -> None:
    """Wait until the job after the reply has stored the memory, or a rewind has removed it."""
    while (text in [memory.text for memory in site.call(lambda: list(site.app.memory.browse(owner=maren)))]) != exists:
        time.sleep(0.05)


def wait_for_bulletin(site: Site, text: str) -> None:
    """Run maintenance until the bulletin contains the text."""
    desk = site.app.desk
    while not any(
        text in bulletin for bulletin in site.call(lambda: [desk.bulletins.text(one) for one in desk.queries.chats()])
    ):
        site.do(desk.maintenance.tick())
        time.sleep(0.05)


def ask_in_story(page: Page, chat: str, thing: str) -> str:
    send_message(page, chat, f"Where is the {thing}?")
    return shown(page.locator("#timeline .turn").last)


def ask_at_desk(page: Page, thing: str) -> str:
    page.goto("/desk")
    page.get_by_label("About").fill(thing)
    page.get_by_role("button", name="Start conversation").click()
    expect(page.locator("[data-state=live]")).to_be_visible()
    page.get_by_label("Say something").fill(f"Where is the {thing}?")
    page.keyboard.press("Enter")
    answer = page.locator("#messages").get_by_text(re.compile(f"hides {thing}|{UNKNOWN}"))
    expect(answer).to_be_visible()
    return shown(answer)


def ask_in_crowd(site: Site, page: Page, thing: str) -> str:
    page.goto("/crowd/attic")
    page.locator("[data-live][data-state=live]").wait_for()
    page.get_by_role("button", name="Start").first.click()
    page.get_by_label("Stream to watch").fill("tale.toml")
    page.get_by_label("Text source").select_option("model")
    page.get_by_role("dialog").get_by_role("button", name="Start").click()
    expect(page.locator("#crowd-state")).to_have_text("live")
    page.get_by_label("Say something, as Ana").fill(f"@maren_oke where is the {thing}?")
    page.keyboard.press("Enter")
    answer = page.locator(".line", has_text="maren_oke").filter(
        has_text=re.compile(f"hides {thing}|{UNKNOWN} .*{thing}")
    )
    expect(answer).to_be_visible()
    text = shown(answer)
    page.get_by_role("button", name="Stop", exact=True).click()
    expect(page.locator("#crowd-state")).to_have_text("stopped")
    return text


def ask_in_document(site: Site, page: Page, maren: str, thing: str) -> str:
    open_document(page, Paper(site, bot=maren))
    page.keyboard.press("/")
    page.keyboard.type(f"Where is the {thing}?")
    page.keyboard.press("Enter")
    answer = page.locator("#messages").get_by_text(re.compile(f"hides {thing}|{UNKNOWN}"))
    expect(answer).to_be_visible()
    return shown(answer)


def test_m2_a_memory_from_a_story_is_used_in_every_mode(site: Site, page: Page, chat: str, maren: str) -> None:
    assert UNKNOWN in ask_at_desk(page, "key")
    send_message(page, chat, "The key lies behind the blue stone.")
    wait_for_memory(site, maren, "The key lies behind the blue stone.")
    assert "the blue one" in ask_at_desk(page, "key")
    assert "the blue one" in ask_in_crowd(site, page, "key")
    assert "the blue one" in ask_in_document(site, page, maren, "key")


def test_m2_a_whisper_is_used_with_its_author_but_not_in_the_crowd(
    site: Site, page: Page, chat: str, maren: str
) -> None:
    whisper(site, chat, maren, "The letter lies behind the green stone.")
    wait_for_memory(site, maren, "The letter lies behind the green stone.")
    assert UNKNOWN in ask_in_crowd(site, page, "letter")
    assert "the green one" in ask_at_desk(page, "letter")
    assert "the green one" in ask_in_document(site, page, maren, "letter")
    assert UNKNOWN in ask_in_crowd(site, page, "letter")


def test_m2_a_memory_made_private_is_not_used_in_the_crowd(site: Site, page: Page, chat: str, maren: str) -> None:
    send_message(page, chat, "The ring lies behind the white stone.")
    wait_for_memory(site, maren, "The ring lies behind the white stone.")
    (kept,) = [one for one in site.call(lambda: list(site.app.memory.browse(owner=maren))) if "ring" in one.text]
    site.ask("PATCH", f"/memories/{kept.id}", {"private": True})
    assert UNKNOWN in ask_in_crowd(site, page, "ring")
    assert "the white one" in ask_at_desk(page, "ring")


def test_m6_a_rewound_memory_is_used_nowhere(site: Site, page: Page, chat: str, maren: str) -> None:
    send_message(page, chat, "Good evening.")
    send_message(page, chat, "The map lies behind the red stone.")
    wait_for_memory(site, maren, "The map lies behind the red stone.")
    assert "the red one" in ask_at_desk(page, "map")
    # The bulletin contains it too.
    wait_for_bulletin(site, "The map lies behind the red stone.")
    page.goto(chat)
    page.locator("#timeline .turn").nth(1).get_by_role("button", name="More for this turn").click()
    page.get_by_role("menuitem", name="Rewind to here").click()
    page.get_by_role("dialog", name="Rewind to here?").get_by_role("button", name="Rewind", exact=True).click()
    expect(page.locator("#timeline .turn")).to_have_count(2)
    wait_for_memory(site, maren, "The map lies behind the red stone.", exists=False)
    assert UNKNOWN in ask_at_desk(page, "map")
    assert UNKNOWN in ask_in_crowd(site, page, "map")
    assert UNKNOWN in ask_in_document(site, page, maren, "map")
    assert UNKNOWN in ask_in_story(page, chat, "map")


def test_m2_m6_memories_of_a_fork_are_not_used_in_the_original_nor_after_a_rewind(
    site: Site, page: Page, chat: str, maren: str
) -> None:
    send_message(page, chat, "Good evening.")
    first = site.ask("GET", f"{chat}/turns")["turns"][-1]["id"]
    fork = f"/chats/{site.ask('POST', f'{chat}/fork', {'turn': first})['id']}"
    send_message(page, fork, "The coin lies behind the grey stone.")
    wait_for_memory(site, maren, "The coin lies behind the grey stone.")
    assert UNKNOWN in ask_in_story(page, chat, "coin")
    assert "the grey one" in ask_at_desk(page, "coin")
    site.ask("POST", f"{fork}/rewind", {"turn": first})
    wait_for_memory(site, maren, "The coin lies behind the grey stone.", exists=False)
    assert UNKNOWN in ask_at_desk(page, "coin")
    assert UNKNOWN in ask_in_crowd(site, page, "coin")
