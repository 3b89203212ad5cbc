"""Projections of the desk: conversations with their processes, schedules, bulletins and disabled skills."""

from __future__ import annotations

import json
from datetime import datetime

from coterie.base.clock import to_micros
from coterie.conversation import AssistantTurn, UserTurn
from coterie.eventstore import AnyEvent, Event, Projection, Rows, on
from coterie.modes.desk.events import (
    BranchEnded,
    BranchStarted,
    BulletinWritten,
    CharacterAsked,
    DeskFilesSent,
    DeskOpened,
    DeskReacted,
    DeskRenamed,
    HistoryCompacted,
    ResultsInjected,
    ScheduleRan,
    ScheduleRemoved,
    ScheduleSet,
    ScheduleSwitched,
    SkillSwitched,
    WorkerEnded,
    WorkerResumed,
    WorkerStarted,
    WorkerStepped,
    WorkerWaiting,
)

_INSERT_HISTORY = "INSERT INTO desk_history(room, seq, role, speaker, text, turn) VALUES (?, ?, ?, ?, ?, ?)"


class DeskProjection(Projection):
    name = "desk"
    version = 4
    stream_column = "room"
    schema = """
        CREATE TABLE desk_chat(room TEXT PRIMARY KEY, character TEXT NOT NULL, person TEXT NOT NULL,
            title TEXT NOT NULL, wakes INTEGER NOT NULL DEFAULT 0, at INTEGER NOT NULL);
        CREATE TABLE desk_history(room TEXT, seq INTEGER, role TEXT NOT NULL, speaker TEXT NOT NULL,
            text TEXT NOT NULL, turn TEXT, summarized_by INTEGER, PRIMARY KEY(room, seq)) WITHOUT ROWID;
        CREATE TABLE desk_summary(room TEXT, seq INTEGER, upto INTEGER NOT NULL, text TEXT NOT NULL,
            PRIMARY KEY(room, seq)) WITHOUT ROWID;
        CREATE TABLE desk_process(room TEXT, id TEXT, kind TEXT NOT NULL, task TEXT NOT NULL, state TEXT NOT NULL,
            status TEXT NOT NULL DEFAULT '', interactive INTEGER NOT NULL DEFAULT 0, at_seq INTEGER,
            started INTEGER NOT NULL, last_activity INTEGER NOT NULL, ended INTEGER, steps INTEGER NOT NULL DEFAULT 0,
            calls INTEGER NOT NULL DEFAULT 0, result TEXT NOT NULL DEFAULT '', unread INTEGER NOT NULL DEFAULT 0,
            pending_message TEXT, allowed INTEGER, task_type TEXT NOT NULL DEFAULT '',
            PRIMARY KEY(room, id)) WITHOUT ROWID;
        CREATE INDEX desk_active ON desk_process(room, state) WHERE state IN ('running', 'waiting');
        CREATE INDEX desk_ended ON desk_process(room, ended, id) WHERE ended IS NOT NULL;
        CREATE INDEX desk_unread ON desk_process(room) WHERE unread;
        CREATE TABLE desk_step(room TEXT, worker TEXT, seq INTEGER, messages TEXT NOT NULL,
            PRIMARY KEY(room, worker, seq)) WITHOUT ROWID;
        CREATE TABLE desk_asked(room TEXT, seq INTEGER, asker TEXT NOT NULL, at INTEGER NOT NULL,
            PRIMARY KEY(room, seq)) WITHOUT ROWID;
        CREATE INDEX desk_asked_by ON desk_asked(asker, at);
        CREATE TABLE desk_sent_files(room TEXT, reply TEXT, files TEXT NOT NULL,
            PRIMARY KEY(room, reply)) WITHOUT ROWID;
        CREATE TABLE desk_reaction(room TEXT, turn TEXT, emoji TEXT NOT NULL, PRIMARY KEY(room, turn)) WITHOUT ROWID;
    """

    @on(DeskOpened)
    def opened(self, rows: Rows, event: Event[DeskOpened]) -> None:
        payload = event.payload
        rows.run(
            "INSERT INTO desk_chat(room, character, person, title, at) VALUES (?, ?, ?, ?, ?)",
            (event.stream, payload.character, payload.person, payload.title, to_micros(event.ts)),
        )

    @on(DeskRenamed)
    def renamed(self, rows: Rows, event: Event[DeskRenamed]) -> None:
        rows.run("UPDATE desk_chat SET title = ? WHERE room = ?", (event.payload.title, event.stream))

    @on(UserTurn)
    def message(self, rows: Rows, event: Event[UserTurn]) -> None:
        if _is_desk(rows, event):
            payload = event.payload
            rows.run(_INSERT_HISTORY, (event.stream, event.seq, "user", payload.author, payload.text, payload.turn))
            rows.run("UPDATE desk_chat SET wakes = 0 WHERE room = ?", (event.stream,))

    @on(AssistantTurn)
    def replied(self, rows: Rows, event: Event[AssistantTurn]) -> None:
        if event.payload.text and _is_desk(rows, event):
            rows.run(_INSERT_HISTORY, (event.stream, event.seq, "assistant", "", event.payload.text, None))

    @on(DeskFilesSent)
    def files_sent(self, rows: Rows, event: Event[DeskFilesSent]) -> None:
        files = json.dumps([file.model_dump() for file in event.payload.files])
        rows.run("INSERT OR REPLACE INTO desk_sent_files VALUES (?, ?, ?)", (event.stream, event.payload.reply, files))

    @on(DeskReacted)
    def reacted(self, rows: Rows, event: Event[DeskReacted]) -> None:
        params = (event.stream, event.payload.turn, event.payload.emoji)
        rows.run("INSERT OR REPLACE INTO desk_reaction VALUES (?, ?, ?)", params)

    @on(ResultsInjected)
    def injected(self, rows: Rows, event: Event[ResultsInjected]) -> None:
        payload = event.payload
        rows.run(_INSERT_HISTORY, (event.stream, event.seq, "result", "", payload.text, None))
        for result in payload.results:
            rows.run("UPDATE desk_process SET unread = 0 WHERE room = ? AND id = ?", (event.stream, result))
        if payload.woke:
            rows.run("UPDATE desk_chat SET wakes = wakes + 1 WHERE room = ?", (event.stream,))

    @on(HistoryCompacted)
    def compacted(self, rows: Rows, event: Event[HistoryCompacted]) -> None:
        payload = event.payload
        rows.run(
            "UPDATE desk_history SET summarized_by = ? WHERE room = ? AND seq <= ? AND summarized_by IS NULL",
            (event.seq, event.stream, payload.upto),
        )
        rows.run(
            "INSERT INTO desk_summary VALUES (?, ?, ?, ?)", (event.stream, event.seq, payload.upto, payload.summary)
        )

    @on(BranchStarted)
    def branch_started(self, rows: Rows, event: Event[BranchStarted]) -> None:
        payload = event.payload
        _start(rows, event, payload.branch, "branch", payload.thought, payload.task_type, at_seq=payload.at)

    @on(WorkerStarted)
    def worker_started(self, rows: Rows, event: Event[WorkerStarted]) -> None:
        payload = event.payload
        _start(rows, event, payload.worker, "worker", payload.task, payload.task_type, interactive=payload.interactive)

    @on(WorkerStepped)
    def stepped(self, rows: Rows, event: Event[WorkerStepped]) -> None:
        payload = event.payload
        calls = sum(message.role == "tool" for message in payload.messages)
        rows.run(
            "UPDATE desk_process SET steps = steps + 1, calls = calls + ?, last_activity = ?,"
            " pending_message = NULL, allowed = NULL, status = CASE ?3 WHEN '' THEN status ELSE ?3 END"
            " WHERE room = ? AND id = ?",
            (calls, to_micros(event.ts), payload.status, event.stream, payload.worker),
        )
        messages = json.dumps([message.model_dump(mode="json") for message in payload.messages], ensure_ascii=False)
        rows.run("INSERT INTO desk_step VALUES (?, ?, ?, ?)", (event.stream, payload.worker, event.seq, messages))

    @on(WorkerWaiting)
    def waiting(self, rows: Rows, event: Event[WorkerWaiting]) -> None:
        payload = event.payload
        rows.run(
            "UPDATE desk_process SET state = 'waiting', result = ?, unread = 1, pending_message = ?, last_activity = ?"
            " WHERE room = ? AND id = ? AND state = 'running'",
            (payload.question, payload.said.model_dump_json(), to_micros(event.ts), event.stream, payload.worker),
        )

    @on(WorkerResumed)
    def resumed(self, rows: Rows, event: Event[WorkerResumed]) -> None:
        payload = event.payload
        allowed = None if payload.allowed is None else int(payload.allowed)
        rows.run(
            "UPDATE desk_process SET state = 'running', unread = 0, last_activity = ?, allowed = ?"
            " WHERE room = ? AND id = ? AND state = 'waiting'",
            (to_micros(event.ts), allowed, event.stream, payload.worker),
        )
        if payload.allowed is None:
            row = rows.one(
                "SELECT pending_message FROM desk_process WHERE room = ? AND id = ?", (event.stream, payload.worker)
            )
            follow_up = {"role": "user", "text": payload.text}
            earlier = [json.loads(row[0])] if row and row[0] else []
            messages = json.dumps([*earlier, follow_up], ensure_ascii=False)
            rows.run(
                "UPDATE desk_process SET pending_message = NULL WHERE room = ? AND id = ?",
                (event.stream, payload.worker),
            )
            rows.run("INSERT INTO desk_step VALUES (?, ?, ?, ?)", (event.stream, payload.worker, event.seq, messages))

    @on(CharacterAsked)
    def asked(self, rows: Rows, event: Event[CharacterAsked]) -> None:
        params = (event.stream, event.seq, event.payload.asker, to_micros(event.ts))
        rows.run("INSERT INTO desk_asked VALUES (?, ?, ?, ?)", params)

    @on(BranchEnded)
    def branch_ended(self, rows: Rows, event: Event[BranchEnded]) -> None:
        _end(rows, event, event.payload.branch, event.payload.state, event.payload.conclusion)

    @on(WorkerEnded)
    def worker_ended(self, rows: Rows, event: Event[WorkerEnded]) -> None:
        _end(rows, event, event.payload.worker, event.payload.state, event.payload.result)


