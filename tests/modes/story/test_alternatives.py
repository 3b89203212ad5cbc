"""Other replies and other messages: S22. What was derived goes with what it came from, and comes back with it."""

from __future__ import annotations

import random
from datetime import datetime, timedelta

from tests.modes.story.conftest import ScriptedModel, StoryHarness
from tests.modes.story.relationship_helpers import relationship, set_relationship_update


async def test_s22_what_a_reply_led_to_goes_and_comes_back_with_it_however_often_one_swipes(
    stage: StoryHarness, script: ScriptedModel
) -> None:
    mara = await stage.create_character()
    room = await stage.start_chat(mara, time="2030-01-01T00:00:00Z")
    await stage.say(room, "Hello.")
    start = stage.story.chats.chat(room).clock
    ways: list[tuple[str, str, int, datetime]] = []
    for reply, delta, minutes in (("I hate it.", -7, 3), ("I love it.", 8, 5), ("I do not care.", 0, 60)):
        script.replies, script.shapes["SceneCheck"] = [reply], {"minutes": minutes}
        set_relationship_update(script, delta, f"Ana asked and heard: {reply}")
        begun = await (stage.say(room, "The sea?") if not ways else stage.regenerate(room))
        ways.append((begun.reply, reply, 50 + delta, start + timedelta(minutes=minutes)))
    for way in random.Random(3).choices(ways, k=9):
        reply_id, reply, affinity, clock = way
        await stage.story.choose(room, reply_id)
        assert stage.texts(room)[-2:] == ["The sea?", reply]
        assert relationship(stage, mara.id).affinity == affinity
        assert relationship(stage, mara.id).knowledge == (f"Ana asked and heard: {reply}",)
        assert stage.story.chats.chat(room).clock == clock
        assert [text for text in stage.memories_of(mara.id) if text.startswith("I ")] == [reply]
        stage.verify()


async def test_s22_another_message_belongs_to_the_reply_that_it_led_to(
    stage: StoryHarness, script: ScriptedModel
) -> None:
    mara = await stage.create_character()
    room = await stage.start_chat(mara)
    first = await stage.say(room, "The secret is mauve.")
    second = await stage.regenerate(room, text="There is no secret.")
    assert stage.texts(room)[0] == "There is no secret."
    assert "mauve" not in script.prompt()
    assert not [text for text in stage.memories_of(mara.id) if "mauve" in text]
    third = await stage.regenerate(room)
    assert stage.texts(room)[0] == "There is no secret."
    await stage.story.choose(room, first.reply)
    assert stage.texts(room)[0] == "The secret is mauve."
    assert [text for text in stage.memories_of(mara.id) if "mauve" in text]
    for reply in (second.reply, third.reply):
        await stage.story.choose(room, reply)
        assert stage.texts(room)[0] == "There is no secret."
        assert not [text for text in stage.memories_of(mara.id) if "mauve" in text]


async def test_s22_s15_a_scene_that_was_closed_after_a_message_opens_again_when_the_message_changes(
    stage: StoryHarness, script: ScriptedModel
) -> None:
    mara = await stage.create_character()
    room = await stage.start_chat(mara)
    begun = await stage.say(room, "The secret is mauve.")
    await stage.story.rewind(room, begun.turn)
    script.shapes["SceneSummary"] = {"summary": "A mauve secret.", "relationship": "Tells mauve secrets."}
    await stage.story.close_scene(room)
    await stage.regenerate(room, text="There is no secret.")
    assert "mauve" not in script.prompt()
    assert stage.story.chats.scene_summaries(room, mara.id) == []
    assert "mauve" not in relationship(stage, mara.id).summary


async def test_s22_late_work_of_a_reply_that_was_swiped_away_does_nothing_until_it_is_chosen(
    stage: StoryHarness, script: ScriptedModel
) -> None:
    mara = await stage.create_character()
    room = await stage.start_chat(mara)
    script.replies = ["First.", "Second."]
    begun = await stage.story.say(room, "Hello.")
    await stage.story.replies.wait(room)
    await stage.regenerate(room)
    assert stage.memories_of(mara.id) == ["Hello.", "Second."]
    await stage.story.choose(room, begun.reply)
    await stage.run_jobs()
    assert stage.memories_of(mara.id) == ["First.", "Hello."]


async def test_s22_on_a_fork_the_inherited_reply_takes_its_feelings_along(
    stage: StoryHarness, script: ScriptedModel
) -> None:
    mara = await stage.create_character()
    room = await stage.start_chat(mara)
    set_relationship_update(script, 4, "Ana is kind")
    await stage.say(room, "Hello.")
    set_relationship_update(script, -9, "Ana lies")
    old = await stage.say(room, "I took it.")
    fork = await stage.story.fork(room, old.reply)
    assert (relationship(stage, mara.id, fork.world).affinity, relationship(stage, mara.id).affinity) == (45, 45)
    set_relationship_update(script, 1)
    new = await stage.regenerate(fork.room)
    assert relationship(stage, mara.id, fork.world).affinity == 55
    assert relationship(stage, mara.id, fork.world).knowledge == ("Ana is kind",)
    assert "Ana lies" not in script.prompt()
    assert relationship(stage, mara.id).affinity == 45
    for _ in range(2):
        await stage.story.choose(fork.room, old.reply)
        assert relationship(stage, mara.id, fork.world).affinity == 45
        await stage.story.choose(fork.room, new.reply)
        assert relationship(stage, mara.id, fork.world).affinity == 55


async def test_s22_on_a_fork_a_swipe_that_was_never_chosen_there_brings_its_feelings(
    stage: StoryHarness, script: ScriptedModel
) -> None:
    mara = await stage.create_character()
    room = await stage.start_chat(mara)
    set_relationship_update(script, 7)
    first = await stage.say(room, "Hello.")
    set_relationship_update(script, -2)
    second = await stage.regenerate(room)
    fork = await stage.story.fork(room, second.reply)
    for _ in range(2):
        await stage.story.choose(fork.room, first.reply)
        assert relationship(stage, mara.id, fork.world).affinity == 57
        await stage.story.choose(fork.room, second.reply)
        assert relationship(stage, mara.id, fork.world).affinity == 48
    assert relationship(stage, mara.id).affinity == 48


async def test_s22_s6_whoever_joined_after_the_question_does_not_answer_it_as_if_it_were_a_whisper(
    stage: StoryHarness, script: ScriptedModel
) -> None:
    mara, theo, ida = (
        await stage.create_character(),
        await stage.create_character("Theo"),
        await stage.create_character("Ida"),
    )
    room = await stage.start_chat(mara)
    await stage.story.invite(room, theo.id)
    await stage.say(room, "The key is under the stone.", to=[theo.id])
    await stage.story.remove_guest(room, theo.id)
    await stage.say(room, "A question for whoever hears it.")
    await stage.story.invite(room, theo.id)
    await stage.story.invite(room, ida.id)
    await stage.regenerate(room, speaker=theo.id)
    assert "under the stone" not in script.prompt()
