"""People and their accounts on platforms, linking and pairing codes, and visits.

The owner always exists. Others become known by invitation, or when the owner approves the code of a stranger. Codes
that link an account are stored as hashes only.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from coterie.base.clock import Clock, from_micros, to_micros
from coterie.base.ids import new_id
from coterie.characters.errors import BadCode, NoSuchPerson
from coterie.characters.service import OWNER
from coterie.eventstore import Event, LogReader, NewEvent, Payload, Projection, Rows, Store, on

EVERY_CHARACTER = "*"
_LETTERS = "ABCDEFGHJKMNPQRSTVWXYZ23456789"
_STREAM = "people"
_VISITS_STREAM = "visits"
VISIT_GAP = timedelta(minutes=30)
_VISIT_INTERVAL = timedelta(minutes=5)


class PersonAdded(Payload, kind="person_added"):
    """A person other than the owner was added."""

    person: str
    """The person's id."""
    name: str
    """The name in the invitation, or of the account."""


class IdentityLinked(Payload, kind="identity_linked"):
    """An account on a platform was linked to a person."""

    person: str
    """The person's id; `you` is the owner."""
    surface: str
    """The surface's name: `matrix`, `webhook`, `web` …"""
    account: str
    """The platform's own id of the account; on the page, a hash of the browser's token."""
    name: str = ""
    """The display name on the platform; may be empty."""


class IdentityUnlinked(Payload, kind="identity_unlinked"):
    """An account on a platform was unlinked."""

    surface: str
    """The surface's name: `matrix`, `webhook`, `web` …"""
    account: str
    """The platform's own id of the account; on the page, a hash of the browser's token."""


class CodeIssued(Payload, kind="code_issued"):
    """A code was issued that links an account to a person, once and until it expires."""

    digest: str
    """SHA-256 of the code, which itself is not stored."""
    person: str
    """The person's id; `you` is the owner."""
    expires: datetime
    """When it expires."""


class CodeUsed(Payload, kind="code_used"):
    """A linking code was used."""

    digest: str
    """SHA-256 of the code."""


class PairingAsked(Payload, kind="pairing_asked"):
    """A stranger got a pairing code, which the owner may approve."""

    surface: str
    """The surface's name: `matrix`, `webhook`, `web` …"""
    account: str
    """The platform's own id of the account; on the page, a hash of the browser's token."""
    name: str
    """The display name on the platform; may be empty."""
    code: str
    """The code, such as `ABCDE-FGHJK`, which the stranger shows to the owner."""
    expires: datetime
    """When it expires."""


class PairingSettled(Payload, kind="pairing_settled"):
    """A pairing request was approved, or the account linked otherwise."""

    surface: str
    """The surface's name: `matrix`, `webhook`, `web` …"""
    account: str
    """The platform's own id of the account; on the page, a hash of the browser's token."""


class CharacterAllowed(Payload, kind="character_allowed"):
    """A person may talk to a character, or no longer; `*` is every character."""

    person: str
    """The person's id."""
    character: str
    """The character's id; `*` for every one."""
    allowed: bool = True
    """False to revoke it."""


@dataclass(frozen=True)
class Person:
    id: str
    name: str

    @property
    def is_owner(self) -> bool:
        return self.id == OWNER


@dataclass(frozen=True)
class PairingRequest:
    """A stranger who waits for approval."""

    surface: str
    account: str
    name: str
    code: str
    expires: datetime


