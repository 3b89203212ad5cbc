"""Full-text search over the turns of rooms, updated in the transaction that changes a turn.

Rewound and superseded turns leave the index at once and return with an undo. Replies are indexed once they have ended.
The index holds words only; snippets are cut from the turn's text, with hits marked but never as markup.
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
_JOIN_KEYS = "FROM json_each(?1) j CROSS JOIN {} t WHERE t.room = j.value->>0 AND t.id = j.value->>1"
_BATCH = 2_000
_MAX_WORDS = 12
_WORD = re.compile(r"[^\W_]+")
_CONTEXT = 60
"""Characters of a snippet before the first hit; twice as many after it."""


def rebuild_index(rows: Rows) -> None:
    rows.run("INSERT INTO turn_words(turn_words) VALUES ('delete-all'); DELETE FROM turn_doc")
    _index(rows, rows.all("SELECT room, id FROM turn ORDER BY room, seq"))


def update_index(rows: Rows, changed: ChangedKeys) -> None:
    _index(rows, sorted(changed.get("turn", ())))


def _index(rows: Rows, keys: Sequence[Sequence[object]]) -> None:
    batches = [json.dumps(keys[start : start + _BATCH]) for start in range(0, len(keys), _BATCH)]
    # All deletions come first: the full-text table writes what is pending before each of the INSERT statements, and
    # writing deletions takes longer the more often it is done.
    for keys_json in batches:
        old = rows.all(f"SELECT t.doc {_JOIN_KEYS.format('turn_doc')}", (keys_json,))
        rows.many("DELETE FROM turn_words WHERE rowid = ?", old)
        rows.many("DELETE FROM turn_doc WHERE doc = ?", old)
    for keys_json in batches:
        ended = f"{_JOIN_KEYS.format('turn')} AND t.state <> 'open' AND t.text <> '' ORDER BY j.key"
        rows.run(f"INSERT INTO turn_doc(room, id) SELECT t.room, t.id {ended}", (keys_json,))
        rows.run(
            "INSERT INTO turn_words(rowid, text) SELECT d.doc, t.text FROM json_each(?1) j"
            " JOIN turn_doc d ON d.room = j.value->>0 AND d.id = j.value->>1"
            " JOIN turn t ON t.room = d.room AND t.id = d.id",
            (keys_json,),
        )


@dataclass(frozen=True)
class SnippetPart:
    """A part of a snippet; a surface marks the hits and escapes all parts."""

    text: str
    hit: bool


@dataclass(frozen=True)
class SearchHit:
    room: str
    turn: str
    snippet: tuple[SnippetPart, ...]


def search_messages(
    store: Store, query: str, *, room: str | None = None, limit: int = 50, offset: int = 0
) -> list[SearchHit]:
    """Turns that have every word of the query, as a word or as its beginning; best first."""
    words = _WORD.findall(query)[:_MAX_WORDS]
    if not words:
        return []
    match = " ".join(f'"{word}"*' for word in words)
    rows = store.query(
        "SELECT d.room, d.id, t.text FROM turn_words w JOIN turn_doc d ON d.doc = w.rowid"
        " JOIN turn t ON t.room = d.room AND t.id = d.id"
        " WHERE turn_words MATCH ?1 AND (?2 IS NULL OR d.room = ?2) ORDER BY w.rank, d.doc DESC LIMIT ?3 OFFSET ?4",
        (match, room, limit, offset),
    )
    return [SearchHit(hit_room, turn, snippet(text, words)) for hit_room, turn, text in rows]


def snippet(text: str, words: Sequence[str]) -> tuple[SnippetPart, ...]:
    """The text around the first hit, on one line."""
    prefixes = tuple(_fold(word) for word in words)
    flat = " ".join(text.split())
    hits = [match.span() for match in _WORD.finditer(flat) if _fold(match[0]).startswith(prefixes)]
    first = hits[0][0] if hits else 0
    begin = max(0, first - _CONTEXT)
    end = min(len(flat), first + 2 * _CONTEXT)
    parts = [SnippetPart("…", False)] if begin else []
    position = begin
    for start, stop in hits:
        if start >= begin and stop <= end:
            parts += [SnippetPart(flat[position:start], False), SnippetPart(flat[start:stop], True)]
            position = stop
    parts.append(SnippetPart(flat[position:end], False))
    if end < len(flat):
        parts.append(SnippetPart("…", False))
    return tuple(part for part in parts if part.text)


def _fold(word: str) -> str:
    """Without case and accents, as the index compares words."""
    decomposed = unicodedata.normalize("NFKD", word)
    return "".join(letter for letter in decomposed if not unicodedata.combining(letter)).casefold()
