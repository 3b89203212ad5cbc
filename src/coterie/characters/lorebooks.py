"""Lorebooks of their own, and those inside cards: events, projection, queries and commands.

A lorebook is used everywhere, or in the chats of some characters, or in some chats. The book inside a character's card
has the id `card:` and the character's id; it is used with that character, and editing it makes a new version.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from coterie.base.ids import new_id
from coterie.base.offload import run_limited
from coterie.characters.cards.card import Card
from coterie.characters.cards.lore_scan import LoreContext, find_lore_in
from coterie.characters.cards.lorebook import Lorebook
from coterie.characters.cards.lorebook_edit import (
    BookFields,
    EntryFields,
    empty_book,
    with_book_fields,
    with_entry_fields,
)
from coterie.characters.cards.parsing import Document, read_object
from coterie.characters.errors import BadEntry, CardTooBig, NoSuchLorebook
from coterie.characters.service import OWNER, Characters
from coterie.eventstore import Event, LogReader, NewEvent, Payload, Projection, Rows, Store, on

CARD_PREFIX = "card:"
_STREAM = "lorebooks"
_MAX_ENTRY = 2_000_000
_MAX_BOOK = 10_000_000
_MAX_ENTRIES = 10_000
"""All entries are searched at every turn."""


class LorebookSaved(Payload, kind="lorebook_saved"):
    """A lorebook was created or imported, or its settings were changed."""

    book: str
    """The lorebook's id."""
    name: str
    """Its name in the list."""
    document: dict[str, Any]
    """All of it, as it was read."""


class LorebookEntrySaved(Payload, kind="lorebook_entry_saved"):
    """An entry of a lorebook was added, changed or removed."""

    book: str
    """The lorebook's id."""
    entry: str
    """The entry's key: its uid or id, else its place."""
    fields: dict[str, Any] | None
    """The entry in the format of its lorebook; None if it was removed."""


class LorebookAssigned(Payload, kind="lorebook_assigned"):
    """It was decided where a lorebook is used."""

    book: str
    """The lorebook's id."""
    everywhere: bool = False
    """In every chat."""
    characters: tuple[str, ...] = ()
    """The ids of characters whose prompts use it."""
    chats: tuple[str, ...] = ()
    """The streams of chats that use it."""


class LorebookDeleted(Payload, kind="lorebook_deleted"):
    """A lorebook was deleted, or brought back."""

    book: str
    """The lorebook's id."""
    deleted: bool = True
    """False if the deletion was undone."""


@dataclass(frozen=True)
class StoredLorebook:
    id: str
    name: str
    book: Lorebook
    everywhere: bool = False
    characters: tuple[str, ...] = ()
    chats: tuple[str, ...] = ()

    @property
    def card_of(self) -> str:
        """The character whose card it is in; empty for one of its own."""
        return self.id.removeprefix(CARD_PREFIX) if self.id.startswith(CARD_PREFIX) else ""


class LorebooksProjection(Projection):
    """Lorebooks are not part of a room: a rewind does not change them, and forks use the same ones."""

    name = "lorebooks"
    journaled = False
    schema = """
        CREATE TABLE lorebook(id TEXT PRIMARY KEY, name TEXT NOT NULL, document TEXT NOT NULL,
            everywhere INTEGER NOT NULL DEFAULT 0, characters TEXT NOT NULL DEFAULT '[]',
            chats TEXT NOT NULL DEFAULT '[]', deleted INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;
    """

    @on(LorebookSaved)
    def saved(self, rows: Rows, event: Event[LorebookSaved]) -> None:
        payload = event.payload
        rows.run(
            "INSERT INTO lorebook(id, name, document) VALUES (?1, ?2, ?3)"
            " ON CONFLICT(id) DO UPDATE SET name = ?2, document = ?3, deleted = 0",
            (payload.book, payload.name, json.dumps(payload.document, ensure_ascii=False)),
        )

    @on(LorebookEntrySaved)
    def entry_saved(self, rows: Rows, event: Event[LorebookEntrySaved]) -> None:
        payload = event.payload
        row = rows.one("SELECT document FROM lorebook WHERE id = ?", (payload.book,))
        if row is not None:
            book = Lorebook(document=json.loads(row[0])).with_entry(payload.entry, payload.fields)
            document = json.dumps(book.document, ensure_ascii=False)
            rows.run("UPDATE lorebook SET document = ? WHERE id = ?", (document, payload.book))

    @on(LorebookAssigned)
    def assigned(self, rows: Rows, event: Event[LorebookAssigned]) -> None:
        payload = event.payload
        rows.run(
            "UPDATE lorebook SET everywhere = ?, characters = ?, chats = ? WHERE id = ?",
            (payload.everywhere, json.dumps(payload.characters), json.dumps(payload.chats), payload.book),
        )

    @on(LorebookDeleted)
    def deleted(self, rows: Rows, event: Event[LorebookDeleted]) -> None:
        rows.run("UPDATE lorebook SET deleted = ? WHERE id = ?", (event.payload.deleted, event.payload.book))


