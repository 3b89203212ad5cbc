"""The fair queue of the embedded model: priorities, turns of owners, maximum wait."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from coterie.base.clock import ManualClock
from coterie.llm.embedded.provider import FairQueue
from coterie.llm.messages import Priority


class QueueDriver:
    """Requests to a fair queue that hold their slots until they are released."""

    def __init__(self, slots: int, clock: ManualClock | None = None) -> None:
        self.fair_queue = FairQueue(slots, clock or ManualClock(), max_wait_s=30)
        self.admitted: list[str] = []
        self.order: list[str] = []
        self._released: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def request(self, name: str, priority: Priority, owner: str = "") -> None:
        self._released[name] = asyncio.Event()

        async def hold() -> None:
            async with self.fair_queue.slot(priority, owner or name):
                self.admitted.append(name)
                self.order.append(name)
                await self._released[name].wait()
                self.admitted.remove(name)

        self.tasks[name] = asyncio.create_task(hold())
        await settle()

    async def release(self, name: str) -> None:
        self._released[name].set()
        await self.tasks[name]
        await settle()

    async def release_all(self) -> None:
        while self.admitted:
            await self.release(self.admitted[0])


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_person_goes_before_background_work_that_came_first() -> None:
    queue = QueueDriver(1)
    await queue.request("busy", Priority.BACKGROUND)
    await queue.request("job", Priority.BACKGROUND)
    await queue.request("person", Priority.PERSON)
    await queue.release_all()
    assert queue.order == ["busy", "person", "job"]


async def test_the_last_slot_is_reserved_for_people() -> None:
    queue = QueueDriver(2)
    for n in range(3):
        await queue.request(f"job {n}", Priority.BACKGROUND)
    assert queue.admitted == ["job 0"]
    await queue.request("person", Priority.PERSON)
    assert queue.admitted == ["job 0", "person"]
    await queue.release_all()


async def test_owners_take_turns() -> None:
    queue = QueueDriver(1)
    await queue.request("a0", Priority.BACKGROUND, "a")
    for name in ("a1", "a2", "a3"):
        await queue.request(name, Priority.BACKGROUND, "a")
    await queue.request("b1", Priority.BACKGROUND, "b")
    await queue.request("b2", Priority.BACKGROUND, "b")
    await queue.release_all()
    assert queue.order == ["a0", "b1", "a1", "b2", "a2", "a3"]


async def test_a_request_that_waited_too_long_gets_priority() -> None:
    clock = ManualClock()
    queue = QueueDriver(1, clock)
    await queue.request("person 0", Priority.PERSON)
    await queue.request("job", Priority.BACKGROUND)
    clock.advance(31)
    await queue.request("person 1", Priority.PERSON)
    await queue.release("person 0")
    assert queue.admitted == ["job"]
    await queue.release_all()


async def test_a_cancelled_request_does_not_block_the_next() -> None:
    queue = QueueDriver(1)
    for name in ("first", "second", "third"):
        await queue.request(name, Priority.PERSON)
    queue.tasks["second"].cancel()
    await settle()
    await queue.release("first")
    assert queue.admitted == ["third"]
    await queue.release("third")
    assert queue.fair_queue.idle


@given(
    st.integers(1, 3),
    st.lists(st.tuples(st.sampled_from(Priority), st.sampled_from("abc"), st.booleans()), max_size=12),
)
async def test_law_slots_are_never_exceeded_and_every_request_is_admitted(
    slots: int, requests: list[tuple[Priority, str, bool]]
) -> None:
    queue = QueueDriver(slots)
    cancelled: set[str] = set()
    for n, (priority, owner, cancels) in enumerate(requests):
        await queue.request(str(n), priority, owner)
        if cancels and str(n) not in queue.admitted:
            queue.tasks[str(n)].cancel()
            cancelled.add(str(n))
            await settle()
        assert len(queue.admitted) <= slots
    await queue.release_all()
    assert set(queue.order) | cancelled == {str(n) for n in range(len(requests))}
    assert queue.fair_queue.idle


async def test_a_request_cancelled_while_a_slot_is_released_does_not_block_the_next() -> None:
    queue = QueueDriver(1)
    await queue.request("inside", Priority.BACKGROUND)
    await queue.request("impatient", Priority.PERSON)
    await queue.request("patient", Priority.BACKGROUND)
    queue.tasks["impatient"].cancel()
    queue.fair_queue._release()  # before the cancelled task runs
    await settle()
    assert queue.admitted == ["inside", "patient"]
    queue.fair_queue._in_use += 1
    await queue.release_all()
    assert queue.fair_queue.idle