def _micros(moment: datetime | None) -> int | None:
    return to_micros(moment) if moment is not None else None


def _is_desk(rows: Rows, event: AnyEvent) -> bool:
    """Rooms of other modes have turns, too."""
    return rows.one("SELECT 1 FROM desk_chat WHERE room = ?", (event.stream,)) is not None


def _start(
    rows: Rows,
    event: AnyEvent,
    name: str,
    kind: str,
    task: str,
    task_type: str,
    *,
    interactive: bool = False,
    at_seq: int | None = None,
) -> None:
    moment = to_micros(event.ts)
    rows.run(
        "INSERT INTO desk_process(room, id, kind, task, state, interactive, at_seq, started, last_activity, task_type)"
        " VALUES (?, ?, ?, ?, 'running', ?, ?, ?, ?, ?)",
        (event.stream, name, kind, task, interactive, at_seq, moment, moment, task_type),
    )


def _end(rows: Rows, event: AnyEvent, name: str, state: str, result: str) -> None:
    """Close a process; its result is unread unless it was cancelled."""
    rows.run(
        "UPDATE desk_process SET state = ?, result = ?, unread = ?, ended = ?, last_activity = ?,"
        " pending_message = NULL WHERE room = ? AND id = ? AND state IN ('running', 'waiting')",
        (state, result, state != "cancelled", to_micros(event.ts), to_micros(event.ts), event.stream, name),
    )


