"""The search index in the database: a document per memory and stream.

There is one full-text table per owner, so that a search covers only that owner's memories. Documents are never changed:
a memory that changes gets a new document with a higher number, so readers find out cheaply what is new or gone.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Collection, Iterator, Sequence

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

_LISTED = "SELECT value FROM json_each(?1)"
_SAME = (
    "SELECT d.doc FROM memory_doc d JOIN memory m ON m.stream = d.stream AND m.id = d.id"
    " WHERE d.id = t.id AND m.text = t.text AND m.speaker IS t.speaker AND m.witnesses = t.witnesses LIMIT 1"
)
"""A document of the same memory in another stream, such as the chat that this one was forked from."""
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
    keys_json = json.dumps(keys)
    old_vectors = _remove_documents(rows, keys_json)
    memories = rows.all(
        f"SELECT t.stream, t.id, t.owner, t.text, t.speaker, t.witnesses, ({_SAME}) {_JOIN_KEYS.format('memory t')}"
        " AND NOT EXISTS (SELECT 1 FROM memory_tombstone s WHERE s.id = t.id) ORDER BY j.key",
        (keys_json,),
    )
    computed = _compute_vectors(
        [(text, speaker, witnesses) for *_, text, speaker, witnesses, same in memories if not same]
    )
    copied = _documents(rows, {same for *_, same in memories if same})
    last_row = rows.one("SELECT coalesce(max(last), 0) FROM memory_owner")
    doc = last_row[0] if last_row else 0
    documents: list[tuple[int, int, str, str, bool, bytes, bytes]] = []
    embedder_vectors: list[tuple[int, str, bytes]] = []
    texts_by_owner: dict[int, list[tuple[int, str]]] = {}
    numbers: dict[str, int] = {}
    for stream, memory_id, owner, text, _, _, same in memories:
        doc += 1
        if owner not in numbers:
            numbers[owner] = _owner_number(rows, owner)
        number = numbers[owner]
        tokens, vector, reusable = copied[same] if same else (*next(computed), ())
        documents.append((doc, number, stream, memory_id, is_question(text), tokens, vector))
        texts_by_owner.setdefault(number, []).append((doc, text))
        reusable = old_vectors.get((stream, memory_id, tokens)) or reusable
        embedder_vectors.extend((doc, model, model_vector) for model, model_vector in reusable)
    rows.many("INSERT INTO memory_doc VALUES (?,?,?,?,?,?,?)", documents)
    rows.many("INSERT INTO memory_vector VALUES (?,?,?)", embedder_vectors)
    for number, texts in texts_by_owner.items():
        rows.many(f"INSERT INTO {full_text_table(number)}(rowid, text) VALUES (?,?)", texts)
        rows.run(
            "UPDATE memory_owner SET docs = docs + ?, last = ? WHERE number = ?", (len(texts), texts[-1][0], number)
        )


def _compute_vectors(memories: Sequence[tuple[str, str | None, str]]) -> Iterator[tuple[bytes, bytes]]:
    """The tokens and the vector of each memory, given as text, speaker and witnesses."""
    if memories:
        embedder = static_embedder()
        tokens = [embedder.tokens(name_matcher(speaker, who).remove_from(text)) for text, speaker, who in memories]
        vectors = embedder.embed_tokens(tokens).astype(np.float16)
        yield from ((one.tobytes(), vector.tobytes()) for one, vector in zip(tokens, vectors, strict=True))


def _documents(rows: Rows, docs: Collection[int]) -> dict[int, tuple[bytes, bytes, ModelVectors]]:
    """The tokens and vectors of these documents."""
    docs_json = json.dumps([*docs])
    vectors = _model_vectors(rows, docs_json)
    found = rows.run(f"SELECT doc, tokens, vector FROM memory_doc WHERE doc IN ({_LISTED})", (docs_json,))
    return {doc: (tokens, vector, vectors.get(doc, [])) for doc, tokens, vector in found}


def _model_vectors(rows: Rows, docs_json: str) -> dict[int, ModelVectors]:
    """Document → its vectors of other embedders."""
    vectors: dict[int, ModelVectors] = {}
    sql = f"SELECT doc, model, vector FROM memory_vector WHERE doc IN ({_LISTED})"
    for doc, model, vector in rows.run(sql, (docs_json,)):
        vectors.setdefault(doc, []).append((model, vector))
    return vectors


def _remove_documents(rows: Rows, keys_json: str) -> dict[tuple[str, str, bytes], ModelVectors]:
    """Delete documents. Returns their vectors of other embedders, which are reused if the tokens stay the same."""
    removed = rows.all(
        f"SELECT t.doc, t.owner, t.stream, t.id, t.tokens {_JOIN_KEYS.format('memory_doc t')}", (keys_json,)
    )
    if not removed:
        return {}
    docs_json = json.dumps([row[0] for row in removed])
    vectors = _model_vectors(rows, docs_json)
    for table in ("memory_vector", "memory_doc"):
        rows.run(f"DELETE FROM {table} WHERE doc IN ({_LISTED})", (docs_json,))
    by_owner: dict[int, list[tuple[int]]] = {}
    for doc, number, *_ in removed:
        by_owner.setdefault(number, []).append((doc,))
    for number, docs in by_owner.items():
        rows.many(f"DELETE FROM {full_text_table(number)} WHERE rowid = ?", docs)
        count = len(docs)
        rows.run(
            "UPDATE memory_owner SET docs = docs - ?, removed = removed + ? WHERE number = ?", (count, count, number)
        )
    return {
        (stream, memory_id, tokens): vectors[doc] for doc, _, stream, memory_id, tokens in removed if doc in vectors
    }


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
