"""Reading what is going on at a desk."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

from pydantic import TypeAdapter

from coterie.base.clock import from_micros, to_micros
from coterie.eventstore import Event, Projection, Rows, Store, on
from coterie.llm.messages import PromptMessage
from coterie.modes.desk.errors import NoSuchProcess
from coterie.modes.desk.events import ScheduleRan, ScheduleRemoved, ScheduleSet, ScheduleSwitched, ScheduleTime

COMPLETIONS = 5
"""How many of those that ended are of note."""

_messages = TypeAdapter(tuple[PromptMessage, ...])


@dataclass(frozen=True)
class DeskChat:
    room: str
    character: str
    person: str
    title: str
    wakes: int
    """How often it looked up by itself since somebody last spoke."""


@dataclass(frozen=True)
class HistoryEntry:
    seq: int
    role: str
    """`user`, `assistant`, or `result`."""
    speaker: str
    text: str


@dataclass(frozen=True)
class Process:
    room: str
    id: str
    kind: str
    """`branch` or `worker`."""
    task: str
    state: str
    status: str
    interactive: bool
    at_seq: int | None
    started: datetime
    last_activity: datetime
    ended: datetime | None
    steps: int
    calls: int
    result: str
    unread: bool
    """Its result has not become part of the conversation yet."""
    pending_message: PromptMessage | None
    allowed: bool | None

    @property
    def active(self) -> bool:
        return self.state in ("running", "waiting")

    @property
    def needs_confirmation(self) -> bool:
        """It waits for a person's yes or no, and no follow-up will do."""
        return self.state == "waiting" and self.pending_message is not None and bool(self.pending_message.calls)


@dataclass(frozen=True)
class WorkerStep:
    """One thing a worker said, was told, or did, for people to read."""

    role: str
    """`said`, `told` or `did`."""
    text: str
    tool: str = ""
    arguments: str = ""


_PROCESS = (
    "room, id, kind, task, state, status, interactive, at_seq, started, heard, ended, steps, calls, result, fresh,"
    " held, allowed"
)


