"""Characters with all their versions, and the owner's profile: events, projection, queries and commands."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from coterie.base.clock import from_micros, to_micros
from coterie.characters.cards.card import Card
from coterie.characters.errors import ConfirmationMismatch, NoSuchCharacter
from coterie.characters.identity import Identity, check_identity
from coterie.eventstore import Event, LogReader, NewEvent, Payload, Projection, Rows, Store, on


class CharacterAuthored(Payload, kind="bot_authored"):
    """A character was created or changed. Every version stays readable."""

    identity: Identity
    """Its complete new identity; `id` is the character's id."""
    card: dict[str, Any] | None = None
    """The card it was imported from, as it was read, so that it is exported unchanged."""


class CharacterReset(Payload, kind="bot_reset"):
    """A character starts over without memories; its identity stays."""

    bot: str
    """The character's id."""


class OwnerAuthored(Payload, kind="you_authored"):
    """The owner's profile for the characters."""

    name: str
    """The name that characters use."""
    pronouns: str = ""
    """Such as `she/her`; may be empty."""
    persona: str = ""
    """What characters know about the owner; may be empty."""


class CharacterDeleted(Payload, kind="bot_deleted"):
    """A character was deleted. Its chats stay readable, and saving it again brings it back."""

    bot: str
    """The character's id."""


OWNER = "you"


@dataclass(frozen=True)
class OwnerProfile:
    name: str = "You"
    pronouns: str = ""
    persona: str = ""


@dataclass(frozen=True)
class Character:
    identity: Identity
    version: int
    card: Card | None

    @property
    def id(self) -> str:
        return self.identity.id

    @property
    def name(self) -> str:
        return self.identity.name


class CharactersProjection(Projection):
    """Characters are not part of a room, so a fork does not copy them."""

    name = "characters"
    schema = """
        CREATE TABLE character(id TEXT PRIMARY KEY, name TEXT NOT NULL, version INTEGER NOT NULL,
            authored INTEGER NOT NULL, resets INTEGER NOT NULL DEFAULT 0, reset INTEGER,
            deleted INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;
        CREATE TABLE character_version(id TEXT, version INTEGER, identity TEXT NOT NULL, card TEXT,
            authored INTEGER NOT NULL, PRIMARY KEY(id, version)) WITHOUT ROWID;
        CREATE TABLE owner(id INTEGER PRIMARY KEY, name TEXT NOT NULL, pronouns TEXT NOT NULL, persona TEXT NOT NULL);
    """

    @on(CharacterAuthored)
    def authored(self, rows: Rows, event: Event[CharacterAuthored]) -> None:
        identity, card = event.payload.identity, event.payload.card
        at = to_micros(event.ts)
        rows.run(
            "INSERT INTO character(id, name, version, authored) VALUES (?1, ?2, 1, ?3) ON CONFLICT(id)"
            " DO UPDATE SET name = ?2, version = version + 1, authored = ?3, deleted = 0",
            (identity.id, identity.name, at),
        )
        rows.run(
            "INSERT INTO character_version SELECT id, version, ?, ?, ? FROM character WHERE id = ?",
            (identity.model_dump_json(), json.dumps(card) if card is not None else None, at, identity.id),
        )

    @on(CharacterReset)
    def reset(self, rows: Rows, event: Event[CharacterReset]) -> None:
        rows.run(
            "UPDATE character SET resets = resets + 1, reset = ? WHERE id = ?", (to_micros(event.ts), event.payload.bot)
        )

    @on(CharacterDeleted)
    def deleted(self, rows: Rows, event: Event[CharacterDeleted]) -> None:
        rows.run("UPDATE character SET deleted = 1 WHERE id = ?", (event.payload.bot,))

    @on(OwnerAuthored)
    def owner_authored(self, rows: Rows, event: Event[OwnerAuthored]) -> None:
        payload = event.payload
        rows.run("INSERT OR REPLACE INTO owner VALUES (1, ?, ?, ?)", (payload.name, payload.pronouns, payload.persona))


