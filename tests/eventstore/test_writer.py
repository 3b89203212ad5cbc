"""Which thread commits: the calling event loop while commits are fast, else the writer's thread (ADR 0010)."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import apsw
import pytest

from coterie.base.errors import StorageError
from coterie.eventstore.sqlite import writer as writer_module
from coterie.eventstore.sqlite.writer import Writer

WRITER_THREAD = "coterie-writer"


def do_nothing() -> None:
    pass


class NoteTable:
    """A table of what was written, with the order and the thread."""

    def __init__(self, path: Path) -> None:
        self.connection = apsw.Connection(str(path))
        self.connection.execute("CREATE TABLE note(number INTEGER PRIMARY KEY, text TEXT, thread TEXT)")
        self.writer = Writer(
            self.connection, path, begin=do_nothing, end=do_nothing, on_commit=do_nothing, on_rollback=do_nothing
        )

    def note(self, text: str) -> Callable[[], str]:
        def work() -> str:
            thread = threading.current_thread().name
            self.connection.execute("INSERT INTO note(text, thread) VALUES (?, ?)", (text, thread))
            return thread

        return work

    def texts(self) -> list[str]:
        return [row[0] for row in self.connection.execute("SELECT text FROM note ORDER BY number")]


@pytest.fixture
def notes(tmp_path: Path) -> Iterator[NoteTable]:
    notes = NoteTable(tmp_path / "notes.db")
    yield notes
    notes.writer.close()
    notes.connection.close()


async def test_a_small_request_is_committed_on_the_calling_loop(notes: NoteTable) -> None:
    caller = threading.current_thread().name
    assert await notes.writer.run(notes.note("brief"), small=True) == caller
    assert await notes.writer.run(notes.note("long")) == WRITER_THREAD


async def test_requests_of_one_loop_iteration_share_a_commit(notes: NoteTable) -> None:
    answers = [notes.writer.run(notes.note(str(n)), small=True) for n in range(16)]
    await asyncio.gather(*answers)
    assert notes.writer.stats.commits == 1
    assert notes.texts() == [str(n) for n in range(16)]


async def test_slow_commits_move_to_the_thread_until_they_are_fast_again(
    notes: NoteTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    took = 0.05
    seconds = itertools.count()
    monkeypatch.setattr(writer_module, "time", SimpleNamespace(perf_counter=lambda: next(seconds) * took))
    caller = threading.current_thread().name
    assert await notes.writer.run(notes.note("first"), small=True) == caller
    assert await notes.writer.run(notes.note("second"), small=True) == WRITER_THREAD
    took = 0.0001
    threads = [await notes.writer.run(notes.note(str(n)), small=True) for n in range(100)]
    assert threads[0] == WRITER_THREAD
    assert threads[-1] == caller


async def test_a_loop_never_overtakes_the_queue(notes: NoteTable) -> None:
    at_work, go_on = threading.Event(), threading.Event()

    def long_work() -> None:
        at_work.set()
        go_on.wait()
        notes.note("first")()

    first = notes.writer.run(long_work)
    await asyncio.to_thread(at_work.wait)
    second = notes.writer.run(notes.note("second"), small=True)
    await asyncio.sleep(0)
    third = notes.writer.run(notes.note("third"), small=True)
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.gather(first, second, third)
    assert notes.texts() == ["first", "second", "third"]
    assert await second == WRITER_THREAD


async def test_a_failure_on_the_loop_does_not_affect_other_requests(notes: NoteTable) -> None:
    def fail() -> None:
        notes.note("half")()
        raise ValueError("on purpose")

    good, bad, also = (notes.writer.run(work, small=True) for work in (notes.note("a"), fail, notes.note("b")))
    results = await asyncio.gather(good, bad, also, return_exceptions=True)
    assert isinstance(results[1], ValueError)
    assert notes.texts() == ["a", "b"]


async def test_collected_requests_are_written_on_close(notes: NoteTable) -> None:
    answer = notes.writer.run(notes.note("last"), small=True)
    notes.writer.close()
    assert await answer == WRITER_THREAD
    assert notes.texts() == ["last"]
    with pytest.raises(StorageError):
        await notes.writer.run(notes.note("too late"), small=True)


async def test_a_request_of_a_closed_loop_is_still_written(notes: NoteTable) -> None:
    answer = notes.writer.run(notes.note("kept"), small=True)
    answer.cancel()
    await notes.writer.run(notes.note("after"), small=True)
    assert notes.texts() == ["kept", "after"]


def test_a_blocking_caller_commits_itself_if_the_queue_is_empty(notes: NoteTable) -> None:
    assert notes.writer.run_blocking(notes.note("mine")) == threading.current_thread().name
    go_on = threading.Event()
    at_work = threading.Event()

    def long_work() -> None:
        at_work.set()
        go_on.wait()
        notes.note("first")()

    first = threading.Thread(target=notes.writer.run_blocking, args=(long_work,))
    first.start()
    at_work.wait()
    second = threading.Thread(target=notes.writer.run_blocking, args=(notes.note("second"),))
    second.start()
    go_on.set()
    first.join()
    second.join()
    assert notes.texts() == ["mine", "first", "second"]
