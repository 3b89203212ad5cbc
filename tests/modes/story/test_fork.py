"""Lines that know nothing of each other: S24."""

from __future__ import annotations

from tests.modes.story.conftest import ScriptedModel, StoryHarness
from tests.modes.story.relationship_helpers import relationship, set_relationship_update


async def test_s24_lines_know_nothing_of_each_other_both_ways_in_memories_and_prompts(
    stage: StoryHarness, script: ScriptedModel
) -> None:
    mara = await stage.create_character()
    room = await stage.start_chat(mara)
    shared = await stage.say(room, "The word is amber.")
    fork = await stage.story.fork(room, shared.reply)
    deeper = await stage.story.fork(fork.room, shared.reply)
    lines = {room: "birch", fork.room: "cedar", deeper.room: "dogwood"}
    for line, word in lines.items():
        set_relationship_update(script, 1, f"Ana likes {word}")
        await stage.say(line, f"The word is {word}.")
    for line, word in lines.items():
        set_relationship_update(script, 0)
        await stage.say(line, "What is the word?")
        others = set(lines.values()) - {word}
        assert "amber" in script.prompt()
        assert word in script.prompt()
        assert not [other for other in others if other in script.prompt()]


async def test_s24_a_fork_rewound_into_its_past_is_still_its_own_line(
    stage: StoryHarness, script: ScriptedModel
) -> None:
    mara = await stage.create_character()
    room = await stage.start_chat(mara)
    replies = []
    for number in range(3):
        set_relationship_update(script, 5)
        begun = await stage.story.say(room, f"Message {number}.")
        await stage.story.replies.wait(room)
        replies.append(begun.reply)
    await stage.run_jobs()  # what the turns led to comes late, after all of them
    fork = await stage.story.fork(room, replies[2])
    set_relationship_update(script, 5)
    await stage.say(fork.room, "Only here.")
    assert relationship(stage, mara.id, fork.world).affinity == 70
    await stage.story.rewind(fork.room, replies[1])
    assert relationship(stage, mara.id, fork.world).affinity == 60
    assert stage.memories_of(mara.id, fork.room) == [
        "Message 0.",
        "Message 1.",
        "Reply number 1.",
        "Reply number 2.",
    ]
    chat = stage.story.chats.chat(fork.room)
    assert (chat.world, chat.title) == (fork.world, fork.title)
    await stage.story.undo_rewind(fork.room)
    assert relationship(stage, mara.id, fork.world).affinity == 70
    assert "Only here." in stage.texts(fork.room)
    await stage.story.rewind(fork.room, replies[0])
    await stage.story.rewind(room, replies[1])
    assert relationship(stage, mara.id, fork.world).affinity == 55
    assert relationship(stage, mara.id).affinity == 60
    set_relationship_update(script, 1)
    await stage.say(fork.room, "Another way.")
    assert (relationship(stage, mara.id, fork.world).affinity, relationship(stage, mara.id).affinity) == (56, 60)


async def test_s24_work_that_both_lines_are_owed_is_done_for_both(stage: StoryHarness, script: ScriptedModel) -> None:
    mara = await stage.create_character()
    room = await stage.start_chat(mara)
    set_relationship_update(script, 6)
    begun = await stage.story.say(room, "Hello.")
    await stage.story.replies.wait(room)
    fork = await stage.story.fork(room, begun.reply)
    await stage.run_jobs()
    for line in (room, fork.room):
        assert stage.memories_of(mara.id, line) == ["Hello.", "Reply number 1."]
    assert (relationship(stage, mara.id).affinity, relationship(stage, mara.id, fork.world).affinity) == (56, 56)


async def test_s24_what_another_chat_taught_is_not_kept_by_a_fork_when_it_is_rewound(
    stage: StoryHarness, script: ScriptedModel
) -> None:
    mara = await stage.create_character()
    room, other = await stage.start_chat(mara), await stage.start_chat(mara)
    begun = await stage.say(room, "Hello.")
    first = await stage.say(other, "Hello here.")
    set_relationship_update(script, 6, "Ana stole the zither")
    await stage.say(other, "I stole it.")
    set_relationship_update(script, 0)
    fork = await stage.story.fork(room, begun.reply)
    assert relationship(stage, mara.id, fork.world).affinity == 50  # as it was at that turn
    after = await stage.say(room, "Still here.")
    later = await stage.story.fork(room, after.reply)
    assert relationship(stage, mara.id, later.world).affinity == 56
    await stage.story.rewind(other, first.reply)
    await stage.say(later.room, "What do you know of me?")
    assert "zither" not in script.prompt()
