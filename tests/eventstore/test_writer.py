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


def nothing() -> None:
    pass


class Notebook:
    """A table of what was written, with the order and the thread."""

    def __init__(self, path: Path) -> None:
        self.connection = apsw.Connection(str(path))
        self.connection.execute("CREATE TABLE note(number INTEGER PRIMARY KEY, text TEXT, thread TEXT)")
        self.writer = Writer(self.connection, path, begin=nothing, end=nothing, on_commit=nothing, on_rollback=nothing)

    def note(self, text: str) -> Callable[[], str]:
        def work() -> str:
            thread = threading.current_thread().name
            self.connection.execute("INSERT INTO note(text, thread) VALUES (?, ?)", (text, thread))
            return thread

        return work

    def texts(self) -> list[str]:
        return [row[0] for row in self.connection.execute("SELECT text FROM note ORDER BY number")]


@pytest.fixture
def notebook(tmp_path: Path) -> Iterator[Notebook]:
    notebook = Notebook(tmp_path / "notes.db")
    yield notebook
    notebook.writer.close()
    notebook.connection.close()


async def test_a_small_request_is_committed_on_the_calling_loop(notebook: Notebook) -> None:
    here = threading.current_thread().name
    assert await notebook.writer.run(notebook.note("brief"), small=True) == here
    assert await notebook.writer.run(notebook.note("long")) == WRITER_THREAD


async def test_requests_of_one_loop_iteration_share_a_commit(notebook: Notebook) -> None:
    answers = [notebook.writer.run(notebook.note(str(n)), small=True) for n in range(16)]
    await asyncio.gather(*answers)
    assert notebook.writer.stats.commits == 1
    assert notebook.texts() == [str(n) for n in range(16)]


async def test_slow_commits_move_to_the_thread_until_they_are_fast_again(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    took = 0.05
    seconds = itertools.count()
    monkeypatch.setattr(writer_module, "time", SimpleNamespace(perf_counter=lambda: next(seconds) * took))
    here = threading.current_thread().name
    assert await notebook.writer.run(notebook.note("first"), small=True) == here
    assert await notebook.writer.run(notebook.note("second"), small=True) == WRITER_THREAD
    took = 0.0001
    threads = [await notebook.writer.run(notebook.note(str(n)), small=True) for n in range(100)]
    assert threads[0] == WRITER_THREAD
    assert threads[-1] == here


async def test_a_loop_never_overtakes_the_queue(notebook: Notebook) -> None:
    at_work, go_on = threading.Event(), threading.Event()

    def long_work() -> None:
        at_work.set()
        go_on.wait()
        notebook.note("first")()

    first = notebook.writer.run(long_work)
    await asyncio.to_thread(at_work.wait)
    second = notebook.writer.run(notebook.note("second"), small=True)
    await asyncio.sleep(0)
    third = notebook.writer.run(notebook.note("third"), small=True)
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.gather(first, second, third)
    assert notebook.texts() == ["first", "second", "third"]
    assert await second == WRITER_THREAD


async def test_a_failure_on_the_loop_does_not_affect_other_requests(notebook: Notebook) -> None:
    def fail() -> None:
        notebook.note("half")()
        raise ValueError("on purpose")

    good, bad, also = (notebook.writer.run(work, small=True) for work in (notebook.note("a"), fail, notebook.note("b")))
    results = await asyncio.gather(good, bad, also, return_exceptions=True)
    assert isinstance(results[1], ValueError)
    assert notebook.texts() == ["a", "b"]


async def test_collected_requests_are_written_on_close(notebook: Notebook) -> None:
    answer = notebook.writer.run(notebook.note("last"), small=True)
    notebook.writer.close()
    assert await answer == WRITER_THREAD
    assert notebook.texts() == ["last"]
    with pytest.raises(StorageError):
        await notebook.writer.run(notebook.note("too late"), small=True)


async def test_a_request_of_a_closed_loop_is_still_written(notebook: Notebook) -> None:
    answer = notebook.writer.run(notebook.note("kept"), small=True)
    answer.cancel()
    await notebook.writer.run(notebook.note("after"), small=True)
    assert notebook.texts() == ["kept", "after"]


def test_a_blocking_caller_commits_itself_if_the_queue_is_empty(notebook: Notebook) -> None:
    assert notebook.writer.run_blocking(notebook.note("mine")) == threading.current_thread().name
    go_on = threading.Event()
    at_work = threading.Event()

    def long_work() -> None:
        at_work.set()
        go_on.wait()
        notebook.note("first")()

    first = threading.Thread(target=notebook.writer.run_blocking, args=(long_work,))
    first.start()
    at_work.wait()
    second = threading.Thread(target=notebook.writer.run_blocking, args=(notebook.note("second"),))
    second.start()
    go_on.set()
    first.join()
    second.join()
    assert notebook.texts() == ["mine", "first", "second"]
