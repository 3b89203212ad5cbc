"""Documents in Git: workspaces, branches, versions, history, and the inbox. F1, F9, F11, F12, F14"""

from __future__ import annotations

import asyncio
from pathlib import Path

from fastapi import APIRouter, status

from coterie.surfaces.web.draft_person import CurrentPerson
from coterie.surfaces.web.draft_route import DraftRoute
from coterie.surfaces.web.draft_shapes import (
    BranchRequest,
    CommitResponse,
    DocumentDiffResponse,
    DocumentResponse,
    DocumentVersionResponse,
    MergeRequest,
    MergeResponse,
    NotificationResponse,
    ProposalResponse,
    SaveRequest,
    ThreadRequest,
    ThreadResponse,
    WatchRequest,
    WorkspaceRequest,
    WorkspaceResponse,
)
from coterie.surfaces.web.errors import ERROR_RESPONSES
from coterie.surfaces.web.house import Here, House
from coterie.surfaces.web.shapes import DoneResponse

router = APIRouter(prefix="/draft", tags=["draft"], responses=ERROR_RESPONSES, route_class=DraftRoute)
_ONE = "/workspaces/{workspace}"


@router.get("/workspaces", summary="All workspaces")
async def workspaces(house: Here) -> list[WorkspaceResponse]:
    return [_shape(house, workspace) for workspace in house.draft.thread_queries.workspaces()]


@router.post(
    "/workspaces", summary="A new workspace, or a repository adopted as one", status_code=status.HTTP_201_CREATED
)
async def open_workspace(house: Here, taken: WorkspaceRequest) -> WorkspaceResponse:
    if taken.folder is None:
        return _shape(house, await house.draft.create_workspace(taken.name))
    return _shape(house, await house.draft.open_workspace(Path(taken.folder), taken.name))


@router.get(_ONE + "/documents", summary="The documents of a branch")
async def documents(house: Here, workspace: str, branch: str | None = None) -> list[DocumentResponse]:
    text = house.draft.repository(workspace)
    found = await asyncio.to_thread(text.documents, branch or text.main_branch)
    return [DocumentResponse(path=path, title=title) for path, title in found]


@router.get(_ONE + "/documents/{path:path}", summary="A document as a branch has it")
async def document(house: Here, workspace: str, path: str, branch: str | None = None) -> DocumentVersionResponse:
    return DocumentVersionResponse.of(await house.draft.read(workspace, path, branch))


@router.put(
    _ONE + "/documents/{path:path}",
    summary="Save what was written by hand; merged with what others wrote, or 409 with the difference",
)
async def save(
    house: Here, who: CurrentPerson, workspace: str, path: str, taken: SaveRequest
) -> DocumentVersionResponse:
    branch = taken.branch or house.draft.repository(workspace).main_branch
    room = f"room:{taken.thread}" if taken.thread else None
    if room is not None:
        house.draft.thread_queries.thread(room)
    return DocumentVersionResponse.of(
        await house.draft.save(workspace, path, branch, taken.text, taken.base, who, room)
    )


@router.get(_ONE + "/changes/{path:path}", summary="The proposals about a document, in its order")
async def changes(house: Here, workspace: str, path: str, branch: str | None = None) -> list[ProposalResponse]:
    version = await house.draft.read(workspace, path, branch)
    found = house.draft.proposal_queries.of_document(workspace, version.branch, path)
    return [ProposalResponse.of(change) for change in found]


@router.get(_ONE + "/branches", summary="The branches")
async def branches(house: Here, workspace: str) -> list[str]:
    return await asyncio.to_thread(house.draft.repository(workspace).branches)


@router.post(_ONE + "/branches", summary="A new branch", status_code=status.HTTP_201_CREATED)
async def create_branch(house: Here, workspace: str, taken: BranchRequest) -> list[str]:
    await house.draft.create_branch(workspace, taken.name, taken.source)
    return await branches(house, workspace)


@router.get(_ONE + "/compare", summary="What documents would become if one branch were merged into another")
async def compare(house: Here, workspace: str, source: str, target: str) -> list[DocumentDiffResponse]:
    found = await asyncio.to_thread(house.draft.repository(workspace).compare, source, target)
    return [DocumentDiffResponse(path=one.path, patch=one.patch) for one in found]


@router.post(_ONE + "/merge", summary="One branch into another, where they do not clash")
async def merge(house: Here, who: CurrentPerson, workspace: str, taken: MergeRequest) -> MergeResponse:
    return MergeResponse(commit=await house.draft.merge(workspace, taken.source, taken.target, who))


@router.get(_ONE + "/history", summary="The commits of a branch, newest first; of one document, those that changed it")
async def history(
    house: Here, workspace: str, branch: str | None = None, document: str | None = None, limit: int = 100
) -> list[CommitResponse]:
    text = house.draft.repository(workspace)
    found = await asyncio.to_thread(text.history, branch or text.main_branch, min(max(limit, 1), 1_000), document)
    return [CommitResponse.of(one) for one in found]


@router.get(_ONE + "/blame", summary="The commit, the change and the thread that a line comes from")
async def blame(
    house: Here, workspace: str, document: str, line: int, branch: str | None = None
) -> CommitResponse | None:
    text = house.draft.repository(workspace)
    found = await asyncio.to_thread(text.blame, branch or text.main_branch, document, line)
    return CommitResponse.of(found) if found is not None else None


@router.get(_ONE + "/threads", summary="The threads beside the documents")
async def threads(
    house: Here, workspace: str, document: str | None = None, branch: str | None = None
) -> list[ThreadResponse]:
    return [ThreadResponse.of(thread) for thread in house.draft.thread_queries.threads(workspace, document, branch)]


@router.post(_ONE + "/threads", summary="Begin a thread", status_code=status.HTTP_201_CREATED)
async def open_thread(house: Here, who: CurrentPerson, workspace: str, taken: ThreadRequest) -> ThreadResponse:
    thread = await house.draft.open_thread(
        workspace,
        taken.document,
        taken.members,
        who,
        branch=taken.branch,
        title=taken.title,
        selection=taken.selection.span() if taken.selection else None,
        exact=taken.selection.exact if taken.selection else "",
        against=taken.against,
    )
    return ThreadResponse.of(thread)


@router.put(_ONE + "/watch", summary="Be told of what is said about a document, or no longer")
async def watch(house: Here, who: CurrentPerson, workspace: str, taken: WatchRequest) -> DoneResponse:
    await house.draft.watch(workspace, taken.document, who, taken.watching)
    return DoneResponse(done=True)


@router.get("/inbox", summary="Your notices, newest first")
async def inbox(house: Here, who: CurrentPerson, unread: bool = False) -> list[NotificationResponse]:
    return [
        NotificationResponse.of(notice) for notice in house.draft.notification_queries.of_person(who.id, unread=unread)
    ]


@router.post("/inbox/read", summary="All notices are read")
async def mark_read(house: Here, who: CurrentPerson) -> DoneResponse:
    await house.draft.mark_read(who)
    return DoneResponse(done=True)


def _shape(house: House, workspace: str) -> WorkspaceResponse:
    name, folder = house.draft.thread_queries.workspaces()[workspace]
    branch = house.draft.repository(workspace).main_branch
    return WorkspaceResponse(id=workspace, name=name, folder=str(folder), branch=branch)
