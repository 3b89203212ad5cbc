"""Characters, people and their permissions, kept on the homeserver so that they survive the loss of the database.

They are the account's own data, encrypted with a key that is derived from the identity file: neither the homeserver nor
people in the rooms can read them.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pydantic import ValidationError

from coterie.base.errors import CoterieError
from coterie.base.logging import get_logger
from coterie.characters import OWNER, Card, Identity, NoSuchCharacter, OwnerProfile
from coterie.messaging import MessageRouter
from coterie.surfaces.matrix.crypto.devices import CrossSigningIdentity
from coterie.surfaces.matrix.crypto.primitives import from_base64, to_base64
from coterie.surfaces.matrix.homeserver import Homeserver, Json
from coterie.surfaces.matrix.schemas import SURFACE, objects

PREFIX = "org.coterie.records."
_PEOPLE = f"{PREFIX}people"
_CHARACTER = f"{PREFIX}character."
_NONCE_BYTES = 12
_MAX_RECORD_BYTES = 200_000
"""A character with a larger card is kept without the card: homeservers limit the size of a request."""
_SESSION_SURFACES = frozenset({"web"})
"""Surfaces whose accounts are sessions of a browser, which end with the database."""
_log = get_logger(__name__)


class AccountRecords:
    def __init__(
        self,
        server: Homeserver,
        user: str,
        identity: Path,
        router: MessageRouter,
        was_purged: Callable[[str], bool],
    ) -> None:
        """`identity` is the identity file; without it nothing is stored. `was_purged` is asked about streams."""
        self._server = server
        self._user = user
        self._identity = identity
        self._router = router
        self._was_purged = was_purged
        self._writing = asyncio.Lock()
        self._stored: dict[str, Json] = {}
        """What the homeserver has, by kind."""

    async def restore(self) -> list[str]:
        """Restore characters and people that this database does not know; returns what they are, for the report."""
        self._stored = await self._read()
        restored: list[str] = []
        for kind, record in sorted(self._stored.items()):
            try:
                if kind.startswith(_CHARACTER):
                    restored += await self._restore_character(record)
                elif kind == _PEOPLE:
                    restored += await self._restore_people(record)
            except (CoterieError, ValidationError, KeyError, TypeError, ValueError) as error:
                _log.warning("a record was not restored", kind=kind, error=str(error))
        return restored

    async def write(self) -> None:
        """Store what changed since. What fails is tried again at the next change and after the next start."""
        key = self._key()
        if key is not None:
            async with self._writing:
                await self._write(key)

    async def _write(self, key: bytes) -> None:
        current = dict(self._current())
        for kind in self._stored.keys() - current.keys():
            if self._is_erased(kind):
                current[kind] = {}
        for kind, record in current.items():
            if self._stored.get(kind, {}) != record:
                await self._server.put_account_data(self._user, kind, _encrypt(key, kind, record) if record else {})
                self._stored[kind] = record
        self._stored = {kind: record for kind, record in self._stored.items() if record}

    async def _read(self) -> dict[str, Json]:
        key, records = self._key(), dict[str, Json]()
        for kind, content in (await self._server.account_data([f"{PREFIX}*"])).items() if key is not None else ():
            if content and key is not None:
                record = _decrypt(key, kind, content)
                if record is None:
                    _log.warning("a record on the homeserver cannot be read with this identity", kind=kind)
                else:
                    records[kind] = record
        return records

    def _key(self) -> bytes | None:
        identity = CrossSigningIdentity.load(self._identity)
        if identity is None:
            return None
        return hashlib.sha256(b"coterie records\0" + identity.seeds["master"].encode()).digest()

    # --- what is stored --------------------------------------------------------------------------------------------

    def _current(self) -> Iterator[tuple[str, Json]]:
        characters = self._router.chats.characters
        for character in characters.all():
            identity = character.identity.model_dump(mode="json")
            record: Json = {"identity": identity, "card": character.card.document if character.card else None}
            if len(json.dumps(record)) > _MAX_RECORD_BYTES:
                record["card"] = None
            yield f"{_CHARACTER}{character.id}", record
        owner = characters.owner()
        profile = {"name": owner.name, "pronouns": owner.pronouns, "persona": owner.persona}
        people = [self._person(person.id, person.name) for person in self._router.people.all()]
        yield _PEOPLE, {"owner": profile if characters.has_owner_profile() else {}, "people": people}

    def _person(self, person: str, name: str) -> Json:
        people, rooms = self._router.people, self._router.chats.rooms
        accounts = [list(account) for account in people.identities(person) if account[0] not in _SESSION_SURFACES]
        return {
            "person": person,
            "name": name,
            "accounts": accounts,
            "characters": people.allowed_characters(person),
            "last_number": rooms.last_number(person, SURFACE),
        }

    # --- what is restored ------------------------------------------------------------------------------------------

    async def _restore_character(self, record: Json) -> list[str]:
        identity = Identity.model_validate(record["identity"])
        if self._is_known(identity.id) or self._is_erased(f"{_CHARACTER}{identity.id}"):
            return []
        card = Card.read(record["card"]) if isinstance(record.get("card"), dict) else None
        await self._router.chats.characters.save(identity, card, actor="system")
        return [f"the character {identity.name}"]

    def _is_known(self, character: str) -> bool:
        try:
            self._router.chats.characters.get(character)
        except NoSuchCharacter:
            return False
        return True

    def _is_erased(self, kind: str) -> bool:
        """Whether a character was deleted or purged here; one that is unknown may come from a lost database."""
        character = kind.removeprefix(_CHARACTER)
        return kind.startswith(_CHARACTER) and (self._is_known(character) or self._was_purged(f"cast:{character}"))

    async def _restore_people(self, record: Json) -> list[str]:
        characters, restored = self._router.chats.characters, list[str]()
        owner = record.get("owner") or {}
        if owner and not characters.has_owner_profile():
            await characters.save_owner(OwnerProfile(owner["name"], owner["pronouns"], owner["persona"]))
        for one in objects(record.get("people")):
            restored += await self._restore_person(one)
        return restored

    async def _restore_person(self, one: Json) -> list[str]:
        """Accounts and permissions of a known person stay as they are: they may have been withdrawn since."""
        people, person, name = self._router.people, str(one["person"]), str(one["name"])
        await self._router.chats.rooms.restore_numbers(person, SURFACE, int(one["last_number"]))
        is_owner = person == OWNER
        if (person in people.ids() and not is_owner) or (is_owner and self._router.inbound.inbox.cursor(SURFACE)):
            return []
        accounts = [account for account in one["accounts"] if people.by_account(account[0], account[1]) is None]
        characters = [] if is_owner else [str(character) for character in one["characters"]]
        await people.restore(person, name, [(str(a), str(b), str(c)) for a, b, c in accounts], characters)
        return [] if is_owner else [f"{name}, with their permissions"]


def _encrypt(key: bytes, kind: str, record: Json) -> Json:
    nonce = os.urandom(_NONCE_BYTES)
    plain = zlib.compress(json.dumps(record, ensure_ascii=False).encode())
    return {"v": 1, "data": to_base64(nonce + AESGCM(key).encrypt(nonce, plain, kind.encode()))}


def _decrypt(key: bytes, kind: str, content: Json) -> Json | None:
    """None if it was encrypted with another key, or is not a record."""
    try:
        data = from_base64(str(content.get("data")))
        plain = AESGCM(key).decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], kind.encode())
        record: Any = json.loads(zlib.decompress(plain))
    except (InvalidTag, ValueError, zlib.error):
        return None
    return record if isinstance(record, dict) else None
