"""The search index in the database: a document per memory and stream.

There is one full-text table per owner, so that a search covers only that owner's memories. Documents are never changed:
a memory that changes gets a new document with a higher number, so readers find out cheaply what is new or gone.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence

import numpy as np

from coterie.eventstore import ChangedKeys, Rows, Store
from coterie.memory.index.embedders import DIM, static_embedder
from coterie.memory.text import NameMatcher, is_question

INDEX_SCHEMA = """
    CREATE TABLE IF NOT EXISTS memory_doc(
        doc INTEGER PRIMARY KEY, owner INTEGER NOT NULL, stream TEXT NOT NULL, id TEXT NOT NULL,
        question INTEGER NOT NULL, tokens BLOB NOT NULL, vector BLOB NOT NULL);
    CREATE INDEX IF NOT EXISTS memory_doc_key ON memory_doc(id, stream);
    CREATE INDEX IF NOT EXISTS memory_doc_owner ON memory_doc(owner, doc);
    CREATE TABLE IF NOT EXISTS memory_owner(
        number INTEGER PRIMARY KEY, owner TEXT NOT NULL UNIQUE,
        docs INTEGER NOT NULL DEFAULT 0, last INTEGER NOT NULL DEFAULT 0, removed INTEGER NOT NULL DEFAULT 0,
        ties INTEGER NOT NULL DEFAULT 0);
    CREATE TABLE IF NOT EXISTS memory_vector(
        doc INTEGER, model TEXT, vector BLOB NOT NULL, PRIMARY KEY(doc, model)) WITHOUT ROWID;
"""

_BATCH = 2_000
Key = tuple[str, str]
ModelVectors = list[tuple[str, bytes]]

_JOIN_KEYS = "FROM json_each(?1) j CROSS JOIN {} WHERE t.stream = j.value->>0 AND t.id = j.value->>1"


def full_text_table(number: int) -> str:
    return f"memory_words_{number}"


def rebuild_index(rows: Rows) -> None:
    for (number,) in rows.all("SELECT number FROM memory_owner"):
        rows.run(f"DROP TABLE IF EXISTS {full_text_table(number)}")
    rows.run("DELETE FROM memory_doc; DELETE FROM memory_vector")
    # The counters are not reset, so that readers notice that their documents are gone.
    rows.run("UPDATE memory_owner SET docs = 0, removed = removed + 1, ties = ties + 1")
    for (number,) in rows.all("SELECT number FROM memory_owner"):
        _create_full_text(rows, number)
    keys = rows.all("SELECT stream, id FROM memory ORDER BY event, stream, id")
    _index_keys(rows, keys)


def update_index(rows: Rows, changed: ChangedKeys) -> None:
    keys = set(changed.get("memory", ()))
    for _, memory_id in changed.get("memory_tombstone", ()):
        keys.update(rows.all("SELECT stream, id FROM memory WHERE id = ?", (memory_id,)))
    _index_keys(rows, sorted(keys))
    for table in ("memory_validity", "memory_link"):
        if changed.get(table):
            # A deleted row no longer names its owner, so count the change for all; that costs each one small read.
            rows.run("UPDATE memory_owner SET ties = ties + 1")
            break


def _index_keys(rows: Rows, keys: Sequence[Key]) -> None:
    for start in range(0, len(keys), _BATCH):
        _index_batch(rows, keys[start : start + _BATCH])


def _index_batch(rows: Rows, keys: Sequence[Key]) -> None:
    embedder = static_embedder()
    keys_json = json.dumps(keys)
    old_vectors = _remove_documents(rows, keys_json)
    memories = rows.all(
        f"SELECT t.stream, t.id, t.owner, t.text, t.speaker, t.witnesses {_JOIN_KEYS.format('memory t')}"
        " AND NOT EXISTS (SELECT 1 FROM memory_tombstone s WHERE s.id = t.id) ORDER BY j.key",
        (keys_json,),
    )
    token_rows = [
        embedder.tokens(name_matcher(speaker, witnesses).remove_from(text)) for *_, text, speaker, witnesses in memories
    ]
    vectors = embedder.embed_tokens(token_rows).astype(np.float16)
    last_row = rows.one("SELECT coalesce(max(last), 0) FROM memory_owner")
    doc = last_row[0] if last_row else 0
    documents: list[tuple[int, int, str, str, bool, bytes, bytes]] = []
    embedder_vectors: list[tuple[int, str, bytes]] = []
    texts_by_owner: dict[int, list[tuple[int, str]]] = {}
    numbers: dict[str, int] = {}
    for (stream, memory_id, owner, text, _, _), tokens, vector in zip(memories, token_rows, vectors, strict=True):
        doc += 1
        if owner not in numbers:
            numbers[owner] = _owner_number(rows, owner)
        number, token_bytes = numbers[owner], tokens.tobytes()
        documents.append((doc, number, stream, memory_id, is_question(text), token_bytes, vector.tobytes()))
        texts_by_owner.setdefault(number, []).append((doc, text))
        reusable = old_vectors.get((stream, memory_id, token_bytes), ())
        embedder_vectors.extend((doc, model, model_vector) for model, model_vector in reusable)
    rows.many("INSERT INTO memory_doc VALUES (?,?,?,?,?,?,?)", documents)
    rows.many("INSERT INTO memory_vector VALUES (?,?,?)", embedder_vectors)
    for number, texts in texts_by_owner.items():
        rows.many(f"INSERT INTO {full_text_table(number)}(rowid, text) VALUES (?,?)", texts)
        rows.run(
            "UPDATE memory_owner SET docs = docs + ?, last = ? WHERE number = ?", (len(texts), texts[-1][0], number)
        )


def _remove_documents(rows: Rows, keys_json: str) -> dict[tuple[str, str, bytes], ModelVectors]:
    """Delete documents. Returns their vectors of other embedders, which are reused if the tokens stay the same."""
    vectors: dict[tuple[str, str, bytes], ModelVectors] = {}
    for doc, number, stream, memory_id, tokens in rows.all(
        f"SELECT t.doc, t.owner, t.stream, t.id, t.tokens {_JOIN_KEYS.format('memory_doc t')}",
        (keys_json,),
    ):
        vectors[stream, memory_id, tokens] = rows.all("SELECT model, vector FROM memory_vector WHERE doc = ?", (doc,))
        rows.run("DELETE FROM memory_vector WHERE doc = ?", (doc,))
        rows.run(f"DELETE FROM {full_text_table(number)} WHERE rowid = ?", (doc,))
        rows.run("DELETE FROM memory_doc WHERE doc = ?", (doc,))
        rows.run("UPDATE memory_owner SET docs = docs - 1, removed = removed + 1 WHERE number = ?", (number,))
    return vectors


def _owner_number(rows: Rows, owner: str) -> int:
    row = rows.one("SELECT number FROM memory_owner WHERE owner = ?", (owner,))
    if row is None:
        row = rows.one("INSERT INTO memory_owner(owner) VALUES (?) RETURNING number", (owner,))
        number = int(row[0]) if row else 0
        _create_full_text(rows, number)
        return number
    return int(row[0])


def _create_full_text(rows: Rows, number: int) -> None:
    # Contentless: the text is in `memory`, and a deleted document leaves no copy of it.
    rows.run(
        f"CREATE VIRTUAL TABLE {full_text_table(number)} USING fts5(text, content='', contentless_delete=1,"
        " tokenize='porter unicode61 remove_diacritics 2')"
    )


@functools.lru_cache(maxsize=4_096)
def name_matcher(speaker: str | None, witnesses: str) -> NameMatcher:
    """Matches the speaker and the witnesses, which are a JSON list."""
    return NameMatcher([*json.loads(witnesses), *([speaker] if speaker else [])])


def check_index(store: Store) -> list[str]:
    """Compare the index with the projection's tables. Returns the problems as sentences."""
    return store.transact(_find_problems)


