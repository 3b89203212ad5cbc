"""Taking things back: S22–S24. What was derived goes with what it came from, and comes back with it."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from coterie.base.errors import BadPoint
from coterie.engine.errors import NoSuchTurn
from coterie.modes.story.impact import told
from tests.modes.story.conftest import Script, Stage
from tests.modes.story.feelings import edge, feels, state

# --- S22 ------------------------------------------------------------------------------------------------------


async def test_s22_what_a_reply_led_to_goes_and_comes_back_with_it_however_often_one_swipes(
    stage: Stage, script: Script
) -> None:
    mara = await stage.meet()
    room = await stage.begin(mara, time="2030-01-01T00:00:00Z")
    await stage.say(room, "Hello.")
    start = stage.story.chats.chat(room).clock
    ways: list[tuple[str, str, int, datetime]] = []
    for reply, delta, minutes in (("I hate it.", -7, 3), ("I love it.", 8, 5), ("I do not care.", 0, 60)):
        script.replies, script.shapes["SceneCheck"] = [reply], {"minutes": minutes}
        feels(script, delta, f"Ana asked and heard: {reply}")
        begun = await (stage.say(room, "The sea?") if not ways else stage.again(room))
        ways.append((begun.reply, reply, 50 + delta, start + timedelta(minutes=minutes)))
    for way in random.Random(3).choices(ways, k=9):
        reply_id, reply, affinity, clock = way
        await stage.story.choose(room, reply_id)
        assert stage.texts(room)[-2:] == ["The sea?", reply]
        assert edge(stage, mara.id).affinity == affinity
        assert edge(stage, mara.id).knowledge == (f"Ana asked and heard: {reply}",)
        assert stage.story.chats.chat(room).clock == clock
        assert [text for text in stage.remembered(mara.id) if text.startswith("I ")] == [reply]
        stage.verify()


async def test_s22_another_message_belongs_to_the_reply_that_it_led_to(stage: Stage, script: Script) -> None:
    mara = await stage.meet()
    room = await stage.begin(mara)
    first = await stage.say(room, "The secret is mauve.")
    second = await stage.again(room, text="There is no secret.")
    assert stage.texts(room)[0] == "There is no secret."
    assert "mauve" not in script.prompt()
    assert not [text for text in stage.remembered(mara.id) if "mauve" in text]
    third = await stage.again(room)
    assert stage.texts(room)[0] == "There is no secret."
    await stage.story.choose(room, first.reply)
    assert stage.texts(room)[0] == "The secret is mauve."
    assert [text for text in stage.remembered(mara.id) if "mauve" in text]
    for reply in (second.reply, third.reply):
        await stage.story.choose(room, reply)
        assert stage.texts(room)[0] == "There is no secret."
        assert not [text for text in stage.remembered(mara.id) if "mauve" in text]


async def test_s22_s15_a_scene_that_was_closed_after_a_message_opens_again_when_the_message_changes(
    stage: Stage, script: Script
) -> None:
    mara = await stage.meet()
    room = await stage.begin(mara)
    begun = await stage.say(room, "The secret is mauve.")
    await stage.story.rewind(room, begun.turn)
    script.shapes["Closing"] = {"summary": "A mauve secret.", "relationship": "Tells mauve secrets."}
    await stage.story.close_scene(room)
    await stage.again(room, text="There is no secret.")
    assert "mauve" not in script.prompt()
    assert stage.story.chats.scene_summaries(room, mara.id) == []
    assert "mauve" not in edge(stage, mara.id).summary


async def test_s22_late_work_of_a_reply_that_was_swiped_away_does_nothing_until_it_is_chosen(
    stage: Stage, script: Script
) -> None:
    mara = await stage.meet()
    room = await stage.begin(mara)
    script.replies = ["First.", "Second."]
    begun = await stage.story.say(room, "Hello.")
    await stage.story.replies.wait(room)
    await stage.again(room)
    assert stage.remembered(mara.id) == ["Hello.", "Second."]
    await stage.story.choose(room, begun.reply)
    await stage.settle()
    assert stage.remembered(mara.id) == ["First.", "Hello."]


async def test_s22_on_a_fork_the_inherited_reply_takes_its_feelings_along(stage: Stage, script: Script) -> None:
    mara = await stage.meet()
    room = await stage.begin(mara)
    feels(script, 4, "Ana is kind")
    await stage.say(room, "Hello.")
    feels(script, -9, "Ana lies")
    old = await stage.say(room, "I took it.")
    fork = await stage.story.fork(room, old.reply)
    assert (edge(stage, mara.id, fork.world).affinity, edge(stage, mara.id).affinity) == (45, 45)
    feels(script, 1)
    new = await stage.again(fork.room)
    assert edge(stage, mara.id, fork.world).affinity == 55
    assert edge(stage, mara.id, fork.world).knowledge == ("Ana is kind",)
    assert "Ana lies" not in script.prompt()
    assert edge(stage, mara.id).affinity == 45
    for _ in range(2):
        await stage.story.choose(fork.room, old.reply)
        assert edge(stage, mara.id, fork.world).affinity == 45
        await stage.story.choose(fork.room, new.reply)
        assert edge(stage, mara.id, fork.world).affinity == 55


async def test_s22_on_a_fork_a_swipe_that_was_never_chosen_there_brings_its_feelings(
    stage: Stage, script: Script
) -> None:
    mara = await stage.meet()
    room = await stage.begin(mara)
    feels(script, 7)
    first = await stage.say(room, "Hello.")
    feels(script, -2)
    second = await stage.again(room)
    fork = await stage.story.fork(room, second.reply)
    for _ in range(2):
        await stage.story.choose(fork.room, first.reply)
        assert edge(stage, mara.id, fork.world).affinity == 57
        await stage.story.choose(fork.room, second.reply)
        assert edge(stage, mara.id, fork.world).affinity == 48
    assert edge(stage, mara.id).affinity == 48


async def test_s22_s6_whoever_joined_after_the_question_does_not_answer_it_as_if_it_were_a_whisper(
    stage: Stage, script: Script
) -> None:
    mara, theo, ida = await stage.meet(), await stage.meet("Theo"), await stage.meet("Ida")
    room = await stage.begin(mara)
    await stage.story.invite(room, theo.id)
    await stage.say(room, "The key is under the stone.", to=[theo.id])
    await stage.story.send_away(room, theo.id)
    await stage.say(room, "A question for whoever hears it.")
    await stage.story.invite(room, theo.id)
    await stage.story.invite(room, ida.id)
    await stage.again(room, speaker=theo.id)
    assert "under the stone" not in script.prompt()


# --- S23 ------------------------------------------------------------------------------------------------------


async def test_s23_the_preview_counts_what_really_changes(stage: Stage, script: Script) -> None:
    mara, theo = await stage.meet(), await stage.meet("Theo")
    room = await stage.begin(mara)
    first = await stage.say(room, "One.")
    late = await stage.story.say(room, "Two, whose work is done later.")
    await stage.story.replies.wait(room)
    script.shapes["SceneCheck"] = {"closed": True, "why": "place", "minutes": 1}
    await stage.say(room, "Three.")
    await stage.story.invite(room, theo.id)
    await stage.say(room, "Four.")
    for turn in (first.reply, late.reply):
        impact = told(await stage.story.preview_rewind(room, turn))
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


async def test_s23_a_snapshot_is_written_before_anything_is_taken_back(stage: Stage) -> None:
    mara = await stage.meet()
    room = await stage.begin(mara)
    begun = await stage.say(room, "One.")
    await stage.say(room, "Two.")
    before, seen = state(stage), []

    async def snapshot() -> None:
        seen.append(state(stage))

    stage.story._before_rewind = snapshot
    await stage.story.rewind(room, begun.reply)
    assert seen == [before]
    await stage.story.undo_rewind(room)
    await stage.story.reset(mara.id, "Mara")
    assert seen == [before, before]


async def test_s23_what_cannot_be_kept_first_is_not_taken_back(stage: Stage) -> None:
    mara = await stage.meet()
    room = await stage.begin(mara)
    begun = await stage.say(room, "One.")
    await stage.say(room, "Two.")

    async def disk_full() -> None:
        raise OSError("no space left")

    stage.story._before_rewind = disk_full
    before = state(stage)
    with pytest.raises(OSError, match="no space"):
        await stage.story.rewind(room, begun.reply)
    with pytest.raises(OSError, match="no space"):
        await stage.story.reset(mara.id, "Mara")
    assert state(stage) == before


async def test_s23_the_state_afterwards_is_exactly_the_state_at_that_turn_and_undo_is_exact(
    stage: Stage, script: Script
) -> None:
    mara, theo = await stage.meet(), await stage.meet("Theo")
    room, other = await stage.begin(mara), await stage.begin(theo)
    states = []
    for number in range(6):
        feels(script, number - 2, f"Ana said {number}")
        script.shapes["SceneCheck"] = {"minutes": number, "closed": number == 3, "why": "done"}
        script.shapes["Weight"] = {"significance": number % 4}
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
    stage: Stage, script: Script
) -> None:
    mara = await stage.meet()
    room = await stage.begin(mara)
    kept = await stage.story.say(room, "Kept.")
    await stage.story.replies.wait(room)
    await stage.story.say(room, "Rewound.")
    await stage.story.replies.wait(room)
    await stage.story.rewind(room, kept.reply)
    await stage.settle()
    assert stage.remembered(mara.id) == ["Kept.", "Reply number 1."]
    assert not [text for shape in ("StateUpdate", "Weight") for text in script.questions(shape) if "Rewound" in text]
    assert {state for (state,) in stage.store.query("SELECT DISTINCT state FROM job")} == {"done", "withdrawn"}
    # What was done meanwhile for the kept turn is not lost by taking the rewind back, and the rest is done then.
    await stage.story.undo_rewind(room)
    await stage.settle()
    assert stage.remembered(mara.id) == ["Kept.", "Reply number 1.", "Reply number 2.", "Rewound."]
    await stage.story.rewind(room, kept.reply)
    assert stage.remembered(mara.id) == ["Kept.", "Reply number 1."]


async def test_s23_undo_stays_possible_later_until_something_is_said_and_then_it_is_a_fork(
    stage: Stage, script: Script, restart: Callable[[], None]
) -> None:
    mara = await stage.meet()
    room = await stage.begin(mara)
    replies = []
    for number in range(4):
        feels(script, 3, f"Ana said {number}")
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
    feels(script, -1)
    await stage.say(room, "Something new.")
    with pytest.raises(BadPoint, match="something has been said since") as told_so:
        await stage.story.undo_rewind(room)
    assert "Fork" in told_so.value.fix
    back = await stage.story.fork(room, replies[2])
    assert stage.texts(back.room) == texts[:6]
    assert edge(stage, mara.id, back.world).affinity == 59
    assert "Message 2." in stage.remembered(mara.id, back.room)
    assert "Something new." not in stage.remembered(mara.id, back.room)
    whole = await stage.story.fork(room, replies[3])
    assert stage.texts(whole.room) == texts
    assert stage.texts(room) == [*texts[:2], "Something new.", "Reply number 5."]
    with pytest.raises(NoSuchTurn):
        await stage.story.fork(room, "no such turn")


# --- S24 ------------------------------------------------------------------------------------------------------


async def test_s24_lines_know_nothing_of_each_other_both_ways_in_memories_and_prompts(
    stage: Stage, script: Script
) -> None:
    mara = await stage.meet()
    room = await stage.begin(mara)
    shared = await stage.say(room, "The word is amber.")
    fork = await stage.story.fork(room, shared.reply)
    deeper = await stage.story.fork(fork.room, shared.reply)
    lines = {room: "birch", fork.room: "cedar", deeper.room: "dogwood"}
    for line, word in lines.items():
        feels(script, 1, f"Ana likes {word}")
        await stage.say(line, f"The word is {word}.")
    for line, word in lines.items():
        feels(script, 0)
        await stage.say(line, "What is the word?")
        others = set(lines.values()) - {word}
        assert "amber" in script.prompt()
        assert word in script.prompt()
        assert not [other for other in others if other in script.prompt()]


async def test_s24_a_fork_rewound_into_its_past_is_still_its_own_line(stage: Stage, script: Script) -> None:
    mara = await stage.meet()
    room = await stage.begin(mara)
    replies = []
    for number in range(3):
        feels(script, 5)
        begun = await stage.story.say(room, f"Message {number}.")
        await stage.story.replies.wait(room)
        replies.append(begun.reply)
    await stage.settle()  # what the turns led to comes late, after all of them
    fork = await stage.story.fork(room, replies[2])
    feels(script, 5)
    await stage.say(fork.room, "Only here.")
    assert edge(stage, mara.id, fork.world).affinity == 70
    await stage.story.rewind(fork.room, replies[1])
    assert edge(stage, mara.id, fork.world).affinity == 60
    assert stage.remembered(mara.id, fork.room) == [
        "Message 0.",
        "Message 1.",
        "Reply number 1.",
        "Reply number 2.",
    ]
    chat = stage.story.chats.chat(fork.room)
    assert (chat.world, chat.title) == (fork.world, fork.title)
    await stage.story.undo_rewind(fork.room)
    assert edge(stage, mara.id, fork.world).affinity == 70
    assert "Only here." in stage.texts(fork.room)
    await stage.story.rewind(fork.room, replies[0])
    await stage.story.rewind(room, replies[1])
    assert edge(stage, mara.id, fork.world).affinity == 55
    assert edge(stage, mara.id).affinity == 60
    feels(script, 1)
    await stage.say(fork.room, "Another way.")
    assert (edge(stage, mara.id, fork.world).affinity, edge(stage, mara.id).affinity) == (56, 60)


async def test_s24_work_that_both_lines_are_owed_is_done_for_both(stage: Stage, script: Script) -> None:
    mara = await stage.meet()
    room = await stage.begin(mara)
    feels(script, 6)
    begun = await stage.story.say(room, "Hello.")
    await stage.story.replies.wait(room)
    fork = await stage.story.fork(room, begun.reply)
    await stage.settle()
    for line in (room, fork.room):
        assert stage.remembered(mara.id, line) == ["Hello.", "Reply number 1."]
    assert (edge(stage, mara.id).affinity, edge(stage, mara.id, fork.world).affinity) == (56, 56)


async def test_s23_a_sentence_made_from_another_chats_goes_when_that_is_taken_back(
    stage: Stage, script: Script
) -> None:
    mara = await stage.meet(initial_relationship="A stranger.")
    room, other = await stage.begin(mara), await stage.begin(mara)
    first = await stage.say(other, "Hello here.")
    for chat, seen in ((other, "Steals zithers."), (room, "Steals zithers, and is kind.")):
        await stage.say(chat, "Listen.")
        script.shapes["Closing"] = {"summary": "They talked.", "relationship": seen}
        await stage.story.close_scene(chat)
    assert edge(stage, mara.id).summary == "Steals zithers, and is kind."
    await stage.story.rewind(other, first.reply)
    assert edge(stage, mara.id).summary == "A stranger."
    stage.verify()
    await stage.story.undo_rewind(other)
    assert edge(stage, mara.id).summary == "Steals zithers, and is kind."
    await stage.story.rewind(other, first.reply)
    script.shapes["Closing"] = {"summary": "They talked.", "relationship": "Is kind."}
    await stage.say(room, "And now?")
    await stage.story.close_scene(room)
    assert edge(stage, mara.id).summary == "Is kind."


async def test_s24_what_another_chat_taught_is_not_kept_by_a_fork_when_it_is_rewound(
    stage: Stage, script: Script
) -> None:
    mara = await stage.meet()
    room, other = await stage.begin(mara), await stage.begin(mara)
    begun = await stage.say(room, "Hello.")
    first = await stage.say(other, "Hello here.")
    feels(script, 6, "Ana stole the zither")
    await stage.say(other, "I stole it.")
    feels(script, 0)
    fork = await stage.story.fork(room, begun.reply)
    assert edge(stage, mara.id, fork.world).affinity == 50  # as it was at that turn
    after = await stage.say(room, "Still here.")
    later = await stage.story.fork(room, after.reply)
    assert edge(stage, mara.id, later.world).affinity == 56
    await stage.story.rewind(other, first.reply)
    await stage.say(later.room, "What do you know of me?")
    assert "zither" not in script.prompt()
