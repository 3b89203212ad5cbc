"""The queue before the embedded model: people first, turns by owner, nobody forgotten."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from coterie.base.clock import ManualClock
from coterie.llm.embedded.provider import FairQueue
from coterie.llm.messages import Priority


class Queue:
    """Callers of a line, who stay until they are told to go."""

    def __init__(self, places: int, clock: ManualClock | None = None) -> None:
        self.line = FairQueue(places, clock or ManualClock(), max_wait_s=30)
        self.inside: list[str] = []
        self.order: list[str] = []
        self._go: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def come(self, name: str, priority: Priority, owner: str = "") -> None:
        self._go[name] = asyncio.Event()

        async def stay() -> None:
            async with self.line.slot(priority, owner or name):
                self.inside.append(name)
                self.order.append(name)
                await self._go[name].wait()
                self.inside.remove(name)

        self.tasks[name] = asyncio.create_task(stay())
        await settle()

    async def leave(self, name: str) -> None:
        self._go[name].set()
        await self.tasks[name]
        await settle()

    async def empty(self) -> None:
        while self.inside:
            await self.leave(self.inside[0])


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_person_goes_before_background_work_that_came_first() -> None:
    queue = Queue(1)
    await queue.come("busy", Priority.BACKGROUND)
    await queue.come("job", Priority.BACKGROUND)
    await queue.come("person", Priority.PERSON)
    await queue.empty()
    assert queue.order == ["busy", "person", "job"]


async def test_the_last_place_is_kept_for_a_person() -> None:
    queue = Queue(2)
    for n in range(3):
        await queue.come(f"job {n}", Priority.BACKGROUND)
    assert queue.inside == ["job 0"]
    await queue.come("person", Priority.PERSON)
    assert queue.inside == ["job 0", "person"]
    await queue.empty()


async def test_owners_take_turns() -> None:
    queue = Queue(1)
    await queue.come("a0", Priority.BACKGROUND, "a")
    for name in ("a1", "a2", "a3"):
        await queue.come(name, Priority.BACKGROUND, "a")
    await queue.come("b1", Priority.BACKGROUND, "b")
    await queue.come("b2", Priority.BACKGROUND, "b")
    await queue.empty()
    assert queue.order == ["a0", "b1", "a1", "b2", "a2", "a3"]


async def test_who_has_waited_too_long_is_not_passed_over_for_ever() -> None:
    clock = ManualClock()
    queue = Queue(1, clock)
    await queue.come("person 0", Priority.PERSON)
    await queue.come("job", Priority.BACKGROUND)
    clock.advance(31)
    await queue.come("person 1", Priority.PERSON)
    await queue.leave("person 0")
    assert queue.inside == ["job"]
    await queue.empty()


async def test_who_gives_up_leaves_the_place_to_the_next() -> None:
    queue = Queue(1)
    for name in ("first", "second", "third"):
        await queue.come(name, Priority.PERSON)
    queue.tasks["second"].cancel()
    await settle()
    await queue.leave("first")
    assert queue.inside == ["third"]
    await queue.leave("third")
    assert queue.line.idle


@given(
    st.integers(1, 3),
    st.lists(st.tuples(st.sampled_from(Priority), st.sampled_from("abc"), st.booleans()), max_size=12),
)
async def test_law_never_too_many_inside_and_everybody_is_served(
    places: int, comers: list[tuple[Priority, str, bool]]
) -> None:
    queue = Queue(places)
    gone: set[str] = set()
    for n, (priority, owner, gives_up) in enumerate(comers):
        await queue.come(str(n), priority, owner)
        if gives_up and str(n) not in queue.inside:
            queue.tasks[str(n)].cancel()
            gone.add(str(n))
            await settle()
        assert len(queue.inside) <= places
    await queue.empty()
    assert set(queue.order) | gone == {str(n) for n in range(len(comers))}
    assert queue.line.idle


async def test_whoever_is_cancelled_in_the_moment_a_place_becomes_free_does_not_stop_the_next() -> None:
    queue = Queue(1)
    await queue.come("inside", Priority.BACKGROUND)
    await queue.come("impatient", Priority.PERSON)
    await queue.come("patient", Priority.BACKGROUND)
    queue.tasks["impatient"].cancel()
    queue.line._release()  # before the cancelled one is awake
    await settle()
    assert queue.inside == ["inside", "patient"]
    queue.line._in_use += 1
    await queue.empty()
    assert queue.line.idle