def _find_problems(rows: Rows) -> list[str]:
    problems: list[str] = []
    visible = "memory m WHERE NOT EXISTS (SELECT 1 FROM memory_tombstone t WHERE t.id = m.id)"
    missing = rows.all(
        f"SELECT m.stream, m.id FROM {visible} AND NOT EXISTS"
        " (SELECT 1 FROM memory_doc d WHERE d.id = m.id AND d.stream = m.stream)"
    )
    problems += [f"{memory_id} in {stream} is not in the index" for stream, memory_id in missing]
    stray = rows.all(
        "SELECT d.stream, d.id FROM memory_doc d WHERE NOT EXISTS"
        f" (SELECT 1 FROM {visible} AND m.id = d.id AND m.stream = d.stream)"
    )
    problems += [f"the index still holds {memory_id} of {stream}" for stream, memory_id in stray]
    problems += [
        f"document {doc} has a vector of the wrong size"
        for (doc,) in rows.all("SELECT doc FROM memory_doc WHERE length(vector) <> ?", (2 * DIM,))
    ]
    problems += [
        f"a vector is left of document {doc}, which is gone"
        for (doc,) in rows.all("SELECT doc FROM memory_vector WHERE doc NOT IN (SELECT doc FROM memory_doc)")
    ]
    for number, owner, docs in rows.all("SELECT number, owner, docs FROM memory_owner"):
        table = full_text_table(number)
        indexed = {doc for (doc,) in rows.all(f"SELECT rowid FROM {table}")}
        stored = {doc for (doc,) in rows.all("SELECT doc FROM memory_doc WHERE owner = ?", (number,))}
        if indexed != stored or len(stored) != docs:
            problems.append(f"the words of {owner} are indexed for {len(indexed)} memories, not {len(stored)}")
        rows.run(f"INSERT INTO {table}({table}) VALUES ('integrity-check')")
    return problems
