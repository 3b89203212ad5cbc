"""What a character does by itself, and when: folded from the log. D15"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from coterie.base.clock import from_micros, to_micros
from coterie.kernel import Event, Projection, Rows, Store, on
from coterie.modes.desk.errors import NoSuchProcess
from coterie.modes.desk.events import ScheduleRan, ScheduleRemoved, ScheduleSet, ScheduleSwitched
from coterie.modes.desk.when import ScheduleTime

_SELECT = 'SELECT room, id, prompt, timing, "on", next, failures, why, last, last_end, last_told FROM desk_schedule'


class ScheduleProjection(Projection):
    name = "desk_timetable"
    line = "room"
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
