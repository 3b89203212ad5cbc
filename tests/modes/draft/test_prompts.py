"""M2, M6 beside a document: what its model is told of other rooms, and who can read what is said there."""

from __future__ import annotations

from coterie.characters.service import OWNER
from coterie.eventstore import NewEvent, Superseded
from coterie.modes.draft import Contributor, Thread
from tests.modes.draft.conftest import BO, DraftHarness, Script

STORY = "room:story"
ANA = Contributor(OWNER, "Ana")


def live_through(stage: DraftHarness, *people: str, **more: object) -> None:
    owner = stage.characters[0].id
    text = "the harbour master is called Odile"
    stage.memory.add(text, owner=owner, room=STORY, speaker="Ana", witnesses=(owner, *people), **more)


async def told(stage: DraftHarness, script: Script, thread: Thread, person: Contributor = ANA) -> str:
    await stage.send_message(thread, "What is the harbour master called?", person)
    return script.prompt()


async def test_m2_what_it_was_told_in_a_story_it_knows_beside_a_document(stage: DraftHarness, script: Script) -> None:
    thread = await stage.begin()
    live_through(stage, OWNER)
    assert "Ana: the harbour master is called Odile" in await told(stage, script, thread)


async def test_m2_a_whisper_is_known_while_nobody_else_can_open_the_document(
    stage: DraftHarness, script: Script
) -> None:
    thread = await stage.begin()
    live_through(stage, OWNER, private=True)
    assert "Odile" in await told(stage, script, thread)
    stage.linked.add(BO.id)
    assert "Odile" not in await told(stage, script, thread)


async def test_m2_a_whisper_is_not_known_before_other_characters_of_the_thread(
    stage: DraftHarness, script: Script
) -> None:
    thread = await stage.begin("Mara", "Orla")
    live_through(stage, OWNER, private=True)
    assert "Odile" not in await told(stage, script, thread)


async def test_m2_what_one_person_was_there_for_is_not_told_to_another_who_wrote_here(
    stage: DraftHarness, script: Script
) -> None:
    thread = await stage.begin()
    live_through(stage, OWNER)
    assert "Odile" not in await told(stage, script, thread, BO)
    assert "Odile" not in await told(stage, script, thread)


async def test_m2_m6_what_is_bound_to_its_room_or_rewound_is_not_known(stage: DraftHarness, script: Script) -> None:
    thread = await stage.begin()
    live_through(stage, OWNER, disclosure="room")
    assert "Odile" not in await told(stage, script, thread)
    stage.memory.add(
        "the harbour master, Odile, sings",
        owner=stage.characters[0].id,
        room="room:other",
        witnesses=(OWNER, stage.characters[0].id),
    )
    assert "sings" in await told(stage, script, thread)
    stage.store.append_blocking(
        [NewEvent("room:other", Superseded(drop=((1, stage.store.reader.head("room:other")),)))]
    )
    assert "Odile" not in await told(stage, script, thread)
