"""Runs functions on large untrusted input in worker processes, with limits on time and memory that end the work.

A thread cannot be stopped, and the event loop stands still while a parser runs on it. A worker is an ordinary child
process: it is started when it is first needed, used again, killed when it exceeds its limits, and ended when it is idle
or when its parent ends. It gets neither the environment nor the open files of the server.

Only pure functions can run here: a worker has no store, no configuration and no registered secrets. Arguments and
results are pickled, so the function must be defined at the top of a module.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import pickle
import struct
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import BinaryIO, ParamSpec, TypeVar, cast

from coterie.base.errors import CoterieError, TooMuchWork, WorkersBusy

P = ParamSpec("P")
R = TypeVar("R")

IN_PROCESS_BYTES = 64_000
"""Smaller input is processed on the spot: it takes a few milliseconds, and starting a worker takes about 300."""
DEFAULT_SECONDS = 20.0
MAX_MEMORY_BYTES = 2_000_000_000
"""The address space of a worker. The largest allowed input of 100 MB is unpacked, decoded and pickled in it."""
MAX_WORKERS = 2
MAX_WAITING = 16
"""Calls that wait for a worker. Each holds its input in memory, so more are refused."""
IDLE_S = 30.0
_LARGE_BYTES = 8_000_000
"""A worker is not used again after a result or input of this size, since its memory would not be returned."""
_LENGTH = struct.Struct(">Q")
_KEPT_VARIABLES = ("LANG", "LC_ALL", "LC_CTYPE", "PATH", "SYSTEMROOT", "TEMP", "TMP", "TMPDIR", "TZ")
_THREADS = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""Every thread reserves address space."""