class PeopleProjection(Projection):
    name = "people"
    schema = """
        CREATE TABLE person(id TEXT PRIMARY KEY, name TEXT NOT NULL) WITHOUT ROWID;
        CREATE TABLE identity(surface TEXT, account TEXT, person TEXT NOT NULL, name TEXT NOT NULL,
            PRIMARY KEY(surface, account)) WITHOUT ROWID;
        CREATE TABLE link_code(digest TEXT PRIMARY KEY, person TEXT NOT NULL, expires INTEGER NOT NULL) WITHOUT ROWID;
        CREATE TABLE pairing(surface TEXT, account TEXT, name TEXT NOT NULL, code TEXT NOT NULL,
            expires INTEGER NOT NULL, PRIMARY KEY(surface, account)) WITHOUT ROWID;
        CREATE TABLE may_talk(person TEXT, character TEXT, PRIMARY KEY(person, character)) WITHOUT ROWID;
    """

    @on(PersonAdded)
    def added(self, rows: Rows, event: Event[PersonAdded]) -> None:
        rows.run("INSERT OR REPLACE INTO person VALUES (?, ?)", (event.payload.person, event.payload.name))

    @on(IdentityLinked)
    def linked(self, rows: Rows, event: Event[IdentityLinked]) -> None:
        payload = event.payload
        params = (payload.surface, payload.account, payload.person, payload.name)
        rows.run("INSERT OR REPLACE INTO identity VALUES (?, ?, ?, ?)", params)

    @on(IdentityUnlinked)
    def unlinked(self, rows: Rows, event: Event[IdentityUnlinked]) -> None:
        params = (event.payload.surface, event.payload.account)
        rows.run("DELETE FROM identity WHERE surface = ? AND account = ?", params)

    @on(CodeIssued)
    def issued(self, rows: Rows, event: Event[CodeIssued]) -> None:
        payload = event.payload
        params = (payload.digest, payload.person, to_micros(payload.expires))
        rows.run("INSERT OR REPLACE INTO link_code VALUES (?, ?, ?)", params)

    @on(CodeUsed)
    def used(self, rows: Rows, event: Event[CodeUsed]) -> None:
        rows.run("DELETE FROM link_code WHERE digest = ?", (event.payload.digest,))

    @on(PairingAsked)
    def asked(self, rows: Rows, event: Event[PairingAsked]) -> None:
        payload = event.payload
        params = (payload.surface, payload.account, payload.name, payload.code, to_micros(payload.expires))
        rows.run("INSERT OR REPLACE INTO pairing VALUES (?, ?, ?, ?, ?)", params)

    @on(PairingSettled)
    def settled(self, rows: Rows, event: Event[PairingSettled]) -> None:
        params = (event.payload.surface, event.payload.account)
        rows.run("DELETE FROM pairing WHERE surface = ? AND account = ?", params)

    @on(CharacterAllowed)
    def allowed(self, rows: Rows, event: Event[CharacterAllowed]) -> None:
        payload = event.payload
        change = "INSERT OR REPLACE INTO may_talk VALUES (?, ?)"
        if not payload.allowed:
            change = "DELETE FROM may_talk WHERE person = ? AND character = ?"
        rows.run(change, (payload.person, payload.character))


class PeopleQueries:
    """Reads people, also while another process owns the store."""

    def __init__(self, store: Store | LogReader) -> None:
        self._log = store

    def by_account(self, surface: str, account: str) -> Person | None:
        rows = self._log.query("SELECT person FROM identity WHERE surface = ? AND account = ?", (surface, account))
        return self.person(rows[0][0]) if rows else None

    def person(self, person: str) -> Person:
        if person == OWNER:
            rows = self._log.query("SELECT name FROM owner")
            return Person(OWNER, rows[0][0] if rows else "You")
        rows = self._log.query("SELECT name FROM person WHERE id = ?", (person,))
        if not rows:
            raise NoSuchPerson(f"There is no person {person}.", "Settings → People lists them.")
        return Person(person, rows[0][0])

    def find(self, name: str) -> Person:
        """By id or name; `owner` is the owner."""
        if name.lower() in (OWNER, "owner"):
            return self.person(OWNER)
        rows = self._log.query("SELECT id FROM person WHERE id = ?1 OR lower(name) = lower(?1) ORDER BY id", (name,))
        return self.person(rows[0][0] if rows else name)

    def all(self) -> list[Person]:
        return [
            self.person(OWNER),
            *(Person(*row) for row in self._log.query("SELECT id, name FROM person ORDER BY id")),
        ]

    def ids(self) -> frozenset[str]:
        """The ids of all people."""
        return frozenset([OWNER, *(person for (person,) in self._log.query("SELECT id FROM person"))])

    def identities(self, person: str) -> list[tuple[str, str, str]]:
        """Surface, account and name of each account of a person."""
        sql = "SELECT surface, account, name FROM identity WHERE person = ? ORDER BY surface, account"
        return list(self._log.query(sql, (person,)))

    def allowed_characters(self, person: str) -> list[str]:
        rows = self._log.query("SELECT character FROM may_talk WHERE person = ? ORDER BY character", (person,))
        return [EVERY_CHARACTER] if person == OWNER else [character for (character,) in rows]

    def may_talk(self, person: str, character: str) -> bool:
        return not {EVERY_CHARACTER, character}.isdisjoint(self.allowed_characters(person))

    def pairing_requests(self, now: datetime) -> list[PairingRequest]:
        rows = self._log.query(
            "SELECT surface, account, name, code, expires FROM pairing WHERE expires > ? ORDER BY expires",
            (to_micros(now),),
        )
        return [
            PairingRequest(surface, account, name, code, from_micros(expires))
            for surface, account, name, code, expires in rows
        ]


