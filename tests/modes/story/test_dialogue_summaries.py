"""Summaries that replace older dialogue in prompts."""

from __future__ import annotations

from pathlib import Path

import pytest

from coterie.base.clock import ManualClock
from coterie.characters.service import OwnerProfile
from coterie.llm.recording import RecordedCall
from coterie.modes.story.sent_prompts import PromptQueries
from coterie.modes.story.settings import StorySettings
from tests.modes.story.conftest import ScriptedModel, StoryHarness

LONG = "The tide comes in slowly over the grey stones and the boats lean against the wall. "


@pytest.fixture
async def harness(tmp_path: Path, clock: ManualClock, script: ScriptedModel) -> StoryHarness:  # type: ignore[misc]
    """A small budget, so that prompts soon leave out dialogue."""
    made = StoryHarness(
        tmp_path / "coterie.db", clock, script, StorySettings(narrative_budget_hard=900, narrative_budget_soft=420)
    )
    await made.characters.save_owner(OwnerProfile(name="Ana"))
    yield made
    made.verify()
    await made.close()


async def talk(harness: StoryHarness, room: str, exchanges: int, **options: object) -> str:
    for number in range(exchanges):
        begun = await harness.say(room, f"Number {number}. {LONG}", **options)
    return begun.reply


async def test_s13_older_dialogue_is_replaced_by_a_summary(harness: StoryHarness, script: ScriptedModel) -> None:
    script.shapes["DialogueSummary"] = {"summary": "They counted boats."}
    room = await harness.start_chat(await harness.create_character())
    reply = await talk(harness, room, 14)
    assert harness.story.chats.dialogue_summary(room) is not None
    parts = {part.name: part.text for part in PromptQueries(harness.store).inspect(room, reply).parts}
    assert "They counted boats." in parts["summary"]
    assert "Ana: Number 0." not in script.prompt()
    assert f"Number 13. {LONG}".strip() in script.prompt()
    asked = script.questions("DialogueSummary")
    assert "So far: nothing" in asked[0]
    assert "Number 0." in asked[0]
    assert all("So far: They counted boats." in question for question in asked[1:])
    summarised = [number for question in asked for number in range(14) if f"Number {number}." in question]
    assert summarised == sorted(set(summarised))  # every turn once, in order


async def test_s13_dialogue_is_summarised_only_when_enough_turns_were_left_out(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    room = await harness.start_chat(await harness.create_character())
    for _ in range(8):
        await harness.say(room, "Short.")
    assert script.questions("DialogueSummary") == []
    await talk(harness, room, 14)
    assert 0 < len(script.questions("DialogueSummary")) <= 3


async def test_s13_summaries_leave_out_whispers_and_guests_do_not_get_what_they_missed(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    mara, theo = await harness.create_character(), await harness.create_character("Theo")
    room = await harness.start_chat(mara)
    script.shapes["DialogueSummary"] = {"summary": "They counted boats."}
    await harness.say(room, "The zither is stolen.", to=[mara.id])
    await talk(harness, room, 14)
    assert script.questions("DialogueSummary")
    assert not [question for question in script.questions("DialogueSummary") if "zither" in question]
    await harness.story.invite(room, theo.id)
    await talk(harness, room, 6, speaker=theo.id)
    assert "They counted boats." not in script.prompt()
    await harness.say(room, "And you?", speaker=mara.id)
    assert "They counted boats." in script.prompt()


async def test_s13_s22_a_summary_is_superseded_with_the_reply_that_caused_it(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    script.shapes["DialogueSummary"] = {"summary": "They counted boats."}
    room = await harness.start_chat(await harness.create_character())
    while harness.story.chats.dialogue_summary(room) is None:
        begun = await harness.say(room, LONG)
    kept = harness.story.timeline.latest(room, 3)[0]
    await harness.story.rewind(room, kept.id)
    assert harness.story.chats.dialogue_summary(room) is None
    await harness.story.undo_rewind(room)
    assert harness.story.chats.dialogue_summary(room) is not None
    script.shapes["DialogueSummary"] = {"summary": "They counted gulls."}
    again = await harness.regenerate(room)
    summary = harness.story.chats.dialogue_summary(room)
    assert summary is not None
    assert summary[1] == "They counted gulls."
    await harness.story.choose(room, begun.reply)
    assert harness.story.chats.dialogue_summary(room) == (summary[0], "They counted boats.")
    await harness.story.choose(room, again.reply)
    assert harness.story.chats.dialogue_summary(room) == summary


async def test_s13_without_a_model_the_summary_is_the_first_and_last_turns(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    script.shapes["DialogueSummary"] = RecordedCall(say="I can't do that.")
    room = await harness.start_chat(await harness.create_character())
    await talk(harness, room, 15)
    summary = harness.story.chats.dialogue_summary(room)
    assert summary is not None
    assert "Ana: Number 0." in summary[1]
