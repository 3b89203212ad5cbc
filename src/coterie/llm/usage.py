"""The usage view: what models did and cost, per day, role, model, character and room."""

from __future__ import annotations

from coterie.kernel import Event, Rows, View, on
from coterie.llm.events import ClassifierFailed, ModelCalled


class Usage(View):
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
