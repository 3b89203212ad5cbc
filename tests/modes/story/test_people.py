"""Several people and one character: each is known by name, and what one said is not told to another. P3, M2"""

from __future__ import annotations

import pytest
from textual.widgets import Input, Static

from coterie.characters.people import People
from coterie.characters.service import OWNER, Character
from coterie.messaging.ports import ReplyFinished
from coterie.modes.story import StoryConversation
from coterie.modes.story.events import MAIN_WORLD
from coterie.surfaces.terminal.chat import TerminalChat, TerminalConversation
from tests.modes.story.conftest import ScriptedModel, StoryHarness
from tests.modes.story.test_conversation import held, told


async def known(stage: StoryHarness, name: str) -> str:
    person, _ = await People(stage.store, stage.clock).invite(name, 15)
    return person.id


async def open_for(stage: StoryHarness, talk: StoryConversation, person: str, bot: Character) -> str:
    opened = await talk.open(person, bot.id, at_once=True)
    await stage.store.append(opened.new_events)
    return opened.context


async def said(stage: StoryHarness, talk: StoryConversation, room: str, person: str, text: str) -> ReplyFinished | None:
    _, spoken = await told(talk.send_message(room, text, person=person, key=f"{person}:{text}"))
    await stage.run_jobs()
    return spoken


async def test_p3_a_person_has_a_story_of_their_own_under_their_own_name(
    stage: StoryHarness, script: ScriptedModel
) -> None:
    bot, bo = (
        await stage.create_character(initial_relationship="An old friend of the keeper's."),
        await known(stage, "Bo"),
    )
    talk = held(stage)
    room = await open_for(stage, talk, bo, bot)
    await said(stage, talk, room, bo, "My boat is called Petrel.")
    prompt = script.prompt()
    assert "Bo is the person you are with." in prompt and "Bo: My boat is called Petrel." in prompt
    assert "Ana" not in prompt and "cartographer" not in prompt and "old friend" not in prompt
    (memory,) = [one for one in stage.memory.browse(owner=bot.id) if "Petrel" in one.text]
    assert set(memory.witnesses) == {bo, bot.id} and memory.speaker == "Bo"
    assert stage.story.relationships.get(MAIN_WORLD, bot.id, bo).when is not None
    assert stage.story.relationships.get(MAIN_WORLD, bot.id, OWNER).when is None


async def test_m2_what_somebody_said_who_has_no_story_is_not_told_to_another(
    stage: StoryHarness, script: ScriptedModel
) -> None:
    bot, bo = await stage.create_character(), await known(stage, "Bo")
    ours = await stage.start_chat(bot)
    text = "the spare key is under the blue flowerpot"
    stage.memory.add(text, owner=bot.id, room="room:desk", speaker="Bo", witnesses=(bot.id, bo))
    await stage.say(ours, "Where is the spare key?")
    assert "flowerpot" not in script.prompt()


async def test_m2_what_one_person_said_is_not_told_to_another(stage: StoryHarness, script: ScriptedModel) -> None:
    bot, bo = await stage.create_character(), await known(stage, "Bo")
    talk = held(stage)
    ours, theirs = await stage.start_chat(bot), await open_for(stage, talk, bo, bot)
    await said(stage, talk, ours, OWNER, "The spare key is under the blue flowerpot.")
    await said(stage, talk, theirs, bo, "I owe the harbour master forty crowns.")
    await said(stage, talk, theirs, bo, "Where is the spare key, under which flowerpot?")
    assert "blue" not in script.prompt() and "Ana" not in script.prompt()
    await said(stage, talk, ours, OWNER, "Who owes the harbour master crowns?")
    assert "forty" not in script.prompt() and "Bo" not in script.prompt().replace("Boat", "")
    # In another chat of their own, each is remembered.
    again = await open_for(stage, talk, bo, bot)
    await said(stage, talk, again, bo, "What do I owe the harbour master?")
    assert "forty crowns" in script.prompt()


