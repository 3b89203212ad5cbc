"""A character's life starts over: S25. Nothing of the old one comes back, unless the reset is taken back whole."""

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


async def met(stage: StoryHarness, script: ScriptedModel) -> tuple[str, str, str, str]:
    """Mara hosts Theo, and visits him; everybody feels something. Returns both, and both rooms."""
    mara = await stage.create_character(initial_relationship="A stranger.", kickoff="Mara lights the lamp.")
    theo = await stage.create_character("Theo")
    hers = await stage.start_chat(mara, greeting="The lamp is lit, {{user}}.", weather="fog", facts=["Ana draws maps"])
    his = await stage.start_chat(theo)
    pairs = [("Mara", "Ana"), ("Mara", "Theo"), ("Theo", "Ana"), ("Theo", "Mara")]
    script.shapes["StateUpdate"] = {
        "pairs": [
            {"of": of, "toward": toward, "affinity_delta": 9, "knowledge_facts": [f"{toward} whistles"]}
            for of, toward in pairs
        ]
    }
    await stage.story.invite(hers, theo.id)
    await stage.story.invite(his, mara.id)
    await stage.say(hers, "The heron nests in the tower.")
    await stage.say(his, "The otter sleeps in the boat.")
    return mara.id, theo.id, hers, his


async def test_s25_reset_clears_what_was_lived_wherever_and_keeps_who_it_is(
    stage: StoryHarness, script: ScriptedModel
) -> None:
    mara, theo, hers, his = await met(stage, script)
    with pytest.raises(ConfirmationMismatch):
        await stage.story.reset(mara, "mara")
    await stage.story.reset(mara, "Mara")
    assert stage.memories_of(mara) == []
    assert "The heron nests in the tower." not in stage.memories_of(theo)
    assert "The otter sleeps in the boat." in stage.memories_of(theo)
    felt = {
        (e.of, e.toward): (e.affinity, e.knowledge, e.summary) for e in stage.story.relationships.in_world(MAIN_WORLD)
    }
    assert felt[mara, OWNER] == felt[mara, theo] == felt[theo, mara] == (50, (), "")
    assert felt[theo, OWNER][0] == 59  # from his own chat alone
    with pytest.raises(NoSuchRoom):
        stage.story.chats.chat(hers)
    assert stage.story.chats.chat(his).guests == {}
    for table in ("scene", "container", "activity"):
        assert stage.store.query(f"SELECT count(*) FROM {table} WHERE room = ?", (hers,)) == [(0,)]
    assert stage.roster.get(mara).identity.kickoff == "Mara lights the lamp."
    await stage.story.invite(his, mara)
    script.shapes.pop("StateUpdate")
    await stage.say(his, "Mara, what do you know of the otter?", speaker=mara)
    assert "sleeps in the boat" not in script.prompt()


async def test_s25_the_next_message_plays_the_kickoff(stage: StoryHarness, script: ScriptedModel) -> None:
    mara, _, hers, _ = await met(stage, script)
    await stage.story.reset(mara, "Mara")
    script.replies = ["Good evening, whoever you are."]
    script.shapes.pop("StateUpdate")
    await stage.say(hers, "Hello?")
    assert stage.texts(hers) == ["The lamp is lit, Ana.", "Hello?", "Good evening, whoever you are."]
    chat = stage.story.chats.chat(hers)
    assert (chat.title, chat.weather, chat.guests) == ("Evening", "fog", {})
    assert stage.story.chats.containers(hers).popitem()[1].name == "the lighthouse"
    assert relationship(stage, mara).summary == "A stranger."
    assert relationship(stage, mara).knowledge == ("Ana draws maps",)
    assert "heron" not in script.prompt()
    with pytest.raises(BadPoint):
        await stage.story.undo_rewind(hers)


async def test_s25_a_reset_can_be_taken_back_whole(stage: StoryHarness, script: ScriptedModel) -> None:
    mara, _, hers, his = await met(stage, script)
    own = await stage.start_chat(stage.roster.get(mara))
    await stage.say(own, "Just us.")
    before, life = state(stage), stage.memories_of(mara)
    await stage.story.reset(mara, "Mara")
    assert state(stage) != before
    await stage.story.undo_rewind(hers)
    assert state(stage) == before
    assert stage.memories_of(mara) == life
    script.shapes.pop("StateUpdate")
    await stage.say(own, "What nests in the tower?")
    assert "The heron nests in the tower." in script.prompt()
    await stage.say(his, "Mara, and the otter?", speaker=mara)
    assert "The otter sleeps in the boat." in script.prompt()
    with pytest.raises(BadPoint):
        await stage.story.undo_rewind(hers)


