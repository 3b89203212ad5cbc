"""C2, C5, C14, C19: the service opens rooms, runs sessions and reports on them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path

import pytest

from coterie.app import all_projections
from coterie.base.clock import SystemClock
from coterie.eventstore import Store
from coterie.llm.recording import RecordedCall, ReplayProvider
from coterie.llm.router import Models
from coterie.llm.settings import ModelsSettings
from coterie.memory import Memory
from coterie.modes.crowd import (
    AlreadyLive,
    ChatAuthor,
    ChatMessage,
    ChatPost,
    CrowdRuled,
    CrowdService,
    MessageRefused,
    NoSuchCrowd,
    audit_records,
    find_decision,
    latency_stages,
    replay_with_change,
)
from coterie.modes.crowd.decisions import Decision, RoomState
from coterie.modes.crowd.errors import BadCrowdConfig
from coterie.modes.crowd.session.session import Session
from coterie.modes.crowd.settings import CrowdSettings, RoomConfig

TALE = "".join(
    f'[[line]]\nat = {number * 0.2:.1f}\nsay = "chat, which door, number {number}?"\nevent = "chat_question"\n'
    for number in range(10)
)
ROOM = """
name = "attic"
title = "The attic"
roster = ["nonna_exe", "salt_lamp", "crit_happens", "bread_ian"]
[tempo]
tick_s = 0.02
lines_per_minute = 900
rest_s = 0.5
typing_per_s = 5000
line_deadline_s = 5
"""


class CrowdFixture:
    def __init__(self, folder: Path, answer: RecordedCall) -> None:
        (folder / "configs" / "rooms").mkdir(parents=True)
        (folder / "configs" / "rooms" / "attic.toml").write_text(ROOM)
        self.tale = folder / "tale.toml"
        self.tale.write_text(TALE)
        self.store = Store.open(folder / "coterie.db", projections=all_projections())
        settings = ModelsSettings(roles={"crowd": ("embedded/script",)})
        player = ReplayProvider("embedded", default=lambda _: answer)
        self.models = Models(settings, store=self.store, providers={"embedded": player})
        clock = SystemClock()
        self.service = CrowdService(
            self.store, Memory(self.store, clock=clock), self.models, clock, folder / "configs", CrowdSettings()
        )

    async def wait_for_messages(self, count: int) -> None:
        """Wait until the room has this many messages."""
        room = await self.service.room("attic")
        while room.gateway.admission.last_number < count:
            await asyncio.sleep(0.02)


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[CrowdFixture]:
    fixture = CrowdFixture(tmp_path, RecordedCall(say="hm"))
    yield fixture
    await fixture.service.close()
    await fixture.models.close()
    fixture.store.close()


async def test_c19_a_session_starts_talks_and_stops(place: CrowdFixture) -> None:
    room = await place.service.start("attic", str(place.tale), line_source="phrasebook")
    with pytest.raises(AlreadyLive):
        await place.service.start("attic", str(place.tale), line_source="phrasebook")
    await place.wait_for_messages(4)
    states = [room.state]
    assert room.contexts
    await place.service.stop("attic")
    assert [*states, room.state] == ["live", "quiet"]
    lines = [each for each in room.gateway.latest(100) if each.trace is not None]
    assert lines
    stages = latency_stages(lines[0])
    assert [stage.name for stage in stages][-3:] == ["generated", "typed", "admitted"]
    assert all(stage.seconds >= 0 for stage in stages)
    decided = find_decision(place.store, "attic", lines[0].trace.decision or "")  # type: ignore[union-attr]
    assert decided is not None
    assert decided.persona == lines[0].author.name


async def test_c17_replay_with_one_persona_silent(place: CrowdFixture) -> None:
    room = await place.service.start("attic", str(place.tale), line_source="phrasebook")
    await place.wait_for_messages(8)
    await place.service.stop("attic")
    spoke = next(each.author.name for each in room.gateway.latest(100) if each.author.kind == "persona")
    persona = room.persona(spoke)
    shy = persona.model_copy(update={"traits": persona.traits.model_copy(update={"talkativeness": 0.0})})
    moderator = place.service.configs.moderator(room.rules)
    replayed = replay_with_change(place.store.reader, "attic", moderator, shy)
    assert spoke in {each.author.name for each in replayed.only_recorded()}
    assert spoke not in {each.author.name for each in replayed.messages if each.reply_to is None}
    same = replay_with_change(place.store.reader, "attic", moderator, room.drift.apply_current([persona])[0])
    assert same.messages


async def test_c14_drift_is_stored_when_a_session_ends(place: CrowdFixture) -> None:
    room = await place.service.start("attic", str(place.tale), line_source="phrasebook")
    await place.wait_for_messages(3)
    author = ChatAuthor(name="ana", kind="human")
    for number in range(3):
        post = ChatPost(id=f"p{number}", room="attic", author=author, text=f"@nonna_exe what about the soup {number}?")
        await room.gateway.post(post)
    await place.wait_for_messages(10)
    await place.service.stop("attic")
    assert len(room.drift.history(room.persona("nonna_exe"))) == 2


async def test_c4_c16_rulings_apply_and_are_audited(place: CrowdFixture) -> None:
    room = await place.service.room("attic")
    await room.gateway.moderate(
        CrowdRuled(what="ban", who="ana", at_ms=room.gateway.now_ms(), by="Noor", reason="rude")
    )
    record = audit_records(place.store, "attic")[0]
    assert (record.action, record.by, record.reason) == ("ban", "Noor", "rude")


async def test_c19_invalid_requests_raise_at_once(place: CrowdFixture) -> None:
    with pytest.raises(NoSuchCrowd):
        await place.service.room("nowhere")
    with pytest.raises(BadCrowdConfig, match="no file"):
        await place.service.start("attic", "/nowhere/talk.srt")
    room = await place.service.room("attic")
    with pytest.raises(NoSuchCrowd):
        room.persona("nobody")
    assert room.session_task is None


async def test_c19_a_broken_stream_ends_the_session_with_a_reason(place: CrowdFixture, tmp_path: Path) -> None:
    broken = tmp_path / "broken.wav"
    broken.write_bytes(b"RIFFnothing")
    room = await place.service.start("attic", str(broken), line_source="phrasebook")
    assert room.session_task is not None
    await room.session_task.wait()
    assert room.problem
    assert room.state == "quiet"


async def test_c5_an_edit_applies_from_the_next_session(place: CrowdFixture, tmp_path: Path) -> None:
    room = await place.service.start("attic", str(place.tale), line_source="phrasebook")
    await place.service.stop("attic")
    file = tmp_path / "configs" / "rooms" / "attic.toml"
    file.write_text(ROOM.replace("The attic", "The cellar"))
    await place.service.start("attic", str(place.tale), line_source="phrasebook")
    assert room.rules.title == "The cellar"


async def test_c5_c16_changed_rules_apply_and_are_stored(place: CrowdFixture) -> None:
    room = await place.service.room("attic")
    link = ChatPost(id="a", room="attic", author=ChatAuthor(name="ana", kind="human"), text="see http://spam.example/x")
    with pytest.raises(MessageRefused):
        await room.gateway.post(link)
    await place.service.change_rules("attic", {"moderation": {"links": "allow"}, "tempo": {"lines_per_minute": 3}})
    await room.gateway.post(link.model_copy(update={"id": "b"}))
    recorded = [event.payload for event in room.gateway._store.reader.read(room.gateway.stream)]
    kinds = [payload.kind for payload in recorded]
    assert kinds == ["crowd_audited", "crowd_governed", "crowd_said"], "a replay takes it at the same moment"
    assert RoomConfig.model_validate(recorded[1].model_dump()["rules"]) == room.rules
    kept = place.service.configs.room("attic")
    assert (kept.tempo.lines_per_minute, kept.moderation.links, kept.title) == (3, "allow", "The attic")
    with pytest.raises(BadCrowdConfig, match="lines_per_minute"):
        await place.service.change_rules("attic", {"tempo": {"lines_per_minute": -1}})
    assert place.service.configs.room("attic") == kept


async def test_a_session_that_fails_is_started_again(place: CrowdFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    faults = iter([RuntimeError("fault")])
    decide = Session.decide

    def failing_once(session: Session, state: RoomState, names: Iterable[str] | None = None) -> list[Decision]:
        if (fault := next(faults, None)) is not None:
            raise fault
        return decide(session, state, names)

    monkeypatch.setattr(Session, "decide", failing_once)
    room = await place.service.start("attic", str(place.tale), line_source="phrasebook")
    task = room.session_task
    assert task is not None
    async with asyncio.timeout(20):
        while not task.state.failures:
            await asyncio.sleep(0.01)
        assert "RuntimeError: fault" in room.problem
        with pytest.raises(AlreadyLive):
            await place.service.start("attic", str(place.tale), line_source="phrasebook")
        await place.wait_for_messages(2)
    assert (room.state, room.problem) == ("live", "")
    await place.service.stop("attic")
    assert (room.state, room.session_task) == ("quiet", None)


async def test_a_session_can_be_stopped_while_it_waits_for_its_next_start(
    place: CrowdFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(session: Session, state: RoomState) -> None:
        raise RuntimeError("fault")

    monkeypatch.setattr(Session, "decide", fails)
    room = await place.service.start("attic", str(place.tale), line_source="phrasebook")
    task = room.session_task
    assert task is not None
    async with asyncio.timeout(20):
        while not task.state.failures:
            await asyncio.sleep(0.01)
        await place.service.stop("attic")
    assert (room.state, room.session_task) == ("quiet", None)


async def test_a_broadcast_that_failed_continues_with_what_was_stored_meanwhile(place: CrowdFixture) -> None:
    room = await place.service.room("attic")
    read: list[int] = []
    send = room.fanout.send

    def failing_once(messages: Sequence[ChatMessage]) -> None:
        room.fanout.send = recording  # type: ignore[method-assign]
        raise RuntimeError("fault")

    def recording(messages: Sequence[ChatMessage]) -> None:
        read.extend(message.number for message in messages)
        send(messages)

    room.fanout.send = failing_once  # type: ignore[method-assign]
    author = ChatAuthor(name="ana", kind="human")
    for number in range(3):
        await room.gateway.post(ChatPost(id=f"p{number}", room="attic", author=author, text=f"line number {number}"))
    async with asyncio.timeout(20):
        while len(read) < 3:
            await asyncio.sleep(0.01)
    assert read == [1, 2, 3]
