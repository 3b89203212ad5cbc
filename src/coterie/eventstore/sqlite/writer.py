"""The single writer with group commit: requests that arrive during a commit share the next one.

Each request runs in the transaction of its batch. If one fails, the batch is rolled back and its requests run again
separately, so that one caller's error does not affect another. Callers get their result after the commit.

A thread commits for event loops, unless recent commits were so fast that handing over to it would take as long: then
the loop commits small requests itself. Blocking callers commit on their own thread too (ADR 0010).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import apsw

from coterie.base.errors import CoterieError, StorageError
from coterie.base.logging import get_logger
from coterie.eventstore.sqlite.database import storage_error

T = TypeVar("T")
Work = Callable[[], T]

_MAX_BATCH = 1_024
_MAX_IN_LOOP = 64
_MAX_LOOP_BLOCK_S = 0.002
"""How long a commit may block an event loop; slower ones are left to the thread."""
_log = get_logger(__name__)


class WriteRequest(Generic[T]):
    """A request and the future of the caller's loop or thread that receives its result."""

    __slots__ = ("error", "future", "loop", "outside_transaction", "result", "work")

    def __init__(
        self,
        work: Work[T],
        future: asyncio.Future[T] | Future[T],
        loop: asyncio.AbstractEventLoop | None,
        outside_transaction: bool = False,
    ) -> None:
        self.work = work
        self.future = future
        self.loop = loop
        self.outside_transaction = outside_transaction
        self.result: T | None = None
        self.error: BaseException | None = None

    def deliver(self) -> None:
        future = self.future
        if future.cancelled() or (isinstance(future, Future) and not future.set_running_or_notify_cancel()):
            return
        if self.error is not None:
            future.set_exception(self.error)
        else:
            future.set_result(cast("T", self.result))


@dataclass(slots=True)
class WriterStats:
    """Totals since the start."""

    commits: int = 0
    requests: int = 0
    seconds: float = 0.0


