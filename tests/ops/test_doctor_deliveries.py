"""The doctor's check of failed and uncertain deliveries. D21"""

from __future__ import annotations

import asyncio
from pathlib import Path

from coterie.app import build_doctor
from coterie.base.paths import Paths
from coterie.eventstore import NewEvent
from coterie.messaging.delivery import DeliveryFailed, MessageDelivered, queued_event
from coterie.messaging.inbox import room_stream
from coterie.messaging.protocol import OutgoingNotification, RoomRef
from coterie.messaging.quarantine import Quarantine
from tests.contracts.surface_app import SurfaceApp

ROOM = RoomRef(surface="matrix", id="!kitchen")


def delivery_results(home: Paths) -> list[tuple[str, str]]:
    return [(result.state, result.what) for result in build_doctor(home).run() if result.about == "Delivery"]


async def test_d21_uncertain_deliveries_are_reported(tmp_path: Path) -> None:
    home = Paths.locate({"COTERIE_HOME": str(tmp_path)})
    assert await asyncio.to_thread(delivery_results, home) == []
    app = SurfaceApp(home.database)
    assert await asyncio.to_thread(delivery_results, home) == [("ok", "no failed or uncertain messages")]
    drafts = [queued_event(token, OutgoingNotification(room=ROOM, text="x")) for token in ("a", "b", "c")]
    ends = (
        DeliveryFailed(token="a", error="They said no."),
        MessageDelivered(token="b", message="$1", perhaps_twice=True),
        MessageDelivered(token="c", message="$2"),
    )
    await app.store.append([*drafts, *(NewEvent(room_stream(ROOM), end) for end in ends)])
    assert await asyncio.to_thread(delivery_results, home) == [
        ("bad", "a message to matrix !kitchen failed: They said no."),
        ("note", "messages possibly shown twice after a crash or a lost connection: 1"),
    ]
    await app.close()


async def test_inputs_that_could_not_be_read_are_counted(tmp_path: Path) -> None:
    home = Paths.locate({"COTERIE_HOME": str(tmp_path)})
    app = SurfaceApp(home.database)
    quarantine = Quarantine("matrix")
    for number in range(3):
        quarantine.add({"number": number}, ValueError("it has no sender"))
    await app.router.inbound.accept([], None, quarantine.skipped)
    results = await asyncio.to_thread(lambda: list(build_doctor(home).run()))
    assert [result.what for result in results if result.about == "Skipped"] == [
        "matrix sent 3 events that could not be read"
    ]
    await app.close()
