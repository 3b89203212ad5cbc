"""Editing, hiding and deleting turns anywhere in a chat, and taking these changes back."""

from __future__ import annotations

import pytest

from coterie.base.errors import BadPoint
from coterie.characters.service import OWNER
from coterie.conversation.errors import NoSuchTurn
from coterie.modes.story.archive import export_chat
from coterie.modes.story.events import MAIN_WORLD
from tests.modes.story.conftest import ScriptedModel, StoryHarness
from tests.modes.story.relationship_helpers import relationship, set_relationship_update, state


async def chat_of_three(harness: StoryHarness, script: ScriptedModel) -> tuple[str, str, list[str]]:
    """A chat with three exchanges: its room, its host, and the ids of its six turns."""
    mara = await harness.create_character()
    room = await harness.start_chat(mara)
    for number, (message, reply) in enumerate(
        [("The key is mauve.", "A mauve key."), ("It rains.", "It does."), ("Good night.", "Sleep well.")]
    ):
        script.replies = [reply]
        set_relationship_update(script, 1, f"Ana said sentence {number}: {message}")
        await harness.say(room, message)
    return room, mara.id, [turn.id for turn in harness.story.timeline.latest(room, 10)]


async def test_s22_an_edited_message_is_remembered_as_it_is_now(harness: StoryHarness, script: ScriptedModel) -> None:
    room, mara, ids = await chat_of_three(harness, script)
    set_relationship_update(script, 1, "Ana said that the key is green")
    assert await harness.story.edit_turn(room, ids[0], "The key is green.") == ids[0]
    await harness.run_jobs()
    assert harness.texts(room)[0] == "The key is green."
    memories = harness.memories_of(mara)
    assert "The key is green." in memories
    assert "The key is mauve." not in memories
    assert "Ana said sentence 0: The key is mauve." not in relationship(harness, mara).knowledge
    assert "Ana said that the key is green" in relationship(harness, mara).knowledge
    assert await harness.story.turn_versions(room, ids[0]) == ["The key is mauve.", "The key is green."]
    await harness.say(room, "Which colour?")
    assert "The key is mauve." not in script.prompt()
    assert "The key is green." in script.prompt()


