"""The analysis of an exchange: places, activities, statements, significance, and the rules without a model."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from bench.scenes import read_turns, score, scripted_answer
from coterie.base.clock import ManualClock
from coterie.characters.service import OWNER, OwnerProfile
from coterie.llm.recording import RecordedCall
from coterie.modes.story.analysis.scene_rules import detect_scene_change, minutes_until
from coterie.modes.story.analysis.turn_analysis import combine_scene_change, is_grounded, rate_significance
from coterie.modes.story.edits import FieldEdit
from coterie.modes.story.events import MAIN_WORLD
from coterie.modes.story.settings import StorySettings
from tests.modes.story.conftest import ScriptedModel, StoryHarness
from tests.modes.story.relationship_helpers import state


async def test_s14_one_model_call_analyses_an_exchange(harness: StoryHarness, script: ScriptedModel) -> None:
    room = await harness.start_chat(await harness.create_character())
    for number in range(5):
        await harness.say(room, f"Hello number {number}.")
    assert len(script.asked) == 5
    assert len(script.classified) == 5


async def test_s5_s15_a_move_takes_everybody_to_the_new_place_and_a_rewind_takes_them_back(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    mara, theo = await harness.create_character(), await harness.create_character("Theo")
    room = await harness.start_chat(mara, you={"posture": "sitting by the lamp", "holding": ["a lantern"]})
    await harness.story.invite(room, theo.id)
    first = await harness.say(room, "Hello.")
    before = state(harness)
    await harness.say(room, "We drove to the park.")
    details = harness.story.details(room)
    assert details.scene is not None
    assert details.scene.place == "the park"
    for entity in (OWNER, mara.id, theo.id):
        assert details.activities[entity].container == details.scene.container
    assert (details.activities[OWNER].posture, details.activities[OWNER].holding) == ("", ("a lantern",))
    await harness.say(room, "Nice here.")
    assert "at the park." in script.prompt()
    assert "in the park" in script.prompt()
    # The old place is known: going back does not create it again.
    await harness.say(room, "We walk back to the lighthouse.")
    assert sorted(harness.story.details(room).places.values()) == ["the lighthouse", "the park"]
    await harness.story.rewind(room, first.reply)
    assert state(harness) == before
    details = harness.story.details(room)
    assert details.scene is not None
    assert details.scene.place == "the lighthouse"


async def test_s14_activities_change_with_the_exchange(harness: StoryHarness, script: ScriptedModel) -> None:
    mara = await harness.create_character()
    room = await harness.start_chat(mara, character={"posture": "standing", "holding": ["a rope"]})
    script.shapes["TurnAnalysis"] = {
        "activities": [
            {"who": "Mara", "posture": "sitting on\nthe wall", "action": "mending a net", "mood": "calm"},
            {"who": "Ana", "holding": ["a cup", "  "]},
            {"who": "Nobody", "posture": "floating"},
        ]
    }
    begun = await harness.say(room, "*I hand you the net and take the cup.*")
    activities = harness.story.details(room).activities
    assert activities[mara.id].posture == "sitting on the wall"
    assert activities[mara.id].action.verb == "mending a net"
    assert (activities[mara.id].status, activities[mara.id].holding) == ("calm", ("a rope",))
    assert activities[OWNER].holding == ("a cup",)
    assert set(activities) == {OWNER, mara.id}
    script.shapes["TurnAnalysis"] = {}
    await harness.regenerate(room)
    assert harness.story.details(room).activities[mara.id].posture == "standing"
    await harness.story.choose(room, begun.reply)
    assert harness.story.details(room).activities[mara.id].posture == "sitting on the wall"


async def test_s4_memories_are_statements_with_the_turns_as_evidence(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    mara = await harness.create_character()
    room = await harness.start_chat(mara)
    script.shapes["TurnAnalysis"] = {
        "memories": [{"text": "Ana's brother died last winter"}, {"text": "Penguins govern Antarctica"}],
        "significance": 0,
    }
    begun = await harness.say(room, "My brother died last winter.")
    memories = {memory.text: memory for memory in harness.memory.browse(owner=mara.id)}
    assert "Penguins govern Antarctica" not in memories  # nothing in the exchange supports it
    statement = memories["Ana's brother died last winter"]
    assert (statement.type, statement.significance) == (
        "fact",
        2,
    )  # words such as "died" matter, whatever the model says
    assert set(statement.sources) == {begun.turn, begun.reply}
    shown = [memory.text for memory in harness.story.details(room).characters[mara.id].memories]
    assert shown == ["Ana's brother died last winter"]


async def test_s4_what_one_character_tells_another_is_told_by_it(harness: StoryHarness, script: ScriptedModel) -> None:
    mara, theo = await harness.create_character(), await harness.create_character("Theo")
    room = await harness.start_chat(mara)
    await harness.story.invite(room, theo.id)
    script.replies = ["Theo, the ferry sank in March."]
    script.shapes["TurnAnalysis"] = {"memories": [{"text": "The ferry sank in March", "told_by": "Mara"}]}
    await harness.say(room, "Tell him.", speaker=mara.id)
    (memory,) = [m for m in harness.memory.browse(owner=theo.id) if m.text == "The ferry sank in March"]
    assert memory.told_by == mara.id
    assert memory.reliability < 1
    assert not [m for m in harness.memory.browse(owner=mara.id) if m.text == "The ferry sank in March"]


async def test_s15_what_characters_think_of_each_other_is_rewritten_when_a_scene_closes(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    mara, theo = await harness.create_character(), await harness.create_character("Theo")
    room = await harness.start_chat(mara)
    await harness.story.invite(room, theo.id)
    await harness.say(room, "Hello, Mara.", speaker=mara.id)
    await harness.say(room, "Hello, Theo.", speaker=theo.id)
    script.shapes["SceneSummary"] = {"summary": "They met.", "others": {"Mara": "Patient.", "Theo": "Loud.", "X": "?"}}
    await harness.story.close_scene(room)
    relationships = harness.story.relationships
    assert relationships.get(MAIN_WORLD, theo.id, mara.id).summary == "Patient."
    assert relationships.get(MAIN_WORLD, mara.id, theo.id).summary == "Loud."


async def test_s14_without_an_answer_of_the_classifier_the_rules_decide(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    mara = await harness.create_character()
    room = await harness.start_chat(mara, time="2024-01-01T20:00:00Z")
    await harness.say(room, "Hello.")
    script.shapes["TurnAnalysis"] = RecordedCall(say="I can't do that.")
    await harness.say(room, "The next morning, we wake.")
    assert harness.story.chats.chat(room).clock == datetime(2024, 1, 2, 8, tzinfo=UTC)
    assert "The next morning, we wake." in harness.memories_of(mara.id)
    assert harness.story.relationships.get(MAIN_WORLD, mara.id, OWNER).when is not None


async def test_s14_the_prompt_of_the_analysis_stays_within_its_budget(
    tmp_path: Path, clock: ManualClock, script: ScriptedModel
) -> None:
    harness = StoryHarness(tmp_path / "coterie.db", clock, script, StorySettings(classifier_budget_hard=600))
    await harness.characters.save_owner(OwnerProfile(name="Ana"))
    room = await harness.start_chat(await harness.create_character())
    await harness.say(room, "start " + "many words and more " * 800 + "end")
    asked = script.questions("TurnAnalysis")[-1]
    assert len(asked) < 6_000
    assert "start" in asked
    assert "end" in asked
    assert "Pairs: Mara toward Ana" in asked
    await harness.close()


async def test_s5_a_place_is_added_by_its_name(harness: StoryHarness) -> None:
    mara = await harness.create_character()
    room = await harness.start_chat(mara)
    assert await harness.story.edit(room, [FieldEdit(field="scene.place", value=" the boathouse ")])
    details = harness.story.details(room)
    assert details.scene is not None
    assert details.scene.place == "the boathouse"
    assert {activity.container for activity in details.activities.values()} == {details.scene.container}
    assert not await harness.story.edit(room, [FieldEdit(field="scene.place", value="The Boathouse")])
    assert await harness.story.edit(room, [FieldEdit(field="scene.place", value="the lighthouse")])
    assert len(harness.story.details(room).places) == 2


def test_s14_labelled_turns_are_detected() -> None:
    turns = read_turns()
    assert len(turns) >= 300
    rules = score(turns, [detect_scene_change(turn.texts) for turn in turns])
    assert rules["false_close"] < 0.01
    assert rules["precision"] >= 0.95
    combined = score(turns, [combine_scene_change(turn.texts, scripted_answer(turn)) for turn in turns])
    assert min(combined["precision"], combined["recall"]) >= 0.95


@pytest.mark.parametrize(
    ("clock", "part", "hours"),
    [("20:00", "morning", 12), ("07:30", "morning", 24.5), ("03:00", "morning", 5), ("20:00", "night", 2)],
)
def test_s14_a_part_of_the_day_is_the_next_one(clock: str, part: str, hours: float) -> None:
    start = datetime.fromisoformat(f"2024-05-05T{clock}:00+00:00")
    assert minutes_until(start, part) == hours * 60


def test_s14_words_set_the_least_significance() -> None:
    assert rate_significance(["Hello!", "Hi."], None) == 0
    assert rate_significance(["I bought a hat.", "Nice."], None) == 1
    assert rate_significance(["My mother died.", "Oh."], None) == 2


def test_m4_a_statement_needs_words_of_the_exchange() -> None:
    assert is_grounded("Ana's brother died last winter", "Ana: My brother died last winter.")
    assert not is_grounded("Theo robbed a bank in Lisbon", "Ana: My brother died last winter.")
    assert not is_grounded("", "Ana: Hello.")
