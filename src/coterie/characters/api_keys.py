"""Personal keys of the HTTP API: who calls with one acts as the person it belongs to.

A key is random and shown once. Only its SHA-256 is stored, so the log and backups give no access.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime

from coterie.base.clock import from_micros, to_micros
from coterie.base.ids import new_id
from coterie.base.redaction import redact
from coterie.characters.errors import NoSuchKey, NoSuchPerson
from coterie.characters.people import PeopleQueries, Person
from coterie.characters.service import OWNER
from coterie.eventstore import Event, LogReader, NewEvent, Payload, Projection, Rows, Store, on

KEY_PREFIX = "coterie_"
"""How every personal key begins, by which tools that look for leaked secrets recognise it."""
_STREAM = "people"


class ApiKeyCreated(Payload, kind="api_key_created"):
    """A person got a key of the HTTP API."""

    key: str
    """The id of the key, which gives no access."""
    person: str
    """The person's id; `you` is the owner."""
    name: str
    """What the key is for."""
    digest: str
    """SHA-256 of the key, which itself is not stored."""


class ApiKeyRevoked(Payload, kind="api_key_revoked"):
    """A key of the HTTP API was revoked: it gives no access from now on."""

    key: str
    """The id of the key."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    id: str
    person: str
    name: str
    created: datetime


class ApiKeysProjection(Projection):
    name = "api_keys"
    schema = """
        CREATE TABLE api_key(id TEXT PRIMARY KEY, person TEXT NOT NULL, name TEXT NOT NULL,
            digest TEXT NOT NULL UNIQUE, created INTEGER NOT NULL) WITHOUT ROWID;
    """

    @on(ApiKeyCreated)
    def created(self, rows: Rows, event: Event[ApiKeyCreated]) -> None:
        payload = event.payload
        params = (payload.key, payload.person, payload.name, payload.digest, to_micros(event.ts))
        rows.run("INSERT OR REPLACE INTO api_key VALUES (?, ?, ?, ?, ?)", params)

    @on(ApiKeyRevoked)
    def revoked(self, rows: Rows, event: Event[ApiKeyRevoked]) -> None:
        rows.run("DELETE FROM api_key WHERE id = ?", (event.payload.key,))


class ApiKeyQueries:
    """Reads keys, also while another process owns the store."""

    def __init__(self, store: Store | LogReader) -> None:
        self._log = store
        self._people = PeopleQueries(store)

    def of_person(self, person: str) -> list[ApiKey]:
        """The keys of a person that are not revoked, oldest first."""
        sql = "SELECT id, person, name, created FROM api_key WHERE person = ? ORDER BY id"
        return [
            ApiKey(key, of, name, from_micros(created)) for key, of, name, created in self._log.query(sql, (person,))
        ]

    def find_person(self, token: str) -> Person | None:
        """The person whose key this is, if it is valid now."""
        rows = self._log.query("SELECT person FROM api_key WHERE digest = ?", (_digest(token),))
        try:
            return self._people.person(rows[0][0]) if rows else None
        except NoSuchPerson:
            return None


class ApiKeys(ApiKeyQueries):
    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._store = store

    async def create(self, person: str, name: str) -> tuple[ApiKey, str]:
        """A new key of a person. The token is returned only here."""
        token, key = f"{KEY_PREFIX}{secrets.token_urlsafe(32)}", new_id()
        redact.register(token)
        owner = self._people.person(person).id
        created = ApiKeyCreated(key=key, person=owner, name=name, digest=_digest(token))
        await self._store.append([NewEvent(_STREAM, created, OWNER)])
        return next(one for one in self.of_person(owner) if one.id == key), token

    async def revoke(self, key: str) -> None:
        if not self._store.query("SELECT 1 FROM api_key WHERE id = ?", (key,)):
            raise NoSuchKey("There is no such key.", "It may have been revoked: `coterie people keys` lists them.")
        await self._store.append([NewEvent(_STREAM, ApiKeyRevoked(key=key), OWNER)])


def _digest(token: str) -> str:
    return hashlib.sha256(f"coterie api key {token}".encode("utf-8", "replace")).hexdigest()
