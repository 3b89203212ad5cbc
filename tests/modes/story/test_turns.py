from __future__ import annotations

from coterie.modes.story.events import MAIN_WORLD
from tests.modes.story.conftest import ScriptedModel, StoryHarness


async def test_s8_s12_a_story_from_the_opening_to_the_third_turn(stage: StoryHarness, script: ScriptedModel) -> None:
    mara = await stage.create_character()
    room = await stage.start_chat(mara, greeting="You came, {{user}}.", facts=["Ana draws maps"])
    script.replies = ["*nods* Sit down.", "The lamp is old."]
    await stage.say(room, '*shakes off the rain* "Good evening." ((be gentle))')
    await stage.say(room, "Tell me about the lamp.")
    assert stage.texts(room) == [
        "You came, Ana.",
        '*shakes off the rain* "Good evening." ((be gentle))',
        "*nods* Sit down.",
        "Tell me about the lamp.",
        "The lamp is old.",
    ]
    assert "be gentle" not in script.prompt()
    assert "Ana draws maps" in script.prompt()
    assert stage.story.relationships.get(MAIN_WORLD, mara.id, "you").knowledge == ("Ana draws maps",)
    kinds = [event.kind for event in await stage.store.read(room)]
    assert kinds.index("user_turn") < kinds.index("assistant_turn_started", kinds.index("user_turn"))


async def test_s22_regenerate_and_swipe(stage: StoryHarness, script: ScriptedModel) -> None:
    mara = await stage.create_character()
    room = await stage.start_chat(mara)
    script.replies = ["I hate the sea.", "I love the sea."]
    begun = await stage.say(room, "What about the sea?")
    assert [m.text for m in stage.memory.browse(owner=mara.id)] == ["What about the sea?", "I hate the sea."]
    await stage.story.regenerate(room)
    await stage.story.replies.wait(room)
    await stage.run_jobs()
    assert stage.texts(room) == ["What about the sea?", "I love the sea."]
    assert sorted(m.text for m in stage.memory.browse(owner=mara.id)) == ["I love the sea.", "What about the sea?"]
    replies = await stage.story.alternatives(room, begun.turn)
    assert [reply.text for reply in replies] == ["I hate the sea.", "I love the sea."]
    await stage.story.choose(room, replies[0].reply)
    assert stage.texts(room) == ["What about the sea?", "I hate the sea."]
    assert "I love the sea." not in [m.text for m in stage.memory.browse(owner=mara.id)]


async def test_s23_s24_rewind_undo_and_fork(stage: StoryHarness, script: ScriptedModel) -> None:
    mara = await stage.create_character()
    script.shapes["StateUpdate"] = {"pairs": [{"of": "Mara", "toward": "Ana", "affinity_delta": 5}]}
    room = await stage.start_chat(mara)
    turns = [(await stage.say(room, f"Message {n}")).reply for n in range(3)]
    assert stage.story.relationships.get(MAIN_WORLD, mara.id, "you").affinity == 65
    fork = await stage.story.fork(room, turns[1])
    assert stage.story.relationships.get(fork.world, mara.id, "you").affinity == 60
    await stage.story.rewind(room, turns[0])
    assert len(stage.texts(room)) == 2
    assert stage.story.relationships.get(MAIN_WORLD, mara.id, "you").affinity == 55
    assert len(stage.texts(fork.room)) == 4
    await stage.story.undo_rewind(room)
    assert stage.story.relationships.get(MAIN_WORLD, mara.id, "you").affinity == 65
    await stage.say(fork.room, "Only here")
    assert stage.story.relationships.get(fork.world, mara.id, "you").affinity == 65
    assert stage.story.relationships.get(MAIN_WORLD, mara.id, "you").affinity == 65
    await stage.story.rewind(fork.room, turns[0])
    assert stage.story.relationships.get(fork.world, mara.id, "you").affinity == 55
    assert stage.story.chats.chat(fork.room).world == fork.world
