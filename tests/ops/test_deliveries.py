"""What the doctor says about messages in doubt. D21"""

from __future__ import annotations

import asyncio
from pathlib import Path

from coterie.base.home import Home
from coterie.checkup import checkup
from coterie.engine.inbox import stream_of
from coterie.engine.outbox import DeliveryFailed, MessageDelivered, queued_draft
from coterie.engine.protocol import OutgoingNotification, RoomRef
from coterie.kernel import Draft
from tests.contracts.surface_house import SurfaceHouse

ROOM = RoomRef(surface="matrix", id="!kitchen")


def told(home: Home) -> list[tuple[str, str]]:
    return [(one.state, one.what) for one in checkup(home).examine() if one.about == "Delivery"]


async def test_d21_a_delivery_in_doubt_is_shown_as_such(tmp_path: Path) -> None:
    home = Home.locate({"COTERIE_HOME": str(tmp_path)})
    assert await asyncio.to_thread(told, home) == []
    house = SurfaceHouse(home.database)
    assert await asyncio.to_thread(told, home) == [("ok", "nothing is in doubt")]
    drafts = [queued_draft(token, OutgoingNotification(room=ROOM, text="x")) for token in ("a", "b", "c")]
    ends = (
        DeliveryFailed(token="a", error="They said no."),
        MessageDelivered(token="b", message="$1", perhaps_twice=True),
        MessageDelivered(token="c", message="$2"),
    )
    await house.store.append([*drafts, *(Draft(stream_of(ROOM), end) for end in ends)])
    assert await asyncio.to_thread(told, home) == [
        ("bad", "a message to matrix !kitchen was not taken: They said no."),
        ("note", "shown perhaps twice after a crash or a broken line: 1"),
    ]
    await house.close()