async def test_s22_an_edited_earlier_reply_keeps_its_former_text_as_a_version(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    room, mara, ids = await chat_of_three(harness, script)
    clock = harness.story.chats.chat(room).clock
    await harness.story.edit_turn(room, ids[1], "A green key.")
    await harness.story.edit_turn(room, ids[1], "A red key.")
    await harness.run_jobs()
    turn = harness.story.timeline.turn(room, ids[1])
    assert (turn.text, turn.edited, turn.by_person) == ("A red key.", True, False)
    assert await harness.story.turn_versions(room, ids[1]) == ["A mauve key.", "A green key.", "A red key."]
    assert harness.story.chats.chat(room).clock == clock  # the time that passed stays
    assert [text for text in harness.memories_of(mara) if "key" in text] == ["A red key.", "The key is mauve."]
    with pytest.raises(BadPoint):
        await harness.story.edit_turn(room, ids[1], "  ")
    with pytest.raises(NoSuchTurn):
        await harness.story.edit_turn(room, "nothing", "Text.")


async def test_s22_an_edited_last_reply_is_another_alternative(harness: StoryHarness, script: ScriptedModel) -> None:
    room, mara, ids = await chat_of_three(harness, script)
    edited = await harness.story.edit_turn(room, ids[5], "Sleep badly.")
    await harness.run_jobs()
    assert edited != ids[5]
    assert [one.text for one in await harness.story.alternatives(room, edited)] == ["Sleep well.", "Sleep badly."]
    assert "Sleep well." not in harness.memories_of(mara)
    await harness.story.choose(room, ids[5])
    assert harness.texts(room)[-1] == "Sleep well."
    assert "Sleep badly." not in harness.memories_of(mara)


async def test_s22_deleted_turns_are_forgotten_and_an_undo_brings_all_of_it_back(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    room, mara, ids = await chat_of_three(harness, script)
    before, memories = state(harness), harness.memories_of(mara)
    first = harness.story.turns_between(room, ids[0], ids[1])
    assert first == ids[:2]
    assert await harness.story.delete_turns(room, first) == first
    await harness.run_jobs()
    assert harness.texts(room) == ["It rains.", "It does.", "Good night.", "Sleep well."]
    assert not [text for text in harness.memories_of(mara) if "mauve" in text]
    assert not [fact for fact in relationship(harness, mara).knowledge if "mauve" in fact]
    assert harness.story.search("mauve") == []
    assert b"mauve" not in await export_chat(harness.story, room, "json")
    await harness.say(room, "Which colour was the key?")
    assert "mauve" not in script.prompt()
    last = harness.story.timeline.latest(room, 2)
    await harness.story.delete_turns(room, [turn.id for turn in last])
    await harness.run_jobs()
    assert await harness.story.restore_turns(room, first) == first
    assert harness.memories_of(mara) == memories
    assert relationship(harness, mara).knowledge[0] == "Ana said sentence 0: The key is mauve."
    assert harness.texts(room)[:2] == ["The key is mauve.", "A mauve key."]
    assert [turn.id for turn in harness.story.timeline.deleted(room)] == [turn.id for turn in last]
    assert len(state(harness)) == len(before)


async def test_s22_after_its_reply_is_deleted_a_message_is_still_remembered(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    room, mara, ids = await chat_of_three(harness, script)
    await harness.story.delete_turns(room, [ids[1]])
    await harness.run_jobs()
    assert "The key is mauve." in harness.memories_of(mara)
    assert "A mauve key." not in harness.memories_of(mara)
    with pytest.raises(NoSuchTurn):
        await harness.story.delete_turns(room, [ids[1]])


async def test_s22_a_deleted_last_reply_is_no_alternative_and_another_one_can_be_given(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    room, _, ids = await chat_of_three(harness, script)
    await harness.story.delete_turns(room, [ids[5]])
    script.replies = ["Dream well."]
    begun = await harness.regenerate(room)
    assert [one.text for one in await harness.story.alternatives(room, begun.reply)] == ["Dream well."]
    assert harness.texts(room)[-2:] == ["Good night.", "Dream well."]


async def test_s13_a_hidden_turn_is_shown_but_neither_prompted_nor_remembered(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    room, mara, ids = await chat_of_three(harness, script)
    memories = harness.memories_of(mara)
    assert await harness.story.hide_turns(room, ids[:2]) == ids[:2]
    assert await harness.story.hide_turns(room, ids[:2]) == []
    await harness.run_jobs()
    assert harness.texts(room)[0] == "The key is mauve."
    await harness.say(room, "Which colour?")
    assert "mauve" not in script.prompt()
    assert not [text for text in harness.memories_of(mara) if "mauve" in text]
    assert await harness.story.hide_turns(room, ids[:2], hidden=False) == ids[:2]
    assert set(memories) <= set(harness.memories_of(mara))
    await harness.say(room, "And now?")
    assert "mauve" in script.prompt()


async def test_s15_the_summary_of_a_closed_scene_is_made_again_without_deleted_turns(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    room, mara, ids = await chat_of_three(harness, script)
    script.shapes["SceneSummary"] = {"summary": "The mauve key.", "relationship": "Has a mauve key.", "significance": 2}
    await harness.story.close_scene(room)
    assert harness.story.chats.scene_summaries(room, mara) == ["The mauve key."]
    script.shapes["SceneSummary"] = {"summary": "It rained.", "relationship": "Likes rain.", "significance": 1}
    await harness.story.delete_turns(room, ids[:2])
    assert harness.story.chats.scene_summaries(room, mara) == []
    assert "mauve" not in harness.story.relationships.get(MAIN_WORLD, mara, OWNER).summary
    await harness.run_jobs()
    assert harness.story.chats.scene_summaries(room, mara) == ["It rained."]
    assert "mauve" not in script.questions("SceneSummary")[-1]
    assert harness.story.relationships.get(MAIN_WORLD, mara, OWNER).summary == "Likes rain."
    await harness.story.restore_turns(room, ids[:2])
    assert harness.story.chats.scene_summaries(room, mara) == ["The mauve key."]


async def test_s23_s24_changes_of_turns_stay_after_a_rewind_and_in_a_fork(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    room, mara, ids = await chat_of_three(harness, script)
    await harness.story.delete_turns(room, ids[:1])
    await harness.story.edit_turn(room, ids[1], "A key.")
    await harness.story.hide_turns(room, [ids[2]])
    await harness.run_jobs()
    fork = (await harness.story.fork(room, ids[3])).room
    await harness.story.rewind(room, ids[3])
    for where in (room, fork):
        assert harness.texts(where) == ["A key.", "It rains.", "It does."]
        assert [turn.hidden for turn in harness.story.timeline.latest(where, 3)] == [False, True, False]
        assert [turn.text for turn in harness.story.timeline.deleted(where)] == ["The key is mauve."]
        await harness.say(where, "Well?")
        assert "mauve" not in script.prompt()
        assert "It rains." not in script.prompt()
    assert not [text for text in harness.memories_of(mara) if "mauve" in text]
    assert await harness.story.restore_turns(fork, ids[:1]) == ids[:1]
    assert harness.texts(fork)[0] == "The key is mauve."
    assert harness.texts(room)[0] == "A key."


async def test_s23_a_second_undo_and_a_changed_chat_say_the_truth(harness: StoryHarness, script: ScriptedModel) -> None:
    room, _, ids = await chat_of_three(harness, script)
    with pytest.raises(BadPoint, match="Nothing was rewound"):
        await harness.story.undo_rewind(room)
    await harness.story.rewind(room, ids[1])
    assert await harness.story.turn_before_rewind(room) == ids[5]
    await harness.story.undo_rewind(room)
    with pytest.raises(BadPoint, match="undone already"):
        await harness.story.undo_rewind(room)
    assert await harness.story.turn_before_rewind(room) is None
    await harness.story.rewind(room, ids[1])
    await harness.say(room, "Something else.")
    with pytest.raises(BadPoint, match="changed since"):
        await harness.story.undo_rewind(room)
    turn = await harness.story.turn_before_rewind(room)
    assert turn == ids[5]
    fork = await harness.story.fork(room, turn)
    assert harness.texts(fork.room)[-1] == "Sleep well."


async def test_bookmarks_are_listed_in_every_chat_that_has_the_turn(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    room, _, ids = await chat_of_three(harness, script)
    await harness.story.bookmark(room, ids[1], name="The key")
    await harness.story.bookmark(room, ids[4])
    fork = (await harness.story.fork(room, ids[3])).room
    assert [(one.turn, one.name) for one in harness.story.bookmarks.all(room)] == [
        (ids[1], "The key"),
        (ids[4], "Good night."),
    ]
    assert [one.turn for one in harness.story.bookmarks.all(fork)] == [ids[1]]
    await harness.story.rewind(room, ids[3])
    assert [one.turn for one in harness.story.bookmarks.all(room)] == [ids[1]]
    await harness.story.undo_rewind(room)  # bookmarks are no part of the chat's history
    await harness.story.bookmark(room, ids[1], False)
    assert [one.turn for one in harness.story.bookmarks.all(room)] == [ids[4]]
    with pytest.raises(NoSuchTurn):
        await harness.story.bookmark(room, "nothing")
