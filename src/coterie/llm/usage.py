"""The usage view: what models did and cost, per day, role, model, character and room."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from coterie.kernel import Event, Projection, Rows, Store, on
from coterie.llm.events import STREAM, ClassifierFailed, ModelCalled


class UsageProjection(Projection):
    name = "llm_usage"
    version = 1
    schema = """
        CREATE TABLE llm_usage(
            day TEXT, role TEXT, provider TEXT, model TEXT, character TEXT, room TEXT, priced TEXT,
            calls INTEGER NOT NULL, failed INTEGER NOT NULL, stopped INTEGER NOT NULL,
            tokens_in INTEGER NOT NULL, tokens_out INTEGER NOT NULL, usd_micros INTEGER NOT NULL,
            total_ms REAL NOT NULL,
            PRIMARY KEY(day, role, provider, model, character, room, priced)
        ) WITHOUT ROWID;
        CREATE TABLE classifier_failure(
            id INTEGER PRIMARY KEY, at TEXT NOT NULL, role TEXT NOT NULL, schema_name TEXT NOT NULL,
            model TEXT NOT NULL, failure TEXT NOT NULL, raw TEXT NOT NULL, attempts INTEGER NOT NULL,
            room TEXT NOT NULL, character TEXT NOT NULL
        );
    """

    @on(ModelCalled)
    def called(self, rows: Rows, event: Event[ModelCalled]) -> None:
        call = event.payload
        rows.run(
            """
            INSERT INTO llm_usage VALUES (?, ?, ?, ?, ?, ?, ?, 1, ?, ?, ?, ?, ?, ?)
            ON CONFLICT DO UPDATE SET
                calls = calls + 1, failed = failed + excluded.failed, stopped = stopped + excluded.stopped,
                tokens_in = tokens_in + excluded.tokens_in, tokens_out = tokens_out + excluded.tokens_out,
                usd_micros = usd_micros + excluded.usd_micros, total_ms = total_ms + excluded.total_ms
            """,
            (
                *(call.day, call.role, call.provider, call.model, call.character, call.room, call.priced),
                *(int(call.outcome == "failed"), int(call.outcome == "stopped")),
                *(call.tokens_in, call.tokens_out, call.usd_micros, call.total_ms),
            ),
        )

    @on(ClassifierFailed)
    def classifier_failed(self, rows: Rows, event: Event[ClassifierFailed]) -> None:
        told = event.payload
        rows.run(
            "INSERT INTO classifier_failure VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(event.id, event.ts.isoformat(), told.role, told.schema_name, told.model),
                *(told.failure, told.raw, told.attempts, told.room, told.character),
            ),
        )


@dataclass(frozen=True)
class DailyUsage:
    """What one model did in one role on one day."""

    day: str
    role: str
    model: str
    calls: int
    failed: int
    stopped: int
    tokens_in: int
    tokens_out: int
    usd: float
    seconds: float


@dataclass(frozen=True)
class ClassifierFailure:
    """A structured answer that could not be had."""

    id: int
    at: datetime
    role: str
    schema_name: str
    model: str
    failure: str
    raw: str
    attempts: int
    room: str
    character: str


class UsageQueries:
    def __init__(self, store: Store) -> None:
        self._store = store

    def daily(self, since: str) -> list[DailyUsage]:
        """Per day, role and model, newest day first; `since` is a date."""
        rows = self._store.query(
            "SELECT day, role, provider || '/' || model AS target, sum(calls), sum(failed), sum(stopped),"
            " sum(tokens_in), sum(tokens_out), sum(usd_micros) / 1e6, sum(total_ms) / 1e3 FROM llm_usage WHERE day >= ?"
            " GROUP BY day, role, target ORDER BY day DESC, role, target",
            (since,),
        )
        return [DailyUsage(*row) for row in rows]

    def room_total(self, room: str, since: str) -> tuple[int, int, float]:
        """Calls, tokens and dollars of one room since a date."""
        sql = "SELECT coalesce(sum(calls), 0), coalesce(sum(tokens_in + tokens_out), 0), coalesce(sum(usd_micros), 0)"
        ((calls, tokens, micros),) = self._store.query(
            f"{sql} FROM llm_usage WHERE room = ? AND day >= ?", (room, since)
        )
        return int(calls), int(tokens), micros / 1e6

    def total_since(self, event: int) -> tuple[int, float]:
        """Calls and dollars after an event of the log, models on this machine aside."""
        calls, micros = self._store.reader.sum_payload_field(
            STREAM, ModelCalled.kind, "usd_micros", after=event, unless=("priced", "free")
        )
        return calls, micros / 1e6

    def failures(self, limit: int, before: int | None = None) -> list[ClassifierFailure]:
        """Newest first; those before an id to go further back."""
        rows = self._store.query(
            "SELECT id, at, role, schema_name, model, failure, raw, attempts, room, character FROM classifier_failure"
            " WHERE id < coalesce(?, 1 << 62) ORDER BY id DESC LIMIT ?",
            (before, limit),
        )
        return [ClassifierFailure(row[0], datetime.fromisoformat(row[1]), *row[2:]) for row in rows]
