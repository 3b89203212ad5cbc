"""Rewinding a chat, and undoing the rewind."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from coterie.base.errors import BadPoint
from coterie.conversation.errors import NoSuchTurn
from tests.modes.story.conftest import ScriptedModel, StoryHarness
from tests.modes.story.relationship_helpers import relationship, set_relationship_update, state


async def test_s23_the_preview_counts_what_changes(harness: StoryHarness, script: ScriptedModel) -> None:
    mara, theo = await harness.create_character(), await harness.create_character("Theo")
    room = await harness.start_chat(mara)
    first = await harness.say(room, "One.")
    late = await harness.story.send_message(room, "Two, whose work is done later.")
    await harness.story.replies.wait(room)
    script.shapes["TurnAnalysis"] = {"scene_end": "place", "evidence": "three", "minutes": 1}
    await harness.say(room, "Three.")
    await harness.story.invite(room, theo.id)
    await harness.say(room, "Four.")
    for turn in (first.reply, late.reply):
        impact = await harness.story.preview_rewind(room, turn)
        counted = {event.id: event for event in await harness.store.history(room)}
        memories, turns = harness.memory.count(), harness.story.timeline.count(room)
        scenes = harness.store.query("SELECT count(*) FROM scene WHERE room = ?", (room,))[0][0]
        await harness.story.rewind(room, turn)
        gone = set(counted) - {event.id for event in await harness.store.history(room)}
        assert impact.turns == turns - harness.story.timeline.count(room)
        assert impact.memories == memories - harness.memory.count()
        assert impact.edges == sum(counted[event].kind == "edge_update" for event in gone)
        assert impact.guests == 1
        opened = scenes - harness.store.query("SELECT count(*) FROM scene WHERE room = ?", (room,))[0][0]
        assert impact.scenes == 2 * opened > 0
        assert {one.event for one in impact.lost} <= gone
        assert len(impact.lost) == impact.turns + impact.memories + impact.edges + impact.guests + impact.scenes
        await harness.story.undo_rewind(room)


async def test_s23_a_snapshot_is_written_before_a_rewind(harness: StoryHarness) -> None:
    mara = await harness.create_character()
    room = await harness.start_chat(mara)
    begun = await harness.say(room, "One.")
    await harness.say(room, "Two.")
    before, seen = state(harness), []

    async def snapshot() -> None:
        seen.append(state(harness))

    harness.story.context.before_rewind = snapshot
    await harness.story.rewind(room, begun.reply)
    assert seen == [before]
    await harness.story.undo_rewind(room)
    await harness.story.reset(mara.id, "Mara")
    assert seen == [before, before]


async def test_s23_without_a_snapshot_there_is_no_rewind(harness: StoryHarness) -> None:
    mara = await harness.create_character()
    room = await harness.start_chat(mara)
    begun = await harness.say(room, "One.")
    await harness.say(room, "Two.")

    async def disk_full() -> None:
        raise OSError("no space left")

    harness.story.context.before_rewind = disk_full
    before = state(harness)
    with pytest.raises(OSError, match="no space"):
        await harness.story.rewind(room, begun.reply)
    with pytest.raises(OSError, match="no space"):
        await harness.story.reset(mara.id, "Mara")
    assert state(harness) == before


async def test_s23_rewind_restores_the_exact_state_of_the_turn_and_undo_is_exact(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    mara, theo = await harness.create_character(), await harness.create_character("Theo")
    room, other = await harness.start_chat(mara), await harness.start_chat(theo)
    states = []
    for number in range(6):
        set_relationship_update(
            script,
            number - 2,
            f"Ana said {number}",
            minutes=number,
            scene_end="done" if number == 3 else "",
            evidence="message",
            significance=number % 4,
        )
        if number == 2:
            await harness.story.invite(room, theo.id)
        begun = await harness.say(room, f"Message {number}.", speaker=mara.id)
        states.append((begun.reply, state(harness)))
    last = states[-1][1]
    chance = random.Random(1)
    for _ in range(6):
        turn, then = chance.choice(states[:-1])
        if turn == states[1][0]:
            continue  # the invitation before the next turn is kept
        await harness.story.rewind(room, turn)
        assert state(harness) == then
        await harness.story.undo_rewind(room)
        assert state(harness) == last
    assert harness.texts(other) == []


async def test_s23_late_results_of_rewound_turns_are_dropped_and_of_kept_turns_kept(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    mara = await harness.create_character()
    room = await harness.start_chat(mara)
    kept = await harness.story.send_message(room, "Kept.")
    await harness.story.replies.wait(room)
    await harness.story.send_message(room, "Rewound.")
    await harness.story.replies.wait(room)
    await harness.story.rewind(room, kept.reply)
    await harness.run_jobs()
    assert harness.memories_of(mara.id) == ["Kept.", "Reply number 1."]
    assert not [text for text in script.questions("TurnAnalysis") if "Rewound" in text]
    assert {state for (state,) in harness.store.query("SELECT DISTINCT state FROM job")} == {"done", "withdrawn"}
    # Undoing the rewind keeps the results for the kept turn, and the other jobs run then.
    await harness.story.undo_rewind(room)
    await harness.run_jobs()
    assert harness.memories_of(mara.id) == ["Kept.", "Reply number 1.", "Reply number 2.", "Rewound."]
    await harness.story.rewind(room, kept.reply)
    assert harness.memories_of(mara.id) == ["Kept.", "Reply number 1."]


async def test_s23_undo_is_possible_until_a_new_message_and_then_forking_is(
    harness: StoryHarness, script: ScriptedModel, restart: Callable[[], None]
) -> None:
    mara = await harness.create_character()
    room = await harness.start_chat(mara)
    replies = []
    for number in range(4):
        set_relationship_update(script, 3, f"Ana said {number}")
        replies.append((await harness.say(room, f"Message {number}.")).reply)
    before, texts = state(harness), harness.texts(room)
    await harness.story.rewind(room, replies[0])
    restart()
    harness.clock.advance(90 * 24 * 3_600)
    await harness.story.undo_rewind(room)
    assert state(harness) == before
    with pytest.raises(BadPoint):
        await harness.story.undo_rewind(room)
    await harness.story.rewind(room, replies[0])
    set_relationship_update(script, -1)
    await harness.say(room, "Something new.")
    with pytest.raises(BadPoint, match="the chat was changed since") as told_so:
        await harness.story.undo_rewind(room)
    assert "Fork" in told_so.value.fix
    back = await harness.story.fork(room, replies[2])
    assert harness.texts(back.room) == texts[:6]
    assert relationship(harness, mara.id, back.world).affinity == 59
    assert "Message 2." in harness.memories_of(mara.id, back.room)
    assert "Something new." not in harness.memories_of(mara.id, back.room)
    whole = await harness.story.fork(room, replies[3])
    assert harness.texts(whole.room) == texts
    assert harness.texts(room) == [*texts[:2], "Something new.", "Reply number 5."]
    with pytest.raises(NoSuchTurn):
        await harness.story.fork(room, "no such turn")


async def test_s23_a_summary_based_on_another_chat_is_dropped_when_that_is_rewound(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    mara = await harness.create_character(initial_relationship="A stranger.")
    room, other = await harness.start_chat(mara), await harness.start_chat(mara)
    first = await harness.say(other, "Hello here.")
    for chat, seen in ((other, "Steals zithers."), (room, "Steals zithers, and is kind.")):
        await harness.say(chat, "Listen.")
        script.shapes["SceneSummary"] = {"summary": "They talked.", "relationship": seen}
        await harness.story.close_scene(chat)
    assert relationship(harness, mara.id).summary == "Steals zithers, and is kind."
    await harness.story.rewind(other, first.reply)
    assert relationship(harness, mara.id).summary == "A stranger."
    harness.verify()
    await harness.story.undo_rewind(other)
    assert relationship(harness, mara.id).summary == "Steals zithers, and is kind."
    await harness.story.rewind(other, first.reply)
    script.shapes["SceneSummary"] = {"summary": "They talked.", "relationship": "Is kind."}
    await harness.say(room, "And now?")
    await harness.story.close_scene(room)
    assert relationship(harness, mara.id).summary == "Is kind."
