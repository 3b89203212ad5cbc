"""Several people and one character: separate stories, and no recall of one person's messages for another."""

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
from tests.modes.story.test_conversation import collect, new_conversation


async def known(harness: StoryHarness, name: str) -> str:
    person, _ = await People(harness.store, harness.clock).invite(name, 15)
    return person.id


async def open_for(harness: StoryHarness, conversation: StoryConversation, person: str, character: Character) -> str:
    opened = await conversation.open(person, character.id, at_once=True)
    await harness.store.append(opened.new_events)
    return opened.context


async def said(
    harness: StoryHarness, conversation: StoryConversation, room: str, person: str, text: str
) -> ReplyFinished | None:
    _, spoken = await collect(conversation.send_message(room, text, person=person, key=f"{person}:{text}"))
    await harness.run_jobs()
    return spoken


async def test_p3_a_person_has_their_own_story_under_their_own_name(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    character, bo = (
        await harness.create_character(initial_relationship="An old friend of the keeper's."),
        await known(harness, "Bo"),
    )
    conversation = new_conversation(harness)
    room = await open_for(harness, conversation, bo, character)
    await said(harness, conversation, room, bo, "My boat is called Petrel.")
    prompt = script.prompt()
    assert "Bo is the person you are with." in prompt and "Bo: My boat is called Petrel." in prompt
    assert "Ana" not in prompt and "cartographer" not in prompt and "old friend" not in prompt
    (memory,) = [one for one in harness.memory.browse(owner=character.id) if "Petrel" in one.text]
    assert set(memory.witnesses) == {bo, character.id} and memory.speaker == "Bo"
    assert harness.story.relationships.get(MAIN_WORLD, character.id, bo).when is not None
    assert harness.story.relationships.get(MAIN_WORLD, character.id, OWNER).when is None


async def test_m2_messages_of_a_person_without_a_story_are_not_recalled_for_others(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    character, bo = await harness.create_character(), await known(harness, "Bo")
    ours = await harness.start_chat(character)
    text = "the spare key is under the blue flowerpot"
    harness.memory.add(text, owner=character.id, room="room:desk", speaker="Bo", witnesses=(character.id, bo))
    await harness.say(ours, "Where is the spare key?")
    assert "flowerpot" not in script.prompt()


async def test_m2_messages_of_one_person_are_not_recalled_for_another(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    character, bo = await harness.create_character(), await known(harness, "Bo")
    conversation = new_conversation(harness)
    ours, theirs = await harness.start_chat(character), await open_for(harness, conversation, bo, character)
    await said(harness, conversation, ours, OWNER, "The spare key is under the blue flowerpot.")
    await said(harness, conversation, theirs, bo, "I owe the harbour master forty crowns.")
    await said(harness, conversation, theirs, bo, "Where is the spare key, under which flowerpot?")
    assert "blue" not in script.prompt() and "Ana" not in script.prompt()
    await said(harness, conversation, ours, OWNER, "Who owes the harbour master crowns?")
    assert "forty" not in script.prompt() and "Bo" not in script.prompt().replace("Boat", "")
    # In another chat of the same person, the messages are recalled.
    again = await open_for(harness, conversation, bo, character)
    await said(harness, conversation, again, bo, "What do I owe the harbour master?")
    assert "forty crowns" in script.prompt()


async def test_p3_a_person_who_was_added_can_write_and_is_a_witness(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    character, bo = await harness.create_character(), await known(harness, "Bo")
    conversation, room = new_conversation(harness), await harness.start_chat(character)
    await said(harness, conversation, room, OWNER, "Before you came: the blue flowerpot.")
    await conversation.add_person(room, bo)
    await conversation.add_person(room, bo)
    await said(harness, conversation, room, bo, "Good evening, both of you.")
    prompt = script.prompt()
    assert "Bo: Good evening" in prompt and "one of those you are with" in prompt
    witnesses = {one.text: set(one.witnesses) for one in harness.memory.browse(owner=character.id)}
    assert witnesses["Good evening, both of you."] == {OWNER, bo, character.id}
    assert witnesses["Before you came: the blue flowerpot."] == {OWNER, character.id}
    await conversation.remove_person(room, bo)
    await said(harness, conversation, room, OWNER, "Now that Bo is gone: the red one.")
    alone = {one.text: set(one.witnesses) for one in harness.memory.browse(owner=character.id)}
    assert alone["Now that Bo is gone: the red one."] == {OWNER, character.id}
    assert {one.owner for one in harness.memory.browse(owner=bo)} == set(), "people's memories are their own"
    theirs = await open_for(harness, conversation, bo, character)
    await said(harness, conversation, theirs, bo, "What about the flowerpot, blue or red?")
    assert "Before you came" not in script.prompt() and "the red one" not in script.prompt()
    assert "Good evening, both of you." in script.prompt()


async def test_p3_closing_forking_and_resetting_keep_the_participants(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    character, bo = await harness.create_character(), await known(harness, "Bo")
    conversation = new_conversation(harness)
    room = await open_for(harness, conversation, bo, character)
    script.shapes["SceneSummary"] = {"summary": "Bo told of the storm.", "relationship": "Bo is brave."}
    for text in ("The storm took the mast.", "I swam."):
        await said(harness, conversation, room, bo, text)
    await harness.story.close_scene(room)
    assert harness.story.relationships.get(MAIN_WORLD, character.id, bo).summary == "Bo is brave."
    scene = harness.story.chats.scene(room, harness.story.chats.chat(room).scene or "")
    assert scene.participants == (bo, character.id)
    last = harness.story.timeline.latest(room, 1)[0]
    fork = await harness.story.fork(room, last.id)
    assert fork.people == (bo,)


@pytest.mark.parametrize("mode", ["recent", "hybrid"])
async def test_m2_the_access_rule_holds_for_every_recall_mode(harness: StoryHarness, mode: str) -> None:
    character, bo = await harness.create_character(), await known(harness, "Bo")
    conversation, room = new_conversation(harness), await harness.start_chat(character)
    await said(harness, conversation, room, OWNER, "The spare key is under the blue flowerpot.")
    people = {OWNER, bo}
    for present, expected in (({OWNER}, True), ({bo}, False), ({OWNER, bo}, False), (set[str](), True)):
        found = harness.memory.recall(
            "spare key flowerpot",
            owner=character.id,
            room="room:elsewhere",
            present=present,
            people=people,
            mode=mode,  # type: ignore[arg-type]
        )
        assert any("flowerpot" in one.text for one in found) is expected, present


async def test_p3_an_unknown_account_gets_no_character_no_list_and_no_memory(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    conversation, room = (
        new_conversation(harness),
        await harness.start_chat(await harness.create_character(), greeting="*looks up*"),
    )
    await said(harness, conversation, room, OWNER, "The key is under the flowerpot.")
    screen = TerminalChat(TerminalConversation(conversation, room, "mallory", "Mara", list))
    async with screen.run_test() as pilot:
        for text in ("Where is the key?", "/retry"):
            pilot.app.query_one("#write", Input).value = text
            await pilot.press("enter")
            await pilot.pause()
            await pilot.app.workers.wait_for_complete()
        notices = [str(one.content) for one in pilot.app.query(Static) if one.has_class("notice")]
    assert len(notices) == 2 and all("somebody else's" in text for text in notices)
    assert len(script.asked) == 1
