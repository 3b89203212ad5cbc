"""A document while people type in it, over HTTP: the text of this moment, and keystrokes by number. F9"""

from __future__ import annotations

from fastapi import APIRouter

from coterie.modes.draft import SheetGone, Update
from coterie.surfaces.web.draft_person import Who
from coterie.surfaces.web.draft_route import DraftRoute
from coterie.surfaces.web.draft_shapes import SheetShape, TypedShape, TypedTaken
from coterie.surfaces.web.errors import TROUBLES
from coterie.surfaces.web.house import Here

editor_router = APIRouter(prefix="/draft", tags=["draft"], responses=TROUBLES, route_class=DraftRoute)
_SHEET = "/workspaces/{workspace}/sheet/{path:path}"


@editor_router.get(_SHEET, summary="The document as it is being typed")
async def sheet(house: Here, workspace: str, path: str, branch: str | None = None) -> SheetShape:
    return SheetShape.of(await house.draft.sheet(workspace, path, branch))


@editor_router.post(
    _SHEET, summary="Keystrokes that count from a number; the answer is all that came since. 410: start from the text"
)
async def typed(house: Here, who: Who, workspace: str, path: str, taken: TypedTaken) -> TypedShape:
    draft = house.draft
    found = draft.open_sheet(workspace, path, taken.branch, taken.epoch)
    room = draft.threads.thread(f"room:{taken.thread}").room if taken.thread else None
    updates = [Update(one.client, one.changes) for one in taken.updates]
    in_time = await draft.type_in(workspace, found, taken.version, updates, who, room)
    since = found.since(taken.version)
    if since is None:
        raise SheetGone("Too much was typed since this page last looked.", "What you typed is merged in; go on.")
    return TypedShape.of(found, since, taken=in_time)


@editor_router.post(
    _SHEET.replace("/sheet/", "/flush/"), summary="Commit what was typed now, without waiting for a pause"
)
async def flush(house: Here, workspace: str, path: str, branch: str | None = None) -> SheetShape:
    await house.draft.flush(workspace, path, branch or house.draft.workspace(workspace).main_branch)
    return SheetShape.of(await house.draft.sheet(workspace, path, branch))