class ScheduleProjection(Projection):
    name = "desk_timetable"
    version = 3
    stream_column = "room"
    schema = """
        CREATE TABLE desk_schedule(room TEXT, id TEXT, prompt TEXT NOT NULL, timing TEXT NOT NULL,
            "on" INTEGER NOT NULL, next INTEGER, failures INTEGER NOT NULL DEFAULT 0, why TEXT NOT NULL DEFAULT '',
            last INTEGER, last_end TEXT NOT NULL DEFAULT '', last_output TEXT NOT NULL DEFAULT '',
            target TEXT, PRIMARY KEY(room, id)) WITHOUT ROWID;
    """

    @on(ScheduleSet)
    def set(self, rows: Rows, event: Event[ScheduleSet]) -> None:
        payload = event.payload
        timing, target = payload.when.model_dump_json(), payload.to.model_dump_json() if payload.to else None
        rows.run(
            'INSERT OR REPLACE INTO desk_schedule(room, id, prompt, timing, "on", next, target)'
            " VALUES (?, ?, ?, ?, 1, ?, ?)",
            (event.stream, payload.schedule, payload.prompt, timing, to_micros(payload.next), target),
        )

    @on(ScheduleRan)
    def ran(self, rows: Rows, event: Event[ScheduleRan]) -> None:
        payload = event.payload
        rows.run(
            "UPDATE desk_schedule SET next = ?1, last = ?, last_end = ?, last_output = ?,"
            " failures = CASE WHEN ?3 = 'failed' THEN failures + 1 ELSE 0 END,"
            ' "on" = CASE WHEN ?1 IS NULL THEN 0 ELSE "on" END WHERE room = ? AND id = ?',
            (_micros(payload.next), to_micros(event.ts), payload.end, payload.output, event.stream, payload.schedule),
        )

    @on(ScheduleSwitched)
    def switched(self, rows: Rows, event: Event[ScheduleSwitched]) -> None:
        payload = event.payload
        rows.run(
            'UPDATE desk_schedule SET "on" = ?1, why = ?, next = ?,'
            " failures = CASE WHEN ?1 THEN 0 ELSE failures END WHERE room = ? AND id = ?",
            (payload.on, payload.why, _micros(payload.next), event.stream, payload.schedule),
        )

    @on(ScheduleRemoved)
    def removed(self, rows: Rows, event: Event[ScheduleRemoved]) -> None:
        rows.run("DELETE FROM desk_schedule WHERE room = ? AND id = ?", (event.stream, event.payload.schedule))


