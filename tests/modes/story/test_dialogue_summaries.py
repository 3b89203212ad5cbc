"""Older dialogue in short: S13. It stands in for what was said aloud, before those who heard it all."""

from __future__ import annotations

from pathlib import Path

import pytest

from coterie.base.clock import ManualClock
from coterie.characters.service import OwnerProfile
from coterie.llm.recording import RecordedCall
from coterie.modes.story.queries import PromptQueries
from coterie.modes.story.settings import StorySettings
from tests.modes.story.conftest import ScriptedModel, StoryHarness

LONG = "The tide comes in slowly over the grey stones and the boats lean against the wall. "


@pytest.fixture
async def stage(tmp_path: Path, clock: ManualClock, script: ScriptedModel) -> StoryHarness:  # type: ignore[misc]
    """So little room that dialogue has to be left out soon."""
    made = StoryHarness(
        tmp_path / "coterie.db", clock, script, StorySettings(narrative_budget_hard=900, narrative_budget_soft=420)
    )
    await made.roster.save_owner(OwnerProfile(name="Ana"))
    yield made
    made.verify()
    await made.close()


async def talk(stage: StoryHarness, room: str, exchanges: int, **options: object) -> str:
    for number in range(exchanges):
        begun = await stage.say(room, f"Number {number}. {LONG}", **options)
    return begun.reply


async def test_s13_older_dialogue_is_replaced_by_what_it_was_in_short(
    stage: StoryHarness, script: ScriptedModel
) -> None:
    script.shapes["DialogueSummary"] = {"summary": "They counted boats."}
    room = await stage.start_chat(await stage.create_character())
    reply = await talk(stage, room, 10)
    assert stage.story.chats.dialogue_summary(room) is not None
    parts = {part.name: text for part, text in PromptQueries(stage.store).inspect(room, reply).parts}
    assert "They counted boats." in parts["summary"]
    assert "Ana: Number 0." not in script.prompt()
    assert f"Number 9. {LONG}".strip() in script.prompt()
    asked = script.questions("DialogueSummary")
    assert "So far: nothing" in asked[0]
    assert "Number 0." in asked[0]
    assert all("So far: They counted boats." in question for question in asked[1:])
    told = [number for question in asked for number in range(10) if f"Number {number}." in question]
    assert told == sorted(set(told))  # every turn is told once, in order


async def test_s13_a_summary_is_made_only_when_enough_was_left_out(stage: StoryHarness, script: ScriptedModel) -> None:
    room = await stage.start_chat(await stage.create_character())
    for _ in range(8):
        await stage.say(room, "Short.")
    assert script.questions("DialogueSummary") == []
    await talk(stage, room, 10)
    assert 0 < len(script.questions("DialogueSummary")) <= 3


async def test_s13_whispers_are_never_retold_and_guests_are_not_told_what_they_missed(
    stage: StoryHarness, script: ScriptedModel
) -> None:
    mara, theo = await stage.create_character(), await stage.create_character("Theo")
    room = await stage.start_chat(mara)
    script.shapes["DialogueSummary"] = {"summary": "They counted boats."}
    await stage.say(room, "The zither is stolen.", to=[mara.id])
    await talk(stage, room, 10)
    assert script.questions("DialogueSummary")
    assert not [question for question in script.questions("DialogueSummary") if "zither" in question]
    await stage.story.invite(room, theo.id)
    await talk(stage, room, 6, speaker=theo.id)
    assert "They counted boats." not in script.prompt()
    await stage.say(room, "And you?", speaker=mara.id)
    assert "They counted boats." in script.prompt()


async def test_s13_s22_a_summary_goes_with_the_reply_that_led_to_it(stage: StoryHarness, script: ScriptedModel) -> None:
    script.shapes["DialogueSummary"] = {"summary": "They counted boats."}
    room = await stage.start_chat(await stage.create_character())
    while stage.story.chats.dialogue_summary(room) is None:
        begun = await stage.say(room, LONG)
    kept = stage.story.timeline.latest(room, 3)[0]
    await stage.story.rewind(room, kept.id)
    assert stage.story.chats.dialogue_summary(room) is None
    await stage.story.undo_rewind(room)
    assert stage.story.chats.dialogue_summary(room) is not None
    script.shapes["DialogueSummary"] = {"summary": "They counted gulls."}
    again = await stage.regenerate(room)
    summary = stage.story.chats.dialogue_summary(room)
    assert summary is not None
    assert summary[1] == "They counted gulls."
    await stage.story.choose(room, begun.reply)
    assert stage.story.chats.dialogue_summary(room) == (summary[0], "They counted boats.")
    await stage.story.choose(room, again.reply)
    assert stage.story.chats.dialogue_summary(room) == summary


async def test_s13_without_a_model_the_summary_is_how_it_began_and_ended(
    stage: StoryHarness, script: ScriptedModel
) -> None:
    script.shapes["DialogueSummary"] = RecordedCall(say="I can't do that.")
    room = await stage.start_chat(await stage.create_character())
    await talk(stage, room, 11)
    summary = stage.story.chats.dialogue_summary(room)
    assert summary is not None
    assert "Ana: Number 0." in summary[1]
