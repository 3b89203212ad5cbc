"""C5: edits of a room's files apply to the open room; an invalid edit changes nothing and is reported."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coterie.base.supervisor import Supervisor
from coterie.llm.recording import RecordedCall
from coterie.memory import Memory
from coterie.modes.crowd import ChatAuthor, ChatPost, CrowdRuled, CrowdService, MessageRefused, service
from coterie.modes.crowd.events import CrowdEdited, CrowdGoverned, CrowdTicked, SpeakDecision
from coterie.modes.crowd.gateway import Gateway
from coterie.modes.crowd.session.replay import Replay, last_session_events
from coterie.modes.crowd.session.session import LiveSession, Session
from coterie.modes.crowd.settings import CrowdConfigs, CrowdSettings
from tests.modes.crowd.test_service import ROOM, CrowdFixture


class FilesFixture(CrowdFixture):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder, RecordedCall(say="hm"))
        self.folder = folder / "configs"
        self.file = self.folder / "rooms" / "attic.toml"
        self._count = 0

    def edit(self, extra: str, text: str = ROOM) -> None:
        self.file.write_text(text + extra)

    async def post(self, gateway: Gateway, name: str = "ana") -> str:
        """Post a line. Returns the rule that refused it, or nothing."""
        self._count += 1
        author = ChatAuthor(name=name, kind="human")
        post = ChatPost(id=f"p{self._count}", room="attic", author=author, text=f"line number {self._count}")
        try:
            await gateway.post(post)
        except MessageRefused as refused:
            return refused.rule
        return ""


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[FilesFixture]:
    fixture = FilesFixture(tmp_path)
    yield fixture
    await fixture.service.close()
    await fixture.models.close()
    fixture.store.close()


async def test_c3_followers_only_and_slow_mode_of_an_edited_file_apply_to_the_open_room(place: FilesFixture) -> None:
    room = await place.service.room("attic")
    assert await place.post(room.gateway) == ""
    place.edit("[limits]\nfollowers_only = true\n")
    place.service.reload_files()
    assert await place.post(room.gateway) == "followers"
    place.edit("[limits]\nslow_mode_s = 60\n")
    place.service.reload_files()
    assert await place.post(room.gateway, "bo") == ""
    assert await place.post(room.gateway, "bo") == "slow"
    place.edit("")
    place.service.reload_files()
    assert await place.post(room.gateway, "bo") == ""


async def test_c5_an_edit_is_noticed_while_the_server_runs(
    place: FilesFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "RELOAD_S", 0.01)
    room = await place.service.room("attic")
    place.edit("[limits]\nfollowers_only = true\n")
    async with asyncio.timeout(30):
        while not room.rules.limits.followers_only:
            await asyncio.sleep(0.01)
    assert await place.post(room.gateway) == "followers"


async def test_c5_an_invalid_edit_keeps_the_rules_and_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "RELOAD_S", 0.01)
    place = FilesFixture(tmp_path)
    supervisor = Supervisor()
    crowd = CrowdService(
        place.store, Memory(place.store), place.models, place.service._clock, place.folder, CrowdSettings(), supervisor
    )
    place.edit("[limits]\nfollowers_only = true\n")
    room = await crowd.room("attic")
    place.edit("[limits]\nfollowers_only = 'perhaps'\n")
    async with asyncio.timeout(30):
        while not (room.config_problem and supervisor.problems()):
            await asyncio.sleep(0.01)
        assert "rooms/attic.toml" in room.config_problem
        assert "followers_only" in room.config_problem
        assert [state.name for state in supervisor.problems()] == ["crowd files"]
        assert await place.post(room.gateway) == "followers"
        place.edit("[limits]\nfollowers_only = false\n")
        while room.config_problem or supervisor.problems():
            await asyncio.sleep(0.01)
    assert await place.post(room.gateway) == ""
    await crowd.close()
    await supervisor.stop()
    await place.models.close()
    place.store.close()


async def test_c5_a_deleted_or_undecodable_file_does_not_end_the_room(place: FilesFixture) -> None:
    room = await place.service.room("attic")
    for harm in (lambda: place.file.write_bytes(b"\xff\xfe"), place.file.unlink):
        harm()
        place.service.reload_files()
        assert room.config_problem
        assert await place.post(room.gateway) == ""


async def test_c5_an_edited_persona_and_tempo_apply_at_once_and_replay(place: FilesFixture) -> None:
    room = await place.service.room("attic")
    (place.folder / "personas").mkdir()
    file = place.folder / "personas" / "salt_lamp.toml"
    persona = "name = 'salt_lamp'\nbio = 'A lamp of salt, and that is all.'\nvoice = 'glowing quietly'\n"
    file.write_text(persona)
    place.service.reload_files()
    assert room.persona("salt_lamp").voice == "glowing quietly"
    await place.service.start("attic", str(place.tale), line_source="phrasebook")
    await place.wait_for_messages(3)
    assert isinstance(room.live, LiveSession)
    session = room.live.session
    file.write_text(persona.replace("quietly", "loudly") + "[traits]\ntalkativeness = 0.0\n")
    place.edit("[tuning]\nreply = 0.9\n")
    place.service.reload_files()
    assert room.persona("salt_lamp").voice == "glowing loudly"
    assert session.deciders["salt_lamp"].persona.voice == "glowing loudly"
    assert session.room.tuning.reply == 0.9
    await place.wait_for_messages(room.gateway.admission.last_number + 3)
    await place.service.stop("attic")
    events = last_session_events(place.store.reader, "attic")
    edits = [number for number, event in enumerate(events) if isinstance(event, CrowdEdited)]
    assert len(edits) == 1
    assert any(isinstance(event, CrowdTicked) for event in events[edits[0] :])
    assert Replay(events, place.service.configs.moderator(room.rules)).run().identical


def test_c5_a_persona_that_left_says_nothing_and_a_new_one_does(configs: CrowdConfigs) -> None:
    room, personas = configs.room("late-shift"), configs.personas()
    session = Session(room, [personas["salt_lamp"], personas["nonna_exe"]], 1, 0)
    session.deciders["salt_lamp"].typing = True
    session.edit(room, [personas["nonna_exe"], personas["bread_ian"]])
    assert session.deciders["salt_lamp"].left
    assert session.deciders["salt_lamp"].typing  # its line ends as it would have
    state = session.room_state(1, 1_000)
    assert session.deciders["salt_lamp"].decide(state).why_not == "it has left the room"
    session.decide(state)
    assert set(session.recent_decisions) == {"salt_lamp", "nonna_exe", "bread_ian"}
    session.edit(room, [personas["salt_lamp"]])
    assert not session.deciders["salt_lamp"].left


def test_c5_lines_of_a_running_session_follow_an_edit_of_stand_in(configs: CrowdConfigs) -> None:
    room = configs.room("late-shift")
    session = Session(room, configs.personas_in(room), 1, 0)
    state = session.room_state(1, 1_000)
    decision = SpeakDecision(persona="salt_lamp", because="base", p=1, roll=0, parts={}, seed=1)
    assert session.line_request(decision, state).stand_in
    tempo = room.tempo.model_copy(update={"stand_in": False})
    session.edit(room.model_copy(update={"tempo": tempo}), configs.personas_in(room))
    assert not session.line_request(decision, state).stand_in


async def test_c3_the_latest_of_file_and_ruling_counts_also_after_a_restart(place: FilesFixture) -> None:
    room = await place.service.room("attic")
    place.edit("[limits]\nslow_mode_s = 60\n")
    place.service.reload_files()
    assert room.gateway.admission.moderation_state.slow_ms == 60_000
    await room.gateway.moderate(CrowdRuled(what="slow", at_ms=1, seconds=7))
    place.edit("[limits]\nslow_mode_s = 60\nburst = 9\n")
    place.service.reload_files()
    assert room.gateway.admission.moderation_state.slow_ms == 7_000, "the file does not change this"
    await place.service.close()

    room = await place.service.room("attic")
    assert room.gateway.admission.moderation_state.slow_ms == 7_000
    await place.service.close()
    place.edit("[limits]\nslow_mode_s = 3\n")  # while the server does not run
    room = await place.service.room("attic")
    assert room.gateway.admission.moderation_state.slow_ms == 3_000
    await place.service.close()
    room = await place.service.room("attic")
    assert room.gateway.admission.moderation_state.slow_ms == 3_000


async def test_c17_a_session_during_which_limits_were_edited_replays_identically(place: FilesFixture) -> None:
    room = await place.service.start("attic", str(place.tale), line_source="phrasebook")
    await place.wait_for_messages(3)
    place.edit("[limits]\nslow_mode_s = 0.4\n")
    place.service.reload_files()
    await place.wait_for_messages(6)
    await place.service.stop("attic")
    events = last_session_events(place.store.reader, "attic")
    assert any(isinstance(event, CrowdGoverned) for event in events)
    assert Replay(events, place.service.configs.moderator(room.rules)).run().identical
