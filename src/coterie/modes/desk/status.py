"""The status block: what the character has going on, in every prompt of its conversation. D4"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from coterie.modes.desk.marking import mark_untrusted
from coterie.modes.desk.officebook import COMPLETIONS, Process

_YOUNG = timedelta(seconds=3)
_LONGEST = 500


def status_block(processes: Sequence[Process], now: datetime) -> str:
    """Empty where nothing is going on and nothing was finished."""
    working = [_working(process) for process in processes if process.kind == "worker" and process.active]
    thinking = [
        f"[{process.id}] thinking about: {process.task}"
        for process in processes
        if process.kind == "branch" and process.active and now - process.started > _YOUNG
    ]
    done = [(process.ended, process.id, process) for process in processes if process.ended is not None]
    newest = sorted(done, reverse=True, key=lambda each: each[:2])[:COMPLETIONS]
    finished = [f"[{each.id}] {each.state}: {each.task} → {_cut(each.result)}" for _, _, each in newest]
    lines = [*working, *thinking, *finished]
    return mark_untrusted("\n".join(lines), "your desk") if lines else ""


def _working(worker: Process) -> str:
    told = f"waiting: {_cut(worker.result)}" if worker.state == "waiting" else worker.status or worker.state
    calls = "1 tool call" if worker.calls == 1 else f"{worker.calls} tool calls"
    return f"[{worker.id}] {worker.task} ({worker.started:%H:%M}, {calls}): {told}"


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