class WorkerPool:
    """A few worker processes. Its methods can be called from any thread and any event loop."""

    def __init__(
        self,
        *,
        max_workers: int = MAX_WORKERS,
        max_waiting: int = MAX_WAITING,
        max_memory_bytes: int = MAX_MEMORY_BYTES,
        idle_s: float = IDLE_S,
    ) -> None:
        self._max_workers = max_workers
        self._max_waiting = max_waiting
        self._max_memory_bytes = max_memory_bytes
        self._idle_s = idle_s
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []
        self._busy: set[_Worker] = set()
        self._calls = 0
        self._threads: ThreadPoolExecutor | None = None
        self._idle_timer: threading.Timer | None = None

    async def run(self, what: str, seconds: float, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """The function's result, or its exception. `what` names the work in errors, such as "Reading the card".

        Raises `TooMuchWork` if it exceeds its limits, and `WorkersBusy` if too many calls wait. Waiting for a worker
        does not count as time of the work.
        """
        threads = self._begin(what)
        try:
            future = threads.submit(self._run, what, seconds, function, args, kwargs)
        except RuntimeError:
            self._end()
            raise _stopping_error(what) from None
        future.add_done_callback(lambda _: self._end())
        return await asyncio.wrap_future(future)

    def run_blocking(
        self, what: str, seconds: float, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """As `run`, for a thread without an event loop."""
        threads = self._begin(what)
        try:
            future = threads.submit(self._run, what, seconds, function, args, kwargs)
        except RuntimeError:
            self._end()
            raise _stopping_error(what) from None
        future.add_done_callback(lambda _: self._end())
        return future.result()

    @property
    def processes(self) -> list[int]:
        """The ids of the running worker processes."""
        with self._lock:
            return [worker.pid for worker in (*self._idle, *self._busy)]

    def close(self) -> None:
        """End all workers. Work in progress fails; the next call starts new workers."""
        with self._lock:
            threads, self._threads = self._threads, None
            timer, self._idle_timer = self._idle_timer, None
            idle, self._idle = self._idle, []
            for worker in self._busy:
                worker.kill()
        if timer is not None:
            timer.cancel()
        for worker in idle:
            worker.close()
        if threads is not None:
            threads.shutdown(wait=True, cancel_futures=True)

    def _begin(self, what: str) -> ThreadPoolExecutor:
        with self._lock:
            if self._calls >= self._max_workers + self._max_waiting:
                raise WorkersBusy(f"{what} has to wait, and too much is waiting already.", "Try again in a minute.")
            self._calls += 1
            if self._threads is None:
                # As many threads as workers: calls wait in the queue of the executor.
                self._threads = ThreadPoolExecutor(self._max_workers, "offload")
            return self._threads

    def _end(self) -> None:
        with self._lock:
            self._calls -= 1

    def _run(
        self,
        what: str,
        seconds: float,
        function: Callable[..., R],
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> R:
        request = pickle.dumps((function, args, kwargs, seconds), protocol=5)
        worker = self._take_worker(what)
        try:
            answer = worker.call(request, seconds)
        finally:
            self._return_worker(worker, len(request))
        if answer is None:
            raise self._failure(what, seconds, worker)
        kind, value = pickle.loads(answer)  # noqa: S301 - from our own process
        if kind == "result":
            if len(answer) > _LARGE_BYTES:
                self._drop_idle(worker)
            return value  # type: ignore[no-any-return]
        if kind == "memory":
            raise self._too_much_memory(what)
        error, trace = value
        if not isinstance(error, CoterieError):
            error.add_note(f"In a worker process:\n{trace}")
        raise error

    def _failure(self, what: str, seconds: float, worker: _Worker) -> TooMuchWork:
        if worker.timed_out:
            return TooMuchWork(
                f"{what} took longer than {seconds:g} seconds and was stopped.",
                "Make the input smaller or simpler, or split it.",
            )
        return self._too_much_memory(what)

    def _too_much_memory(self, what: str) -> TooMuchWork:
        return TooMuchWork(
            f"{what} needed more than {self._max_memory_bytes / 1e9:g} GB of memory, or crashed, and was stopped.",
            "Make the input smaller or simpler, or split it.",
        )

    def _take_worker(self, what: str) -> _Worker:
        with self._lock:
            while self._idle:
                worker = self._idle.pop()
                if worker.alive:
                    self._busy.add(worker)
                    return worker
                worker.close()
            try:
                worker = _Worker(self._max_memory_bytes)
            except OSError as error:
                raise WorkersBusy(
                    f"{what} needs another process, and the system refuses one ({error.strerror}).",
                    "Try again later; if it stays so, raise the limit of processes.",
                ) from None
            self._busy.add(worker)
            return worker

    def _return_worker(self, worker: _Worker, size: int) -> None:
        with self._lock:
            self._busy.discard(worker)
            keep = worker.usable and size <= _LARGE_BYTES and self._threads is not None
            if keep:
                worker.idle_since = time.monotonic()
                self._idle.append(worker)
                self._schedule_idle_check()
        if not keep:
            worker.close()

    def _drop_idle(self, worker: _Worker) -> None:
        with self._lock:
            if worker not in self._idle:
                return
            self._idle.remove(worker)
        worker.close()

    def _schedule_idle_check(self) -> None:
        """Called with the lock held."""
        if self._idle_timer is None:
            self._idle_timer = threading.Timer(self._idle_s, self._end_idle)
            self._idle_timer.daemon = True
            self._idle_timer.start()

    def _end_idle(self) -> None:
        with self._lock:
            self._idle_timer = None
            limit = time.monotonic() - self._idle_s
            ended = [worker for worker in self._idle if worker.idle_since <= limit]
            self._idle = [worker for worker in self._idle if worker.idle_since > limit]
            if self._idle:
                self._schedule_idle_check()
        for worker in ended:
            worker.close()


def _stopping_error(what: str) -> WorkersBusy:
    return WorkersBusy(f"{what} was not begun, because the server is stopping.", "Try again after its start.")


class _Worker:
    """A child process that runs one call after the other."""

    def __init__(self, max_memory_bytes: int) -> None:
        # Isolated (-I): no modules from the current folder or the environment, but the same search path as ours.
        program = f"import sys; sys.path[:] = {sys.path!r}; from coterie.base import offload; offload.serve()"
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and program
            [sys.executable, "-I", "-c", program, str(max_memory_bytes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ} | _THREADS,
            start_new_session=True,  # an interrupt on the terminal is for the server, which then ends its workers
        )
        self._requests = cast(BinaryIO, self._process.stdin)
        self._answers = cast(BinaryIO, self._process.stdout)
        self.idle_since = 0.0
        self.timed_out = False
        self.usable = True

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def call(self, request: bytes, seconds: float) -> bytes | None:
        """The answer; None if the process ended or was killed."""
        timer = threading.Timer(seconds, self._time_out)
        timer.daemon = True
        timer.start()
        try:
            _send(self._requests, request)
            answer = _receive(self._answers)
        except OSError:
            answer = None
        finally:
            timer.cancel()
        self.usable = answer is not None and not self.timed_out
        return answer

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        """End the process and wait for its end."""
        self._process.kill()
        for pipe in (self._requests, self._answers):
            with contextlib.suppress(OSError):
                pipe.close()
        self._process.wait()

    def _time_out(self) -> None:
        self.timed_out = True
        self._process.kill()


def _send(pipe: BinaryIO, data: bytes) -> None:
    pipe.write(_LENGTH.pack(len(data)))
    pipe.write(data)
    pipe.flush()


def _receive(pipe: BinaryIO) -> bytes | None:
    """The next message; None at the end of the stream."""
    header = pipe.read(_LENGTH.size)
    if len(header) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(header)
    data = pipe.read(length)
    return data if len(data) == length else None


_in_worker = False


def serve() -> None:
    """The main function of a worker: answer requests until the parent closes the pipe."""
    global _in_worker
    _in_worker = True
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    # What a function prints must not end up among the answers.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    _limit_memory(int(sys.argv[1]))
    while (request := _receive(requests)) is not None:
        _send(answers, _answer(request))


def _answer(request: bytes) -> bytes:
    try:
        function, args, kwargs, seconds = pickle.loads(request)  # noqa: S301 - from our own process
        del request
        _limit_cpu(seconds)
        return pickle.dumps(("result", function(*args, **kwargs)), protocol=5)
    except MemoryError:
        return pickle.dumps(("memory", None))
    except Exception as error:
        trace = traceback.format_exc(limit=-20)
        try:
            answer = pickle.dumps(("error", (error, trace)))
            pickle.loads(answer)  # noqa: S301 - some exceptions can be pickled, but not read again
        except Exception:
            return pickle.dumps(("error", (RuntimeError(f"{type(error).__name__}: {error}"), trace)))
        return answer


def _limit_memory(max_bytes: int) -> None:
    if sys.platform == "win32":
        return
    import resource

    with contextlib.suppress(OSError, ValueError):  # macOS does not support it
        resource.setrlimit(resource.RLIMIT_AS, (max_bytes, max_bytes))
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _limit_cpu(seconds: float) -> None:
    """End the process by itself if the parent, which would kill it, is gone."""
    if sys.platform == "win32":
        return
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF)
    soft = int(used.ru_utime + used.ru_stime + seconds) + 5
    with contextlib.suppress(OSError, ValueError):
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))


_pool = WorkerPool()
atexit.register(_pool.close)


async def run_limited(what: str, size: int, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """The result of a pure function on untrusted input of `size` bytes: in a worker process if it is large.

    `what` names the work in errors, such as "Reading the card". Raises `TooMuchWork` or `WorkersBusy`, as
    `WorkerPool.run` does.
    """
    if size <= IN_PROCESS_BYTES:
        return function(*args, **kwargs)
    return await _pool.run(what, DEFAULT_SECONDS, function, *args, **kwargs)


def run_limited_blocking(
    what: str, seconds: float, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
) -> R:
    """The result of a pure function on large untrusted input, in a worker process, for a thread without an event loop.

    For functions in C that keep the interpreter's lock, and with it the event loop, for as long as they run.
    """
    if _in_worker:
        return function(*args, **kwargs)
    return _pool.run_blocking(what, seconds, function, *args, **kwargs)


def close_workers() -> None:
    """End the worker processes of this process, at its shutdown."""
    _pool.close()
