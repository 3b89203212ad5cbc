"""P2, F12: notices of documents and of the crowd on messengers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coterie.base.errors import CoterieError
from coterie.eventstore import AnyEvent, NewEvent, Payload
from coterie.messaging.notices import NoticeSender, PersonalNotice
from coterie.messaging.settings import SurfacesSettings
from tests.contracts.loopback import Loopback
from tests.contracts.surface_app import SurfaceApp


class SomethingHappened(Payload, kind="test_something_happened"):
    person: str
    text: str
    can_wait: bool = False


def describe(event: AnyEvent) -> PersonalNotice | None:
    happened = event.payload
    assert isinstance(happened, SomethingHappened)
    if happened.text == "gone":
        raise CoterieError("It is gone.", "Nothing.")
    return PersonalNotice(happened.person, happened.text, happened.can_wait) if happened.text else None


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[SurfaceApp]:
    app = SurfaceApp(tmp_path / "coterie.db")
    await app.create_character()
    yield app
    await app.close()


@pytest.fixture
async def platform(app: SurfaceApp) -> Loopback:
    platform = Loopback()
    platform.reconnect(app.router)
    await app.people.link_owner(platform.name, "ana")
    await platform.say("ana", "kitchen", "hello", "k0")
    await platform.join("bea", "square")
    await platform.say("ana", "square", "hello all, Echo", "k1")
    await app.router.wait_idle()
    return platform


def sender(app: SurfaceApp, *, notices: bool = True) -> NoticeSender:
    settings = SurfacesSettings(notices=notices)
    return NoticeSender(app.store, app.router, settings, {SomethingHappened.kind: describe})


async def happen(app: SurfaceApp, text: str, person: str = "you", *, can_wait: bool = False) -> None:
    payload = SomethingHappened(person=person, text=text, can_wait=can_wait)
    await app.store.append([NewEvent("test:notices", payload)])


async def test_f12_a_notice_goes_once_to_the_private_chat(app: SurfaceApp, platform: Loopback) -> None:
    notices = sender(app)
    for text in ("first", "gone", "", "second"):
        await happen(app, text)
    await happen(app, "for somebody without a messenger", person="bo")
    await notices.send_new()
    await notices.send_new()
    await sender(app).send_new()
    await app.router.wait_idle()
    assert platform.shown("kitchen")[1:] == ["first", "second"]
    assert len(platform.shown("square")) == 1, "others read this room"


async def test_f12_a_crash_before_the_position_is_stored_repeats_nothing(app: SurfaceApp, platform: Loopback) -> None:
    notices = sender(app)
    await happen(app, "news")

    async def crash(_: int) -> None:
        raise KeyError

    notices._move_to = crash  # type: ignore[method-assign,assignment]
    with pytest.raises(KeyError):
        await notices.send_new()
    await sender(app).send_new()
    await app.router.wait_idle()
    assert platform.shown("kitchen")[1:] == ["news"]


async def test_f12_notices_that_can_wait_are_rare(app: SurfaceApp, platform: Loopback) -> None:
    for number in range(20):
        await happen(app, f"message {number}", can_wait=True)
    await sender(app).send_new()
    await app.router.wait_idle()
    assert len(platform.shown("kitchen")) - 1 in (1, 2), "one, or two if ten minutes begin anew meanwhile"


async def test_f12_notices_can_be_switched_off(app: SurfaceApp, platform: Loopback) -> None:
    await happen(app, "news")
    await sender(app, notices=False).send_new()
    await app.router.wait_idle()
    assert len(platform.shown("kitchen")) == 1


async def test_f12_what_happened_before_the_first_start_is_no_news(app: SurfaceApp, platform: Loopback) -> None:
    await happen(app, "long ago")
    stop = asyncio.Event()
    running = asyncio.create_task(sender(app).run(stop))
    async with asyncio.timeout(10):
        while app.router.inbound.inbox.cursor("notices") is None:
            await asyncio.sleep(0.01)
        await happen(app, "now")
        while len(platform.shown("kitchen")) < 2:
            await asyncio.sleep(0.01)
    stop.set()
    await running
    assert platform.shown("kitchen")[1:] == ["now"]
