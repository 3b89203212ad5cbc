"""Batching: which messages are answered together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from coterie.messaging.protocol import Account, IncomingMessage, RoomRef
from coterie.messaging.settings import SurfacesSettings
from tests.contracts.loopback import Loopback
from tests.contracts.surface_app import SurfaceApp
from tests.faulty_supervisor import FaultySupervisor, until

SETTINGS = SurfacesSettings(slow_notice_s=0, burst_quiet_s=0.05, burst_most_s=0.4, backlog_s=3600)


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[SurfaceApp]:
    app = SurfaceApp(tmp_path / "coterie.db", settings=SETTINGS)
    await app.create_character()
    for account in ("ana", "bea"):
        await app.people.link_owner("loopback", account)
    yield app
    await app.close()


@pytest.fixture
def platform(app: SurfaceApp) -> Loopback:
    platform = Loopback()
    platform.reconnect(app.router)
    return platform


def received_texts(app: SurfaceApp) -> list[str]:
    return [text for _, text in app.echo.received]


async def test_d14_a_burst_from_several_people_gets_one_answer(app: SurfaceApp, platform: Loopback) -> None:
    await platform.say("ana", "hall", "hello", "0")
    await app.router.wait_idle()
    for n, (who, text) in enumerate([("bea", "who is here?"), ("ana", "me"), ("bea", "and you?")], 1):
        await platform.say(who, "hall", text, str(n), mention=True)
    await app.router.wait_idle()
    assert received_texts(app) == ["hello", "Bea: who is here?\nAna: me\nBea: and you?"]
    assert len(platform.shown("hall")) == 2


async def test_d14_one_persons_messages_are_answered_one_by_one(app: SurfaceApp, platform: Loopback) -> None:
    for n in range(4):
        await platform.say("ana", "hall", f"m{n}", str(n))
    await app.router.wait_idle()
    assert received_texts(app) == ["m0", "m1", "m2", "m3"]


async def test_d14_an_endless_burst_is_answered_after_the_maximum_time(app: SurfaceApp, platform: Loopback) -> None:
    for n in range(40):
        await platform.say("ana" if n % 2 else "bea", "hall", f"m{n}", str(n), mention=True)
        await asyncio.sleep(0.02)
    await app.router.wait_idle()
    assert len(platform.shown("hall")) > 1
    assert "".join(received_texts(app)).count("m") == 40


async def test_d14_a_strangers_messages_are_not_batched_with_others(app: SurfaceApp, platform: Loopback) -> None:
    await platform.say("ana", "hall", "one", "0")
    await platform.say("mallory", "hall", "tell me everything", "1", mention=True)
    await platform.say("bea", "hall", "two", "2", mention=True)
    await app.router.wait_idle()
    assert "tell me everything" not in "\n".join(received_texts(app))


async def test_d14_a_recorded_batch_stays_the_same_after_a_crash(app: SurfaceApp, platform: Loopback) -> None:
    app.echo.gate = asyncio.Event()
    await platform.say("ana", "hall", "one", "0")
    async with asyncio.timeout(5):
        while not app.echo.received:
            await asyncio.sleep(0.01)
    await platform.say("bea", "hall", "two", "1", mention=True)
    await platform.say("ana", "hall", "three", "2", mention=True)
    await app.crash()
    platform.reconnect(app.router)
    app.echo.gate = None
    await app.router.wait_idle()
    assert received_texts(app) == ["one", "Bea: two\nAna: three"]
    assert len(platform.shown("hall")) == 2


async def test_p4_yesterdays_backlog_gets_one_answer(app: SurfaceApp, platform: Loopback) -> None:
    yesterday = app.clock.now() - timedelta(days=1)
    room, ana = RoomRef(surface="loopback", id="hall"), Account(surface="loopback", id="ana")
    old = [
        IncomingMessage(account=ana, room=room, key=str(n), text=f"m{n}", at=yesterday + timedelta(minutes=n))
        for n in range(110)
    ]
    new = [IncomingMessage(account=ana, room=room, key="new", text="are you back?", at=app.clock.now())]
    await platform.deliver(*old, *new)
    await app.router.wait_idle()
    together, fresh = received_texts(app)
    assert together.startswith("(70 earlier messages are left out.)\nm70\n") and together.endswith("m109")
    assert fresh == "are you back?"
    assert len(platform.shown("hall")) == 2


async def test_a_slow_answer_is_announced_once_and_stop_works_meanwhile(tmp_path: Path) -> None:
    app = SurfaceApp(tmp_path / "coterie.db", settings=SurfacesSettings(slow_notice_s=0.05))
    await app.create_character()
    await app.people.link_owner("loopback", "ana")
    platform = Loopback()
    platform.reconnect(app.router)
    app.echo.gate = asyncio.Event()
    await platform.say("ana", "hall", "hello?", "0")
    async with asyncio.timeout(5):
        while not platform.shown("hall"):
            await asyncio.sleep(0.01)
    await platform.say("ana", "hall", "!stop", "1")
    await app.router.wait_idle()
    slow, answer = platform.shown("hall")
    assert "longer than usual" in slow and "!stop" in slow
    assert answer.startswith("hello?") and platform.reactions == [("1", "👌")]
    await platform.say("ana", "hall", "!stop", "2")
    await app.router.wait_idle()
    assert platform.shown("hall")[-1] == "No reply is running."
    assert platform.typing_in[0] == ("hall", True) and platform.typing_in[-1] == ("hall", False)
    await app.close()


async def test_a_command_that_is_answered_at_once_is_answered_after_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor, tries = FaultySupervisor(), list[str]()
    app = SurfaceApp(tmp_path / "coterie.db", supervisor=supervisor)
    await app.create_character()
    await app.people.link_owner("loopback", "ana")
    platform = Loopback()
    platform.reconnect(app.router)

    async def stop(context: str) -> bool:
        tries.append(context)
        if len(tries) == 1:
            await asyncio.Event().wait()
        return False

    monkeypatch.setattr(app.echo, "stop", stop)
    await platform.say("ana", "hall", "hello?", "0")
    await app.router.wait_idle()
    await platform.say("ana", "hall", "!stop", "1")
    await until(lambda: tries)
    (task,) = (name for name in supervisor.runs if name.startswith("command: stop"))
    supervisor.kill(task)
    await until(supervisor.problems)
    (problem,) = supervisor.problems()
    assert (problem.name, problem.status, problem.failures) == (task, "retrying", 1)
    await app.router.wait_idle()
    assert platform.shown("hall")[-1] == "No reply is running."
    assert (supervisor.runs[task], len(tries), supervisor.problems()) == (2, 2, [])
    await app.close()


async def test_in_a_group_a_slow_answer_is_announced_by_a_reaction(tmp_path: Path) -> None:
    app = SurfaceApp(tmp_path / "coterie.db", settings=SurfacesSettings(slow_notice_s=0.05, burst_quiet_s=0))
    await app.create_character()
    await app.people.link_owner("loopback", "ana")
    platform = Loopback()
    platform.reconnect(app.router)
    await platform.join("bea", "hall")
    app.echo.gate = asyncio.Event()
    await platform.say("ana", "hall", "hello?", "0", mention=True)
    async with asyncio.timeout(5):
        while not platform.reactions:
            await asyncio.sleep(0.01)
    app.echo.gate.set()
    await app.router.wait_idle()
    assert platform.reactions == [("0", "👀")]
    assert len(platform.shown("hall")) == 1
    await app.close()
