"""Links that open a document for a guest: the owner creates and revokes them, a browser exchanges one for a cookie."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Request, Response, status
from fastapi.responses import JSONResponse
from pydantic import Field, StringConstraints

from coterie.base.errors import CoterieError
from coterie.base.values import Name
from coterie.modes.draft import GuestRole, Share
from coterie.surfaces.web.shared.access import GUEST_COOKIE, MAX_LINKS, guest_tokens
from coterie.surfaces.web.shared.dependencies import DraftDep
from coterie.surfaces.web.shared.errors import ERROR_RESPONSES
from coterie.surfaces.web.shared.templates import PageRouter, page_response
from coterie.surfaces.web.story.schemas import DoneResponse, RequestModel, ResponseModel

guests_router = APIRouter(tags=["draft"], responses=ERROR_RESPONSES)
join_pages = PageRouter()
MAX_DAYS = 365
_DOCUMENT = "/draft/workspaces/{workspace}/guests/{path:path}"


class InvalidLink(CoterieError):
    http_status = 401


class GuestLinkRequest(RequestModel):
    name: Name
    """The guest's name, which is on what they write and accept."""
    role: GuestRole = "writer"
    """`reader` reads, `commenter` also writes messages, `writer` also edits and decides about proposals."""
    days: Annotated[float, Field(gt=0, le=MAX_DAYS, allow_inf_nan=False)] = 30
    branch: str | None = None


class GuestLinkResponse(ResponseModel):
    id: str
    person: str
    name: str
    role: GuestRole
    branch: str
    expires: datetime
    link: str | None = None
    """A path on this server, shown once; only its hash is stored."""

    @classmethod
    def of(cls, share: Share, token: str | None = None) -> GuestLinkResponse:
        return cls(
            id=share.id,
            person=share.person,
            name=share.name,
            role=share.role,
            branch=share.branch,
            expires=share.expires,
            # In the fragment, which browsers send to nobody: neither to this server's log nor to a preview service.
            link=f"/join#{token}" if token is not None else None,
        )


class JoinRequest(RequestModel):
    token: Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[A-Za-z0-9_-]+$")]


class JoinResponse(ResponseModel):
    name: str
    """The guest's name."""
    address: str
    """The document's page."""


@guests_router.get(_DOCUMENT, summary="The links of a document")
async def links(draft: DraftDep, workspace: str, path: str) -> list[GuestLinkResponse]:
    return [GuestLinkResponse.of(share) for share in draft.sharing.of_document(workspace, path)]


@guests_router.post(
    _DOCUMENT, summary="A new link that opens this document, and nothing else", status_code=status.HTTP_201_CREATED
)
async def create_link(draft: DraftDep, workspace: str, path: str, body: GuestLinkRequest) -> GuestLinkResponse:
    repository = draft.workspaces.repository(workspace)
    version = await asyncio.to_thread(repository.read, path, body.branch or repository.main_branch)
    share, token = await draft.sharing.share(
        workspace, version.path, version.branch, body.name.strip(), body.role, body.days
    )
    return GuestLinkResponse.of(share, token)


@guests_router.delete("/draft/guests/{link}", summary="Revoke a link: it opens nothing from now on")
async def revoke_link(draft: DraftDep, link: str) -> DoneResponse:
    await draft.sharing.revoke(link)
    return DoneResponse()


# Public: the token in the body, or in the cookie, is the permission.


@guests_router.post("/join", summary="Open a link: sets a cookie with which this browser acts as the guest")
async def join(draft: DraftDep, request: Request, body: JoinRequest) -> Response:
    share = draft.sharing.find(body.token)
    if share is None:
        raise InvalidLink("This link is not valid, or no longer.", "Ask for a new one.")
    address = f"/draft/workspaces/{share.workspace}/documents/{quote(share.document)}?branch={quote(share.branch, '')}"
    done = JSONResponse(JoinResponse(name=share.name, address=address).model_dump())
    others = [one for one in guest_tokens(request.headers) if one != body.token and draft.sharing.find(one)]
    tokens = ".".join([body.token, *others][:MAX_LINKS])
    secure = request.url.scheme == "https"
    done.set_cookie(GUEST_COOKIE, tokens, MAX_DAYS * 86_400, httponly=True, samesite="strict", secure=secure)
    return done


@guests_router.post("/join/leave", summary="Forget the links in this browser")
async def leave(response: Response) -> DoneResponse:
    response.delete_cookie(GUEST_COOKIE)
    return DoneResponse()


@join_pages.get("/join")
async def join_page(request: Request) -> Response:
    return page_response(request, "draft/join.html", guest=True, is_guest=bool(guest_tokens(request.headers)))
