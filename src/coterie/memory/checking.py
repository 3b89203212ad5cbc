"""Whether the index says what the tables say: the part of `verify` that only memory can do."""

from __future__ import annotations

from coterie.kernel import Rows, Store
from coterie.memory.docs import full_text_table
from coterie.memory.static import DIM


def check_index(store: Store) -> list[str]:
    """What is wrong, in sentences; nothing if all is well."""
    return store.transact(_find_problems)


def _find_problems(rows: Rows) -> list[str]:
    faults: list[str] = []
    visible = "memory m WHERE NOT EXISTS (SELECT 1 FROM memory_tombstone t WHERE t.id = m.id)"
    missing = rows.all(
        f"SELECT m.stream, m.id FROM {visible} AND NOT EXISTS"
        " (SELECT 1 FROM memory_doc d WHERE d.id = m.id AND d.stream = m.stream)"
    )
    faults += [f"{memory_id} in {stream} is not in the index" for stream, memory_id in missing]
    stray = rows.all(
        "SELECT d.stream, d.id FROM memory_doc d WHERE NOT EXISTS"
        f" (SELECT 1 FROM {visible} AND m.id = d.id AND m.stream = d.stream)"
    )
    faults += [f"the index still holds {memory_id} of {stream}" for stream, memory_id in stray]
    faults += [
        f"document {doc} has a vector of the wrong size"
        for (doc,) in rows.all("SELECT doc FROM memory_doc WHERE length(vector) <> ?", (2 * DIM,))
    ]
    faults += [
        f"a vector is left of document {doc}, which is gone"
        for (doc,) in rows.all("SELECT doc FROM memory_vector WHERE doc NOT IN (SELECT doc FROM memory_doc)")
    ]
    for number, owner, docs in rows.all("SELECT number, owner, docs FROM memory_owner"):
        table = full_text_table(number)
        indexed = {doc for (doc,) in rows.all(f"SELECT rowid FROM {table}")}
        stored = {doc for (doc,) in rows.all("SELECT doc FROM memory_doc WHERE owner = ?", (number,))}
        if indexed != stored or len(stored) != docs:
            faults.append(f"the words of {owner} are indexed for {len(indexed)} memories, not {len(stored)}")
        rows.run(f"INSERT INTO {table}({table}) VALUES ('integrity-check')")
    return faults
