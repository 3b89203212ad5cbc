"""M2, M6 at the desk: what is recalled from other rooms depends on the audience and on rewinds."""

from __future__ import annotations

import pytest

from coterie.conversation.events import Segment, UserTurn
from coterie.eventstore import NewEvent, Superseded
from tests.modes.desk.conftest import DeskHarness, Script, calls

STORY = "room:story"


async def channel_prompt(harness: DeskHarness, script: Script, room: str, text: str = "Where is the spare key?") -> str:
    """Send a message and return the prompt of the channel."""
    await harness.say(room, text)
    return script.prompts("channel")[-1]


def add_story_memory(harness: DeskHarness, text: str, *people: str, **more: object) -> str:
    witnesses = (harness.character, *people)
    return harness.memory.add(text, owner=harness.character, room=STORY, speaker="Ana", witnesses=witnesses, **more)


def rewind(harness: DeskHarness, room: str) -> None:
    """Supersede all events of a room, as a rewind does."""
    harness.store.append_blocking([NewEvent(room, Superseded(drop=((1, harness.store.reader.head(room)),)))])


async def test_m2_memories_of_stories_are_recalled_with_their_speaker(harness: DeskHarness, script: Script) -> None:
    room = await harness.begin()
    add_story_memory(harness, "the spare key is under the third stone", "ana")
    assert "Ana: the spare key is under the third stone" in await channel_prompt(harness, script, room)


async def test_m2_a_private_memory_is_recalled_only_for_its_person(harness: DeskHarness, script: Script) -> None:
    room = await harness.begin()
    add_story_memory(harness, "the spare key is under the third stone", "ana", private=True)
    assert "third stone" in await channel_prompt(harness, script, room)
    other = await harness.desk.open(harness.character, "bo", "Work")
    await harness.desk.send_message(other, "Where is the spare key?", person="bo")
    await harness.settle()
    assert "third stone" not in script.prompts("channel")[-1]


async def test_m2_memories_of_one_person_are_not_recalled_for_another(harness: DeskHarness, script: Script) -> None:
    room = await harness.begin()
    await harness.desk.open(harness.character, "bo", "Work")
    add_story_memory(harness, "the spare key is under the third stone", "bo")
    add_story_memory(harness, "a spare key for the boat hangs by the window")
    prompt = await channel_prompt(harness, script, room)
    assert "third stone" not in prompt
    assert "hangs by the window" in prompt


async def test_m2_everyone_who_wrote_is_part_of_the_audience(harness: DeskHarness, script: Script) -> None:
    room = await harness.begin()
    add_story_memory(harness, "the spare key is under the third stone", "ana")
    assert "third stone" in await channel_prompt(harness, script, room)
    message = UserTurn(turn="t1", author="bo", text="Hello", segments=(Segment(kind="dialogue", text="Hello"),))
    harness.store.append_blocking([NewEvent(room, message, "bo", turn="t1")])
    assert "third stone" not in await channel_prompt(harness, script, room)


async def test_m2_memories_bound_to_a_room_are_not_recalled_elsewhere(harness: DeskHarness, script: Script) -> None:
    room = await harness.begin()
    add_story_memory(harness, "the spare key is under the third stone", "ana", disclosure="room")
    assert "third stone" not in await channel_prompt(harness, script, room)


async def test_m2_recall_in_a_branch_follows_the_same_rules(harness: DeskHarness, script: Script) -> None:
    room = await harness.begin()
    await harness.desk.open(harness.character, "bo", "Work")
    add_story_memory(harness, "the spare key is under the third stone", "bo")
    script.lines["channel"] = [calls(("branch", {"thought": "the key"}), ("reply", {"text": "A moment."}))]
    script.lines["branch"] = [calls(("memory_recall", {"question": "spare key"})), "I do not know."]
    await harness.say(room, "Where is the spare key?")
    assert len(script.prompts("branch")) == 2
    assert not any("third stone" in prompt for prompt in script.prompts("branch"))


