"""The contract of `Bus`. A backend's test module subclasses this and provides the fixture `bus`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from coterie.base.errors import SlowConsumer
from coterie.eventstore import Bus, BusMessage, WhenSlow


async def take(listener: AsyncIterator[BusMessage], count: int) -> list[object]:
    return [(await asyncio.wait_for(anext(listener), 5)).body for _ in range(count)]


def numbered(subject: str, count: int) -> list[BusMessage]:
    return [BusMessage(subject, number) for number in range(count)]


class BusContract:
    @pytest.mark.parametrize(
        ("pattern", "subject", "matches"),
        [
            ("event.room.1.said", "event.room.1.said", True),
            ("event.room.*.said", "event.room.1.said", True),
            ("event.*.said", "event.room.1.said", False),
            ("event.>", "event.room.1.said", True),
            ("event.>", "event", False),
            (">", "anything", True),
            ("event.room.1", "event.room.1.said", False),
            ("event.room.1.said.more", "event.room.1.said", False),
        ],
    )
    async def test_patterns(self, bus: Bus, pattern: str, subject: str, matches: bool) -> None:
        async with bus.subscribe(pattern) as listener, bus.subscribe("end") as end:
            bus.publish([BusMessage(subject, "news"), BusMessage("end", None)])
            await take(end, 1)
            if matches:
                assert await take(listener, 1) == ["news"]
            else:
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(anext(listener), 0.05)

    @pytest.mark.parametrize("pattern", ["", "a..b", "a.>.b", "."])
    async def test_an_invalid_pattern_is_refused(self, bus: Bus, pattern: str) -> None:
        with pytest.raises(ValueError, match="pattern"):
            async with bus.subscribe(pattern):
                pass

    async def test_every_subscriber_gets_every_message_in_order(self, bus: Bus) -> None:
        async with bus.subscribe("n.*") as one, bus.subscribe("n.>") as two:
            bus.publish(numbered("n.x", 50))
            assert await take(one, 50) == list(range(50))
            assert await take(two, 50) == list(range(50))

    async def test_publishing_from_another_thread(self, bus: Bus) -> None:
        async with bus.subscribe("n") as listener:
            thread = threading.Thread(target=lambda: bus.publish(numbered("n", 10)))
            thread.start()
            assert await take(listener, 10) == list(range(10))
            thread.join()

    async def test_nothing_is_received_after_unsubscribing(self, bus: Bus) -> None:
        async with bus.subscribe("n") as listener:
            pass
        bus.publish(numbered("n", 1))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(listener), 0.05)

    async def test_a_slow_subscriber_loses_the_oldest_messages(self, bus: Bus) -> None:
        async with bus.subscribe("n", limit=3, when_slow=WhenSlow.DROP_OLDEST) as listener:
            bus.publish(numbered("n", 10))
            assert await take(listener, 3) == [7, 8, 9]

    async def test_a_slow_subscriber_loses_the_newest_messages(self, bus: Bus) -> None:
        async with bus.subscribe("n", limit=3, when_slow=WhenSlow.DROP_NEWEST) as listener:
            bus.publish(numbered("n", 10))
            assert await take(listener, 3) == [0, 1, 2]

    async def test_a_slow_subscriber_is_disconnected_after_its_queue(self, bus: Bus) -> None:
        async with bus.subscribe("n", limit=3) as listener:
            bus.publish(numbered("n", 10))
            assert await take(listener, 3) == [0, 1, 2]
            with pytest.raises(SlowConsumer, match="Read the log"):
                await anext(listener)

    async def test_a_slow_subscriber_does_not_affect_others(self, bus: Bus) -> None:
        async with bus.subscribe("n", limit=1), bus.subscribe("n", limit=1_000) as quick:
            bus.publish(numbered("n", 500))
            assert await take(quick, 500) == list(range(500))
