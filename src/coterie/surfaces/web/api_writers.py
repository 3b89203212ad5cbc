"""People who write along: who there is, a link for somebody new, and coming in with it. P3"""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Cookie, Request, Response, status
from fastapi.responses import JSONResponse

from coterie.cast.roster import YOU
from coterie.surfaces.web import SURFACE
from coterie.surfaces.web.draft_person import COOKIE, OwnerOnly, Who, account_of, new_token
from coterie.surfaces.web.errors import TROUBLES
from coterie.surfaces.web.house import Here
from coterie.surfaces.web.negotiation import Pages
from coterie.surfaces.web.paper import page
from coterie.surfaces.web.shapes import Done, Given, Name, Taken

writers_router = APIRouter(prefix="/writers", tags=["draft"], responses=TROUBLES)
pages = Pages()
_LASTS_S = 365 * 86_400
_LINK_MINUTES = 7 * 24 * 60


class WriterShape(Given):
    id: str
    name: str
    you: bool
    """Whether it is whoever asks."""


class NewWriter(Taken):
    name: Name


class Invitation(Given):
    person: str
    link: str
    """An address in this house that works once, for a week."""


class JoinTaken(Taken):
    code: Name


@writers_router.get("", summary="Everybody who may write along")
async def everybody(house: Here, who: Who) -> list[WriterShape]:
    return [WriterShape(id=one.id, name=one.name, you=one.id == who.id) for one in house.people.everybody()]


@writers_router.post("", summary="Invite somebody: the answer is a link for them", status_code=status.HTTP_201_CREATED)
async def invite(house: Here, who: Who, taken: NewWriter) -> Invitation:
    if who.id != YOU:
        raise OwnerOnly("Only the owner invites people.", "Ask them for a link.")
    person, code = await house.people.invite(taken.name, _LINK_MINUTES)
    return Invitation(person=person.id, link=f"/join?code={quote(code)}")


@writers_router.post("/join", summary="Come in with a link's code: from then on this browser is that person")
async def join(request: Request, house: Here, taken: JoinTaken) -> Response:
    token = new_token()
    person = await house.people.link(taken.code, SURFACE, account_of(token))
    done = JSONResponse({"person": person.id, "name": person.name})
    secure = request.url.scheme == "https"
    done.set_cookie(COOKIE, token, _LASTS_S, httponly=True, samesite="strict", secure=secure)
    return done


@writers_router.post("/leave", summary="This browser is nobody in particular again")
async def leave(house: Here, response: Response, token: Annotated[str, Cookie(alias=COOKIE)] = "") -> Done:
    if token and house.people.of(SURFACE, account_of(token)) is not None:
        await house.people.unlink(SURFACE, account_of(token))
    response.delete_cookie(COOKIE)
    return Done()


@pages.get("/join")
async def coming_in(house: Here, request: Request, code: str = "") -> Response:
    return page(request, "join.html", code=code, you=house.people.find("owner").name)
