"""What is going on at each desk, folded from the log: the conversation, who thinks and works, what came of it."""

from __future__ import annotations

import json

from coterie.base.clock import to_micros
from coterie.conversation.events import AssistantTurn, UserTurn
from coterie.eventstore import AnyEvent, Event, Projection, Rows, on
from coterie.modes.desk.audience import BulletinProjection
from coterie.modes.desk.events import (
    BranchEnded,
    BranchStarted,
    CharacterAsked,
    DeskOpened,
    DeskRenamed,
    HistoryCompacted,
    ResultsInjected,
    WorkerEnded,
    WorkerResumed,
    WorkerStarted,
    WorkerStepped,
    WorkerWaiting,
)
from coterie.modes.desk.queries import ScheduleProjection
from coterie.modes.desk.skills import SkillProjection

_SAID = "INSERT INTO desk_history(room, seq, role, speaker, text, turn) VALUES (?, ?, ?, ?, ?, ?)"


class DeskProjection(Projection):
    name = "desk"
    stream_column = "room"
    schema = """
        CREATE TABLE desk_chat(room TEXT PRIMARY KEY, character TEXT NOT NULL, person TEXT NOT NULL,
            title TEXT NOT NULL, wakes INTEGER NOT NULL DEFAULT 0, at INTEGER NOT NULL);
        CREATE TABLE desk_history(room TEXT, seq INTEGER, role TEXT NOT NULL, speaker TEXT NOT NULL,
            text TEXT NOT NULL, turn TEXT, told_by INTEGER, PRIMARY KEY(room, seq)) WITHOUT ROWID;
        CREATE TABLE desk_summary(room TEXT, seq INTEGER, upto INTEGER NOT NULL, text TEXT NOT NULL,
            PRIMARY KEY(room, seq)) WITHOUT ROWID;
        CREATE TABLE desk_process(room TEXT, id TEXT, kind TEXT NOT NULL, task TEXT NOT NULL, state TEXT NOT NULL,
            status TEXT NOT NULL DEFAULT '', interactive INTEGER NOT NULL DEFAULT 0, at_seq INTEGER,
            started INTEGER NOT NULL, heard INTEGER NOT NULL, ended INTEGER, steps INTEGER NOT NULL DEFAULT 0,
            calls INTEGER NOT NULL DEFAULT 0, result TEXT NOT NULL DEFAULT '', fresh INTEGER NOT NULL DEFAULT 0,
            held TEXT, allowed INTEGER, PRIMARY KEY(room, id)) WITHOUT ROWID;
        CREATE INDEX desk_busy ON desk_process(room, state) WHERE state IN ('running', 'waiting');
        CREATE INDEX desk_ended ON desk_process(room, ended, id) WHERE ended IS NOT NULL;
        CREATE INDEX desk_fresh ON desk_process(room) WHERE fresh;
        CREATE TABLE desk_step(room TEXT, worker TEXT, seq INTEGER, messages TEXT NOT NULL,
            PRIMARY KEY(room, worker, seq)) WITHOUT ROWID;
        CREATE TABLE desk_asked(room TEXT, seq INTEGER, asker TEXT NOT NULL, at INTEGER NOT NULL,
            PRIMARY KEY(room, seq)) WITHOUT ROWID;
        CREATE INDEX desk_asked_by ON desk_asked(asker, at);
    """

    @on(DeskOpened)
    def opened(self, rows: Rows, event: Event[DeskOpened]) -> None:
        it = event.payload
        rows.run(
            "INSERT INTO desk_chat(room, character, person, title, at) VALUES (?, ?, ?, ?, ?)",
            (event.stream, it.character, it.person, it.title, to_micros(event.ts)),
        )

    @on(DeskRenamed)
    def renamed(self, rows: Rows, event: Event[DeskRenamed]) -> None:
        rows.run("UPDATE desk_chat SET title = ? WHERE room = ?", (event.payload.title, event.stream))

    @on(UserTurn)
    def said(self, rows: Rows, event: Event[UserTurn]) -> None:
        if _is_desk(rows, event):
            it = event.payload
            rows.run(_SAID, (event.stream, event.seq, "user", it.author, it.text, it.turn))
            rows.run("UPDATE desk_chat SET wakes = 0 WHERE room = ?", (event.stream,))

    @on(AssistantTurn)
    def replied(self, rows: Rows, event: Event[AssistantTurn]) -> None:
        if event.payload.text and _is_desk(rows, event):
            rows.run(_SAID, (event.stream, event.seq, "assistant", "", event.payload.text, None))

    @on(ResultsInjected)
    def injected(self, rows: Rows, event: Event[ResultsInjected]) -> None:
        it = event.payload
        rows.run(_SAID, (event.stream, event.seq, "result", "", it.text, None))
        for result in it.results:
            rows.run("UPDATE desk_process SET fresh = 0 WHERE room = ? AND id = ?", (event.stream, result))
        if it.woke:
            rows.run("UPDATE desk_chat SET wakes = wakes + 1 WHERE room = ?", (event.stream,))

    @on(HistoryCompacted)
    def compacted(self, rows: Rows, event: Event[HistoryCompacted]) -> None:
        it = event.payload
        rows.run(
            "UPDATE desk_history SET told_by = ? WHERE room = ? AND seq <= ? AND told_by IS NULL",
            (event.seq, event.stream, it.upto),
        )
        rows.run("INSERT INTO desk_summary VALUES (?, ?, ?, ?)", (event.stream, event.seq, it.upto, it.summary))

    @on(BranchStarted)
    def branched(self, rows: Rows, event: Event[BranchStarted]) -> None:
        it = event.payload
        _start(rows, event, it.branch, "branch", it.thought, at_seq=it.at)

    @on(WorkerStarted)
    def hired(self, rows: Rows, event: Event[WorkerStarted]) -> None:
        it = event.payload
        _start(rows, event, it.worker, "worker", it.task, interactive=it.interactive)

    @on(WorkerStepped)
    def stepped(self, rows: Rows, event: Event[WorkerStepped]) -> None:
        it = event.payload
        calls = sum(message.role == "tool" for message in it.messages)
        rows.run(
            "UPDATE desk_process SET steps = steps + 1, calls = calls + ?, heard = ?, held = NULL, allowed = NULL,"
            " status = CASE ?3 WHEN '' THEN status ELSE ?3 END WHERE room = ? AND id = ?",
            (calls, to_micros(event.ts), it.status, event.stream, it.worker),
        )
        told = json.dumps([message.model_dump(mode="json") for message in it.messages], ensure_ascii=False)
        rows.run("INSERT INTO desk_step VALUES (?, ?, ?, ?)", (event.stream, it.worker, event.seq, told))

    @on(WorkerWaiting)
    def waits(self, rows: Rows, event: Event[WorkerWaiting]) -> None:
        it = event.payload
        rows.run(
            "UPDATE desk_process SET state = 'waiting', result = ?, fresh = 1, held = ?, heard = ?"
            " WHERE room = ? AND id = ? AND state = 'running'",
            (it.question, it.said.model_dump_json(), to_micros(event.ts), event.stream, it.worker),
        )

    @on(WorkerResumed)
    def resumed(self, rows: Rows, event: Event[WorkerResumed]) -> None:
        it = event.payload
        allowed = None if it.allowed is None else int(it.allowed)
        rows.run(
            "UPDATE desk_process SET state = 'running', fresh = 0, heard = ?, allowed = ?"
            " WHERE room = ? AND id = ? AND state = 'waiting'",
            (to_micros(event.ts), allowed, event.stream, it.worker),
        )
        if it.allowed is None:
            row = rows.one("SELECT held FROM desk_process WHERE room = ? AND id = ?", (event.stream, it.worker))
            follow_up = {"role": "user", "text": it.text}
            told = json.dumps([json.loads(row[0]), follow_up] if row and row[0] else [follow_up], ensure_ascii=False)
            rows.run("UPDATE desk_process SET held = NULL WHERE room = ? AND id = ?", (event.stream, it.worker))
            rows.run("INSERT INTO desk_step VALUES (?, ?, ?, ?)", (event.stream, it.worker, event.seq, told))

    @on(CharacterAsked)
    def asked(self, rows: Rows, event: Event[CharacterAsked]) -> None:
        told = (event.stream, event.seq, event.payload.asker, to_micros(event.ts))
        rows.run("INSERT INTO desk_asked VALUES (?, ?, ?, ?)", told)

    @on(BranchEnded)
    def concluded(self, rows: Rows, event: Event[BranchEnded]) -> None:
        _end(rows, event, event.payload.branch, event.payload.state, event.payload.conclusion)

    @on(WorkerEnded)
    def finished(self, rows: Rows, event: Event[WorkerEnded]) -> None:
        _end(rows, event, event.payload.worker, event.payload.state, event.payload.result)