async def test_m2_saved_memories_have_witnesses_and_inherit_privacy(harness: DeskHarness, script: Script) -> None:
    room = await harness.begin()
    keep = calls(("memory_save", {"text": "Ana waters the roses on Mondays"}), ("reply", {"text": "Noted."}))
    script.lines["channel"] = [keep]
    await harness.say(room, "I water the roses on Mondays.")
    (kept,) = harness.memory.browse(owner=harness.character)
    assert set(kept.witnesses) == {harness.character, "ana"}
    assert not kept.private
    add_story_memory(harness, "the spare key is under the third stone", "ana", private=True)
    keep = calls(("memory_save", {"text": "Ana hides her key below a stone"}), ("reply", {"text": "Noted."}))
    script.lines["channel"] = [keep]
    await harness.say(room, "Where is the spare key?")
    assert [one.private for one in harness.memory.browse(owner=harness.character) if "hides" in one.text] == [True]


async def test_m6_rewound_memories_are_neither_recalled_nor_in_the_bulletin(
    harness: DeskHarness, script: Script
) -> None:
    room = await harness.begin()
    script.lines["cortex"] = ["The spare key is under the third stone."]
    add_story_memory(harness, "the spare key is under the third stone", "ana")
    assert await harness.desk.maintenance.tick() == 1
    assert "What you should know now" in await channel_prompt(harness, script, room)
    rewind(harness, STORY)
    prompt = await channel_prompt(harness, script, room)
    assert "third stone" not in prompt
    assert "What you should know now" not in prompt
    calls_before = len(script.prompts("cortex"))
    await harness.desk.maintenance.tick()
    assert len(script.prompts("cortex")) == calls_before
    assert await harness.desk.maintenance.tick() == 0


async def test_m2_a_bulletin_is_hidden_from_an_audience_that_may_not_hear_it(
    harness: DeskHarness, script: Script
) -> None:
    room = await harness.begin()
    script.lines["cortex"] = ["The spare key is under the third stone."]
    add_story_memory(harness, "the spare key is under the third stone", "ana", private=True)
    assert await harness.desk.maintenance.tick() == 1
    assert "What you should know now" in await channel_prompt(harness, script, room)
    message = UserTurn(turn="t1", author="bo", text="Hello", segments=(Segment(kind="dialogue", text="Hello"),))
    harness.store.append_blocking([NewEvent(room, message, "bo", turn="t1")])
    assert "third stone" not in await channel_prompt(harness, script, room)


async def test_m6_a_bulletin_is_rewritten_from_the_remaining_memories(harness: DeskHarness, script: Script) -> None:
    room = await harness.begin()
    script.lines["cortex"] = ["The key is under the third stone.", "The boat leaves on Friday."]
    harness.memory.add(
        "The boat leaves on Friday", owner=harness.character, room=room, witnesses=(harness.character, "ana")
    )
    add_story_memory(harness, "the spare key is under the third stone", "ana")
    assert await harness.desk.maintenance.tick() == 1
    rewind(harness, STORY)
    assert await harness.desk.maintenance.tick() == 1
    assert "third stone" not in script.prompts("cortex")[-1]
    assert harness.desk.bulletins.text(harness.desk.queries.chat(room)) == "The boat leaves on Friday."
    assert await harness.desk.maintenance.tick() == 0


async def test_maintenance_that_failed_is_done_at_the_next_run(
    harness: DeskHarness, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.begin()
    script.lines["cortex"] = ["The spare key is under the third stone."]
    add_story_memory(harness, "the spare key is under the third stone", "ana")

    def fails() -> None:
        raise RuntimeError("fault")

    with monkeypatch.context() as patch:
        patch.setattr(harness.memory, "maintain", fails)
        with pytest.raises(RuntimeError, match="fault"):
            await harness.desk.maintenance.tick()
    assert await harness.desk.maintenance.tick() == 1
