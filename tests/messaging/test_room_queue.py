"""The room queue: order within a room, failures, and closing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from structlog.testing import capture_logs

from coterie.base.supervisor import Supervisor
from coterie.messaging.delivery import RoomQueue
from coterie.messaging.protocol import RoomRef

KITCHEN = RoomRef(surface="fake", id="kitchen")


async def test_p4_a_failing_step_while_closing_is_neither_logged_nor_retried() -> None:
    """The surface may be closed first; the work is done at the next start."""
    begun: list[RoomRef] = []

    async def step(room: RoomRef) -> bool:
        begun.append(room)
        try:
            await asyncio.sleep(3_600)
        finally:
            raise RuntimeError("The client has been closed.")

    queue = RoomQueue("inbox", step)
    queue.schedule(KITCHEN)
    await asyncio.sleep(0)
    with capture_logs() as logs:
        await queue.close()
    assert (begun, logs, queue.is_running) == ([KITCHEN], [], False)


async def test_p4_a_failing_step_is_logged_and_retried() -> None:
    outcomes: Iterator[bool | None] = iter([None, True, False])

    async def step(_: RoomRef) -> bool:
        if (outcome := next(outcomes)) is None:
            raise RuntimeError("The disk is full.")
        return outcome

    queue = RoomQueue("inbox", step, Supervisor(min_delay_s=0.001))
    with capture_logs() as logs:
        queue.schedule(KITCHEN)
        await queue.wait_idle()
    assert [(line["event"], line["log_level"]) for line in logs] == [("background task failed", "error")]
    assert list(outcomes) == []
