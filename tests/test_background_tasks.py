"""Background tasks are started through `coterie.base.supervisor`; other ways are listed here with their reason."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src" / "coterie"
ALLOWED = {
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
        for call in bare_task_starts(file.read_text(encoding="utf-8")):
            name = file.relative_to(SOURCE).as_posix()
            found[name] += 1
            lines.append(f"{name}:{call.lineno}")
    expected = {name: count for name, (count, _) in ALLOWED.items()}
    assert dict(found) == expected, "\n".join(
        [
            "Start what lives long with Supervisor.start and what nobody awaits with run_once, both of"
            " coterie.base.supervisor, or list the file here with its reason:",
            *lines,
        ]
    )


def bare_task_starts(source: str) -> list[ast.Call]:
    """The calls that start a task whose failure nobody would see. The tasks of a group fail with their parent."""
    tree = ast.parse(source)
    groups = {
        item.optional_vars.id
        for node in ast.walk(tree)
        if isinstance(node, ast.AsyncWith)
        for item in node.items
        if "TaskGroup" in ast.dump(item.context_expr) and isinstance(item.optional_vars, ast.Name)
    }
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    return [call for call in calls if starts_a_task(call.func, groups)]


def starts_a_task(function: ast.expr, groups: set[str]) -> bool:
    if isinstance(function, ast.Attribute):
        in_group = isinstance(function.value, ast.Name) and function.value.id in groups
        return function.attr in ("create_task", "ensure_future", "run_coroutine_threadsafe") and not in_group
    return isinstance(function, ast.Name) and function.id in ("create_task", "ensure_future")


def test_the_check_finds_bare_tasks_and_accepts_groups() -> None:
    assert bare_task_starts("asyncio.create_task(f())") and bare_task_starts("loop.create_task(f())")
    assert bare_task_starts("asyncio.ensure_future(f())") and bare_task_starts("create_task(f())")
    assert not bare_task_starts(
        "async def f():\n    async with asyncio.TaskGroup() as tasks:\n        tasks.create_task(g())"
    )
