"""Documents in Git: workspaces, branches, versions, history, and the inbox. F1, F9, F11, F12, F14"""

from __future__ import annotations

import asyncio
from pathlib import Path

from fastapi import APIRouter, status

from coterie.surfaces.web.draft_person import Who
from coterie.surfaces.web.draft_route import DraftRoute
from coterie.surfaces.web.draft_shapes import (
    BranchTaken,
    ChangeShape,
    DifferenceShape,
    DocumentShape,
    Merged,
    MergeTaken,
    NoticeShape,
    RevisionShape,
    SaveTaken,
    ThreadShape,
    ThreadTaken,
    VersionShape,
    WatchTaken,
    WorkspaceShape,
    WorkspaceTaken,
)
from coterie.surfaces.web.errors import TROUBLES
from coterie.surfaces.web.house import Here, House
from coterie.surfaces.web.shapes import Done

router = APIRouter(prefix="/draft", tags=["draft"], responses=TROUBLES, route_class=DraftRoute)
_ONE = "/workspaces/{workspace}"


@router.get("/workspaces", summary="All workspaces")
async def workspaces(house: Here) -> list[WorkspaceShape]:
    return [_shape(house, workspace) for workspace in house.draft.threads.workspaces()]


@router.post(
    "/workspaces", summary="A new workspace, or a repository adopted as one", status_code=status.HTTP_201_CREATED
)
async def open_workspace(house: Here, taken: WorkspaceTaken) -> WorkspaceShape:
    if taken.folder is None:
        return _shape(house, await house.draft.new_workspace(taken.name))
    return _shape(house, await house.draft.open_workspace(Path(taken.folder), taken.name))


@router.get(_ONE + "/documents", summary="The documents of a branch")
async def documents(house: Here, workspace: str, branch: str | None = None) -> list[DocumentShape]:
    text = house.draft.workspace(workspace)
    found = await asyncio.to_thread(text.documents, branch or text.main_branch)
    return [DocumentShape(path=path, title=title) for path, title in found]


@router.get(_ONE + "/documents/{path:path}", summary="A document as a branch has it")
async def document(house: Here, workspace: str, path: str, branch: str | None = None) -> VersionShape:
    return VersionShape.of(await house.draft.read(workspace, path, branch))


@router.put(
    _ONE + "/documents/{path:path}",
    summary="Save what was written by hand; merged with what others wrote, or 409 with the difference",
)
async def save(house: Here, who: Who, workspace: str, path: str, taken: SaveTaken) -> VersionShape:
    branch = taken.branch or house.draft.workspace(workspace).main_branch
    room = f"room:{taken.thread}" if taken.thread else None
    if room is not None:
        house.draft.threads.thread(room)
    return VersionShape.of(await house.draft.save(workspace, path, branch, taken.text, taken.base, who, room))


@router.get(_ONE + "/changes/{path:path}", summary="The proposals about a document, in its order")
async def changes(house: Here, workspace: str, path: str, branch: str | None = None) -> list[ChangeShape]:
    version = await house.draft.read(workspace, path, branch)
    found = house.draft.changes.of_document(workspace, version.branch, path)
    return [ChangeShape.of(change) for change in found]


@router.get(_ONE + "/branches", summary="The branches")
async def branches(house: Here, workspace: str) -> list[str]:
    return await asyncio.to_thread(house.draft.workspace(workspace).branches)


@router.post(_ONE + "/branches", summary="A new branch", status_code=status.HTTP_201_CREATED)
async def create_branch(house: Here, workspace: str, taken: BranchTaken) -> list[str]:
    await house.draft.create_branch(workspace, taken.name, taken.source)
    return await branches(house, workspace)


@router.get(_ONE + "/compare", summary="What documents would become if one branch were merged into another")
async def compare(house: Here, workspace: str, source: str, target: str) -> list[DifferenceShape]:
    found = await asyncio.to_thread(house.draft.workspace(workspace).compare, source, target)
    return [DifferenceShape(path=one.path, patch=one.patch) for one in found]


@router.post(_ONE + "/merge", summary="One branch into another, where they do not clash")
async def merge(house: Here, who: Who, workspace: str, taken: MergeTaken) -> Merged:
    return Merged(commit=await house.draft.merge(workspace, taken.source, taken.target, who))


@router.get(_ONE + "/history", summary="The commits of a branch, newest first; of one document, those that changed it")
async def history(
    house: Here, workspace: str, branch: str | None = None, document: str | None = None, limit: int = 100
) -> list[RevisionShape]:
    text = house.draft.workspace(workspace)
    found = await asyncio.to_thread(text.history, branch or text.main_branch, min(max(limit, 1), 1_000), document)
    return [RevisionShape.of(one) for one in found]


@router.get(_ONE + "/blame", summary="The commit, the change and the thread that a line comes from")
async def blame(
    house: Here, workspace: str, document: str, line: int, branch: str | None = None
) -> RevisionShape | None:
    text = house.draft.workspace(workspace)
    found = await asyncio.to_thread(text.blame, branch or text.main_branch, document, line)
    return RevisionShape.of(found) if found is not None else None


@router.get(_ONE + "/threads", summary="The threads beside the documents")
async def threads(
    house: Here, workspace: str, document: str | None = None, branch: str | None = None
) -> list[ThreadShape]:
    return [ThreadShape.of(thread) for thread in house.draft.threads.threads(workspace, document, branch)]


@router.post(_ONE + "/threads", summary="Begin a thread", status_code=status.HTTP_201_CREATED)
async def open_thread(house: Here, who: Who, workspace: str, taken: ThreadTaken) -> ThreadShape:
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
    return ThreadShape.of(thread)


@router.put(_ONE + "/watch", summary="Be told of what is said about a document, or no longer")
async def watch(house: Here, who: Who, workspace: str, taken: WatchTaken) -> Done:
    await house.draft.watch(workspace, taken.document, who, taken.watching)
    return Done(done=True)


@router.get("/inbox", summary="Your notices, newest first")
async def inbox(house: Here, who: Who, unread: bool = False) -> list[NoticeShape]:
    return [NoticeShape.of(notice) for notice in house.draft.inbox.of(who.id, unread=unread)]


@router.post("/inbox/read", summary="All notices are read")
async def mark_read(house: Here, who: Who) -> Done:
    await house.draft.mark_read(who)
    return Done(done=True)


def _shape(house: House, workspace: str) -> WorkspaceShape:
    name, folder = house.draft.threads.workspaces()[workspace]
    branch = house.draft.workspace(workspace).main_branch
    return WorkspaceShape(id=workspace, name=name, folder=str(folder), branch=branch)
