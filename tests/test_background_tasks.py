"""Background tasks are started through `coterie.base.supervisor`; other ways, and threads, are listed with a reason."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

STARTS = {
    *("create_task", "ensure_future", "run_coroutine_threadsafe"),
    *("start_soon", "create_task_group", "start_new_thread"),
}
STARTS_WHEN_CALLED = {"Task", "Thread", "Timer"}
"""Their names are also those of types."""
SOURCE = Path(__file__).resolve().parent.parent / "src" / "coterie"
ALLOWED = {
    "base/offload.py": (2, "timers that end a worker process, of which nothing depends on a second try"),
    "eventstore/sqlite/writer.py": (1, "the thread of the writer, which ends with the store; the status page shows it"),
    "llm/router.py": (1, "an import in advance, which logs its failures and is cancelled with the app"),
    "memory/index/vectors.py": (1, "embedding, whose failures are shown; a supervised task starts it again"),
    "surfaces/web/ops/pages.py": (1, "the page that is shown while a backup is restored, joined by its creator"),
    "base/supervisor.py": (4, "the supervisor itself"),
    "conversation/replies.py": (1, "awaited by its creator, behind a shield"),
    "messaging/streaming.py": (1, "awaited by its creator when the message is finished"),
    "modes/crowd/media.py": (1, "awaited by its creator, which reads the output of the same process"),
    "modes/crowd/generation.py": (1, "awaited by the thread that asks, which raises what went wrong"),
    "modes/desk/service.py": (2, "awaited by their creator, or cancelled, while it shows how a reply grows"),
    "modes/crowd/audio/transcriber.py": (1, "awaited by its creator, which raises what went wrong"),
    "modes/desk/sandbox/sandbox.py": (1, "awaited by its creator, which runs the command that it watches"),
    "modes/desk/agents/processes.py": (1, "awaited by its creator, which can cancel it"),
}


def test_background_tasks_are_started_by_the_supervisor() -> None:
    found: Counter[str] = Counter()
    lines: list[str] = []
    for file in SOURCE.rglob("*.py"):
        for node in bare_task_starts(file.read_text(encoding="utf-8")):
            name = file.relative_to(SOURCE).as_posix()
            found[name] += 1
            lines.append(f"{name}:{node.lineno}")
    expected = {name: count for name, (count, _) in ALLOWED.items()}
    assert dict(found) == expected, "\n".join(
        [
            "Start what lives long with Supervisor.start and what nobody awaits with run_once, both of"
            " coterie.base.supervisor, or list the file here with its reason:",
            *lines,
        ]
    )


def bare_task_starts(source: str) -> list[ast.expr]:
    """What starts a task or a thread whose failure nobody would see. The tasks of a group fail with their parent."""
    tree = ast.parse(source)
    groups = {
        item.optional_vars.id
        for node in ast.walk(tree)
        if isinstance(node, ast.AsyncWith)
        for item in node.items
        if "TaskGroup" in ast.dump(item.context_expr) and isinstance(item.optional_vars, ast.Name)
    }
    imported = {
        name.asname or name.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in ("asyncio", "threading")
        for name in node.names
        if name.name in STARTS | STARTS_WHEN_CALLED
    }
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute | ast.Name) and starts_a_task(node, groups, imported, id(node) in called)
    ]


def starts_a_task(node: ast.Attribute | ast.Name, groups: set[str], imported: set[str], called: bool) -> bool:
    """Also without a call: a function can be handed to something that calls it, such as `call_soon`."""
    if isinstance(node, ast.Name):
        return node.id in STARTS or (called and node.id in imported)
    if isinstance(node.value, ast.Name) and node.value.id in groups:
        return False
    return node.attr in STARTS or (called and node.attr in STARTS_WHEN_CALLED)


@pytest.mark.parametrize(
    "source",
    [
        "asyncio.create_task(f())",
        "loop.create_task(f())",
        "create_task(f())",
        "asyncio.ensure_future(f())",
        "asyncio.run_coroutine_threadsafe(f(), loop)",
        "asyncio.Task(f())",
        "loop.call_soon_threadsafe(asyncio.ensure_future, f())",
        "from asyncio import create_task as spawn\nspawn(f())",
        "async with anyio.create_task_group() as tasks:\n    tasks.start_soon(f)",
        "self._group.create_task(f())",
        "threading.Thread(target=f).start()",
        "threading.Timer(1, f).start()",
        "from threading import Thread\nThread(target=f).start()",
        "_thread.start_new_thread(f, ())",
    ],
)
def test_the_check_finds_bare_tasks(source: str) -> None:
    assert bare_task_starts(source)


def test_the_check_accepts_groups_and_names_of_types() -> None:
    assert not bare_task_starts("Thread(room, seq)")
    assert not bare_task_starts(
        "async def f():\n    async with asyncio.TaskGroup() as tasks:\n        tasks.create_task(g())"
    )
    assert not bare_task_starts("def f(task: asyncio.Task[None], thread: threading.Thread | None): ...")
