"""Worker processes for large untrusted input: limits that end the work, and no process left behind."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coterie.base import offload
from coterie.base.errors import ConfigError, TooMuchWork, WorkersBusy
from coterie.base.offload import IN_PROCESS_BYTES, WorkerPool, run_limited

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="looks at processes with POSIX signals")


def _add(one: int, other: int) -> int:
    return one + other


def _pid() -> int:
    return os.getpid()


def _never_end() -> None:
    while True:
        pass


def _end_process() -> None:
    os._exit(3)


def _use_memory(size: int) -> int:
    return len(bytearray(size))


def _fail(error: Exception) -> None:
    raise error


class _Unreadable(Exception):
    def __init__(self, one: str, other: str) -> None:
        super().__init__(f"{one} {other}")


def _fail_unreadable() -> None:
    raise _Unreadable("neither", "nor")


def _print_and_return() -> str:
    print("to the standard output")
    os.write(1, b"to the file descriptor")
    return "result"


def _environment() -> dict[str, str]:
    return dict(os.environ)


def _wait_for(file: str) -> int:
    while not Path(file).exists():
        time.sleep(0.01)
    return os.getpid()


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def _eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.02)


@pytest.fixture
def pool() -> Iterator[WorkerPool]:
    opened = WorkerPool(max_memory_bytes=1_000_000_000)
    yield opened
    opened.close()


async def test_a_function_runs_in_another_process_which_is_used_again(pool: WorkerPool) -> None:
    assert await pool.run("Adding", 60, _add, 2, 3) == 5
    first, second = await pool.run("Asking", 60, _pid), await pool.run("Asking", 60, _pid)
    assert first == second != os.getpid()


async def test_work_that_takes_too_long_is_stopped_and_the_next_one_runs(pool: WorkerPool) -> None:
    before = await pool.run("Asking", 60, _pid)
    with pytest.raises(TooMuchWork, match=r"Looping took longer than 0\.2 seconds") as refused:
        await pool.run("Looping", 0.2, _never_end)
    assert "smaller" in refused.value.fix
    assert not _exists(before)
    assert await pool.run("Adding", 60, _add, 2, 3) == 5


async def test_the_event_loop_runs_while_a_worker_computes(pool: WorkerPool) -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(count())
    with pytest.raises(TooMuchWork):
        await pool.run("Looping", 0.5, _never_end)
    counting.cancel()
    assert turns > 100


@pytest.mark.skipif(sys.platform != "linux", reason="the system does not limit memory")
async def test_work_that_needs_too_much_memory_is_stopped(pool: WorkerPool) -> None:
    with pytest.raises(TooMuchWork, match="more than 1 GB of memory"):
        await pool.run("Unpacking", 60, _use_memory, 3_000_000_000)
    assert await pool.run("Adding", 60, _add, 2, 3) == 5


async def test_a_worker_that_crashes_is_an_error_and_is_replaced(pool: WorkerPool) -> None:
    with pytest.raises(TooMuchWork, match="crashed"):
        await pool.run("Reading", 60, _end_process)
    assert await pool.run("Adding", 60, _add, 2, 3) == 5


async def test_exceptions_keep_their_type_and_say_where_they_were_raised(pool: WorkerPool) -> None:
    with pytest.raises(ConfigError) as known:
        await pool.run("Reading", 60, _fail, ConfigError("It is wrong.", "Correct it."))
    assert (known.value.what, known.value.fix) == ("It is wrong.", "Correct it.")
    with pytest.raises(KeyError) as unknown:
        await pool.run("Reading", 60, _fail, KeyError("x"))
    assert "in _fail" in unknown.value.__notes__[0]
    with pytest.raises(RuntimeError, match="_Unreadable: neither nor"):
        await pool.run("Reading", 60, _fail_unreadable)


async def test_what_a_function_prints_is_not_mistaken_for_its_result(pool: WorkerPool) -> None:
    assert await pool.run("Printing", 60, _print_and_return) == "result"


async def test_a_worker_does_not_get_the_environment(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COTERIE_SOME_KEY", "secret")
    assert "COTERIE_SOME_KEY" not in await pool.run("Asking", 60, _environment)


async def test_twenty_calls_share_two_processes_and_more_than_can_wait_are_refused(tmp_path: Path) -> None:
    pool = WorkerPool(max_workers=2, max_waiting=18)
    go = tmp_path / "go"
    calls = [asyncio.create_task(pool.run("Waiting", 120, _wait_for, str(go))) for _ in range(20)]
    try:
        await _eventually(lambda: len(pool.processes) == 2)
        with pytest.raises(WorkersBusy, match="too much is waiting"):
            await pool.run("Waiting", 60, _wait_for, str(go))
        go.touch()
        assert len(set(await asyncio.gather(*calls))) == 2
        assert await pool.run("Adding", 60, _add, 2, 3) == 5
    finally:
        go.touch()
        pool.close()


async def test_closing_ends_all_processes_also_busy_ones(tmp_path: Path) -> None:
    pool = WorkerPool()
    idle = await pool.run("Asking", 60, _pid)
    calls = [asyncio.create_task(pool.run("Waiting", 120, _wait_for, str(tmp_path / "never"))) for _ in range(2)]
    await _eventually(lambda: len(pool.processes) == 2)
    running = pool.processes
    await asyncio.to_thread(pool.close)
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(result, TooMuchWork) for result in results)
    assert not any(map(_exists, [idle, *running]))
    assert pool.processes == []
    assert await pool.run("Adding", 60, _add, 2, 3) == 5
    pool.close()


async def test_an_idle_worker_ends() -> None:
    pool = WorkerPool(idle_s=0.05)
    worker = await pool.run("Asking", 60, _pid)
    await _eventually(lambda: not pool.processes)
    assert not _exists(worker)
    pool.close()


async def test_small_input_is_processed_in_this_process() -> None:
    assert await run_limited("Asking", IN_PROCESS_BYTES, _pid) == os.getpid()
    assert await run_limited("Asking", IN_PROCESS_BYTES + 1, _pid) != os.getpid()
    offload.close_workers()


_PROGRAM = """
import asyncio, os, sys
{before}
from coterie.base.offload import WorkerPool
import tests.base.test_offload as functions
pool = WorkerPool()
print(asyncio.run(pool.run("Asking", 60, functions._pid)), flush=True)
{after}
"""


def _run(before: str, after: str) -> subprocess.Popen[str]:
    program = _PROGRAM.format(before=before, after=after)
    return subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)


async def test_it_works_without_a_standard_input() -> None:
    process = _run("os.close(0)", "pool.close()")
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    assert int(output) > 0


async def test_workers_end_when_their_parent_is_killed() -> None:
    process = _run("", "os.kill(os.getpid(), 9)")
    output, _ = process.communicate(timeout=120)
    await _eventually(lambda: not _exists(int(output)))


async def test_workers_end_when_their_parent_ends_without_closing_them() -> None:
    process = _run("import warnings; warnings.simplefilter('error')", "")
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    await _eventually(lambda: not _exists(int(output)))