class DeskQueries:
    def __init__(self, store: Store) -> None:
        self._store = store

    def chat(self, room: str) -> DeskChat:
        rows = self._store.query("SELECT room, character, person, title, wakes FROM desk_chat WHERE room = ?", (room,))
        if not rows:
            raise NoSuchProcess("There is no such conversation at the desk.", "List them, and choose one.")
        return DeskChat(*rows[0])

    def is_desk(self, room: str) -> bool:
        return bool(self._store.query("SELECT 1 FROM desk_chat WHERE room = ?", (room,)))

    def chats(self) -> list[DeskChat]:
        rows = self._store.query("SELECT room, character, person, title, wakes FROM desk_chat ORDER BY at DESC")
        return [DeskChat(*row) for row in rows]

    def history(self, room: str, upto: int | None = None) -> list[HistoryEntry]:
        """What is told word by word, oldest first."""
        rows = self._store.query(
            "SELECT seq, role, speaker, text FROM desk_history"
            " WHERE room = ?1 AND told_by IS NULL AND seq <= coalesce(?2, 1 << 62) ORDER BY seq",
            (room, upto),
        )
        return [HistoryEntry(*row) for row in rows]

    def newest_message(self, room: str) -> str | None:
        """The turn in which somebody last spoke."""
        rows = self._store.query(
            "SELECT turn FROM desk_history WHERE room = ? AND role = 'user' ORDER BY seq DESC LIMIT 1", (room,)
        )
        return rows[0][0] if rows else None

    def archive(self, room: str) -> list[HistoryEntry]:
        """Everything that was ever said, summarised or not."""
        rows = self._store.query(
            "SELECT seq, role, speaker, text FROM desk_history WHERE room = ? ORDER BY seq", (room,)
        )
        return [HistoryEntry(*row) for row in rows]

    def summaries(self, room: str) -> list[str]:
        return [t for (t,) in self._store.query("SELECT text FROM desk_summary WHERE room = ? ORDER BY seq", (room,))]

    def process(self, room: str, name: str) -> Process:
        rows = self._store.query(f"SELECT {_PROCESS} FROM desk_process WHERE room = ? AND id = ?", (room, name))  # noqa: S608
        if not rows:
            raise NoSuchProcess(f"There is no branch or worker {name!r} here.", "Look at the status block for ids.")
        return _process(rows[0])

    def processes(self, room: str) -> list[Process]:
        rows = self._store.query(f"SELECT {_PROCESS} FROM desk_process WHERE room = ? ORDER BY started, id", (room,))  # noqa: S608
        return [_process(row) for row in rows]

    def status_processes(self, room: str) -> list[Process]:
        """Those at work, and the newest that ended: what the status block tells, however many there ever were. D4"""
        rows = self._store.query(
            f"SELECT {_PROCESS} FROM desk_process WHERE room = ?1 AND state IN ('running', 'waiting')"  # noqa: S608
            f" UNION ALL SELECT * FROM (SELECT {_PROCESS} FROM desk_process WHERE room = ?1 AND ended IS NOT NULL"
            " ORDER BY ended DESC, id DESC LIMIT ?2)",
            (room, COMPLETIONS),
        )
        return sorted((_process(row) for row in rows), key=lambda each: (each.started, each.id))

    def active_processes(self) -> list[Process]:
        """In every room."""
        rows = self._store.query(f"SELECT {_PROCESS} FROM desk_process WHERE state IN ('running', 'waiting')")  # noqa: S608
        return [_process(row) for row in rows]

    def running_branches(self, room: str) -> int:
        """How many branches are at it."""
        sql = "SELECT count(*) FROM desk_process WHERE room = ? AND kind = 'branch' AND state = 'running'"
        return int(self._store.query(sql, (room,))[0][0])

    def last_history_seq(self, room: str) -> int:
        """The number of the last line that is told word by word."""
        sql = "SELECT coalesce(max(seq), 0) FROM desk_history WHERE room = ? AND told_by IS NULL"
        return int(self._store.query(sql, (room,))[0][0])

    def active_count(self, room: str) -> int:
        sql = "SELECT count(*) FROM desk_process WHERE room = ? AND state IN ('running', 'waiting')"
        return int(self._store.query(sql, (room,))[0][0])

    def unread_results(self, room: str) -> list[Process]:
        """Those with a result, or a question, that the conversation does not know of yet."""
        sql = f"SELECT {_PROCESS} FROM desk_process WHERE room = ? AND fresh ORDER BY started, id"  # noqa: S608
        rows = self._store.query(sql, (room,))
        return [_process(row) for row in rows]

    def worker_messages(self, room: str, worker: str) -> list[PromptMessage]:
        rows = self._store.query(
            "SELECT messages FROM desk_step WHERE room = ? AND worker = ? ORDER BY seq", (room, worker)
        )
        return [message for (told,) in rows for message in _told(told)]

    def worker_steps(self, process: Process) -> list[WorkerStep]:
        """What it did so far, each tool with what came of it."""
        messages = [
            *self.worker_messages(process.room, process.id),
            *([process.pending_message] if process.pending_message else []),
        ]
        made = []
        for message in messages:
            if message.role == "tool":
                call = message.answers
                made.append(WorkerStep("did", message.text, call.name if call else "", call.arguments if call else ""))
            elif message.text:
                made.append(WorkerStep("told" if message.role == "user" else "said", message.text))
        return made


@lru_cache(maxsize=1_024)
def _told(written: str) -> tuple[PromptMessage, ...]:
    """With every step a worker is told all that it did before."""
    return _messages.validate_json(written)


def _process(row: tuple[Any, ...]) -> Process:
    room, name, kind, task, state, status, interactive, at_seq, started, heard, ended, steps, calls = row[:13]
    result, fresh, held, allowed = row[13:]
    return Process(
        room=room,
        id=name,
        kind=kind,
        task=task,
        state=state,
        status=status,
        interactive=bool(interactive),
        at_seq=at_seq,
        started=from_micros(started),
        last_activity=from_micros(heard),
        ended=from_micros(ended) if ended is not None else None,
        steps=steps,
        calls=calls,
        result=result,
        unread=bool(fresh),
        pending_message=PromptMessage.model_validate(json.loads(held)) if held else None,
        allowed=None if allowed is None else bool(allowed),
    )


# What a character does by itself, and when: folded from the log. D15