class CharacterQueries:
    """Reads characters, also while another process owns the store."""

    def __init__(self, store: Store | LogReader) -> None:
        self._log = store

    def owner(self) -> OwnerProfile:
        rows = self._log.query("SELECT name, pronouns, persona FROM owner")
        return OwnerProfile(*rows[0]) if rows else OwnerProfile()

    def has_owner_profile(self) -> bool:
        return bool(self._log.query("SELECT 1 FROM owner"))

    def all(self) -> list[Character]:
        return [
            self.get(row[0]) for row in self._log.query("SELECT id FROM character WHERE NOT deleted ORDER BY name, id")
        ]

    def get(self, character_id: str, version: int | None = None) -> Character:
        rows = self._log.query(
            "SELECT v.identity, v.version, v.card FROM character c JOIN character_version v ON v.id = c.id"
            " AND v.version = coalesce(?, c.version) WHERE c.id = ?",
            (version, character_id),
        )
        if not rows:
            raise NoSuchCharacter(f"There is no character {character_id}.", "The page lists all characters.")
        return _character(rows[0])

    def reset_at(self, character_id: str) -> datetime | None:
        """When a character was last reset: it does not know what came before."""
        rows = self._log.query("SELECT reset FROM character WHERE id = ? AND reset IS NOT NULL", (character_id,))
        return from_micros(rows[0][0]) if rows else None

    def reset_times(self) -> dict[str, datetime]:
        """The characters that were reset, and when they last were."""
        rows = self._log.query("SELECT id, reset FROM character WHERE reset IS NOT NULL")
        return {character: from_micros(at) for character, at in rows}

    def find(self, name: str) -> Character:
        """By id or by name, in any case; by the first name where only one character has it."""
        rows = self._log.query(
            "SELECT id FROM character WHERE (id = ?1 OR lower(name) = lower(?1)) AND NOT deleted ORDER BY id", (name,)
        )
        if rows:
            return self.get(rows[0][0])
        characters = self.all()
        namesakes = [character for character in characters if character.name.lower().split()[:1] == [name.lower()]]
        if len({character.name for character in namesakes}) == 1:
            return namesakes[0]
        names = ", ".join(dict.fromkeys(character.name for character in namesakes or characters)) or "none yet"
        what = f"Several characters are called {name}." if namesakes else f"There is no character called {name}."
        raise NoSuchCharacter(what, f"There is: {names}.")

    def versions(self, character_id: str) -> Sequence[Character]:
        rows = self._log.query(
            "SELECT identity, version, card FROM character_version WHERE id = ? ORDER BY version", (character_id,)
        )
        return [_character(row) for row in rows]

    def version_dates(self, character_id: str) -> dict[int, datetime]:
        """When each version was written."""
        rows = self._log.query("SELECT version, authored FROM character_version WHERE id = ?", (character_id,))
        return {version: from_micros(at) for version, at in rows}

    def _card_of(self, character_id: str) -> Card | None:
        rows = self._log.query(
            "SELECT card FROM character_version WHERE id = ? ORDER BY version DESC LIMIT 1", (character_id,)
        )
        return Card.read(json.loads(rows[0][0])) if rows and rows[0][0] else None


class Characters(CharacterQueries):
    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._store = store

    async def save(self, identity: Identity, card: Card | None = None, *, actor: str = OWNER) -> Character:
        """Create or change a character. Open scenes keep the version they began with."""
        check_identity(identity)
        card = card if card is not None else self._card_of(identity.id)
        payload = CharacterAuthored(identity=identity, card=card.document if card is not None else None)
        await self._store.append([NewEvent(f"cast:{identity.id}", payload, actor)])
        return self.get(identity.id)

    async def delete(self, character_id: str, confirm: str) -> Character:
        """Delete a character if its name was typed. Its events are kept: `coterie purge` erases them."""
        character = self.get(character_id)
        require_confirmation(character, confirm, "delete")
        await self._store.append([NewEvent(f"cast:{character.id}", CharacterDeleted(bot=character.id), OWNER)])
        return character

    async def save_owner(self, profile: OwnerProfile) -> None:
        payload = OwnerAuthored(name=profile.name, pronouns=profile.pronouns, persona=profile.persona)
        await self._store.append([NewEvent("you", payload, OWNER)])


@functools.lru_cache(maxsize=256)
def _character(row: tuple[Any, ...]) -> Character:
    """Cached: every turn reads its characters, and a card with a large lorebook is slow to parse."""
    identity, version, card = row
    return Character(Identity.model_validate_json(identity), version, Card.read(json.loads(card)) if card else None)


def require_confirmation(character: Character, typed: str, action: str) -> None:
    if typed.strip() != character.name:
        raise ConfirmationMismatch(
            f"To {action} {character.name}, its name has to be typed exactly.", f"Type {character.name} to confirm."
        )


def reset_event(character_id: str, actor: str = OWNER) -> NewEvent:
    return NewEvent(f"cast:{character_id}", CharacterReset(bot=character_id), actor)
