"""S17: chats are archived, pinned, tagged, duplicated, deleted and restored."""

from __future__ import annotations

import pytest

from coterie.base.errors import BadPoint
from coterie.conversation import NoSuchRoom
from tests.modes.story.conftest import ScriptedModel, StoryHarness


async def test_s17_a_deleted_chat_leaves_lists_search_and_memories_and_comes_back(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    mara = await harness.create_character()
    kept, gone = await harness.start_chat(mara), await harness.start_chat(mara, title="Storm")
    await harness.say(gone, "My brother is called Ilya.")
    await harness.say(kept, "Hello.")
    chats, before = harness.story.chat_list, harness.texts(gone)
    remembered = harness.memories_of(mara.id)
    assert any("Ilya" in text for text in remembered)
    await chats.delete(gone)
    harness.verify()
    assert [chat.room for chat in chats.listed()] == [kept]
    assert [(one.room, one.title) for one in chats.deleted()] == [(gone, "Storm")]
    assert harness.story.search("Ilya") == []
    assert not any("Ilya" in text for text in harness.memories_of(mara.id))
    with pytest.raises(NoSuchRoom):
        await harness.say(gone, "Are you there?")
    with pytest.raises(BadPoint):
        await harness.story.undo_rewind(gone)
    await harness.say(kept, "What is my brother called?")
    assert "Ilya" not in script.prompt()
    await chats.restore(gone)
    assert harness.texts(gone) == before
    assert harness.story.search("Ilya") != []
    assert any("Ilya" in text for text in harness.memories_of(mara.id))
    assert chats.deleted() == []
    await harness.say(gone, "Here again.")
    with pytest.raises(NoSuchRoom):
        await chats.restore(gone)


async def test_s17_an_archived_chat_is_not_listed_nor_found_and_stays_as_it_is(harness: StoryHarness) -> None:
    room = await harness.start_chat(await harness.create_character())
    await harness.say(room, "A lantern.")
    chats = harness.story.chat_list
    await chats.archive(room)
    assert chats.listed() == [] and harness.story.search("lantern") == []
    assert len(harness.story.search("lantern", room=room)) == 1
    await harness.say(room, "Still here.")
    await chats.archive(room, archived=False)
    assert [chat.room for chat in chats.listed()] == [room]
    assert len(harness.story.search("lantern")) == 1


async def test_s17_pins_and_tags_survive_a_rewind(harness: StoryHarness) -> None:
    room = await harness.start_chat(await harness.create_character())
    await harness.say(room, "One.")
    first = harness.story.timeline.latest(room, 1)[0].id
    await harness.say(room, "Two.")
    chats = harness.story.chat_list
    await chats.pin(room)
    await chats.tag(room, ["sea", "winter", "sea"])
    await harness.story.rewind(room, first)
    assert chats.pinned() == {room} and chats.tags() == {room: ["sea", "winter"]}
    await chats.pin(room, pinned=False)
    await chats.tag(room, [])
    assert chats.pinned() == frozenset() and chats.tags() == {}


async def test_s24_a_duplicate_goes_on_by_itself_and_the_tree_shows_it(harness: StoryHarness) -> None:
    room = await harness.start_chat(await harness.create_character(), title="Storm")
    await harness.say(room, "One.")
    await harness.regenerate(room)
    first = harness.story.timeline.latest(room, 1)[0]
    await harness.say(room, "Two.")
    chats = harness.story.chat_list
    copy = await chats.duplicate(room)
    assert (copy.title, harness.texts(copy.room)) == ("Storm (copy)", harness.texts(room))
    fork = await harness.story.fork(room, first.id)
    await harness.say(copy.room, "Three.")
    await harness.regenerate(copy.room)
    assert len(harness.texts(room)) == 4
    tree = await chats.tree(fork.room)
    assert tree.room == room and [(point.turn, len(point.replies), point.chosen) for point in tree.swipes] == [
        (first.id, 2, 1)
    ]
    assert [(branch.room, branch.turns) for branch in tree.forks] == [(fork.room, 2), (copy.room, 6)]
    assert tree.forks[0].forked_at is not None and tree.forks[0].forked_at.id == first.id
    assert [len(branch.swipes) for branch in tree.forks] == [0, 1]
