"""Who acts in a document: whoever this browser was linked to, and otherwise you. F12, P3

A link is a code that works once. The browser that used it holds a token; we hold its digest, as an account of the
person on the surface `web`. Where there is no token, whoever could come in is the owner, as everywhere on the page.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import Annotated

from fastapi import Cookie, Depends

from coterie.base.errors import CoterieError
from coterie.cast.people import Person as Known
from coterie.modes.draft import Contributor
from coterie.surfaces.web import SURFACE
from coterie.surfaces.web.house import Here, House

PERSON_COOKIE = "coterie-person"


class NotLinked(CoterieError):
    """The browser's link was taken back."""

    http_status = 401


class OwnerOnly(CoterieError):
    """Somebody who was invited wants what only the owner may do."""

    http_status = 403


def person_of(house: House, token: str) -> Known:
    if not token:
        return house.people.find("owner")
    found = house.people.by_account(SURFACE, account_of(token))
    if found is None:
        raise NotLinked(
            "This browser is not linked to anybody any more.", "Ask for a new link, or go on as the owner at /join."
        )
    return found


def new_token() -> str:
    return secrets.token_urlsafe(24)


def account_of(token: str) -> str:
    return hashlib.sha256(f"coterie web {token}".encode()).hexdigest()[:32]


def _current_person(house: Here, token: Annotated[str, Cookie(alias=PERSON_COOKIE)] = "") -> Contributor:
    known = person_of(house, token)
    return Contributor(known.id, known.name)


CurrentPerson = Annotated[Contributor, Depends(_current_person)]
