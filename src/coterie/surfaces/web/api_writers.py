"""People who write along: who there is, a link for somebody new, and coming in with it. P3"""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Cookie, Request, Response, status
from fastapi.responses import JSONResponse

from coterie.cast.roster import OWNER
from coterie.surfaces.web import SURFACE
from coterie.surfaces.web.draft_person import PERSON_COOKIE, CurrentPerson, OwnerOnly, account_of, new_token
from coterie.surfaces.web.errors import ERROR_RESPONSES
from coterie.surfaces.web.house import Here
from coterie.surfaces.web.negotiation import PageRouter
from coterie.surfaces.web.paper import page_response
from coterie.surfaces.web.shapes import DoneResponse, Name, RequestModel, ResponseModel

writers_router = APIRouter(prefix="/writers", tags=["draft"], responses=ERROR_RESPONSES)
join_pages = PageRouter()
_LASTS_S = 365 * 86_400
_LINK_MINUTES = 7 * 24 * 60


class WriterResponse(ResponseModel):
    id: str
    name: str
    you: bool
    """Whether it is whoever asks."""


class NewWriterRequest(RequestModel):
    name: Name


class InvitationResponse(ResponseModel):
    person: str
    link: str
    """An address in this house that works once, for a week."""


class JoinRequest(RequestModel):
    code: Name


@writers_router.get("", summary="Everybody who may write along")
async def list_writers(house: Here, who: CurrentPerson) -> list[WriterResponse]:
    return [WriterResponse(id=one.id, name=one.name, you=one.id == who.id) for one in house.people.all()]


@writers_router.post("", summary="Invite somebody: the answer is a link for them", status_code=status.HTTP_201_CREATED)
async def invite_writer(house: Here, who: CurrentPerson, taken: NewWriterRequest) -> InvitationResponse:
    if who.id != OWNER:
        raise OwnerOnly("Only the owner invites people.", "Ask them for a link.")
    person, code = await house.people.invite(taken.name, _LINK_MINUTES)
    return InvitationResponse(person=person.id, link=f"/join?code={quote(code)}")


@writers_router.post("/join", summary="Come in with a link's code: from then on this browser is that person")
async def join(request: Request, house: Here, taken: JoinRequest) -> Response:
    token = new_token()
    person = await house.people.link(taken.code, SURFACE, account_of(token))
    done = JSONResponse({"person": person.id, "name": person.name})
    secure = request.url.scheme == "https"
    done.set_cookie(PERSON_COOKIE, token, _LASTS_S, httponly=True, samesite="strict", secure=secure)
    return done


@writers_router.post("/leave", summary="This browser is nobody in particular again")
async def leave(
    house: Here, response: Response, token: Annotated[str, Cookie(alias=PERSON_COOKIE)] = ""
) -> DoneResponse:
    if token and house.people.by_account(SURFACE, account_of(token)) is not None:
        await house.people.unlink(SURFACE, account_of(token))
    response.delete_cookie(PERSON_COOKIE)
    return DoneResponse()


@join_pages.get("/join")
async def join_page(house: Here, request: Request, code: str = "") -> Response:
    return page_response(request, "join.html", code=code, you=house.people.find("owner").name)
