"""S2: the owner has several personas, one per chat; each turn keeps the one it was said as."""

from __future__ import annotations

from tests.modes.story.conftest import ScriptedModel, StoryHarness


async def test_s2_a_persona_replaces_the_profile_in_prompts(harness: StoryHarness, script: ScriptedModel) -> None:
    mara = await harness.create_character("Mara", persona="Mara waits for {{user}}.")
    room = await harness.start_chat(mara)
    await harness.say(room, "Hello.")
    assert "Ana (she/her) is the person you are with." in script.prompt()
    kim = await harness.personas.create("Kim", pronouns="he/him", about="A smuggler.")
    await harness.story.choose_persona(room, kim.id)
    await harness.say(room, "It is me.")
    prompt = script.prompt()
    assert "Kim (he/him) is the person you are with.\nA smuggler." in prompt
    assert "Mara waits for Kim." in prompt
    assert "Ana: Hello." in prompt and "Kim: It is me." in prompt
    assert "A cartographer." not in prompt
    await harness.story.choose_persona(room, "")
    await harness.say(room, "And now me.")
    prompt = script.prompt()
    assert "Kim: It is me." in prompt and "Ana: And now me." in prompt and "A smuggler." not in prompt


async def test_s2_a_rewind_and_a_fork_keep_who_spoke(harness: StoryHarness, script: ScriptedModel) -> None:
    room = await harness.start_chat(await harness.create_character())
    await harness.say(room, "Hello.")
    first = harness.story.timeline.latest(room, 1)[0].id
    kim = await harness.personas.create("Kim")
    await harness.say(room, "Wait.")
    await harness.story.choose_persona(room, kim.id)
    await harness.say(room, "It is me.")
    fork = await harness.story.fork(room, harness.story.timeline.latest(room, 1)[0].id)
    assert fork.persona == kim.id
    await harness.story.rewind(room, first)
    assert harness.story.chats.chat(room).persona == ""
    await harness.story.undo_rewind(room)
    assert harness.story.chats.chat(room).persona == kim.id
    await harness.say(fork.room, "Still me.")
    assert "Ana: Hello." in script.prompt() and "Kim: Still me." in script.prompt()


async def test_s2_new_chats_begin_with_the_default_persona(harness: StoryHarness, script: ScriptedModel) -> None:
    mara = await harness.create_character()
    old = await harness.start_chat(mara)
    kim = await harness.personas.create("Kim")
    await harness.personas.choose_default(kim.id)
    room = await harness.start_chat(mara, greeting="Ah, {{user}}.")
    assert harness.texts(room) == ["Ah, Kim."]
    assert (harness.story.chats.chat(room).persona, harness.story.chats.chat(old).persona) == (kim.id, "")
    await harness.personas.delete(kim.id)  # the chat keeps it
    await harness.say(room, "Hello.")
    assert "Kim: Hello." in script.prompt()
    assert harness.story.chats.chat(await harness.start_chat(mara)).persona == ""
    await harness.personas.restore(kim.id)
    assert [persona.is_default for persona in harness.personas.all()] == [True]
    await harness.story.reset(mara.id, "Mara")
    harness.clock.advance(1)
    await harness.say(room, "Again.")
    assert "Kim: Again." in script.prompt()