async def test_s25_taking_a_reset_back_keeps_what_happened_meanwhile(
    stage: StoryHarness, script: ScriptedModel
) -> None:
    mara, _, hers, his = await met(stage, script)
    otter = stage.story.timeline.latest(his, 2)[0].id
    await stage.story.reset(mara, "Mara")
    await stage.say(his, "Mara is gone.")
    await stage.story.rewind(his, otter)
    await stage.say(his, "Let us start over.")
    await stage.story.undo_rewind(hers)
    assert stage.texts(his)[-2] == "Let us start over."
    assert "The heron nests in the tower." in stage.memories_of(mara)
    # The reply to the otter was rewound meanwhile: what it led to does not come back with her life.
    assert not [text for text in stage.memories_of(mara, his) if text != "The otter sleeps in the boat."]
    await stage.story.reset(mara, "Mara")
    await stage.story.reset(mara, "Mara")
    with pytest.raises(BadPoint, match="started over once more"):
        await stage.story.undo_rewind(hers)


async def test_s25_a_forked_chat_begins_again_too_as_its_first_line_was_confirmed(
    stage: StoryHarness, script: ScriptedModel
) -> None:
    mara = await stage.create_character(kickoff="Mara lights the lamp.")
    room = await stage.start_chat(mara, greeting="The lamp is lit, {{user}}.", weather="fog")
    begun = await stage.say(room, "The heron nests in the tower.")
    fork = await stage.story.fork(room, begun.reply)
    deeper = await stage.story.fork(fork.room, begun.reply)
    await stage.story.reset(mara.id, "Mara")
    for line in (deeper.room, fork.room):
        await stage.say(line, "Hello, I am new here.")
        assert stage.texts(line)[:2] == ["The lamp is lit, Ana.", "Hello, I am new here."]
        assert stage.story.chats.chat(line).weather == "fog"
        assert "The heron nests in the tower." not in stage.memories_of(mara.id, line)


@pytest.mark.parametrize("way", ["rewind", "choose", "fork"])
async def test_s25_a_life_that_ended_does_not_come_back_with_somebody_elses_chat(
    stage: StoryHarness, script: ScriptedModel, way: str
) -> None:
    mara, _, _, his = await met(stage, script)
    reply = stage.story.timeline.latest(his, 1)[0]
    if way == "choose":
        await stage.regenerate(his)
    await stage.say(his, "And more.") if way != "choose" else None
    stage.clock.advance(60)
    await stage.story.reset(mara, "Mara")
    assert stage.memories_of(mara) == []
    match way:
        case "rewind":
            await stage.story.rewind(his, reply.id)
        case "choose":
            await stage.story.choose(his, reply.id)
        case "fork":
            fork = await stage.story.fork(his, reply.id)
            assert relationship(stage, mara, fork.world).affinity == 50
    assert stage.memories_of(mara) == []
    assert not [
        e for e in await stage.store.history(his) if isinstance(e.payload, MemoryAdded) and e.payload.owner == mara
    ]


async def test_s25_a_life_that_ended_does_not_come_back_when_an_older_rewind_is_undone(
    stage: StoryHarness, script: ScriptedModel
) -> None:
    mara, theo = await stage.create_character(), await stage.create_character("Theo")
    room = await stage.start_chat(theo)
    before = await stage.say(room, "Alone.")
    await stage.say(room, "Still alone.")
    await stage.story.invite(room, mara.id)
    set_relationship_update(script, 20, "Ana hides a heron")
    await stage.say(room, "The heron is mine.")
    await stage.story.rewind(room, before.reply)
    stage.clock.advance(60)
    await stage.story.reset(mara.id, "Mara")
    stage.clock.advance(60)
    await stage.story.undo_rewind(room)
    assert "The heron is mine." in stage.texts(room)
    assert "The heron is mine." in stage.memories_of(theo.id)
    assert stage.memories_of(mara.id) == []
    assert (relationship(stage, mara.id).affinity, relationship(stage, mara.id).knowledge) == (50, ())
