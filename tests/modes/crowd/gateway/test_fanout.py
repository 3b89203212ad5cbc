"""C3: one frame per tick for all readers; a slow reader is skipped and gets a snapshot later."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from coterie.modes.crowd.gateway import Encoding, Fanout
from coterie.modes.crowd.protocol import ChatAuthor, ChatMessage


class Reader:
    encoding: Encoding = "text"

    def __init__(self) -> None:
        self.frames: list[dict[str, Any]] = []

    def write(self, data: bytes) -> None:
        self.frames.append(json.loads(data))

    @property
    def numbers(self) -> list[list[int]]:
        return [[message["number"] for message in frame["messages"]] for frame in self.frames]


def message(number: int) -> ChatMessage:
    return ChatMessage(
        id=f"den-{number}", number=number, room="den", author=ChatAuthor(name="ana", kind="human"), text="hi", ts=number
    )


def create_fanout() -> tuple[Fanout, list[ChatMessage]]:
    history: list[ChatMessage] = []
    return Fanout(lambda count: history[-count:], last_sent=1), history


async def test_c3_messages_of_a_tick_share_a_frame() -> None:
    fanout, _ = create_fanout()
    ana, bo = Reader(), Reader()
    fanout.join(ana)
    fanout.join(bo, missed=[message(1)])
    for number in range(2, 5):
        fanout.send([message(number)])
    assert len(ana.frames) == 1
    while fanout.frames < 2:
        await asyncio.sleep(0.01)
    assert ana.numbers == [[], [2, 3, 4]]
    assert bo.numbers == [[1], [2, 3, 4]]


async def test_c3_a_slow_reader_is_skipped_then_gets_a_snapshot() -> None:
    fanout, history = create_fanout()
    slow, quick = Reader(), Reader()
    fanout.join(slow)
    fanout.join(quick)
    fanout.pause(slow)
    for number in range(1, 4):
        history.append(message(number))
        fanout.send(history[-1:])
        fanout.flush()
    assert quick.numbers == [[], [1], [2], [3]]
    assert slow.numbers == [[]]
    assert (fanout.readers, fanout.dropped) == (2, 3)
    fanout.resume(slow)
    history.append(message(4))
    fanout.send(history[-1:])
    fanout.flush()
    history.append(message(5))
    fanout.send(history[-1:])
    fanout.flush()
    assert slow.numbers == [[], [1, 2, 3, 4], [5]]
    assert [frame["type"] for frame in slow.frames] == ["snapshot", "snapshot", "messages"]


async def test_c3_pending_messages_are_in_no_snapshot_and_sent_once() -> None:
    fanout, history = create_fanout()
    history += [message(1), message(2)]
    ana, bo = Reader(), Reader()
    fanout.join(ana)
    fanout.join(bo, missed=[message(1), message(2)])
    fanout.send([message(2)])
    fanout.flush()
    assert ana.numbers == bo.numbers == [[1], [2]]


async def test_c3_a_reader_that_left_gets_nothing() -> None:
    fanout, _ = create_fanout()
    ana = Reader()
    fanout.join(ana)
    fanout.leave(ana)
    fanout.send([message(1)])
    fanout.flush()
    assert ana.numbers == [[]]
    assert fanout.readers == 0


class Stuck(Reader):
    """It has too much outstanding as soon as it is written to, and says so from within the write."""

    def __init__(self, fanout: Fanout) -> None:
        super().__init__()
        self._fanout = fanout

    def write(self, data: bytes) -> None:
        super().write(data)
        self._fanout.pause(self)


async def test_c3_a_reader_may_pause_during_a_write() -> None:
    fanout, history = create_fanout()
    before, stuck, behind = Reader(), Stuck(fanout), Reader()
    fanout.join(before)
    fanout.join(stuck)
    fanout.join(behind)
    for number in range(1, 6):
        if number == 3:
            fanout.resume(stuck)
        history.append(message(number))
        fanout.send(history[-1:])
        fanout.flush()
    assert before.numbers == behind.numbers == [[], [1], [2], [3], [4], [5]]
    assert stuck.numbers == [[], [1, 2, 3]]
    assert (fanout.readers, fanout.dropped, fanout.frames) == (3, 4, 11)


async def test_c3_a_reader_that_pauses_again_gets_nothing_until_it_resumes() -> None:
    fanout, history = create_fanout()
    slow = Reader()
    fanout.join(slow)
    fanout.pause(slow)
    fanout.resume(slow)
    fanout.pause(slow)
    history.append(message(1))
    fanout.send(history)
    fanout.flush()
    assert slow.numbers == [[]]
    fanout.resume(slow)
    history.append(message(2))
    fanout.send(history[-1:])
    fanout.flush()
    assert slow.numbers == [[], [1, 2]]


@pytest.mark.parametrize("slow", [False, True])
async def test_c3_a_reader_that_left_cannot_resume(slow: bool) -> None:
    fanout, history = create_fanout()
    ana = Reader()
    fanout.join(ana)
    if slow:
        fanout.pause(ana)
    fanout.leave(ana)
    fanout.pause(ana)
    fanout.resume(ana)
    history.append(message(1))
    fanout.send(history)
    fanout.flush()
    assert (ana.numbers, fanout.readers) == ([[]], 0)


class Broken(Reader):
    def write(self, data: bytes) -> None:
        if self.frames:
            raise RuntimeError("the connection is broken")
        super().write(data)


async def test_c3_a_reader_that_cannot_be_written_to_is_removed_and_the_others_get_the_frame() -> None:
    fanout, history = create_fanout()
    before, broken, behind = Reader(), Broken(), Reader()
    for reader in (before, broken, behind):
        fanout.join(reader)
    history += [message(1)]
    fanout.send(history)
    fanout.flush()
    assert before.numbers == behind.numbers == [[], [1]]
    assert fanout.readers == 2


async def test_c3_a_flood_of_joins_causes_no_frames_for_the_others() -> None:
    fanout, history = create_fanout()
    ana = Reader()
    fanout.join(ana)
    history += [message(1), message(2)]
    for _ in range(50):
        fanout.send([message(2)] if not fanout._pending else [])
        fanout.join(Reader())
    assert ana.numbers == [[]]
    fanout.flush()
    assert ana.numbers == [[], [2]]
