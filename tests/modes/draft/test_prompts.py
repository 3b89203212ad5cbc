"""Memories of other rooms in the prompts of a thread: only those that all readers may know."""

from __future__ import annotations

from coterie.characters.service import OWNER
from coterie.eventstore import NewEvent, Superseded
from coterie.modes.draft import Contributor, Thread
from tests.modes.draft.conftest import BO, DraftHarness, Script

STORY = "room:story"
ANA = Contributor(OWNER, "Ana")


def add_memory(harness: DraftHarness, *people: str, **more: object) -> None:
    owner = harness.characters[0].id
    text = "the harbour master is called Odile"
    harness.memory.add(text, owner=owner, room=STORY, speaker="Ana", witnesses=(owner, *people), **more)


async def prompt(harness: DraftHarness, script: Script, thread: Thread, person: Contributor = ANA) -> str:
    await harness.send_message(thread, "What is the harbour master called?", person)
    return script.prompt()


async def test_m2_memories_of_a_story_are_recalled_in_a_thread(harness: DraftHarness, script: Script) -> None:
    thread = await harness.open_thread()
    add_memory(harness, OWNER)
    assert "Ana: the harbour master is called Odile" in await prompt(harness, script, thread)


async def test_m2_a_private_memory_is_recalled_only_if_no_other_person_can_open_the_document(
    harness: DraftHarness, script: Script
) -> None:
    thread = await harness.open_thread()
    add_memory(harness, OWNER, private=True)
    assert "Odile" in await prompt(harness, script, thread)
    share, _ = await harness.draft.sharing.share(harness.workspace, "other.md", "main", "Bo", "reader", 1)
    assert "Odile" in await prompt(harness, script, thread), "the link is for another document"
    share, _ = await harness.draft.sharing.share(harness.workspace, "lamp.md", "main", "Bo", "reader", 1)
    assert "Odile" not in await prompt(harness, script, thread)
    await harness.draft.sharing.revoke(share.id)
    assert "Odile" in await prompt(harness, script, thread)


async def test_m2_a_private_memory_is_not_recalled_with_other_characters_in_the_thread(
    harness: DraftHarness, script: Script
) -> None:
    thread = await harness.open_thread("Mara", "Orla")
    add_memory(harness, OWNER, private=True)
    assert "Odile" not in await prompt(harness, script, thread)


async def test_m2_a_memory_is_not_recalled_once_a_person_who_was_absent_wrote_in_the_thread(
    harness: DraftHarness, script: Script
) -> None:
    thread = await harness.open_thread()
    add_memory(harness, OWNER)
    assert "Odile" not in await prompt(harness, script, thread, BO)
    assert "Odile" not in await prompt(harness, script, thread)


async def test_m2_m6_memories_bound_to_a_room_or_rewound_are_not_recalled(
    harness: DraftHarness, script: Script
) -> None:
    thread = await harness.open_thread()
    add_memory(harness, OWNER, disclosure="room")
    assert "Odile" not in await prompt(harness, script, thread)
    harness.memory.add(
        "the harbour master, Odile, sings",
        owner=harness.characters[0].id,
        room="room:other",
        witnesses=(OWNER, harness.characters[0].id),
    )
    assert "sings" in await prompt(harness, script, thread)
    harness.store.append_blocking(
        [NewEvent("room:other", Superseded(drop=((1, harness.store.reader.head("room:other")),)))]
    )
    assert "Odile" not in await prompt(harness, script, thread)
