"""The search index of memories: a document per memory and line, in tables that only `settle` writes.

One full-text table per owner: with a million memories in the file, a question is asked of the thousands
that one character holds. A document is never altered. A memory that changes gets a new document with a
higher number, so that a reader sees at a glance what is new and whether anything is gone.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable

import numpy as np

from coterie.kernel import Changed, Rows
from coterie.memory.static import static_vectors
from coterie.memory.words import Names, is_question

SCHEMA = """
    CREATE TABLE IF NOT EXISTS memory_doc(
        doc INTEGER PRIMARY KEY AUTOINCREMENT, owner INTEGER NOT NULL, stream TEXT NOT NULL, id TEXT NOT NULL,
        question INTEGER NOT NULL, tokens BLOB NOT NULL, vector BLOB NOT NULL);
    CREATE INDEX IF NOT EXISTS memory_doc_key ON memory_doc(id, stream);
    CREATE INDEX IF NOT EXISTS memory_doc_owner ON memory_doc(owner, doc);
    CREATE TABLE IF NOT EXISTS memory_owner(
        number INTEGER PRIMARY KEY AUTOINCREMENT, owner TEXT NOT NULL UNIQUE,
        docs INTEGER NOT NULL DEFAULT 0, last INTEGER NOT NULL DEFAULT 0, removed INTEGER NOT NULL DEFAULT 0,
        ties INTEGER NOT NULL DEFAULT 0);
    CREATE TABLE IF NOT EXISTS memory_vector(
        doc INTEGER, model TEXT, vector BLOB NOT NULL, PRIMARY KEY(doc, model)) WITHOUT ROWID;
"""

Kept = list[tuple[str, bytes]]

_READ = "SELECT owner, text, speaker, witnesses FROM memory WHERE stream = ? AND id = ?"


def full_text_table(number: int) -> str:
    return f"memory_words_{number}"


def index_everything(rows: Rows) -> None:
    for (number,) in rows.all("SELECT number FROM memory_owner"):
        rows.run(f"DROP TABLE IF EXISTS {full_text_table(number)}")
    rows.run("DELETE FROM memory_doc; DELETE FROM memory_vector")
    # The counters stay and grow, so that a reader that knew the old documents drops them all.
    rows.run("UPDATE memory_owner SET docs = 0, removed = removed + 1, ties = ties + 1")
    for (number,) in rows.all("SELECT number FROM memory_owner"):
        _create_full_text(rows, number)
    keys = rows.all("SELECT stream, id FROM memory ORDER BY event, stream, id")
    _index(rows, keys)


def index_changes(rows: Rows, changed: Changed) -> None:
    keys = set(changed.get("memory", ()))
    for _, memory_id in changed.get("memory_tombstone", ()):
        keys.update(rows.all("SELECT stream, id FROM memory WHERE id = ?", (memory_id,)))
    _index(rows, sorted(keys))
    for table in ("memory_validity", "memory_link"):
        if changed.get(table):
            # A row that was taken back no longer names its owner; a bump too many costs one small read.
            rows.run("UPDATE memory_owner SET ties = ties + 1")
            break


def _index(rows: Rows, keys: Iterable[tuple[str, str]]) -> None:
    offline = static_vectors()
    fresh: list[tuple[int, str, str, str, bool, Kept]] = []
    token_rows = []
    for stream, memory_id in keys:
        kept = _remove(rows, stream, memory_id)
        found = rows.one(_READ, (stream, memory_id))
        if found is None or rows.one("SELECT 1 FROM memory_tombstone WHERE id = ?", (memory_id,)):
            continue
        owner, text, speaker, witnesses = found
        number = _owner_number(rows, owner)
        bare = _names(speaker, witnesses).without(text)
        tokens = offline.tokens(bare)
        fresh.append((number, stream, memory_id, text, is_question(text), kept.get(tokens.tobytes(), [])))
        token_rows.append(tokens)
    vectors = offline.embed_tokens(token_rows).astype(np.float16)
    last: dict[int, tuple[int, int]] = {}
    for (number, stream, memory_id, text, question, kept_vectors), tokens, vector in zip(fresh, token_rows, vectors, strict=True):
        row = rows.one(
            "INSERT INTO memory_doc(owner, stream, id, question, tokens, vector) VALUES (?,?,?,?,?,?) RETURNING doc",
            (number, stream, memory_id, question, tokens.tobytes(), vector.tobytes()),
        )
        doc = row[0] if row else 0
        rows.run(f"INSERT INTO {full_text_table(number)}(rowid, text) VALUES (?,?)", (doc, text))
        for model, other in kept_vectors:
            rows.run("INSERT INTO memory_vector VALUES (?,?,?)", (doc, model, other))
        last[number] = (doc, last.get(number, (0, 0))[1] + 1)
    for number, (doc, count) in last.items():
        rows.run("UPDATE memory_owner SET docs = docs + ?, last = ? WHERE number = ?", (count, doc, number))


def _remove(rows: Rows, stream: str, memory_id: str) -> dict[bytes, Kept]:
    """Take a memory's document out. Returns what other embedders made of its words, to keep if they stay."""
    kept: dict[bytes, Kept] = {}
    for doc, number, tokens in rows.all(
        "SELECT doc, owner, tokens FROM memory_doc WHERE id = ? AND stream = ?", (memory_id, stream)
    ):
        kept[tokens] = rows.all("SELECT model, vector FROM memory_vector WHERE doc = ?", (doc,))
        rows.run("DELETE FROM memory_vector WHERE doc = ?", (doc,))
        rows.run(f"DELETE FROM {full_text_table(number)} WHERE rowid = ?", (doc,))
        rows.run("DELETE FROM memory_doc WHERE doc = ?", (doc,))
        rows.run("UPDATE memory_owner SET docs = docs - 1, removed = removed + 1 WHERE number = ?", (number,))
    return kept


def _owner_number(rows: Rows, owner: str) -> int:
    row = rows.one("SELECT number FROM memory_owner WHERE owner = ?", (owner,))
    if row is None:
        row = rows.one("INSERT INTO memory_owner(owner) VALUES (?) RETURNING number", (owner,))
        number = int(row[0]) if row else 0
        _create_full_text(rows, number)
        return number
    return int(row[0])


def _create_full_text(rows: Rows, number: int) -> None:
    # The words only, not the text: that stands in `memory`, and a deleted document leaves nothing to read.
    rows.run(
        f"CREATE VIRTUAL TABLE {full_text_table(number)} USING fts5(text, content='', contentless_delete=1,"
        " tokenize='porter unicode61 remove_diacritics 2')"
    )


@functools.lru_cache(maxsize=4_096)
def _names(speaker: str | None, witnesses: str) -> Names:
    return Names([*json.loads(witnesses), *([speaker] if speaker else [])])
