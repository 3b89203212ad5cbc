"""What was imported: events, their projection, and queries."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from coterie.base.clock import from_micros, to_micros
from coterie.eventstore import Event, Payload, Projection, Rows, Store, on

Outcome = Literal["taken", "changed", "known", "left"]
"""Taken as it is, taken with changes, imported before, or not taken."""
_TAKEN = "('taken', 'changed')"


class ImportStarted(Payload, kind="import_started"):
    """An import of SillyTavern's data was started."""

    folder: str
    """The data folder of one user."""
    kinds: tuple[str, ...]
    """The kinds of items that are taken."""
    items: int
    """How many items the folder has."""


class ItemImported(Payload, kind="import_item"):
    """An item of an import was dealt with. For a chat, its events are in the same transaction."""

    item: str
    """`character`, `chat`, `group chat`, `group`, `lorebook`, `persona`, `preset`, `quick replies`, `other`."""
    path: str
    """In the folder."""
    name: str
    """As SillyTavern shows it."""
    outcome: Outcome
    """`taken`, `changed`, `known` (imported before) or `left`."""
    notes: tuple[str, ...] = ()
    """What was changed, or why it was left."""
    checksum: str = ""
    """Of its content, to recognise it again; empty if it could not be read."""
    target: str = ""
    """The id of the character, the stream of the chat, or the name of the preset."""
    counts: dict[str, int] = Field(default_factory=dict)
    """How many `messages`, `swipes`, `entries` and the like it has."""
    document: dict[str, Any] | None = None
    """Its content, if nothing else keeps it."""


class ImportEnded(Payload, kind="import_ended"):
    """Every item of an import was dealt with."""

    failed: str = ""
    """Why it ended early; empty if it did not."""


class ImportProjection(Projection):
    name = "sillytavern_imports"
    schema = """
        CREATE TABLE import_run(id TEXT PRIMARY KEY, folder TEXT NOT NULL, kinds TEXT NOT NULL, items INTEGER NOT NULL,
            started INTEGER NOT NULL, ended INTEGER, failed TEXT NOT NULL DEFAULT '') WITHOUT ROWID;
        CREATE TABLE import_item(import TEXT, path TEXT, item TEXT, name TEXT NOT NULL, outcome TEXT NOT NULL,
            notes TEXT NOT NULL, checksum TEXT NOT NULL, target TEXT NOT NULL, counts TEXT NOT NULL,
            event INTEGER NOT NULL, kept INTEGER NOT NULL, PRIMARY KEY(import, item, path)) WITHOUT ROWID;
        CREATE INDEX import_item_content ON import_item(item, path, checksum);
    """

    @on(ImportStarted)
    def started(self, rows: Rows, event: Event[ImportStarted]) -> None:
        run = event.payload
        rows.run(
            "INSERT OR REPLACE INTO import_run(id, folder, kinds, items, started) VALUES (?, ?, ?, ?, ?)",
            (import_id(event.stream), run.folder, json.dumps(run.kinds), run.items, to_micros(event.ts)),
        )

    @on(ItemImported)
    def item(self, rows: Rows, event: Event[ItemImported]) -> None:
        item = event.payload
        rows.run(
            "INSERT OR REPLACE INTO import_item VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                import_id(event.stream),
                item.path,
                item.item,
                item.name,
                item.outcome,
                json.dumps(item.notes),
                item.checksum,
                item.target,
                json.dumps(item.counts),
                event.seq,
                item.document is not None,
            ),
        )

    @on(ImportEnded)
    def ended(self, rows: Rows, event: Event[ImportEnded]) -> None:
        rows.run(
            "UPDATE import_run SET ended = ?, failed = ? WHERE id = ?",
            (to_micros(event.ts), event.payload.failed, import_id(event.stream)),
        )


def import_stream(run: str) -> str:
    return f"import:{run}"


def import_id(stream: str) -> str:
    return stream.partition(":")[2]


