"""Resetting a character, and undoing the reset."""

from __future__ import annotations

import pytest

from coterie.base.errors import BadPoint
from coterie.characters.errors import ConfirmationMismatch
from coterie.characters.service import OWNER
from coterie.conversation.errors import NoSuchRoom
from coterie.memory.events import MemoryAdded
from coterie.modes.story.events import MAIN_WORLD
from tests.modes.story.conftest import ScriptedModel, StoryHarness
from tests.modes.story.relationship_helpers import relationship, set_relationship_update, state


async def met(harness: StoryHarness, script: ScriptedModel) -> tuple[str, str, str, str]:
    """Mara hosts Theo and visits him; all relationships change. Returns both ids and both rooms."""
    mara = await harness.create_character(initial_relationship="A stranger.", kickoff="Mara lights the lamp.")
    theo = await harness.create_character("Theo")
    hers = await harness.start_chat(
        mara, greeting="The lamp is lit, {{user}}.", weather="fog", facts=["Ana draws maps"]
    )
    his = await harness.start_chat(theo)
    pairs = [("Mara", "Ana"), ("Mara", "Theo"), ("Theo", "Ana"), ("Theo", "Mara")]
    script.shapes["TurnAnalysis"] = {
        "pairs": [
            {"of": of, "toward": toward, "affinity_delta": 9, "knowledge_facts": [f"{toward} whistles"]}
            for of, toward in pairs
        ]
    }
    await harness.story.invite(hers, theo.id)
    await harness.story.invite(his, mara.id)
    await harness.say(hers, "The heron nests in the tower.")
    await harness.say(his, "The otter sleeps in the boat.")
    return mara.id, theo.id, hers, his


