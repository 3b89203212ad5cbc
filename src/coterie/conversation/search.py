"""Finding what was said: a full-text index over every turn that counts, kept in the transaction that changes them. S17

What is rewound or superseded is out of it at that moment, and back with an undo. A reply is found once it has ended.
The index holds words only; the text stands in the turn, and is told with the words marked, never as markup.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from coterie.eventstore import ChangedKeys, Rows, Store

SCHEMA = """
    CREATE TABLE IF NOT EXISTS turn_doc(
        doc INTEGER PRIMARY KEY, room TEXT NOT NULL, id TEXT NOT NULL, UNIQUE(room, id));
    CREATE VIRTUAL TABLE IF NOT EXISTS turn_words USING fts5(
        text, content='', contentless_delete=1, tokenize='unicode61 remove_diacritics 2');
"""
_FIND = "FROM json_each(?1) j CROSS JOIN {} t WHERE t.room = j.value->>0 AND t.id = j.value->>1"
_BATCH = 2_000
_MOST_WORDS = 12
_WORD = re.compile(r"[^\W_]+")
_AROUND = 60
"""Characters of a snippet before the first hit; twice as many after."""


def rebuild_index(rows: Rows) -> None:
    rows.run("INSERT INTO turn_words(turn_words) VALUES ('delete-all'); DELETE FROM turn_doc")
    _index(rows, rows.all("SELECT room, id FROM turn ORDER BY room, seq"))


def update_index(rows: Rows, changed: ChangedKeys) -> None:
    _index(rows, sorted(changed.get("turn", ())))


def _index(rows: Rows, keys: Sequence[Sequence[object]]) -> None:
    for start in range(0, len(keys), _BATCH):
        wanted = json.dumps(keys[start : start + _BATCH])
        old = rows.all(f"SELECT t.doc {_FIND.format('turn_doc')}", (wanted,))
        rows.many("DELETE FROM turn_words WHERE rowid = ?", old)
        rows.many("DELETE FROM turn_doc WHERE doc = ?", old)
        ended = f"{_FIND.format('turn')} AND t.state <> 'open' AND t.text <> '' ORDER BY j.key"
        rows.run(f"INSERT INTO turn_doc(room, id) SELECT t.room, t.id {ended}", (wanted,))
        rows.run(
            "INSERT INTO turn_words(rowid, text) SELECT d.doc, t.text FROM json_each(?1) j"
            " JOIN turn_doc d ON d.room = j.value->>0 AND d.id = j.value->>1"
            " JOIN turn t ON t.room = d.room AND t.id = d.id",
            (wanted,),
        )


@dataclass(frozen=True)
class SnippetPart:
    """A piece of a snippet; a surface marks those that were looked for, and escapes all of them."""

    text: str
    hit: bool


@dataclass(frozen=True)
class SearchHit:
    room: str
    turn: str
    snippet: tuple[SnippetPart, ...]


def search(store: Store, query: str, *, room: str | None = None, limit: int = 50, offset: int = 0) -> list[SearchHit]:
    """Turns that hold every word, or one that begins with it; the best first."""
    words = _WORD.findall(query)[:_MOST_WORDS]
    if not words:
        return []
    asked = " ".join(f'"{word}"*' for word in words)
    rows = store.query(
        "SELECT d.room, d.id, t.text FROM turn_words w JOIN turn_doc d ON d.doc = w.rowid"
        " JOIN turn t ON t.room = d.room AND t.id = d.id"
        " WHERE turn_words MATCH ?1 AND (?2 IS NULL OR d.room = ?2) ORDER BY w.rank, d.doc DESC LIMIT ?3 OFFSET ?4",
        (asked, room, limit, offset),
    )
    return [SearchHit(where, turn, snippet(text, words)) for where, turn, text in rows]


def snippet(text: str, words: Sequence[str]) -> tuple[SnippetPart, ...]:
    """What stands around the first hit, on one line."""
    looked_for = tuple(_folded(word) for word in words)
    flat = " ".join(text.split())
    hits = [match.span() for match in _WORD.finditer(flat) if _folded(match[0]).startswith(looked_for)]
    first = hits[0][0] if hits else 0
    begin = max(0, first - _AROUND)
    end = min(len(flat), first + 2 * _AROUND)
    told = [SnippetPart("…", False)] if begin else []
    at = begin
    for start, stop in hits:
        if start >= begin and stop <= end:
            told += [SnippetPart(flat[at:start], False), SnippetPart(flat[start:stop], True)]
            at = stop
    told += [SnippetPart(flat[at:end], False)]
    if end < len(flat):
        told.append(SnippetPart("…", False))
    return tuple(stretch for stretch in told if stretch.text)


def _folded(word: str) -> str:
    """As the index sees it: without case and accents."""
    bare = unicodedata.normalize("NFKD", word)
    return "".join(letter for letter in bare if not unicodedata.combining(letter)).casefold()
