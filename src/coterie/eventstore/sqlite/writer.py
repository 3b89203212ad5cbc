"""One writer at a time. Requests that wait while a commit is under way share the next one.

Each request runs in the transaction of its batch; if one fails the batch is rolled back and its requests run again,
each alone, so that a mistake of one caller never costs another. A caller hears back only after the commit.

A thread of its own commits for event loops, unless commits have lately been so quick that handing a batch over would
take as long: then the loop that asked commits brief requests itself. Who blocks anyway does too (ADR 0010).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import apsw

from coterie.base.errors import CoterieError, StorageError
from coterie.base.logging import get_logger
from coterie.eventstore.sqlite.database import storage_error

T = TypeVar("T")
Work = Callable[[], T]

_LARGEST_BATCH = 1_024
_MOST_IN_LOOP = 64
_QUICK_SECONDS = 0.002
"""An event loop may stand still for so long; a slower disk or a heavier view is the thread's to wait for."""
_log = get_logger(__name__)


class WriteRequest(Generic[T]):
    """One request and the place where its answer goes: a future of the caller's own loop or thread."""

    __slots__ = ("error", "future", "loop", "outside_transaction", "result", "work")

    def __init__(
        self,
        work: Work[T],
        answer: asyncio.Future[T] | Future[T],
        loop: asyncio.AbstractEventLoop | None,
        between: bool = False,
    ) -> None:
        """`between`: to be run by itself, outside of any transaction."""
        self.work = work
        self.future = answer
        self.loop = loop
        self.outside_transaction = between
        self.result: T | None = None
        self.error: BaseException | None = None

    def deliver(self) -> None:
        answer = self.future
        if answer.cancelled() or (isinstance(answer, Future) and not answer.set_running_or_notify_cancel()):
            return
        if self.error is not None:
            answer.set_exception(self.error)
        else:
            answer.set_result(cast("T", self.result))


@dataclass(slots=True)
class WriterStats:
    """What the writer has done since it started."""

    commits: int = 0
    requests: int = 0
    seconds: float = 0.0


