"""Regenerating a reply, editing a message, and choosing among alternatives."""

from __future__ import annotations

import random
from datetime import datetime, timedelta

from tests.modes.story.conftest import ScriptedModel, StoryHarness
from tests.modes.story.relationship_helpers import relationship, set_relationship_update


async def test_s22_consequences_of_a_reply_are_dropped_and_restored_with_it(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    mara = await harness.create_character()
    room = await harness.start_chat(mara, time="2030-01-01T00:00:00Z")
    await harness.say(room, "Hello.")
    start = harness.story.chats.chat(room).clock
    alternatives: list[tuple[str, str, int, datetime]] = []
    for reply, delta, minutes in (("I hate it.", -7, 3), ("I love it.", 8, 5), ("I do not care.", 0, 60)):
        script.replies = [reply]
        set_relationship_update(script, delta, f"Ana asked and heard: {reply}", minutes=minutes)
        begun = await (harness.say(room, "The sea?") if not alternatives else harness.regenerate(room))
        alternatives.append((begun.reply, reply, 50 + delta, start + timedelta(minutes=minutes)))
    for reply_id, reply, affinity, clock in random.Random(3).choices(alternatives, k=9):
        await harness.story.choose(room, reply_id)
        assert harness.texts(room)[-2:] == ["The sea?", reply]
        assert relationship(harness, mara.id).affinity == affinity
        assert relationship(harness, mara.id).knowledge == (f"Ana asked and heard: {reply}",)
        assert harness.story.chats.chat(room).clock == clock
        assert [text for text in harness.memories_of(mara.id) if text.startswith("I ")] == [reply]
        harness.verify()


async def test_s22_an_edited_message_belongs_to_its_own_reply(harness: StoryHarness, script: ScriptedModel) -> None:
    mara = await harness.create_character()
    room = await harness.start_chat(mara)
    first = await harness.say(room, "The secret is mauve.")
    second = await harness.regenerate(room, text="There is no secret.")
    assert harness.texts(room)[0] == "There is no secret."
    assert "mauve" not in script.prompt()
    assert not [text for text in harness.memories_of(mara.id) if "mauve" in text]
    third = await harness.regenerate(room)
    assert harness.texts(room)[0] == "There is no secret."
    await harness.story.choose(room, first.reply)
    assert harness.texts(room)[0] == "The secret is mauve."
    assert [text for text in harness.memories_of(mara.id) if "mauve" in text]
    for reply in (second.reply, third.reply):
        await harness.story.choose(room, reply)
        assert harness.texts(room)[0] == "There is no secret."
        assert not [text for text in harness.memories_of(mara.id) if "mauve" in text]


async def test_s22_s15_a_scene_closed_after_a_message_reopens_when_the_message_changes(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    mara = await harness.create_character()
    room = await harness.start_chat(mara)
    begun = await harness.say(room, "The secret is mauve.")
    await harness.story.rewind(room, begun.turn)
    script.shapes["SceneSummary"] = {"summary": "A mauve secret.", "relationship": "Tells mauve secrets."}
    await harness.story.close_scene(room)
    await harness.regenerate(room, text="There is no secret.")
    assert "mauve" not in script.prompt()
    assert harness.story.chats.scene_summaries(room, mara.id) == []
    assert "mauve" not in relationship(harness, mara.id).summary


async def test_s22_jobs_of_a_reply_that_is_not_chosen_wait_until_it_is(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    mara = await harness.create_character()
    room = await harness.start_chat(mara)
    script.replies = ["First.", "Second."]
    begun = await harness.story.send_message(room, "Hello.")
    await harness.story.replies.wait(room)
    await harness.regenerate(room)
    assert harness.memories_of(mara.id) == ["Hello.", "Second."]
    await harness.story.choose(room, begun.reply)
    await harness.run_jobs()
    assert harness.memories_of(mara.id) == ["First.", "Hello."]


async def test_s22_on_a_fork_regenerating_drops_the_relationship_changes_of_the_inherited_reply(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    mara = await harness.create_character()
    room = await harness.start_chat(mara)
    set_relationship_update(script, 4, "Ana is kind")
    await harness.say(room, "Hello.")
    set_relationship_update(script, -9, "Ana lies")
    old = await harness.say(room, "I took it.")
    fork = await harness.story.fork(room, old.reply)
    assert (relationship(harness, mara.id, fork.world).affinity, relationship(harness, mara.id).affinity) == (45, 45)
    set_relationship_update(script, 1)
    new = await harness.regenerate(fork.room)
    assert relationship(harness, mara.id, fork.world).affinity == 55
    assert relationship(harness, mara.id, fork.world).knowledge == ("Ana is kind",)
    assert "Ana lies" not in script.prompt()
    assert relationship(harness, mara.id).affinity == 45
    for _ in range(2):
        await harness.story.choose(fork.room, old.reply)
        assert relationship(harness, mara.id, fork.world).affinity == 45
        await harness.story.choose(fork.room, new.reply)
        assert relationship(harness, mara.id, fork.world).affinity == 55


async def test_s22_on_a_fork_choosing_an_inherited_alternative_restores_its_relationship_changes(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    mara = await harness.create_character()
    room = await harness.start_chat(mara)
    set_relationship_update(script, 7)
    first = await harness.say(room, "Hello.")
    set_relationship_update(script, -2)
    second = await harness.regenerate(room)
    fork = await harness.story.fork(room, second.reply)
    for _ in range(2):
        await harness.story.choose(fork.room, first.reply)
        assert relationship(harness, mara.id, fork.world).affinity == 57
        await harness.story.choose(fork.room, second.reply)
        assert relationship(harness, mara.id, fork.world).affinity == 48
    assert relationship(harness, mara.id).affinity == 48


async def test_s22_s6_a_guest_who_joined_after_the_message_replies_to_everybody(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    mara, theo, ida = (
        await harness.create_character(),
        await harness.create_character("Theo"),
        await harness.create_character("Ida"),
    )
    room = await harness.start_chat(mara)
    await harness.story.invite(room, theo.id)
    await harness.say(room, "The key is under the stone.", to=[theo.id])
    await harness.story.remove_guest(room, theo.id)
    await harness.say(room, "A question for everybody.")
    await harness.story.invite(room, theo.id)
    await harness.story.invite(room, ida.id)
    await harness.regenerate(room, speaker=theo.id)
    assert "under the stone" not in script.prompt()