class People(PeopleQueries):
    """Adds people, and links and pairs their accounts."""

    def __init__(self, store: Store, clock: Clock) -> None:
        super().__init__(store)
        self._store = store
        self._clock = clock

    def open_pairing_requests(self) -> list[PairingRequest]:
        """The pairing requests that have not expired."""
        return self.pairing_requests(self._clock.now())

    async def add(self, name: str) -> Person:
        person = new_id()
        await self._store.append([NewEvent(_STREAM, PersonAdded(person=person, name=name), OWNER)])
        return self.person(person)  # its name as it was recorded, without secrets

    async def invite(self, name: str, minutes: float) -> tuple[Person, str]:
        """Add a person; the code links their first account."""
        person = await self.add(name)
        return person, await self.issue_code(person.id, minutes)

    async def issue_code(self, person: str, minutes: float) -> str:
        """A code that links one account to a person, once and within this time."""
        code = _new_code()
        issued = CodeIssued(digest=_digest(code), person=self.person(person).id, expires=self._expiry(minutes))
        await self._store.append([NewEvent(_STREAM, issued, person)])
        return code

    async def link(self, code: str, surface: str, account: str, name: str = "") -> Person:
        digest = _digest(code)
        rows = self._store.query(
            "SELECT person FROM link_code WHERE digest = ? AND expires > ?", (digest, to_micros(self._clock.now()))
        )
        if not rows:
            raise BadCode("This code is not valid, or no longer.", "Codes work once and expire: ask for a new one.")
        person = self.person(rows[0][0])
        linked = IdentityLinked(person=person.id, surface=surface, account=account, name=name)
        # The key makes sure that concurrent calls use the code once.
        used = NewEvent(_STREAM, CodeUsed(digest=digest), person.id, key=f"code:{digest}")
        events = await self._store.append([used, NewEvent(_STREAM, linked, person.id)])
        if events[-1].payload != linked:
            raise BadCode("This code was used already.", "Ask for a new one.")
        await self._close_pairing(surface, account)
        return person

    async def request_pairing(self, surface: str, account: str, name: str, minutes: float) -> PairingRequest | None:
        """A code for a stranger to show to the owner; None if they have a valid one."""
        if any((request.surface, request.account) == (surface, account) for request in self.open_pairing_requests()):
            return None
        request = PairingRequest(surface, account, name, _new_code(), self._expiry(minutes))
        payload = PairingAsked(surface=surface, account=account, name=name, code=request.code, expires=request.expires)
        await self._store.append([NewEvent(_STREAM, payload)])
        return request

    def request_with(self, code: str) -> PairingRequest:
        """The open pairing request with this code; `BadCode` if there is none."""
        requests = {_normalize(request.code): request for request in self.open_pairing_requests()}
        request = requests.get(_normalize(code))
        if request is None:
            raise BadCode(
                "There is no request with this code.", "It may have expired: Settings → People shows open requests."
            )
        return request

    async def approve(
        self, code: str, person_name: str | None = None, character: str | None = None
    ) -> tuple[Person, PairingRequest]:
        """Approve a pairing request: as a new person, or as an existing one, who may talk to this character from now
        on."""
        request = self.request_with(code)
        payloads: list[Payload] = []
        if person_name is None:
            person = Person(new_id(), request.name or request.account)
            payloads.append(PersonAdded(person=person.id, name=person.name))
        else:
            person = self.find(person_name)
        surface, account = request.surface, request.account
        payloads.append(IdentityLinked(person=person.id, surface=surface, account=account, name=request.name))
        payloads.append(PairingSettled(surface=surface, account=account))
        if character and not person.is_owner:
            payloads.append(CharacterAllowed(person=person.id, character=character))
        await self._store.append([NewEvent(_STREAM, payload, OWNER) for payload in payloads])
        return person, request

    async def link_owner(self, surface: str, account: str) -> None:
        """Link an account that is the owner's by configuration, such as the webhook's caller."""
        if self.by_account(surface, account) is None:
            linked = IdentityLinked(person=OWNER, surface=surface, account=account)
            await self._store.append([NewEvent(_STREAM, linked, OWNER)])

    async def restore(
        self,
        person: str,
        name: str,
        accounts: Sequence[tuple[str, str, str]],
        characters: Sequence[str] = (),
    ) -> Person:
        """Restore a person from a platform's records, with their accounts (surface, id, name) and the characters they
        may talk to."""
        payloads: list[Payload] = [
            IdentityLinked(person=person, surface=surface, account=account, name=account_name)
            for surface, account, account_name in accounts
        ]
        payloads += [CharacterAllowed(person=person, character=character) for character in characters]
        if person != OWNER and not self._store.query("SELECT 1 FROM person WHERE id = ?", (person,)):
            payloads.insert(0, PersonAdded(person=person, name=name))
        if payloads:
            await self._store.append([NewEvent(_STREAM, payload) for payload in payloads])
        return self.person(person)

    async def unlink(self, surface: str, account: str) -> None:
        if self.by_account(surface, account) is None:
            raise NoSuchPerson(f"{account} on {surface} belongs to no person.", "Settings → People lists accounts.")
        await self._store.append([NewEvent(_STREAM, IdentityUnlinked(surface=surface, account=account), OWNER)])

    async def allow(self, person: str, character: str, allowed: bool = True) -> None:
        payload = CharacterAllowed(person=person, character=character, allowed=allowed)
        await self._store.append([NewEvent(_STREAM, payload, OWNER)])

    async def _close_pairing(self, surface: str, account: str) -> None:
        if self._store.query("SELECT 1 FROM pairing WHERE surface = ? AND account = ?", (surface, account)):
            await self._store.append([NewEvent(_STREAM, PairingSettled(surface=surface, account=account))])

    def _expiry(self, minutes: float) -> datetime:
        return self._clock.now() + timedelta(minutes=minutes)


