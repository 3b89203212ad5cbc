"""Taking things back: S23. What was derived goes with what it came from, and comes back with it."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from coterie.base.errors import BadPoint
from coterie.conversation.errors import NoSuchTurn
from tests.modes.story.conftest import ScriptedModel, StoryHarness
from tests.modes.story.relationship_helpers import relationship, set_relationship_update, state


async def test_s23_the_preview_counts_what_really_changes(stage: StoryHarness, script: ScriptedModel) -> None:
    mara, theo = await stage.create_character(), await stage.create_character("Theo")
    room = await stage.start_chat(mara)
    first = await stage.say(room, "One.")
    late = await stage.story.say(room, "Two, whose work is done later.")
    await stage.story.replies.wait(room)
    script.shapes["SceneCheck"] = {"closed": True, "why": "place", "minutes": 1}
    await stage.say(room, "Three.")
    await stage.story.invite(room, theo.id)
    await stage.say(room, "Four.")
    for turn in (first.reply, late.reply):
        impact = await stage.story.preview_rewind(room, turn)
        counted = {event.id: event for event in await stage.store.history(room)}
        memories, turns = stage.memory.count(), stage.story.timeline.count(room)
        scenes = stage.store.query("SELECT count(*) FROM scene WHERE room = ?", (room,))[0][0]
        await stage.story.rewind(room, turn)
        gone = set(counted) - {event.id for event in await stage.store.history(room)}
        assert impact.turns == turns - stage.story.timeline.count(room)
        assert impact.memories == memories - stage.memory.count()
        assert impact.edges == sum(counted[event].kind == "edge_update" for event in gone)
        assert impact.guests == 1
        opened = scenes - stage.store.query("SELECT count(*) FROM scene WHERE room = ?", (room,))[0][0]
        assert impact.scenes == 2 * opened > 0
        assert {one.event for one in impact.lost} <= gone
        assert len(impact.lost) == impact.turns + impact.memories + impact.edges + impact.guests + impact.scenes
        await stage.story.undo_rewind(room)


async def test_s23_a_snapshot_is_written_before_anything_is_taken_back(stage: StoryHarness) -> None:
    mara = await stage.create_character()
    room = await stage.start_chat(mara)
    begun = await stage.say(room, "One.")
    await stage.say(room, "Two.")
    before, seen = state(stage), []

    async def snapshot() -> None:
        seen.append(state(stage))

    stage.story.context.before_rewind = snapshot
    await stage.story.rewind(room, begun.reply)
    assert seen == [before]
    await stage.story.undo_rewind(room)
    await stage.story.reset(mara.id, "Mara")
    assert seen == [before, before]


async def test_s23_what_cannot_be_kept_first_is_not_taken_back(stage: StoryHarness) -> None:
    mara = await stage.create_character()
    room = await stage.start_chat(mara)
    begun = await stage.say(room, "One.")
    await stage.say(room, "Two.")

    async def disk_full() -> None:
        raise OSError("no space left")

    stage.story.context.before_rewind = disk_full
    before = state(stage)
    with pytest.raises(OSError, match="no space"):
        await stage.story.rewind(room, begun.reply)
    with pytest.raises(OSError, match="no space"):
        await stage.story.reset(mara.id, "Mara")
    assert state(stage) == before


async def test_s23_the_state_afterwards_is_exactly_the_state_at_that_turn_and_undo_is_exact(
    stage: StoryHarness, script: ScriptedModel
) -> None:
    mara, theo = await stage.create_character(), await stage.create_character("Theo")
    room, other = await stage.start_chat(mara), await stage.start_chat(theo)
    states = []
    for number in range(6):
        set_relationship_update(script, number - 2, f"Ana said {number}")
        script.shapes["SceneCheck"] = {"minutes": number, "closed": number == 3, "why": "done"}
        script.shapes["Significance"] = {"significance": number % 4}
        if number == 2:
            await stage.story.invite(room, theo.id)
        begun = await stage.say(room, f"Message {number}.", speaker=mara.id)
        states.append((begun.reply, state(stage)))
    last = states[-1][1]
    chance = random.Random(1)
    for _ in range(6):
        turn, then = chance.choice(states[:-1])
        if turn == states[1][0]:
            continue  # before the next turn somebody was invited: that is kept
        await stage.story.rewind(room, turn)
        assert state(stage) == then
        await stage.story.undo_rewind(room)
        assert state(stage) == last
    assert stage.texts(other) == []


async def test_s23_late_work_of_a_rewound_turn_does_nothing_and_of_a_kept_one_is_kept(
    stage: StoryHarness, script: ScriptedModel
) -> None:
    mara = await stage.create_character()
    room = await stage.start_chat(mara)
    kept = await stage.story.say(room, "Kept.")
    await stage.story.replies.wait(room)
    await stage.story.say(room, "Rewound.")
    await stage.story.replies.wait(room)
    await stage.story.rewind(room, kept.reply)
    await stage.run_jobs()
    assert stage.memories_of(mara.id) == ["Kept.", "Reply number 1."]
    assert not [text for shape in ("StateUpdate", "Significance") for text in script.questions(shape) if "Rewound" in text]
    assert {state for (state,) in stage.store.query("SELECT DISTINCT state FROM job")} == {"done", "withdrawn"}
    # What was done meanwhile for the kept turn is not lost by taking the rewind back, and the rest is done then.
    await stage.story.undo_rewind(room)
    await stage.run_jobs()
    assert stage.memories_of(mara.id) == ["Kept.", "Reply number 1.", "Reply number 2.", "Rewound."]
    await stage.story.rewind(room, kept.reply)
    assert stage.memories_of(mara.id) == ["Kept.", "Reply number 1."]


async def test_s23_undo_stays_possible_later_until_something_is_said_and_then_it_is_a_fork(
    stage: StoryHarness, script: ScriptedModel, restart: Callable[[], None]
) -> None:
    mara = await stage.create_character()
    room = await stage.start_chat(mara)
    replies = []
    for number in range(4):
        set_relationship_update(script, 3, f"Ana said {number}")
        replies.append((await stage.say(room, f"Message {number}.")).reply)
    before, texts = state(stage), stage.texts(room)
    await stage.story.rewind(room, replies[0])
    restart()
    stage.clock.advance(90 * 24 * 3_600)
    await stage.story.undo_rewind(room)
    assert state(stage) == before
    with pytest.raises(BadPoint):
        await stage.story.undo_rewind(room)
    await stage.story.rewind(room, replies[0])
    set_relationship_update(script, -1)
    await stage.say(room, "Something new.")
    with pytest.raises(BadPoint, match="something has been said since") as told_so:
        await stage.story.undo_rewind(room)
    assert "Fork" in told_so.value.fix
    back = await stage.story.fork(room, replies[2])
    assert stage.texts(back.room) == texts[:6]
    assert relationship(stage, mara.id, back.world).affinity == 59
    assert "Message 2." in stage.memories_of(mara.id, back.room)
    assert "Something new." not in stage.memories_of(mara.id, back.room)
    whole = await stage.story.fork(room, replies[3])
    assert stage.texts(whole.room) == texts
    assert stage.texts(room) == [*texts[:2], "Something new.", "Reply number 5."]
    with pytest.raises(NoSuchTurn):
        await stage.story.fork(room, "no such turn")


async def test_s23_a_sentence_made_from_another_chats_goes_when_that_is_taken_back(
    stage: StoryHarness, script: ScriptedModel
) -> None:
    mara = await stage.create_character(initial_relationship="A stranger.")
    room, other = await stage.start_chat(mara), await stage.start_chat(mara)
    first = await stage.say(other, "Hello here.")
    for chat, seen in ((other, "Steals zithers."), (room, "Steals zithers, and is kind.")):
        await stage.say(chat, "Listen.")
        script.shapes["SceneSummary"] = {"summary": "They talked.", "relationship": seen}
        await stage.story.close_scene(chat)
    assert relationship(stage, mara.id).summary == "Steals zithers, and is kind."
    await stage.story.rewind(other, first.reply)
    assert relationship(stage, mara.id).summary == "A stranger."
    stage.verify()
    await stage.story.undo_rewind(other)
    assert relationship(stage, mara.id).summary == "Steals zithers, and is kind."
    await stage.story.rewind(other, first.reply)
    script.shapes["SceneSummary"] = {"summary": "They talked.", "relationship": "Is kind."}
    await stage.say(room, "And now?")
    await stage.story.close_scene(room)
    assert relationship(stage, mara.id).summary == "Is kind."