class LorebookQueries:
    def __init__(self, store: Store | LogReader) -> None:
        self._log = store

    def all(self) -> list[StoredLorebook]:
        """Those of their own, by name."""
        return [_stored(row) for row in self._log.query(f"{_SELECT} WHERE NOT deleted ORDER BY name, id")]

    def of_its_own(self, book: str) -> StoredLorebook:
        rows = self._log.query(f"{_SELECT} WHERE id = ? AND NOT deleted", (book,))
        if not rows:
            raise NoSuchLorebook("There is no such lorebook.", "Choose one from the list of lorebooks.")
        return _stored(rows[0])

    def used_in(self, chats: Collection[str], character: str, card: Card | None) -> dict[str, Lorebook]:
        """The lorebooks of a character's prompts, by id: of its card, its own, those of any of the chats, global ones.

        `chats` are the streams of a chat and of those it was forked from.
        """
        books = {f"{CARD_PREFIX}{character}": card.lorebook} if card is not None and card.lorebook is not None else {}
        used = [
            one
            for one in self.all()
            if one.everywhere or character in one.characters or not set(chats).isdisjoint(one.chats)
        ]
        return books | {one.id: one.book for one in used}


class Lorebooks(LorebookQueries):
    def __init__(self, store: Store, characters: Characters) -> None:
        super().__init__(store)
        self._store = store
        self._characters = characters

    def get(self, book: str) -> StoredLorebook:
        """A lorebook, also one in a card. A character without one has an empty one."""
        if not book.startswith(CARD_PREFIX):
            return self.of_its_own(book)
        character = self._characters.get(book.removeprefix(CARD_PREFIX))
        document = character.card.fields.get("character_book") if character.card is not None else None
        in_card = Lorebook(document=document if isinstance(document, dict) else empty_book(""))
        return StoredLorebook(book, in_card.name or character.name, in_card, characters=(character.id,))

    def in_cards(self) -> list[StoredLorebook]:
        return [
            self.get(f"{CARD_PREFIX}{character.id}")
            for character in self._characters.all()
            if character.card is not None and character.card.lorebook is not None
        ]

    async def create(self, name: str, document: Document | None = None) -> StoredLorebook:
        """A new lorebook, empty or with a document that was read."""
        book = new_id()
        await self._store.append(self.create_events(book, name, document if document is not None else empty_book(name)))
        return self.of_its_own(book)

    def create_events(self, book: str, name: str, document: Document, characters: Iterable[str] = ()) -> list[NewEvent]:
        """The events of a lorebook with this id, for a transaction with others. Prompts of `characters` use it."""
        payloads: list[Payload] = [LorebookSaved(book=book, name=name, document=document)]
        if users := tuple(characters):
            payloads.append(LorebookAssigned(book=book, characters=users))
        return [NewEvent(_STREAM, payload, OWNER) for payload in payloads]

    async def import_file(self, data: bytes, file_name: str) -> StoredLorebook:
        """A lorebook from a file: SillyTavern's world info, or `lorebook_v3`."""
        book = await run_limited("Reading the lorebook", len(data), read_lorebook, data)
        stem = file_name.rpartition(".")[0] or file_name
        return await self.create((book.name or stem or "Imported lorebook")[:200], book.document)

    async def save_settings(self, book: str, fields: BookFields) -> StoredLorebook:
        stored = self.get(book)
        changed = with_book_fields(stored.book, fields)
        if stored.card_of:
            await self._save_card(stored, changed)
        else:
            await self._append(LorebookSaved(book=book, name=fields.name or stored.name, document=changed.document))
        return self.get(book)

    async def save_entry(self, book: str, entry: str, fields: EntryFields) -> str:
        """Add or change an entry; an empty key adds one. Returns its key."""
        stored = self.get(book)
        if entry:
            stored.book.raw_entry(entry)  # raises for an unknown one
        key = entry or stored.book.new_key()
        changed = with_entry_fields(stored.book, key, fields)
        if changed is not stored.book:
            await self._save_entry(stored, key, changed.raw_entry(key))
        return key

    async def remove_entry(self, book: str, entry: str) -> Document:
        """Remove an entry; returns it as it was, for `restore_entry`."""
        stored = self.get(book)
        removed = stored.book.raw_entry(entry)
        await self._save_entry(stored, entry, None)
        return removed

    async def restore_entry(self, book: str, entry: str, fields: Document) -> None:
        """Undo the removal of an entry; it comes last in the file."""
        stored = self.get(book)
        if not entry or len(json.dumps(fields)) > _MAX_ENTRY:
            raise BadEntry("This is not an entry that was removed.", "Add a new one instead.")
        await self._save_entry(stored, entry, fields)

    async def assign(self, book: str, *, everywhere: bool, characters: Iterable[str], chats: Iterable[str]) -> None:
        """Decide where a lorebook of its own is used."""
        self.of_its_own(book)
        known = tuple(self._characters.get(character).id for character in characters)
        await self._append(
            LorebookAssigned(book=book, everywhere=everywhere, characters=known, chats=tuple(dict.fromkeys(chats)))
        )

    async def delete(self, book: str) -> None:
        self.of_its_own(book)
        await self._append(LorebookDeleted(book=book))

    async def restore(self, book: str) -> StoredLorebook:
        """Undo a deletion."""
        await self._append(LorebookDeleted(book=book, deleted=False))
        return self.of_its_own(book)

    async def _save_entry(self, stored: StoredLorebook, entry: str, fields: Document | None) -> None:
        if stored.card_of:
            await self._save_card(stored, stored.book.with_entry(entry, fields))
        else:
            await self._append(LorebookEntrySaved(book=stored.id, entry=entry, fields=fields))

    async def _save_card(self, stored: StoredLorebook, book: Lorebook) -> None:
        character = self._characters.get(stored.card_of)
        card = character.card if character.card is not None else character.identity.to_card()
        await self._characters.save(character.identity, card.with_fields(character_book=book.document))

    async def _append(self, payload: Payload) -> None:
        await self._store.append([NewEvent(_STREAM, payload, OWNER)])


