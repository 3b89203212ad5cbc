"""The API for drafts: workspaces, documents, branches, threads, proposals, and collaborative editing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from datetime import datetime
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, Header, Query, Request, Response, status
from fastapi.responses import JSONResponse, StreamingResponse
from fastapi.routing import APIRoute
from pydantic import Field, StringConstraints
from sse_starlette import EventSourceResponse, ServerSentEvent

from coterie.base.errors import CoterieError
from coterie.base.redaction import redact
from coterie.base.values import Count, FilePath, Name, parse_int64
from coterie.conversation import LiveText
from coterie.modes.draft import (
    Contributor,
    DraftService,
    EditConflict,
    GuestRole,
    LiveDocumentGone,
    NoSuchDocument,
    Share,
    StartedReply,
    Thread,
    Update,
    WorkspaceMissing,
    parser_for,
    sse_frames,
    visible_text,
)
from coterie.surfaces.web.draft.schemas import (
    AcceptRequest,
    Branch,
    BranchRequest,
    CommitResponse,
    DeclineRequest,
    DocumentDiffResponse,
    DocumentResponse,
    DocumentVersionResponse,
    EditRequest,
    EditResponse,
    LiveDocumentResponse,
    MergeRequest,
    MergeResponse,
    NotificationResponse,
    ProposalResponse,
    SaveRequest,
    StartedTurnResponse,
    ThreadDetailResponse,
    ThreadMessageRequest,
    ThreadRequest,
    ThreadResponse,
    WatchRequest,
    WorkspaceRequest,
    WorkspaceResponse,
)
from coterie.surfaces.web.shared.access import (
    MAX_LINKS,
    AccessDep,
    Confirmed,
    CurrentPerson,
    OutsideLink,
    branch_in_body,
    checked_by_route,
    document_in_path,
    document_in_query,
    document_of_change,
    document_of_thread,
    guest_cookie,
    guest_tokens,
    open_to_guests,
)
from coterie.surfaces.web.shared.dependencies import DraftDep
from coterie.surfaces.web.shared.errors import ERROR_RESPONSES
from coterie.surfaces.web.shared.templates import PageRouter, page_response
from coterie.surfaces.web.story.schemas import DoneResponse, RequestModel, ResponseModel

# Links that open a document for a guest: the owner creates and revokes them, a browser exchanges one for a cookie.


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
    branch: Branch | None = None


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
    done.set_cookie(
        guest_cookie(request.headers), tokens, MAX_DAYS * 86_400, httponly=True, samesite="strict", secure=secure
    )
    return done


@guests_router.post("/join/leave", summary="Forget the links in this browser")
async def leave(request: Request, response: Response) -> DoneResponse:
    response.delete_cookie(guest_cookie(request.headers))
    return DoneResponse()


@join_pages.get("/join")
async def join_page(request: Request) -> Response:
    return page_response(request, "draft/join.html", guest=True, is_guest=bool(guest_tokens(request.headers)))


class DraftRoute(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_conflict(request: Request) -> Response:
            try:
                return await handle(request)
            except EditConflict as error:
                body = {"error": redact(error.what), "fix": redact(error.fix), "difference": redact(error.difference)}
                return JSONResponse(body, status_code=error.http_status)

        return handle_conflict


def _last_event_id(last_event_id: Annotated[str | None, Header(alias="Last-Event-ID")] = None) -> int | None:
    return parse_int64(last_event_id or "")


LastEventId = Annotated[int | None, Depends(_last_event_id)]
"""The last event that a reconnecting client has."""


# Documents in Git: workspaces, branches, versions, history, and the inbox


router = APIRouter(prefix="/draft", tags=["draft"], responses=ERROR_RESPONSES, route_class=DraftRoute)
_ONE = "/workspaces/{workspace}"


@router.get("/workspaces", summary="All workspaces")
async def workspaces(draft: DraftDep) -> list[WorkspaceResponse]:
    return [_shape(draft, workspace) for workspace in draft.thread_queries.workspaces()]


@router.post(
    "/workspaces", summary="A new workspace, or a repository adopted as one", status_code=status.HTTP_201_CREATED
)
async def open_workspace(draft: DraftDep, confirmed: Confirmed, body: WorkspaceRequest) -> WorkspaceResponse:
    if body.folder is None:
        return _shape(draft, await draft.workspaces.create(body.name))
    return _shape(draft, await draft.workspaces.adopt(body.folder, body.name, confirmed=confirmed))


@router.get(_ONE + "/documents", summary="The documents of a branch")
async def documents(draft: DraftDep, workspace: str, branch: Branch | None = None) -> list[DocumentResponse]:
    text = draft.workspaces.repository(workspace)
    documents = await asyncio.to_thread(text.documents, branch or text.main_branch)
    return [DocumentResponse(path=path, title=title) for path, title in documents]


@router.get(_ONE + "/documents/{path:path}", summary="A document on a branch")
@open_to_guests(document_in_path)
async def document(draft: DraftDep, workspace: str, path: str, branch: Branch | None = None) -> DocumentVersionResponse:
    return DocumentVersionResponse.of(await draft.documents.read(workspace, path, branch))


@router.put(
    _ONE + "/documents/{path:path}",
    summary="Save a text; merged with concurrent changes, or 409 with the difference",
)
@open_to_guests(branch_in_body, "writer")
async def save(
    draft: DraftDep, access: AccessDep, workspace: str, path: str, body: SaveRequest
) -> DocumentVersionResponse:
    branch = body.branch or draft.workspaces.repository(workspace).main_branch
    who = access.contributor(workspace, path, branch, "writer")
    room = _thread_of(draft, workspace, path, branch, body.thread)
    return DocumentVersionResponse.of(
        await draft.documents.save(workspace, path, branch, body.text, body.base, who, room)
    )


@router.get(_ONE + "/changes/{path:path}", summary="The proposals for a document, in its order")
@open_to_guests(document_in_path)
async def changes(draft: DraftDep, workspace: str, path: str, branch: Branch | None = None) -> list[ProposalResponse]:
    version = await draft.documents.read(workspace, path, branch)
    proposals = draft.proposal_queries.of_document(workspace, version.branch, path)
    return [ProposalResponse.of(change) for change in proposals]


@router.get(_ONE + "/branches", summary="The branches")
async def branches(draft: DraftDep, workspace: str) -> list[str]:
    return await asyncio.to_thread(draft.workspaces.repository(workspace).branches)


@router.post(_ONE + "/branches", summary="A new branch", status_code=status.HTTP_201_CREATED)
async def create_branch(draft: DraftDep, workspace: str, body: BranchRequest) -> list[str]:
    await draft.workspaces.create_branch(workspace, body.name, body.source)
    return await branches(draft, workspace)


@router.get(_ONE + "/compare", summary="The differences that merging one branch into another would make")
async def compare(draft: DraftDep, workspace: str, source: Branch, target: Branch) -> list[DocumentDiffResponse]:
    diffs = await asyncio.to_thread(draft.workspaces.repository(workspace).compare, source, target)
    return [DocumentDiffResponse(path=one.path, patch=one.patch) for one in diffs]


@router.post(_ONE + "/merge", summary="Merge a branch into another, if they do not conflict")
async def merge(draft: DraftDep, who: CurrentPerson, workspace: str, body: MergeRequest) -> MergeResponse:
    return MergeResponse(commit=await draft.documents.merge(workspace, body.source, body.target, who))


@router.get(_ONE + "/history", summary="The commits of a branch, newest first; of one document, those that changed it")
async def history(
    draft: DraftDep,
    workspace: str,
    branch: Branch | None = None,
    document: FilePath | None = None,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
) -> list[CommitResponse]:
    text = draft.workspaces.repository(workspace)
    commits = await asyncio.to_thread(text.history, branch or text.main_branch, limit, document)
    return [CommitResponse.of(one) for one in commits]


@router.get(_ONE + "/blame", summary="The commit, proposal and thread that a line comes from")
@open_to_guests(document_in_query)
async def blame(
    draft: DraftDep, workspace: str, document: FilePath, line: Count, branch: Branch | None = None
) -> CommitResponse | None:
    text = draft.workspaces.repository(workspace)
    origin = await asyncio.to_thread(text.blame, branch or text.main_branch, document, line)
    return CommitResponse.of(origin) if origin is not None else None


@router.get(_ONE + "/threads", summary="Threads of a workspace")
async def threads(
    draft: DraftDep, workspace: str, document: FilePath | None = None, branch: Branch | None = None
) -> list[ThreadResponse]:
    return [ThreadResponse.of(thread) for thread in draft.thread_queries.threads(workspace, document, branch)]


@router.post(_ONE + "/threads", summary="Begin a thread", status_code=status.HTTP_201_CREATED)
@open_to_guests(checked_by_route, "commenter")
async def open_thread(draft: DraftDep, access: AccessDep, workspace: str, body: ThreadRequest) -> ThreadResponse:
    branch = body.branch or draft.workspaces.repository(workspace).main_branch
    who = access.contributor(workspace, body.document, branch, "commenter")
    if access.shares is not None:
        known = {member.bot for member in draft.thread_queries.members(workspace, body.document, branch)}
        if body.against or not {member.bot for member in body.members} <= known:
            raise OutsideLink  # a guest asks only the characters that the owner brought to this document
    thread = await draft.threads.open_thread(
        workspace,
        body.document,
        body.members,
        who,
        branch=body.branch,
        title=body.title,
        selection=body.selection.span() if body.selection else None,
        exact=body.selection.exact if body.selection else "",
        against=body.against,
    )
    return ThreadResponse.of(thread)


@router.put(_ONE + "/watch", summary="Watch a document, or stop watching")
async def watch(draft: DraftDep, who: CurrentPerson, workspace: str, body: WatchRequest) -> DoneResponse:
    await draft.notifications.watch(workspace, body.document, who, body.watching)
    return DoneResponse(done=True)


@router.get("/inbox", summary="Notifications, newest first")
async def inbox(draft: DraftDep, who: CurrentPerson, unread: bool = False) -> list[NotificationResponse]:
    return [NotificationResponse.of(notice) for notice in draft.notifications.of_person(who.id, unread=unread)]


@router.post("/inbox/read", summary="Mark all notifications as read")
async def mark_read(draft: DraftDep, who: CurrentPerson) -> DoneResponse:
    await draft.notifications.mark_read(who)
    return DoneResponse(done=True)


def _thread_of(draft: DraftService, workspace: str, document: str, branch: str, thread: str | None) -> str | None:
    """The room of a thread about this document, where an edit is noted."""
    if not thread:
        return None
    found = draft.thread_queries.thread(f"room:{thread}")
    if (found.workspace, found.document, found.branch) != (workspace, document, branch):
        raise NoSuchDocument("This thread is about another document.", "Reload the page.")
    return found.room


def _shape(draft: DraftService, workspace: str) -> WorkspaceResponse:
    name, folder = draft.thread_queries.workspaces()[workspace]
    try:
        branch = draft.workspaces.repository(workspace).main_branch
    except WorkspaceMissing:
        branch = ""  # one missing folder does not hide the others
    return WorkspaceResponse(id=workspace, name=name, folder=str(folder), branch=branch)


# Collaborative editing: the live text, and numbered updates


editor_router = APIRouter(prefix="/draft", tags=["draft"], responses=ERROR_RESPONSES, route_class=DraftRoute)
_LIVE_DOCUMENT = "/workspaces/{workspace}/live/{path:path}"


@editor_router.get(_LIVE_DOCUMENT, summary="The live document")
@open_to_guests(document_in_path)
async def live_document(
    draft: DraftDep, workspace: str, path: str, branch: Branch | None = None
) -> LiveDocumentResponse:
    return LiveDocumentResponse.of(await draft.documents.live_document(workspace, path, branch))


@editor_router.post(
    _LIVE_DOCUMENT, summary="Send updates based on a version; returns all updates since. 410: reload the document"
)
@open_to_guests(branch_in_body)
async def apply_edits(draft: DraftDep, access: AccessDep, workspace: str, path: str, body: EditRequest) -> EditResponse:
    who = access.contributor(workspace, path, body.branch, "writer" if body.updates else "reader")
    document = draft.documents.live.of_epoch(workspace, path, body.branch, body.epoch)
    room = _thread_of(draft, workspace, path, body.branch, body.thread)
    updates = [Update(one.client, one.changes) for one in body.updates]
    in_time = await draft.documents.add_updates(workspace, document, body.version, updates, who, room)
    since = document.updates_since(body.version)
    if since is None:
        raise LiveDocumentGone(
            "Too much was typed since this page last looked.", "What you typed is merged in; continue."
        )
    return EditResponse.of(document, since, taken=in_time)


@editor_router.post(_LIVE_DOCUMENT.replace("/live/", "/flush/"), summary="Commit the live document now")
@open_to_guests(document_in_path)
async def flush(draft: DraftDep, workspace: str, path: str, branch: Branch | None = None) -> LiveDocumentResponse:
    await draft.documents.commit_typing(workspace, path, branch or draft.workspaces.repository(workspace).main_branch)
    return LiveDocumentResponse.of(await draft.documents.live_document(workspace, path, branch))


# Threads and their proposals


threads_router = APIRouter(prefix="/draft", tags=["draft"], responses=ERROR_RESPONSES, route_class=DraftRoute)
_THREAD, _CHANGE = "/threads/{thread}", "/changes/{change}"


@threads_router.get(_THREAD, summary="A thread with its messages, notes and proposals")
@open_to_guests(document_of_thread)
async def show(draft: DraftDep, thread: str) -> ThreadDetailResponse:
    return ThreadDetailResponse.of(draft, draft.thread_queries.thread(f"room:{thread}"))


@threads_router.post(
    _THREAD + "/turns",
    summary="Send a message; returns an event stream: chunks in base64, `changes`, `incomplete` if it failed, `DONE`",
    response_class=StreamingResponse,
)
@open_to_guests(document_of_thread, "commenter")
async def send_message(
    draft: DraftDep, who: CurrentPerson, thread: str, body: ThreadMessageRequest, after: LastEventId
) -> StreamingResponse:
    """A request with the same `key` and `Last-Event-ID` continues after that event."""
    asked = await _start_turn(draft, who, thread, body)
    return _stream(draft, draft.thread_queries.thread(f"room:{thread}"), asked.reply, after)


@threads_router.post(_THREAD + "/messages", summary="Send a message; the reply comes on the live stream")
@open_to_guests(document_of_thread, "commenter")
async def send_message_async(
    draft: DraftDep, who: CurrentPerson, thread: str, body: ThreadMessageRequest
) -> StartedTurnResponse:
    return StartedTurnResponse.of(await _start_turn(draft, who, thread, body))


@threads_router.get(
    _THREAD + "/turns/{reply}",
    summary="The event stream of a reply, from `Last-Event-ID` on",
    response_class=StreamingResponse,
)
@open_to_guests(document_of_thread)
async def reply_stream(draft: DraftDep, thread: str, reply: str, after: LastEventId) -> StreamingResponse:
    draft_thread = draft.thread_queries.thread(f"room:{thread}")
    draft.timeline.turn(draft_thread.room, reply)
    return _stream(draft, draft_thread, reply, after)


@threads_router.post(_THREAD + "/turns/{reply}/retry", summary="Ask again for a reply that failed or broke off")
@open_to_guests(document_of_thread, "commenter")
async def retry(draft: DraftDep, thread: str, reply: str) -> StartedTurnResponse:
    return StartedTurnResponse.of(await draft.threads.retry_reply(f"room:{thread}", reply))


@threads_router.get(
    _THREAD + "/events",
    summary="The live stream for a page: `snapshot`, then `change` and `token` events as JSON",
    response_class=EventSourceResponse,
)
@open_to_guests(document_of_thread)
async def events(draft: DraftDep, thread: str, after: LastEventId) -> EventSourceResponse:
    draft_thread = draft.thread_queries.thread(f"room:{thread}")
    return EventSourceResponse(_live(draft, draft_thread, after), sep="\n", ping=15, send_timeout=60)


@threads_router.post(_THREAD + "/stop", summary="Stop the reply; its text and proposals are kept")
@open_to_guests(document_of_thread, "commenter")
async def stop(draft: DraftDep, thread: str) -> DoneResponse:
    return DoneResponse(done=await draft.threads.stop_reply(f"room:{thread}"))


@threads_router.post(
    _THREAD + "/accept", summary="Accept all applicable proposals, one commit each, in the document's order"
)
@open_to_guests(document_of_thread, "writer")
async def accept_all(draft: DraftDep, who: CurrentPerson, thread: str) -> list[ProposalResponse]:
    return [ProposalResponse.of(one) for one in await draft.proposals.accept_all(f"room:{thread}", who)]


@threads_router.get(_CHANGE, summary="A proposal")
@open_to_guests(document_of_change)
async def change_shown(draft: DraftDep, change: str) -> ProposalResponse:
    return ProposalResponse.of(draft.proposal_queries.proposal(change))


@threads_router.post(_CHANGE + "/accept", summary="Accept a proposal, as it is or edited: one commit")
@open_to_guests(document_of_change, "writer")
async def accept(
    draft: DraftDep, who: CurrentPerson, change: str, body: AcceptRequest | None = None
) -> ProposalResponse:
    return ProposalResponse.of(await draft.proposals.accept(change, who, text=body.text if body else None))


@threads_router.post(_CHANGE + "/decline", summary="Decline a proposal, with a comment for the model")
@open_to_guests(document_of_change, "writer")
async def decline(
    draft: DraftDep, who: CurrentPerson, change: str, body: DeclineRequest | None = None
) -> ProposalResponse:
    return ProposalResponse.of(await draft.proposals.decline(change, who, body.comment if body else ""))


@threads_router.post(_CHANGE + "/withdraw", summary="Withdraw a proposal")
@open_to_guests(document_of_change, "writer")
async def withdraw(draft: DraftDep, who: CurrentPerson, change: str) -> ProposalResponse:
    return ProposalResponse.of(await draft.proposals.withdraw(change, who.id))


@threads_router.post(_CHANGE + "/undo", summary="Undo an accepted proposal: a commit, and it is pending again")
@open_to_guests(document_of_change, "writer")
async def undo(draft: DraftDep, who: CurrentPerson, change: str) -> ProposalResponse:
    return ProposalResponse.of(await draft.proposals.undo(change, who))


@threads_router.post(_CHANGE + "/repropose", summary="Make a stale proposal again for the present text")
@open_to_guests(document_of_change, "writer")
async def repropose(draft: DraftDep, who: CurrentPerson, change: str) -> ProposalResponse:
    return ProposalResponse.of(await draft.proposals.repropose(change, who))


async def _start_turn(draft: DraftService, who: Contributor, thread: str, body: ThreadMessageRequest) -> StartedReply:
    selection = body.selection.span() if body.selection else None
    exact = body.selection.exact if body.selection else ""
    room = f"room:{thread}"
    return await draft.threads.send_message(
        room, body.text, who, to=body.to, selection=selection, exact=exact, key=body.key
    )


def _stream(draft: DraftService, thread: Thread, reply: str, after: int | None) -> StreamingResponse:
    parser = parser_for(thread.member(draft.timeline.turn(thread.room, reply).speaker).format if reply else "tags")
    return StreamingResponse(
        sse_frames(draft.feed, draft.timeline, thread.room, reply, parser, after or 0),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


async def _live(draft: DraftService, thread: Thread, after: int | None) -> AsyncIterator[ServerSentEvent]:
    async with draft.feed.follow(thread.room, after) as subscription:
        if after is None:
            subscription.after = draft.feed.last_id()
            whole = ThreadDetailResponse.of(draft, thread).model_dump(mode="json")
            yield _event("snapshot", whole, subscription.after)
        reply, offset, parser = "", 0, parser_for("tags")
        async for item in subscription:
            if not isinstance(item, LiveText):
                change = {"id": item.id, "kind": item.kind, "actor": item.actor, "turn": item.turn}
                payload = item.payload.model_dump(mode="json")
                yield _event("change", {**change, "at": item.ts.isoformat(), "payload": payload}, item.id)
                continue
            if item.reply != reply:
                speaker = draft.timeline.turn(thread.room, item.reply).speaker
                reply, offset, parser = item.reply, 0, parser_for(thread.member(speaker).format)
            text = visible_text(parser.feed(item.text))
            if text:
                yield _event("token", {"reply": reply, "offset": offset, "text": text})
                offset += len(text)


def _event(name: str, payload: dict[str, Any], event_id: int | None = None) -> ServerSentEvent:
    data = json.dumps(payload, ensure_ascii=True)
    return ServerSentEvent(data, event=name, id=None if event_id is None else str(event_id), sep="\n")
