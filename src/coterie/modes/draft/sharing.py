"""Links that open one document for a guest, and nothing else.

A link holds a random token. Only its SHA-256 is stored, so the log and backups open no document. A link belongs to one
person, one document and one branch, expires, and can be revoked at any time.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from coterie.base.clock import Clock, from_micros, to_micros
from coterie.base.ids import new_id
from coterie.base.values import add_seconds
from coterie.characters import OWNER, NoSuchPerson, People
from coterie.eventstore import NewEvent, Store
from coterie.modes.draft.errors import NoSuchDocument
from coterie.modes.draft.events import DocumentShared, GuestRole, ShareRevoked

ROLES: tuple[GuestRole, ...] = ("reader", "commenter", "writer")
"""Each role may do what the ones before it may."""
_COLUMNS = "id, person, workspace, document, branch, role, expires"


@dataclass(frozen=True, slots=True)
class Share:
    """A link that opens a document for one person."""

    id: str
    person: str
    name: str
    workspace: str
    document: str
    branch: str
    role: GuestRole
    expires: datetime

    def allows(self, role: GuestRole) -> bool:
        return ROLES.index(self.role) >= ROLES.index(role)

    def opens(self, workspace: str, document: str, branch: str) -> bool:
        return (self.workspace, self.document, self.branch) == (workspace, document, branch)


class Sharing:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._people = People(store, clock)

    async def share(
        self, workspace: str, document: str, branch: str, name: str, role: GuestRole, days: float
    ) -> tuple[Share, str]:
        """Add a person and a link for them. The token is returned only here."""
        person = await self._people.add(name)
        token, link = secrets.token_urlsafe(32), new_id()
        shared = DocumentShared(
            link=link,
            digest=_digest(token),
            person=person.id,
            document=document,
            branch=branch,
            role=role,
            expires=add_seconds(self._clock.now(), days * 86_400),
        )
        await self._store.append([NewEvent(f"draft:{workspace}", shared, OWNER)])
        return self._one("id = ?", link), token

    async def revoke(self, link: str) -> Share:
        share = self._one("id = ?", link)
        await self._store.append([NewEvent(f"draft:{share.workspace}", ShareRevoked(link=link), OWNER)])
        return share

    def find(self, token: str) -> Share | None:
        """The link with this token, if it is valid now."""
        shares = self._select("digest = ? AND expires > ?", _digest(token), to_micros(self._clock.now()))
        return shares[0] if shares else None

    def of_document(self, workspace: str, document: str) -> list[Share]:
        """The links of a document that are not revoked, expired ones included."""
        return self._select("workspace = ? AND document = ? ORDER BY seq", workspace, document)

    def readers(self, workspace: str, document: str, branch: str) -> frozenset[str]:
        """The people beside the owner who can open a document now."""
        sql = "workspace = ? AND document = ? AND branch = ? AND expires > ?"
        return frozenset(one.person for one in self._select(sql, workspace, document, branch, self._now()))

    def _now(self) -> int:
        return to_micros(self._clock.now())

    def _one(self, where: str, *params: Any) -> Share:
        shares = self._select(where, *params)
        if not shares:
            raise NoSuchDocument("There is no such link.", "It may have been revoked: reload the page.")
        return shares[0]

    def _select(self, where: str, *params: Any) -> list[Share]:
        rows = self._store.query(f"SELECT {_COLUMNS} FROM draft_share WHERE {where}", params)  # noqa: S608
        return [
            Share(link, person, self._name(person), workspace, document, branch, role, from_micros(expires))
            for link, person, workspace, document, branch, role, expires in rows
        ]

    def _name(self, person: str) -> str:
        try:
            return self._people.person(person).name
        except NoSuchPerson:
            return "Somebody"


def _digest(token: str) -> str:
    return hashlib.sha256(f"coterie document {token}".encode("utf-8", "replace")).hexdigest()
