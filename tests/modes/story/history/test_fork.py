"""Forks of a chat."""

from __future__ import annotations

from tests.modes.story.conftest import ScriptedModel, StoryHarness
from tests.modes.story.relationship_helpers import relationship, set_relationship_update


async def test_s24_forks_share_no_later_memories_or_prompts_in_either_direction(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    mara = await harness.create_character()
    room = await harness.start_chat(mara)
    shared = await harness.say(room, "The word is amber.")
    fork = await harness.story.fork(room, shared.reply)
    deeper = await harness.story.fork(fork.room, shared.reply)
    chats = {room: "birch", fork.room: "cedar", deeper.room: "dogwood"}
    for chat, word in chats.items():
        set_relationship_update(script, 1, f"Ana likes {word}")
        await harness.say(chat, f"The word is {word}.")
    for chat, word in chats.items():
        set_relationship_update(script, 0)
        await harness.say(chat, "What is the word?")
        others = set(chats.values()) - {word}
        assert "amber" in script.prompt()
        assert word in script.prompt()
        assert not [other for other in others if other in script.prompt()]


async def test_s22_s24_a_fork_regenerates_a_reply_whose_jobs_are_pending(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    mara = await harness.create_character()
    room = await harness.start_chat(mara)
    begun = await harness.story.send_message(room, "The word is amber.")
    await harness.story.replies.wait(room)
    fork = await harness.story.fork(room, begun.reply)
    await harness.regenerate(fork.room)
    assert harness.store.query("SELECT kind, error FROM job WHERE error IS NOT NULL") == []
    assert len(harness.texts(room)) == len(harness.texts(fork.room)) == 2


async def test_s24_a_fork_rewound_into_its_inherited_past_stays_a_fork(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    mara = await harness.create_character()
    room = await harness.start_chat(mara)
    replies = []
    for number in range(3):
        set_relationship_update(script, 5)
        begun = await harness.story.send_message(room, f"Message {number}.")
        await harness.story.replies.wait(room)
        replies.append(begun.reply)
    await harness.run_jobs()  # the jobs of all turns run after the last one
    fork = await harness.story.fork(room, replies[2])
    set_relationship_update(script, 5)
    await harness.say(fork.room, "Only here.")
    assert relationship(harness, mara.id, fork.world).affinity == 70
    await harness.story.rewind(fork.room, replies[1])
    assert relationship(harness, mara.id, fork.world).affinity == 60
    assert harness.memories_of(mara.id, fork.room) == [
        "Message 0.",
        "Message 1.",
        "Reply number 1.",
        "Reply number 2.",
    ]
    chat = harness.story.chats.chat(fork.room)
    assert (chat.world, chat.title) == (fork.world, fork.title)
    await harness.story.undo_rewind(fork.room)
    assert relationship(harness, mara.id, fork.world).affinity == 70
    assert "Only here." in harness.texts(fork.room)
    await harness.story.rewind(fork.room, replies[0])
    await harness.story.rewind(room, replies[1])
    assert relationship(harness, mara.id, fork.world).affinity == 55
    assert relationship(harness, mara.id).affinity == 60
    set_relationship_update(script, 1)
    await harness.say(fork.room, "Another way.")
    assert (relationship(harness, mara.id, fork.world).affinity, relationship(harness, mara.id).affinity) == (56, 60)


async def test_s24_pending_jobs_of_shared_turns_run_for_both_chats(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    mara = await harness.create_character()
    room = await harness.start_chat(mara)
    set_relationship_update(script, 6)
    begun = await harness.story.send_message(room, "Hello.")
    await harness.story.replies.wait(room)
    fork = await harness.story.fork(room, begun.reply)
    await harness.run_jobs()
    for chat in (room, fork.room):
        assert harness.memories_of(mara.id, chat) == ["Hello.", "Reply number 1."]
    assert (relationship(harness, mara.id).affinity, relationship(harness, mara.id, fork.world).affinity) == (56, 56)


async def test_s24_a_fork_does_not_keep_knowledge_from_another_chat_that_is_rewound(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    mara = await harness.create_character()
    room, other = await harness.start_chat(mara), await harness.start_chat(mara)
    begun = await harness.say(room, "Hello.")
    first = await harness.say(other, "Hello here.")
    set_relationship_update(script, 6, "Ana stole the zither")
    await harness.say(other, "I stole it.")
    set_relationship_update(script, 0)
    fork = await harness.story.fork(room, begun.reply)
    assert relationship(harness, mara.id, fork.world).affinity == 50  # the value at the forked turn
    after = await harness.say(room, "Still here.")
    later = await harness.story.fork(room, after.reply)
    assert relationship(harness, mara.id, later.world).affinity == 56
    await harness.story.rewind(other, first.reply)
    await harness.say(later.room, "What do you know of me?")
    assert "zither" not in script.prompt()