_SELECT = 'SELECT room, id, prompt, timing, "on", next, failures, why, last, last_end, last_told FROM desk_schedule'


class ScheduleProjection(Projection):
    name = "desk_timetable"
    stream_column = "room"
    schema = """
        CREATE TABLE desk_schedule(room TEXT, id TEXT, prompt TEXT NOT NULL, timing TEXT NOT NULL,
            "on" INTEGER NOT NULL, next INTEGER, failures INTEGER NOT NULL DEFAULT 0, why TEXT NOT NULL DEFAULT '',
            last INTEGER, last_end TEXT NOT NULL DEFAULT '', last_told TEXT NOT NULL DEFAULT '',
            PRIMARY KEY(room, id)) WITHOUT ROWID;
    """

    @on(ScheduleSet)
    def set(self, rows: Rows, event: Event[ScheduleSet]) -> None:
        it = event.payload
        rows.run(
            'INSERT OR REPLACE INTO desk_schedule(room, id, prompt, timing, "on", next) VALUES (?, ?, ?, ?, 1, ?)',
            (event.stream, it.schedule, it.prompt, it.when.model_dump_json(), to_micros(it.next)),
        )

    @on(ScheduleRan)
    def ran(self, rows: Rows, event: Event[ScheduleRan]) -> None:
        it = event.payload
        rows.run(
            "UPDATE desk_schedule SET next = ?1, last = ?, last_end = ?, last_told = ?,"
            " failures = CASE WHEN ?3 = 'failed' THEN failures + 1 ELSE 0 END,"
            ' "on" = CASE WHEN ?1 IS NULL THEN 0 ELSE "on" END WHERE room = ? AND id = ?',
            (_micros(it.next), to_micros(event.ts), it.end, it.told, event.stream, it.schedule),
        )

    @on(ScheduleSwitched)
    def switched(self, rows: Rows, event: Event[ScheduleSwitched]) -> None:
        it = event.payload
        rows.run(
            'UPDATE desk_schedule SET "on" = ?1, why = ?, next = ?,'
            " failures = CASE WHEN ?1 THEN 0 ELSE failures END WHERE room = ? AND id = ?",
            (it.on, it.why, _micros(it.next), event.stream, it.schedule),
        )

    @on(ScheduleRemoved)
    def removed(self, rows: Rows, event: Event[ScheduleRemoved]) -> None:
        rows.run("DELETE FROM desk_schedule WHERE room = ? AND id = ?", (event.stream, event.payload.schedule))


@dataclass(frozen=True)
class DeskSchedule:
    room: str
    id: str
    prompt: str
    when: ScheduleTime
    on: bool
    next: datetime | None
    failures: int
    """In a row."""
    why: str
    """Why it is off."""
    last: datetime | None
    last_end: str
    last_output: str


class ScheduleQueries:
    def __init__(self, store: Store) -> None:
        self._store = store

    def all(self, room: str | None = None) -> list[DeskSchedule]:
        rows = self._store.query(f"{_SELECT} WHERE ?1 IS NULL OR room = ?1 ORDER BY room, id", (room,))
        return [_scheduled(row) for row in rows]

    def find(self, room: str, schedule: str) -> DeskSchedule | None:
        rows = self._store.query(f"{_SELECT} WHERE room = ? AND id = ?", (room, schedule))
        return _scheduled(rows[0]) if rows else None

    def get(self, room: str, schedule: str) -> DeskSchedule:
        found = self.find(room, schedule)
        if found is None:
            raise NoSuchProcess(f"There is no schedule {schedule!r} here.", "List them, and choose one.")
        return found


def _scheduled(row: tuple[Any, ...]) -> DeskSchedule:
    room, name, prompt, timing, on_, due, failures, why, last, last_end, last_told = row
    return DeskSchedule(
        room=room,
        id=name,
        prompt=prompt,
        when=ScheduleTime.model_validate_json(timing),
        on=bool(on_),
        next=from_micros(due) if due is not None else None,
        failures=failures,
        why=why,
        last=from_micros(last) if last is not None else None,
        last_end=last_end,
        last_output=last_told,
    )


def _micros(moment: datetime | None) -> int | None:
    return to_micros(moment) if moment is not None else None
