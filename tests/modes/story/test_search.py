"""Searching the turns of all chats."""

from __future__ import annotations

import pytest

from coterie.conversation import search
from coterie.conversation.search import search_messages
from tests.modes.story.conftest import ScriptedModel, StoryHarness


def found(harness: StoryHarness, query: str, room: str | None = None) -> list[str]:
    hits = search_messages(harness.store, query, room=room)
    return sorted(harness.story.timeline.turn(hit.room, hit.turn).text for hit in hits)


@pytest.mark.parametrize("batch", [1, 3, 2_000])
async def test_s17_rewound_turns_are_not_found_until_the_rewind_is_undone(
    harness: StoryHarness, script: ScriptedModel, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    monkeypatch.setattr(search, "_BATCH", batch)
    character = await harness.create_character()
    room, other = await harness.start_chat(character), await harness.start_chat(character)
    script.replies = ["A violet boat.", "Green, then."]
    said = await harness.say(room, "Which boat?")
    assert found(harness, "BOAT") == ["A violet boat.", "Which boat?"]
    assert found(harness, "boat", other) == []
    assert found(harness, "viol boa") == ["A violet boat."]
    await harness.regenerate(room)
    assert found(harness, "violet") == []
    assert found(harness, "green") == ["Green, then."]
    await harness.story.choose(room, said.reply)
    assert (found(harness, "violet"), found(harness, "green")) == (["A violet boat."], [])

    more = await harness.say(room, "And the oars?")
    await harness.story.rewind(room, said.reply)
    assert found(harness, "oars") == []
    await harness.story.undo_rewind(room)
    assert found(harness, "oars") == ["And the oars?"]
    fork = await harness.story.fork(room, more.turn)
    assert found(harness, "oars", fork.room) == ["And the oars?"]
    await harness.regenerate(room, text="And the rudder?")
    assert (found(harness, "oars", room), found(harness, "rudder", room)) == ([], ["And the rudder?"])
    harness.store.transact(
        lambda rows: rows.run("INSERT INTO turn_words(turn_words) VALUES ('integrity-check')").fetchall()
    )
    harness.store.rebuild()
    assert (found(harness, "oars", room), found(harness, "rudder", room)) == ([], ["And the rudder?"])
    await harness.story.reset(character.id, "Mara")
    assert found(harness, "boat") == []


@pytest.mark.parametrize("question", ["", "  ", '"', "*", "a OR", "NEAR(", "text:boat", "-", "^x", "été", "'; DROP"])
async def test_s17_no_query_raises_an_error(harness: StoryHarness, question: str) -> None:
    room = await harness.start_chat(await harness.create_character())
    await harness.say(room, "L'Été is a boat.")
    assert isinstance(found(harness, question), list)
    assert found(harness, "ete") == ["L'Été is a boat."]