@dataclass(frozen=True)
class ImportRun:
    id: str
    folder: str
    kinds: tuple[str, ...]
    items: int
    done: int
    started: datetime
    ended: datetime | None
    failed: str
    outcomes: dict[Outcome, int]


@dataclass(frozen=True)
class ImportedItem:
    run: str
    path: str
    item: str
    name: str
    outcome: Outcome
    notes: tuple[str, ...]
    checksum: str
    target: str
    counts: dict[str, int]
    kept: bool
    """Whether its content was kept as it is, and can be downloaded again."""


_ITEM = "import, path, item, name, outcome, notes, checksum, target, counts, kept"


class ImportQueries:
    def __init__(self, store: Store) -> None:
        self._store = store

    def runs(self) -> list[ImportRun]:
        """All imports, the newest first."""
        rows = self._store.query(
            "SELECT id, folder, kinds, items, started, ended, failed FROM import_run ORDER BY id DESC"
        )
        return [self._run(*row) for row in rows]

    def run(self, run: str) -> ImportRun | None:
        return next((one for one in self.runs() if one.id == run), None)

    def unfinished(self) -> list[ImportRun]:
        return [run for run in self.runs() if run.ended is None]

    def items(self, run: str) -> list[ImportedItem]:
        """In the order in which they were dealt with."""
        sql = f"SELECT {_ITEM} FROM import_item WHERE import = ? ORDER BY event"  # noqa: S608
        return [_item(row) for row in self._store.query(sql, (run,))]

    def find(self, item: str, path: str, checksum: str) -> ImportedItem | None:
        """The same content under the same path, if it was taken before, from this or another place."""
        sql = (
            f"SELECT {_ITEM} FROM import_item WHERE item = ? AND path = ? AND checksum = ?"  # noqa: S608
            f" AND outcome IN {_TAKEN} ORDER BY import DESC LIMIT 1"
        )
        return next((_item(row) for row in self._store.query(sql, (item, path, checksum))), None)

    def last(self, folder: str, item: str, path: str) -> ImportedItem | None:
        """What was last taken from a path of a folder."""
        sql = (
            f"SELECT {', '.join(f'i.{name}' for name in _ITEM.split(', '))} FROM import_item i"  # noqa: S608
            " JOIN import_run r ON r.id = i.import WHERE r.folder = ? AND i.item = ? AND i.path = ?"
            f" AND i.outcome IN {_TAKEN} ORDER BY i.import DESC LIMIT 1"
        )
        return next((_item(row) for row in self._store.query(sql, (folder, item, path))), None)

    def document(self, run: str, item: str, path: str) -> dict[str, Any] | None:
        """The content of an item that was kept as it is."""
        sql = "SELECT event FROM import_item WHERE import = ? AND item = ? AND path = ? AND kept"
        for (seq,) in self._store.query(sql, (run, item, path)):
            for event in self._store.reader.read(import_stream(run), after=seq - 1, limit=1):
                if isinstance(event.payload, ItemImported):
                    return event.payload.document
        return None

    def _run(
        self, run: str, folder: str, kinds: str, items: int, started: int, ended: int | None, failed: str
    ) -> ImportRun:
        outcomes: dict[Outcome, int] = dict(
            self._store.query(
                "SELECT outcome, count(*) FROM import_item WHERE import = ? GROUP BY 1 ORDER BY 1", (run,)
            )
        )
        return ImportRun(
            run,
            folder,
            tuple(json.loads(kinds)),
            items,
            sum(outcomes.values()),
            from_micros(started),
            from_micros(ended) if ended is not None else None,
            failed,
            outcomes,
        )


def _item(row: tuple[Any, ...]) -> ImportedItem:
    run, path, item, name, outcome, notes, checksum, target, counts, kept = row
    return ImportedItem(
        run, path, item, name, outcome, tuple(json.loads(notes)), checksum, target, json.loads(counts), bool(kept)
    )