@dataclass(frozen=True)
class LorePreviewEntry:
    """What would happen to one entry, and why."""

    book: str
    entry: str
    name: str
    fires: bool
    why: str
    tokens: int


def read_lorebook(data: bytes) -> Lorebook:
    """A stand-alone lorebook of any format, within the limits of one that can be used."""
    if len(data) > _MAX_BOOK:
        raise CardTooBig(
            f"The lorebook has {len(data) / 1e6:.0f} MB; at most {_MAX_BOOK // 1_000_000} MB are allowed.",
            "Divide it into several lorebooks.",
        )
    book = Lorebook.read(read_object(data, "The lorebook"))
    if len(book.document["entries"]) > _MAX_ENTRIES:
        raise CardTooBig(f"The lorebook has more than {_MAX_ENTRIES:,} entries.", "Divide it into several lorebooks.")
    return book


def preview_lore(books: Mapping[str, Lorebook], context: LoreContext) -> list[LorePreviewEntry]:
    """Every entry of these books: those that would go into a prompt first, in its order."""
    result = find_lore_in(books, context, lambda text: len(text) // 4 + 1)
    fired = [
        LorePreviewEntry(one.book, one.entry.key, _label(one.entry.name, one.entry.keys), True, one.why, one.tokens)
        for one in result.included
    ]
    used = {one.ref for one in result.included}
    others = [
        LorePreviewEntry(
            book_id,
            entry.key,
            _label(entry.name, entry.keys),
            False,
            result.skipped.get((book_id, entry.key), "none of its keys occurs, or its conditions do not hold"),
            0,
        )
        for book_id, book in books.items()
        for entry in book.entries
        if (book_id, entry.key) not in used
    ]
    return [*fired, *others]


def _label(name: str, keys: list[str]) -> str:
    return name or ", ".join(keys[:3]) or "Without a name"


_SELECT = "SELECT id, name, document, everywhere, characters, chats FROM lorebook"


def _stored(row: tuple[Any, ...]) -> StoredLorebook:
    book, name, document, everywhere, characters, chats = row
    parsed = _parse(document)
    return StoredLorebook(book, name, parsed, bool(everywhere), tuple(json.loads(characters)), tuple(json.loads(chats)))


@functools.lru_cache(maxsize=64)
def _parse(document: str) -> Lorebook:
    """Cached: every turn reads the books that it uses."""
    return Lorebook(document=json.loads(document))
