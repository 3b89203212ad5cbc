"""A document while people type in it, over HTTP: the text of this moment, and keystrokes by number. F9"""

from __future__ import annotations

from fastapi import APIRouter

from coterie.modes.draft import LiveDocumentGone, Update
from coterie.surfaces.web.draft_person import CurrentPerson
from coterie.surfaces.web.draft_route import DraftRoute
from coterie.surfaces.web.draft_shapes import EditRequest, EditResponse, LiveDocumentResponse
from coterie.surfaces.web.errors import ERROR_RESPONSES
from coterie.surfaces.web.house import Here

editor_router = APIRouter(prefix="/draft", tags=["draft"], responses=ERROR_RESPONSES, route_class=DraftRoute)
_SHEET = "/workspaces/{workspace}/sheet/{path:path}"


@editor_router.get(_SHEET, summary="The document as it is being typed")
async def live_document(house: Here, workspace: str, path: str, branch: str | None = None) -> LiveDocumentResponse:
    return LiveDocumentResponse.of(await house.draft.live_document(workspace, path, branch))


@editor_router.post(
    _SHEET, summary="Keystrokes that count from a number; the answer is all that came since. 410: start from the text"
)
async def apply_edits(house: Here, who: CurrentPerson, workspace: str, path: str, taken: EditRequest) -> EditResponse:
    draft = house.draft
    found = draft.live_document_of_epoch(workspace, path, taken.branch, taken.epoch)
    room = draft.thread_queries.thread(f"room:{taken.thread}").room if taken.thread else None
    updates = [Update(one.client, one.changes) for one in taken.updates]
    in_time = await draft.add_updates(workspace, found, taken.version, updates, who, room)
    since = found.updates_since(taken.version)
    if since is None:
        raise LiveDocumentGone("Too much was typed since this page last looked.", "What you typed is merged in; go on.")
    return EditResponse.of(found, since, taken=in_time)


@editor_router.post(
    _SHEET.replace("/sheet/", "/flush/"), summary="Commit what was typed now, without waiting for a pause"
)
async def flush(house: Here, workspace: str, path: str, branch: str | None = None) -> LiveDocumentResponse:
    await house.draft.flush(workspace, path, branch or house.draft.repository(workspace).main_branch)
    return LiveDocumentResponse.of(await house.draft.live_document(workspace, path, branch))