async def test_s25_reset_clears_experiences_in_all_chats_and_keeps_the_identity(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    mara, theo, hers, his = await met(harness, script)
    with pytest.raises(ConfirmationMismatch):
        await harness.story.reset(mara, "mara")
    await harness.story.reset(mara, "Mara")
    assert harness.memories_of(mara) == []
    assert "The heron nests in the tower." not in harness.memories_of(theo)
    assert "The otter sleeps in the boat." in harness.memories_of(theo)
    relationships = {
        (e.of, e.toward): (e.affinity, e.knowledge, e.summary) for e in harness.story.relationships.in_world(MAIN_WORLD)
    }
    assert relationships[mara, OWNER] == relationships[mara, theo] == relationships[theo, mara] == (50, (), "")
    assert relationships[theo, OWNER][0] == 59  # only from his own chat
    with pytest.raises(NoSuchRoom):
        harness.story.chats.chat(hers)
    assert harness.story.chats.chat(his).guests == {}
    for table in ("scene", "container", "activity"):
        assert harness.store.query(f"SELECT count(*) FROM {table} WHERE room = ?", (hers,)) == [(0,)]
    assert harness.characters.get(mara).identity.kickoff == "Mara lights the lamp."
    await harness.story.invite(his, mara)
    script.shapes.pop("TurnAnalysis")
    await harness.say(his, "Mara, what do you know of the otter?", speaker=mara)
    assert "sleeps in the boat" not in script.prompt()


async def test_s25_the_next_message_restarts_with_the_opening(harness: StoryHarness, script: ScriptedModel) -> None:
    mara, _, hers, _ = await met(harness, script)
    await harness.story.reset(mara, "Mara")
    script.replies = ["Good evening, whoever you are."]
    script.shapes.pop("TurnAnalysis")
    await harness.say(hers, "Hello?")
    assert harness.texts(hers) == ["The lamp is lit, Ana.", "Hello?", "Good evening, whoever you are."]
    chat = harness.story.chats.chat(hers)
    assert (chat.title, chat.weather, chat.guests) == ("Evening", "fog", {})
    assert harness.story.chats.containers(hers).popitem()[1].name == "the lighthouse"
    assert relationship(harness, mara).summary == "A stranger."
    assert relationship(harness, mara).knowledge == ("Ana draws maps",)
    assert "heron" not in script.prompt()
    with pytest.raises(BadPoint):
        await harness.story.undo_rewind(hers)


async def test_s25_a_reset_can_be_undone_as_a_whole(harness: StoryHarness, script: ScriptedModel) -> None:
    mara, _, hers, his = await met(harness, script)
    own = await harness.start_chat(harness.characters.get(mara))
    await harness.say(own, "Just us.")
    before, memories = state(harness), harness.memories_of(mara)
    await harness.story.reset(mara, "Mara")
    assert state(harness) != before
    await harness.story.undo_rewind(hers)
    assert state(harness) == before
    assert harness.memories_of(mara) == memories
    script.shapes.pop("TurnAnalysis")
    await harness.say(own, "What nests in the tower?")
    assert "The heron nests in the tower." in script.prompt()
    await harness.say(his, "Mara, and the otter?", speaker=mara)
    assert "The otter sleeps in the boat." in script.prompt()
    with pytest.raises(BadPoint):
        await harness.story.undo_rewind(hers)


async def test_s25_undoing_a_reset_keeps_what_happened_since(harness: StoryHarness, script: ScriptedModel) -> None:
    mara, _, hers, his = await met(harness, script)
    otter = harness.story.timeline.latest(his, 2)[0].id
    await harness.story.reset(mara, "Mara")
    await harness.say(his, "Mara is gone.")
    await harness.story.rewind(his, otter)
    await harness.say(his, "Let us start over.")
    await harness.story.undo_rewind(hers)
    assert harness.texts(his)[-2] == "Let us start over."
    assert "The heron nests in the tower." in harness.memories_of(mara)
    # The reply to the otter was rewound since: its consequences do not return with the undo.
    assert not [text for text in harness.memories_of(mara, his) if text != "The otter sleeps in the boat."]
    await harness.story.reset(mara, "Mara")
    await harness.story.reset(mara, "Mara")
    with pytest.raises(BadPoint, match="was reset again"):
        await harness.story.undo_rewind(hers)


async def test_s25_a_forked_chat_restarts_with_the_opening_of_its_root(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    mara = await harness.create_character(kickoff="Mara lights the lamp.")
    room = await harness.start_chat(mara, greeting="The lamp is lit, {{user}}.", weather="fog")
    begun = await harness.say(room, "The heron nests in the tower.")
    fork = await harness.story.fork(room, begun.reply)
    deeper = await harness.story.fork(fork.room, begun.reply)
    await harness.story.reset(mara.id, "Mara")
    for each in (deeper.room, fork.room):
        await harness.say(each, "Hello, I am new here.")
        assert harness.texts(each)[:2] == ["The lamp is lit, Ana.", "Hello, I am new here."]
        assert harness.story.chats.chat(each).weather == "fog"
        assert "The heron nests in the tower." not in harness.memories_of(mara.id, each)


@pytest.mark.parametrize("way", ["rewind", "choose", "fork"])
async def test_s25_memories_from_before_a_reset_do_not_return_with_another_chat(
    harness: StoryHarness, script: ScriptedModel, way: str
) -> None:
    mara, _, _, his = await met(harness, script)
    reply = harness.story.timeline.latest(his, 1)[0]
    if way == "choose":
        await harness.regenerate(his)
    await harness.say(his, "And more.") if way != "choose" else None
    harness.clock.advance(60)
    await harness.story.reset(mara, "Mara")
    assert harness.memories_of(mara) == []
    match way:
        case "rewind":
            await harness.story.rewind(his, reply.id)
        case "choose":
            await harness.story.choose(his, reply.id)
        case "fork":
            fork = await harness.story.fork(his, reply.id)
            assert relationship(harness, mara, fork.world).affinity == 50
    assert harness.memories_of(mara) == []
    assert not [
        e for e in await harness.store.history(his) if isinstance(e.payload, MemoryAdded) and e.payload.owner == mara
    ]


async def test_s25_memories_from_before_a_reset_do_not_return_when_an_older_rewind_is_undone(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    mara, theo = await harness.create_character(), await harness.create_character("Theo")
    room = await harness.start_chat(theo)
    before = await harness.say(room, "Alone.")
    await harness.say(room, "Still alone.")
    await harness.story.invite(room, mara.id)
    set_relationship_update(script, 20, "Ana hides a heron")
    await harness.say(room, "The heron is mine.")
    await harness.story.rewind(room, before.reply)
    harness.clock.advance(60)
    await harness.story.reset(mara.id, "Mara")
    harness.clock.advance(60)
    await harness.story.undo_rewind(room)
    assert "The heron is mine." in harness.texts(room)
    assert "The heron is mine." in harness.memories_of(theo.id)
    assert harness.memories_of(mara.id) == []
    assert (relationship(harness, mara.id).affinity, relationship(harness, mara.id).knowledge) == (50, ())


async def test_s25_a_reset_is_undone_until_a_chat_begins_again(harness: StoryHarness, script: ScriptedModel) -> None:
    mara = await harness.create_character()
    first, second = await harness.start_chat(mara), await harness.start_chat(mara)
    await harness.say(first, "The key is mauve.")
    assert not await harness.story.can_undo_reset(mara.id)
    assert await harness.story.emptied_by_reset(first) == ""
    with pytest.raises(BadPoint):
        await harness.story.undo_reset(mara.id)
    await harness.story.reset(mara.id, "Mara")
    assert await harness.story.emptied_by_reset(first) == mara.id
    await harness.story.undo_reset(mara.id)
    assert harness.texts(first)[0] == "The key is mauve."
    assert "The key is mauve." in " ".join(harness.memories_of(mara.id))
    assert await harness.story.emptied_by_reset(first) == ""
    await harness.story.reset(mara.id, "Mara")
    await harness.story.restart(second)
    assert harness.story.chats.exists(second)
    assert not await harness.story.can_undo_reset(mara.id)
    await harness.story.chat_list.delete(second)
    assert await harness.story.emptied_by_reset(second) == "", "it was deleted, not reset"
