"""C12, C19: how a session ends: a failure is shown, and what was said right before is remembered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from coterie.eventstore import Event, Store
from coterie.llm.recording import RecordedCall
from coterie.memory import Memory
from coterie.messaging import PersonalNotice
from coterie.modes.crowd import (
    BadRecording,
    ChatAuthor,
    ChatPost,
    CrowdRoom,
    CrowdService,
    CrowdSettings,
    StreamContext,
)
from coterie.modes.crowd.events import CrowdClosed
from coterie.modes.crowd.memory import PersonaMemory
from coterie.modes.crowd.service import _notice_of_end
from coterie.modes.crowd.session.stream_context import RollingContext
from tests.modes.crowd.test_service import CrowdFixture

LIKES = "@nonna_exe my favourite pasta is orecchiette with greens"


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[CrowdFixture]:
    fixture = CrowdFixture(tmp_path, RecordedCall(say="hm"))
    yield fixture
    await fixture.service.close()
    await fixture.models.close()
    fixture.store.close()


async def talk_to_nonna(place: CrowdFixture, text: str = LIKES) -> CrowdRoom:
    """Start a session and say something to a persona, until it has answered."""
    room = await place.service.start("attic", str(place.tale), line_source="phrasebook")
    post = ChatPost(id="p1", room="attic", author=ChatAuthor(name="ana", kind="human"), text=text)
    async with asyncio.timeout(60):
        while room.live is None:
            await asyncio.sleep(0.01)
        said = await room.gateway.post(post)
        while not any(each.reply_to == said.id for each in room.gateway.latest(500)):
            await asyncio.sleep(0.02)
        while room.live is not None and room.live.memory is not None and not room.live.memory.pending:
            await asyncio.sleep(0.02)
    return room


def remembered(place: CrowdFixture) -> list[str]:
    return [record.text for record in Memory(place.store).browse() if "orecchiette" in record.text]


def recorded_ends(store: Store) -> list[str]:
    events = store.reader.read("room:attic", kinds=["crowd_closed"])
    return [event.payload.reason for event in events if isinstance(event.payload, CrowdClosed)]


async def test_c12_talk_right_before_the_stop_is_remembered(place: CrowdFixture) -> None:
    await talk_to_nonna(place)
    assert remembered(place) == []
    await place.service.stop("attic")
    assert len(remembered(place)) >= 1
    assert recorded_ends(place.store) == [""]


async def test_c12_spam_right_before_the_stop_is_not_remembered(place: CrowdFixture) -> None:
    room = await talk_to_nonna(place)
    for number in range(20):
        post = ChatPost(
            id=f"s{number}",
            room="attic",
            author=ChatAuthor(name=f"bot{number}", kind="human"),
            text=LIKES.removeprefix("@nonna_exe "),
        )
        await room.gateway.post(post)
    await asyncio.sleep(0.2)
    await place.service.stop("attic")
    assert remembered(place) == []


async def test_c12_talk_right_before_the_server_stops_is_remembered(place: CrowdFixture) -> None:
    await talk_to_nonna(place)
    await place.service.close()
    assert len(remembered(place)) >= 1


async def test_c12_talk_right_before_a_crash_is_remembered_at_the_next_start(
    place: CrowdFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def crash(*_: object) -> None:
        """Nothing is stored any more."""

    monkeypatch.setattr(CrowdService, "_store_memories", crash)
    await talk_to_nonna(place)
    await place.service.stop("attic")
    assert remembered(place) == []
    monkeypatch.undo()

    def restarted() -> CrowdService:
        return CrowdService(
            place.store, Memory(place.store), place.models, place.service._clock, tmp_path / "configs", CrowdSettings()
        )

    service = restarted()
    await service.recover()
    first = remembered(place)
    assert len(first) >= 1
    assert recorded_ends(place.store) == ["The server was stopped during the session."]
    await service.close()
    again = restarted()
    await again.recover()
    assert remembered(place) == first
    assert again.open_rooms == [], "there is nothing to recover any more"


async def test_c12_storing_at_the_end_is_bounded_in_time(place: CrowdFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    room = await talk_to_nonna(place)
    assert room.live is not None
    assert room.live.memory is not None
    monkeypatch.setattr("coterie.modes.crowd.service._STORE_MEMORIES_S", -1.0)
    await place.service.stop("attic")
    assert (remembered(place), recorded_ends(place.store)) == ([], []), "it is left to the next start"


async def test_c12_a_failure_to_remember_does_not_end_the_session(
    place: CrowdFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> int:
        raise OSError("disk is full")

    monkeypatch.setattr(PersonaMemory, "store_due", fail)
    room = await talk_to_nonna(place)
    assert room.state == "live"
    assert "disk is full" in room.problem


async def test_c19_a_failing_session_says_why_it_ended(place: CrowdFixture) -> None:
    async def broken(_: float) -> AsyncIterator[StreamContext]:
        for error in [BadRecording("The tape is torn.", "Use another one.")]:
            raise error
        yield RollingContext("attic").add("never", 1)

    room = await place.service.start_with_contexts("attic", broken, "tape", "phrasebook")
    assert room.session_task is not None
    await room.session_task.wait()
    assert room.problem == "The session ended: The tape is torn. Use another one."
    assert room.state == "quiet"
    assert recorded_ends(place.store) == [room.problem]


async def test_c7_a_line_that_fails_is_recorded_and_the_persona_speaks_again(
    place: CrowdFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from coterie.modes.crowd.generation import CannedLineWriter

    write = CannedLineWriter.write
    failures = iter(range(6))

    async def fail_at_first(self: CannedLineWriter, *args: object) -> object:
        if next(failures, None) is not None:
            raise ZeroDivisionError("a bug")
        return await write(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(CannedLineWriter, "write", fail_at_first)
    await place.service.start("attic", str(place.tale), line_source="phrasebook")
    async with asyncio.timeout(60):
        await place.wait_for_messages(5)
    await place.service.stop("attic")
    written = [event.payload.model_dump() for event in place.store.reader.read("room:attic", kinds=["crowd_written"])]
    failed = [each for each in written if each["outcome"] == "failed"]
    assert len(failed) == 6
    assert "a bug" in failed[0]["why"]
    authors = {each["persona"] for each in failed}
    assert authors & {each["persona"] for each in written if each["outcome"] == "written"}


def test_p2_only_a_session_that_ended_early_is_a_notice() -> None:
    def closed(reason: str) -> PersonalNotice | None:
        payload, now = CrowdClosed(at_ms=1, reason=reason), datetime.now(UTC)
        return _notice_of_end(Event(1, "room:attic", 1, CrowdClosed.kind, 1, payload, now, "system", None, None, None))

    assert closed("") is None
    notice = closed("The stream does not answer.")
    assert notice == PersonalNotice("you", "The live chat attic ended early: The stream does not answer.")