class Writer:
    """`begin` and `end` run inside each transaction, around its work; `on_commit` runs after it, on the same thread."""

    def __init__(
        self,
        connection: apsw.Connection,
        path: Path,
        *,
        begin: Callable[[], None],
        end: Callable[[], None],
        on_commit: Callable[[], None],
        on_rollback: Callable[[], None],
        state_token: Callable[[], object] = lambda: None,
        check_file: Callable[[], None] = lambda: None,
    ) -> None:
        """`check_file` raises if the database file is no longer the one that was opened; called before each commit,
        and after one that failed.

        `state_token` must differ after a request that changed in-memory state; compared when a request fails.
        """
        self._state_token = state_token
        self._check_file = check_file
        self._connection = connection
        self._path = path
        self._begin = begin
        self._end = end
        self._on_commit = on_commit
        self._on_rollback = on_rollback
        self._queue: deque[WriteRequest[Any]] = deque()
        self._queued = threading.Condition(threading.Lock())
        self._commit_lock = threading.Lock()
        self._average_s = 0.0
        self._small_requests: dict[asyncio.AbstractEventLoop, list[WriteRequest[Any]]] = {}
        self._closed = False
        self.stats = WriterStats()
        self._thread = threading.Thread(target=self._run_thread, name="coterie-writer", daemon=True)
        self._thread.start()

    def run(self, work: Work[T], *, small: bool = False) -> asyncio.Future[T]:
        """Run `work` in a transaction; the future resolves after the commit. `small`: it writes a few rows at most."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        request = WriteRequest(work, future, loop)
        if not small or self._average_s > _MAX_LOOP_BLOCK_S:
            self._enqueue(request)
        elif (requests := self._small_requests.get(loop)) is not None:
            requests.append(request)
        else:
            # Further small requests of this iteration of the loop share the commit.
            self._small_requests[loop] = [request]
            loop.call_soon(self._commit_in_loop, loop)
        return future

    async def run_outside_transaction(self, work: Work[T]) -> T:
        """Run a function on the writer's connection that cannot be part of a transaction."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._enqueue(WriteRequest(work, future, loop, outside_transaction=True))
        return await future

    def run_later(self, work: Work[object]) -> None:
        """Queue a function that needs the writer's connection but no transaction. Its result is dropped."""
        with suppress(StorageError):  # it is closed
            self._enqueue(WriteRequest(work, Future(), None, outside_transaction=True))

    def run_blocking(self, work: Work[T]) -> T:
        """Run `work` in a transaction and block until it is durable, for callers without an event loop."""
        future: Future[T] = Future()
        request = WriteRequest(work, future, None)
        if not self._try_commit([request]):  # else the thread does it
            self._enqueue(request)
        return future.result()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def close(self) -> None:
        """Finish the queued requests, then stop."""
        with self._queued:
            while self._small_requests:
                self._queue.extend(self._small_requests.popitem()[1])
            self._closed = True
            self._queued.notify()
        self._thread.join()
        with self._commit_lock:  # an event loop may still be committing
            return

    def _enqueue(self, *requests: WriteRequest[Any]) -> None:
        with self._queued:
            if self._closed:
                raise _closed_error()
            self._queue.extend(requests)
            self._queued.notify()

    def _run_thread(self) -> None:
        while True:
            with self._queued:
                while not self._queue:
                    if self._closed:
                        return
                    self._queued.wait()
            with self._commit_lock:
                batch = [self._queue.popleft() for _ in range(min(len(self._queue), _MAX_BATCH))]
                self._commit(batch, _deliver_threadsafe)

    def _commit_in_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Commit the small requests of a loop on its thread if the writer is idle; else queue them."""
        batch = self._small_requests.pop(loop, [])
        if len(batch) <= _MAX_IN_LOOP and self._try_commit(batch):
            return
        try:
            self._enqueue(*batch)
        except StorageError as error:
            for request in batch:
                request.error = error
                request.deliver()

    def _try_commit(self, batch: Sequence[WriteRequest[Any]]) -> bool:
        """Commit on the calling thread; False if the writer is busy."""
        if not self._commit_lock.acquire(blocking=False):
            return False
        try:
            if self._queue or self._closed:
                return False
            self._commit(batch, _deliver_all)
            return True
        finally:
            self._commit_lock.release()

    def _commit(
        self, batch: Sequence[WriteRequest[Any]], deliver: Callable[[Sequence[WriteRequest[Any]]], None]
    ) -> None:
        if any(request.outside_transaction for request in batch):
            for request in batch:
                self._run_alone(request) if request.outside_transaction else self._commit([request], deliver)
            return
        started = time.perf_counter()
        try:
            self._transact(batch)
        except BaseException as error:
            if len(batch) == 1:
                batch[0].error = self._explain(error)
                deliver(batch)
            else:
                for request in batch:
                    self._commit([request], deliver)
            return
        seconds = time.perf_counter() - started
        self._average_s += (seconds - self._average_s) / 8
        self.stats.commits += 1
        self.stats.requests += len(batch)
        self.stats.seconds += seconds
        try:
            self._on_commit()
        except Exception:
            # The commit stands; subscribers that missed the message read the log.
            _log.exception("publishing a commit failed")
        deliver(batch)

    def _run_alone(self, request: WriteRequest[Any]) -> None:
        try:
            request.result = request.work()
        except BaseException as error:
            request.error = self._translate(error)
        _deliver_threadsafe([request])

    def _transact(self, batch: Sequence[WriteRequest[Any]]) -> None:
        execute = self._connection.execute
        try:
            execute("BEGIN IMMEDIATE")
            self._begin()
            for request in batch:
                self._perform(request)
            self._end()
            self._check_file()
            execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                execute("ROLLBACK")
            self._on_rollback()
            raise

    def _perform(self, request: WriteRequest[Any]) -> None:
        before = self._connection.total_changes(), self._state_token()
        try:
            request.result = request.work()
        except CoterieError as error:
            if (self._connection.total_changes(), self._state_token()) != before:
                raise
            request.error = error  # it failed before it wrote anything, so the batch can go on

    def _explain(self, error: BaseException) -> BaseException:
        if isinstance(error, apsw.Error):
            try:
                self._check_file()
            except StorageError as lost:
                return lost
        return self._translate(error)

    def _translate(self, error: BaseException) -> BaseException:
        return storage_error(error, self._path) if isinstance(error, apsw.Error) else error


def _closed_error() -> StorageError:
    return StorageError("The store is closed.", "Open it again; nothing was changed.")


def _deliver_threadsafe(batch: Sequence[WriteRequest[Any]]) -> None:
    """Deliver results on the callers' threads, with a single wake-up per event loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[WriteRequest[Any]]] = {}
    for request in batch:
        if request.loop is None:
            request.deliver()
        else:
            by_loop.setdefault(request.loop, []).append(request)
    for loop, requests in by_loop.items():
        try:
            loop.call_soon_threadsafe(_deliver_all, requests)
        except RuntimeError:
            continue  # the loop has closed: its callers are gone, but the events are stored


def _deliver_all(requests: Sequence[WriteRequest[Any]]) -> None:
    for request in requests:
        request.deliver()
