"""M2, M6 at the desk: what its model is told of other rooms, before whom, and what is gone with what was taken back."""

from __future__ import annotations

from coterie.conversation.events import Segment, UserTurn
from coterie.eventstore import NewEvent, Superseded
from tests.modes.desk.conftest import Script, Stage, calls

STORY = "room:story"


async def told(stage: Stage, script: Script, room: str, text: str = "Where is the spare key?") -> str:
    """Everything the channel's model was told to answer this."""
    await stage.say(room, text)
    return script.prompts("channel")[-1]


def live_through(stage: Stage, text: str, *people: str, **more: object) -> str:
    there = (stage.character, *people)
    return stage.memory.add(text, owner=stage.character, room=STORY, speaker="Ana", witnesses=there, **more)


def take_back(stage: Stage, room: str) -> None:
    """As a rewind of that room does."""
    stage.store.append_blocking([NewEvent(room, Superseded(drop=((1, stage.store.reader.head(room)),)))])


async def test_m2_what_it_was_told_in_a_story_it_knows_at_the_desk_and_whose_words_they_are(
    stage: Stage, script: Script
) -> None:
    room = await stage.begin()
    live_through(stage, "the spare key is under the third stone", "ana")
    assert "Ana: the spare key is under the third stone" in await told(stage, script, room)


async def test_m2_a_whisper_is_known_to_whoever_whispered_it_and_to_nobody_else(stage: Stage, script: Script) -> None:
    room = await stage.begin()
    live_through(stage, "the spare key is under the third stone", "ana", private=True)
    assert "third stone" in await told(stage, script, room)
    bos = await stage.desk.open(stage.character, "bo", "Work")
    await stage.desk.send_message(bos, "Where is the spare key?", person="bo")
    await stage.settle()
    assert "third stone" not in script.prompts("channel")[-1]


async def test_m2_what_one_person_was_there_for_is_not_told_to_another_who_was_not(
    stage: Stage, script: Script
) -> None:
    room = await stage.begin()
    await stage.desk.open(stage.character, "bo", "Work")
    live_through(stage, "the spare key is under the third stone", "bo")
    live_through(stage, "a spare key for the boat hangs by the door")
    prompt = await told(stage, script, room)
    assert "third stone" not in prompt
    assert "hangs by the door" in prompt


async def test_m2_who_joined_the_conversation_is_present_too(stage: Stage, script: Script) -> None:
    room = await stage.begin()
    live_through(stage, "the spare key is under the third stone", "ana")
    assert "third stone" in await told(stage, script, room)
    said = UserTurn(turn="t1", author="bo", text="Hello", segments=(Segment(kind="dialogue", text="Hello"),))
    stage.store.append_blocking([NewEvent(room, said, "bo", turn="t1")])
    assert "third stone" not in await told(stage, script, room)


async def test_m2_what_is_bound_to_its_room_stays_there(stage: Stage, script: Script) -> None:
    room = await stage.begin()
    live_through(stage, "the spare key is under the third stone", "ana", disclosure="room")
    assert "third stone" not in await told(stage, script, room)


async def test_m2_a_branch_looks_things_up_through_the_same_gate(stage: Stage, script: Script) -> None:
    room = await stage.begin()
    await stage.desk.open(stage.character, "bo", "Work")
    live_through(stage, "the spare key is under the third stone", "bo")
    script.lines["channel"] = [calls(("branch", {"thought": "the key"}), ("reply", {"text": "A moment."}))]
    script.lines["branch"] = [calls(("memory_recall", {"question": "spare key"})), "I do not know."]
    await stage.say(room, "Where is the spare key?")
    assert len(script.prompts("branch")) == 2
    assert not any("third stone" in prompt for prompt in script.prompts("branch"))


async def test_m2_what_is_kept_at_the_desk_knows_who_was_there_and_stays_private_if_a_secret_led_to_it(
    stage: Stage, script: Script
) -> None:
    room = await stage.begin()
    keep = calls(("memory_save", {"text": "Ana waters the roses on Mondays"}), ("reply", {"text": "Noted."}))
    script.lines["channel"] = [keep]
    await stage.say(room, "I water the roses on Mondays.")
    (kept,) = stage.memory.browse(owner=stage.character)
    assert set(kept.witnesses) == {stage.character, "ana"}
    assert not kept.private
    live_through(stage, "the spare key is under the third stone", "ana", private=True)
    keep = calls(("memory_save", {"text": "Ana hides her key below a stone"}), ("reply", {"text": "Noted."}))
    script.lines["channel"] = [keep]
    await stage.say(room, "Where is the spare key?")
    assert [one.private for one in stage.memory.browse(owner=stage.character) if "hides" in one.text] == [True]


async def test_m6_what_was_rewound_is_not_known_any_more_nor_by_way_of_the_bulletin(
    stage: Stage, script: Script
) -> None:
    room = await stage.begin()
    script.lines["cortex"] = ["The spare key is under the third stone."]
    live_through(stage, "the spare key is under the third stone", "ana")
    assert await stage.desk.maintenance.tick() == 1
    assert "What you should know now" in await told(stage, script, room)
    take_back(stage, STORY)
    prompt = await told(stage, script, room)
    assert "third stone" not in prompt
    assert "What you should know now" not in prompt
    asked = len(script.prompts("cortex"))
    await stage.desk.maintenance.tick()
    assert len(script.prompts("cortex")) == asked, "there is nothing left to write about"
    assert await stage.desk.maintenance.tick() == 0


async def test_m2_a_bulletin_is_not_told_before_somebody_who_was_not_there(stage: Stage, script: Script) -> None:
    room = await stage.begin()
    script.lines["cortex"] = ["The spare key is under the third stone."]
    live_through(stage, "the spare key is under the third stone", "ana", private=True)
    assert await stage.desk.maintenance.tick() == 1
    assert "What you should know now" in await told(stage, script, room)
    said = UserTurn(turn="t1", author="bo", text="Hello", segments=(Segment(kind="dialogue", text="Hello"),))
    stage.store.append_blocking([NewEvent(room, said, "bo", turn="t1")])
    assert "third stone" not in await told(stage, script, room)


async def test_m6_a_bulletin_is_written_anew_from_what_is_left(stage: Stage, script: Script) -> None:
    room = await stage.begin()
    script.lines["cortex"] = ["The key is under the third stone.", "The boat leaves on Friday."]
    stage.memory.add("The boat leaves on Friday", owner=stage.character, room=room, witnesses=(stage.character, "ana"))
    live_through(stage, "the spare key is under the third stone", "ana")
    assert await stage.desk.maintenance.tick() == 1
    take_back(stage, STORY)
    assert await stage.desk.maintenance.tick() == 1
    assert "third stone" not in script.prompts("cortex")[-1]
    assert stage.desk.bulletins.text(stage.desk.queries.chat(room)) == "The boat leaves on Friday."
    assert await stage.desk.maintenance.tick() == 0