class BulletinProjection(Projection):
    name = "desk_bulletins"
    version = 2
    schema = """
        CREATE TABLE desk_bulletin(character TEXT, person TEXT, text TEXT NOT NULL, upto INTEGER NOT NULL,
            memories TEXT NOT NULL, PRIMARY KEY(character, person)) WITHOUT ROWID;
    """

    @on(BulletinWritten)
    def written(self, rows: Rows, event: Event[BulletinWritten]) -> None:
        payload = event.payload
        params = (payload.character, payload.person, payload.text, payload.upto, json.dumps(payload.memories))
        rows.run("INSERT OR REPLACE INTO desk_bulletin VALUES (?, ?, ?, ?, ?)", params)


class SkillProjection(Projection):
    name = "desk_skills"
    schema = """
        CREATE TABLE desk_skill_off(character TEXT, skill TEXT, PRIMARY KEY(character, skill)) WITHOUT ROWID;
    """

    @on(SkillSwitched)
    def switched(self, rows: Rows, event: Event[SkillSwitched]) -> None:
        payload = event.payload
        sql = "DELETE FROM desk_skill_off WHERE character = ? AND skill = ?"
        if not payload.on:
            sql = "INSERT OR IGNORE INTO desk_skill_off VALUES (?, ?)"
        rows.run(sql, (payload.character, payload.skill))


def desk_projections() -> list[Projection]:
    return [DeskProjection(), ScheduleProjection(), BulletinProjection(), SkillProjection()]