async def test_p3_somebody_who_was_let_in_talks_along_and_is_a_witness(
    stage: StoryHarness, script: ScriptedModel
) -> None:
    bot, bo = await stage.create_character(), await known(stage, "Bo")
    talk, room = held(stage), await stage.start_chat(bot)
    await said(stage, talk, room, OWNER, "Before you came: the blue flowerpot.")
    await talk.add_person(room, bo)
    await talk.add_person(room, bo)
    await said(stage, talk, room, bo, "Good evening, both of you.")
    prompt = script.prompt()
    assert "Bo: Good evening" in prompt and "one of those you are with" in prompt
    witnesses = {one.text: set(one.witnesses) for one in stage.memory.browse(owner=bot.id)}
    assert witnesses["Good evening, both of you."] == {OWNER, bo, bot.id}
    assert witnesses["Before you came: the blue flowerpot."] == {OWNER, bot.id}
    await talk.remove_person(room, bo)
    await said(stage, talk, room, OWNER, "Now that Bo is gone: the red one.")
    alone = {one.text: set(one.witnesses) for one in stage.memory.browse(owner=bot.id)}
    assert alone["Now that Bo is gone: the red one."] == {OWNER, bot.id}
    assert {one.owner for one in stage.memory.browse(owner=bo)} == set(), "people's memories are their own"
    theirs = await open_for(stage, talk, bo, bot)
    await said(stage, talk, theirs, bo, "What about the flowerpot, blue or red?")
    assert "Before you came" not in script.prompt() and "the red one" not in script.prompt()
    assert "Good evening, both of you." in script.prompt()


async def test_p3_scenes_close_forks_and_resets_keep_who_was_there(stage: StoryHarness, script: ScriptedModel) -> None:
    bot, bo = await stage.create_character(), await known(stage, "Bo")
    talk = held(stage)
    room = await open_for(stage, talk, bo, bot)
    script.shapes["SceneSummary"] = {"summary": "Bo told of the storm.", "relationship": "Bo is brave."}
    for text in ("The storm took the mast.", "I swam."):
        await said(stage, talk, room, bo, text)
    await stage.story.close_scene(room)
    assert stage.story.relationships.get(MAIN_WORLD, bot.id, bo).summary == "Bo is brave."
    scene = stage.story.chats.scene(room, stage.story.chats.chat(room).scene or "")
    assert scene.participants == (bo, bot.id)
    last = stage.story.timeline.latest(room, 1)[0]
    line = await stage.story.fork(room, last.id)
    assert line.people == (bo,)


@pytest.mark.parametrize("mode", ["recent", "hybrid"])
async def test_m2_the_gate_holds_for_every_way_of_recalling(stage: StoryHarness, mode: str) -> None:
    bot, bo = await stage.create_character(), await known(stage, "Bo")
    talk, room = held(stage), await stage.start_chat(bot)
    await said(stage, talk, room, OWNER, "The spare key is under the blue flowerpot.")
    people = {OWNER, bo}
    for present, expected in (({OWNER}, True), ({bo}, False), ({OWNER, bo}, False), (set[str](), True)):
        found = stage.memory.recall(
            "spare key flowerpot",
            owner=bot.id,
            room="room:elsewhere",
            present=present,
            people=people,
            mode=mode,  # type: ignore[arg-type]
        )
        assert any("flowerpot" in one.text for one in found) is expected, present


async def test_p3_a_stranger_at_the_terminal_gets_no_character_no_list_and_no_memory(
    stage: StoryHarness, script: ScriptedModel
) -> None:
    talk, room = held(stage), await stage.start_chat(await stage.create_character(), greeting="*looks up*")
    await said(stage, talk, room, OWNER, "The key is under the flowerpot.")
    screen = TerminalChat(TerminalConversation(talk, room, "mallory", "Mara", list))
    async with screen.run_test() as pilot:
        for text in ("Where is the key?", "/retry"):
            pilot.app.query_one("#write", Input).value = text
            await pilot.press("enter")
            await pilot.pause()
            await pilot.app.workers.wait_for_complete()
        told_them = [str(one.content) for one in pilot.app.query(Static) if one.has_class("notice")]
    assert len(told_them) == 2 and all("somebody else's" in text for text in told_them)
    assert len(script.asked) == 1
