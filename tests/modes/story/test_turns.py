from __future__ import annotations

from coterie.modes.story.events import MAIN_WORLD
from tests.modes.story.conftest import ScriptedModel, StoryHarness


async def test_s8_s12_a_story_from_the_opening_to_the_third_turn(harness: StoryHarness, script: ScriptedModel) -> None:
    mara = await harness.create_character()
    room = await harness.start_chat(mara, greeting="You came, {{user}}.", facts=["Ana draws maps"])
    script.replies = ["*nods* Sit down.", "The lamp is old."]
    await harness.say(room, '*shakes off the rain* "Good evening." ((be gentle))')
    await harness.say(room, "Tell me about the lamp.")
    assert harness.texts(room) == [
        "You came, Ana.",
        '*shakes off the rain* "Good evening." ((be gentle))',
        "*nods* Sit down.",
        "Tell me about the lamp.",
        "The lamp is old.",
    ]
    assert "be gentle" not in script.prompt()
    assert "Ana draws maps" in script.prompt()
    assert harness.story.relationships.get(MAIN_WORLD, mara.id, "you").knowledge == ("Ana draws maps",)
    kinds = [event.kind for event in await harness.store.read(room)]
    assert kinds.index("user_turn") < kinds.index("assistant_turn_started", kinds.index("user_turn"))


async def test_s22_regenerate_and_choose(harness: StoryHarness, script: ScriptedModel) -> None:
    mara = await harness.create_character()
    room = await harness.start_chat(mara)
    script.replies = ["I hate the sea.", "I love the sea."]
    begun = await harness.say(room, "What about the sea?")
    assert [m.text for m in harness.memory.browse(owner=mara.id)] == ["What about the sea?", "I hate the sea."]
    await harness.story.regenerate(room)
    await harness.story.replies.wait(room)
    await harness.run_jobs()
    assert harness.texts(room) == ["What about the sea?", "I love the sea."]
    assert sorted(m.text for m in harness.memory.browse(owner=mara.id)) == ["I love the sea.", "What about the sea?"]
    replies = await harness.story.alternatives(room, begun.turn)
    assert [reply.text for reply in replies] == ["I hate the sea.", "I love the sea."]
    await harness.story.choose(room, replies[0].reply)
    assert harness.texts(room) == ["What about the sea?", "I hate the sea."]
    assert "I love the sea." not in [m.text for m in harness.memory.browse(owner=mara.id)]


async def test_s23_s24_rewind_undo_and_fork(harness: StoryHarness, script: ScriptedModel) -> None:
    mara = await harness.create_character()
    script.shapes["TurnAnalysis"] = {"pairs": [{"of": "Mara", "toward": "Ana", "affinity_delta": 5}]}
    room = await harness.start_chat(mara)
    turns = [(await harness.say(room, f"Message {n}")).reply for n in range(3)]
    assert harness.story.relationships.get(MAIN_WORLD, mara.id, "you").affinity == 65
    fork = await harness.story.fork(room, turns[1])
    assert harness.story.relationships.get(fork.world, mara.id, "you").affinity == 60
    await harness.story.rewind(room, turns[0])
    assert len(harness.texts(room)) == 2
    assert harness.story.relationships.get(MAIN_WORLD, mara.id, "you").affinity == 55
    assert len(harness.texts(fork.room)) == 4
    await harness.story.undo_rewind(room)
    assert harness.story.relationships.get(MAIN_WORLD, mara.id, "you").affinity == 65
    await harness.say(fork.room, "Only here")
    assert harness.story.relationships.get(fork.world, mara.id, "you").affinity == 65
    assert harness.story.relationships.get(MAIN_WORLD, mara.id, "you").affinity == 65
    await harness.story.rewind(fork.room, turns[0])
    assert harness.story.relationships.get(fork.world, mara.id, "you").affinity == 55
    assert harness.story.chats.chat(fork.room).world == fork.world
