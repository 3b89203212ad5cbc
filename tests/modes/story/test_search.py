"""S17: everything that counts is found, and nothing else."""

from __future__ import annotations

import pytest

from coterie.conversation.search import search_messages
from tests.modes.story.conftest import ScriptedModel, StoryHarness


def found(stage: StoryHarness, question: str, room: str | None = None) -> list[str]:
    turns = [stage.story.timeline.turn(one.room, one.turn).text for one in search_messages(stage.store, question, room=room)]
    return sorted(turns)


async def test_s17_what_is_taken_back_is_not_found_and_comes_back_with_it(
    stage: StoryHarness, script: ScriptedModel
) -> None:
    bot = await stage.create_character()
    room, other = await stage.start_chat(bot), await stage.start_chat(bot)
    script.replies = ["A violet boat.", "Green, then."]
    said = await stage.say(room, "Which boat?")
    assert found(stage, "BOAT") == ["A violet boat.", "Which boat?"]
    assert found(stage, "boat", other) == []
    assert found(stage, "viol boa") == ["A violet boat."]
    await stage.regenerate(room)
    assert found(stage, "violet") == []
    assert found(stage, "green") == ["Green, then."]
    await stage.story.choose(room, said.reply)
    assert (found(stage, "violet"), found(stage, "green")) == (["A violet boat."], [])

    more = await stage.say(room, "And the oars?")
    await stage.story.rewind(room, said.reply)
    assert found(stage, "oars") == []
    await stage.story.undo_rewind(room)
    assert found(stage, "oars") == ["And the oars?"]
    fork = await stage.story.fork(room, more.turn)
    assert found(stage, "oars", fork.room) == ["And the oars?"]
    await stage.regenerate(room, text="And the rudder?")
    assert (found(stage, "oars", room), found(stage, "rudder", room)) == ([], ["And the rudder?"])
    stage.store.rebuild()
    assert (found(stage, "oars", room), found(stage, "rudder", room)) == ([], ["And the rudder?"])
    await stage.story.reset(bot.id, "Mara")
    assert found(stage, "boat") == []


@pytest.mark.parametrize("question", ["", "  ", '"', "*", "a OR", "NEAR(", "text:boat", "-", "^x", "été", "'; DROP"])
async def test_s17_no_question_breaks_it(stage: StoryHarness, question: str) -> None:
    room = await stage.start_chat(await stage.create_character())
    await stage.say(room, "L'Été is a boat.")
    assert isinstance(found(stage, question), list)
    assert found(stage, "ete") == ["L'Été is a boat."]