def _is_desk(rows: Rows, event: AnyEvent) -> bool:
    """Rooms of other modes have turns too."""
    return rows.one("SELECT 1 FROM desk_chat WHERE room = ?", (event.stream,)) is not None


def _start(
    rows: Rows,
    event: AnyEvent,
    name: str,
    kind: str,
    task: str,
    *,
    interactive: bool = False,
    at_seq: int | None = None,
) -> None:
    moment = to_micros(event.ts)
    rows.run(
        "INSERT INTO desk_process(room, id, kind, task, state, interactive, at_seq, started, heard)"
        " VALUES (?, ?, ?, ?, 'running', ?, ?, ?, ?)",
        (event.stream, name, kind, task, interactive, at_seq, moment, moment),
    )


def _end(rows: Rows, event: AnyEvent, name: str, state: str, result: str) -> None:
    """A cancelled one has nothing to tell: whoever cancelled it knows."""
    rows.run(
        "UPDATE desk_process SET state = ?, result = ?, fresh = ?, ended = ?, heard = ?, held = NULL"
        " WHERE room = ? AND id = ? AND state IN ('running', 'waiting')",
        (state, result, state != "cancelled", to_micros(event.ts), to_micros(event.ts), event.stream, name),
    )


# What the desk adds to the store.


def desk_projections() -> list[Projection]:
    return [DeskProjection(), ScheduleProjection(), BulletinProjection(), SkillProjection()]