class Writer:
    """`begin` and `end` run inside each transaction, around its work; `committed` runs after it, on the same thread."""

    def __init__(
        self,
        connection: apsw.Connection,
        path: Path,
        *,
        begin: Callable[[], None],
        end: Callable[[], None],
        committed: Callable[[], None],
        rolled_back: Callable[[], None],
        untouched: Callable[[], object] = lambda: None,
    ) -> None:
        """`untouched` tells whether a request that was refused has left a trace: equal before and after if not."""
        self._untouched = untouched
        self._connection = connection
        self._path = path
        self._begin = begin
        self._end = end
        self._committed = committed
        self._rolled_back = rolled_back
        self._waiting: deque[WriteRequest[Any]] = deque()
        self._news = threading.Condition(threading.Lock())
        self._turn = threading.Lock()
        self._lately = 0.0
        self._brief: dict[asyncio.AbstractEventLoop, list[WriteRequest[Any]]] = {}
        self._closed = False
        self.stats = WriterStats()
        self._thread = threading.Thread(target=self._serve, name="coterie-writer", daemon=True)
        self._thread.start()

    def run(self, work: Work[T], *, small: bool = False) -> asyncio.Future[T]:
        """To be awaited: the answer comes after the commit. `brief`: a few rows, no more."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        ticket = WriteRequest(work, answer, loop)
        if not small or self._lately > _QUICK_SECONDS:
            self._enter(ticket)
        elif (gathered := self._brief.get(loop)) is not None:
            gathered.append(ticket)
        else:
            # What this turn of the loop still brings shares the commit.
            self._brief[loop] = [ticket]
            loop.call_soon(self._commit_in_loop, loop)
        return answer

    async def run_outside_transaction(self, work: Work[T]) -> T:
        """Run something on the writer's connection that cannot be part of a transaction."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        self._enter(WriteRequest(work, answer, loop, between=True))
        return await answer

    def run_blocking(self, work: Work[T]) -> T:
        """The same for callers without an event loop: block until it is durable."""
        answer: Future[T] = Future()
        ticket = WriteRequest(work, answer, None)
        if not self._commit_here([ticket]):  # who would wait anyway may as well do it
            self._enter(ticket)
        return answer.result()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def close(self) -> None:
        """Finish what was asked for, then stop."""
        with self._news:
            while self._brief:
                self._waiting.extend(self._brief.popitem()[1])
            self._closed = True
            self._news.notify()
        self._thread.join()
        with self._turn:  # a loop may be at its last commit
            return

    def _enter(self, *tickets: WriteRequest[Any]) -> None:
        with self._news:
            if self._closed:
                raise _closed()
            self._waiting.extend(tickets)
            self._news.notify()

    def _serve(self) -> None:
        while True:
            with self._news:
                while not self._waiting:
                    if self._closed:
                        return
                    self._news.wait()
            with self._turn:
                batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), _LARGEST_BATCH))]
                self._commit(batch, _deliver_across)

    def _commit_in_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Commit what a loop has gathered, here and now, if nobody else writes or waits to; else hand it over."""
        batch = self._brief.pop(loop, [])
        if len(batch) <= _MOST_IN_LOOP and self._commit_here(batch):
            return
        try:
            self._enter(*batch)
        except StorageError as error:
            for ticket in batch:
                ticket.error = error
                ticket.deliver()

    def _commit_here(self, batch: Sequence[WriteRequest[Any]]) -> bool:
        """Commit on the thread that asks; False if it is not its turn."""
        if not self._turn.acquire(blocking=False):
            return False
        try:
            if self._waiting or self._closed:
                return False
            self._commit(batch, _deliver_all)
            return True
        finally:
            self._turn.release()

    def _commit(
        self, batch: Sequence[WriteRequest[Any]], deliver: Callable[[Sequence[WriteRequest[Any]]], None]
    ) -> None:
        if any(ticket.outside_transaction for ticket in batch):
            for ticket in batch:
                self._run_between(ticket) if ticket.outside_transaction else self._commit([ticket], deliver)
            return
        started = time.perf_counter()
        try:
            self._transact(batch)
        except BaseException as error:
            if len(batch) == 1:
                batch[0].error = self._named(error)
                deliver(batch)
            else:
                for ticket in batch:
                    self._commit([ticket], deliver)
            return
        seconds = time.perf_counter() - started
        self._lately += (seconds - self._lately) / 8
        self.stats.commits += 1
        self.stats.requests += len(batch)
        self.stats.seconds += seconds
        try:
            self._committed()
        except Exception:
            # What is committed is committed: whoever could not be told reads the log.
            _log.exception("telling of a commit failed")
        deliver(batch)

    def _run_between(self, ticket: WriteRequest[Any]) -> None:
        try:
            ticket.result = ticket.work()
        except BaseException as error:
            ticket.error = self._named(error)
        _deliver_across([ticket])

    def _transact(self, batch: Sequence[WriteRequest[Any]]) -> None:
        execute = self._connection.execute
        try:
            execute("BEGIN IMMEDIATE")
            self._begin()
            for ticket in batch:
                self._perform(ticket)
            self._end()
            execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                execute("ROLLBACK")
            self._rolled_back()
            raise

    def _perform(self, ticket: WriteRequest[Any]) -> None:
        before = self._connection.total_changes(), self._untouched()
        try:
            ticket.result = ticket.work()
        except CoterieError as error:
            if (self._connection.total_changes(), self._untouched()) != before:
                raise
            ticket.error = error  # refused before it wrote anything: the others need not run again

    def _named(self, error: BaseException) -> BaseException:
        return storage_error(error, self._path) if isinstance(error, apsw.Error) else error


def _closed() -> StorageError:
    return StorageError("The store is closed.", "Open it again; nothing was changed.")


def _deliver_across(batch: Sequence[WriteRequest[Any]]) -> None:
    """Answer every caller on its own thread; those of one event loop with a single wake-up."""
    by_loop: dict[asyncio.AbstractEventLoop, list[WriteRequest[Any]]] = {}
    for ticket in batch:
        if ticket.loop is None:
            ticket.deliver()
        else:
            by_loop.setdefault(ticket.loop, []).append(ticket)
    for loop, tickets in by_loop.items():
        try:
            loop.call_soon_threadsafe(_deliver_all, tickets)
        except RuntimeError:
            continue  # the loop closed while we wrote: its callers are gone, the events are not


def _deliver_all(tickets: Sequence[WriteRequest[Any]]) -> None:
    for ticket in tickets:
        ticket.deliver()