def _new_code() -> str:
    letters = "".join(secrets.choice(_LETTERS) for _ in range(10))
    return f"{letters[:5]}-{letters[5:]}"


def _normalize(code: str) -> str:
    return "".join(letter for letter in code.upper() if letter in _LETTERS)


def _digest(code: str) -> str:
    return hashlib.sha256(f"coterie link {_normalize(code)}".encode()).hexdigest()


class PersonVisited(Payload, kind="person_visited"):
    """A person looked at a page; recorded at most every five minutes."""

    person: str
    """The person's id; `you` is the owner."""


@dataclass(frozen=True, slots=True)
class VisitEnd:
    """Where a visit ended: later events are new to the person."""

    at: datetime
    event: int


class VisitsProjection(Projection):
    """The last visit of each person; `left_…` is the end of the one before."""

    name = "visits"
    schema = """
        CREATE TABLE visit(person TEXT PRIMARY KEY, at INTEGER NOT NULL, event INTEGER NOT NULL,
            left_at INTEGER, left_event INTEGER) WITHOUT ROWID;
    """

    @on(PersonVisited)
    def visited(self, rows: Rows, event: Event[PersonVisited]) -> None:
        rows.run(
            "INSERT INTO visit VALUES (?1, ?2, ?3, NULL, NULL) ON CONFLICT(person) DO UPDATE SET"
            " left_at = CASE WHEN ?2 - at > ?4 THEN at ELSE left_at END,"
            " left_event = CASE WHEN ?2 - at > ?4 THEN event ELSE left_event END, at = ?2, event = ?3",
            (event.payload.person, to_micros(event.ts), event.id, VISIT_GAP // timedelta(microseconds=1)),
        )


class Visits:
    """When people were here. Page views less than half an hour apart are one visit."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def previous_visit_end(self, person: str) -> VisitEnd | None:
        """The end of the previous visit; None during the first one."""
        rows = self._store.query("SELECT at, event, left_at, left_event FROM visit WHERE person = ?", (person,))
        if not rows:
            return None
        at, event, left_at, left_event = rows[0]
        if self._clock.now() - from_micros(at) > VISIT_GAP:
            return VisitEnd(from_micros(at), event)
        return VisitEnd(from_micros(left_at), left_event) if left_at is not None else None

    async def record(self, person: str) -> None:
        """Record a page view, once per interval by its key."""
        interval = to_micros(self._clock.now()) // (_VISIT_INTERVAL // timedelta(microseconds=1))
        visited = PersonVisited(person=person)
        await self._store.append([NewEvent(_VISITS_STREAM, visited, person, key=f"visit:{person}:{interval}")])
