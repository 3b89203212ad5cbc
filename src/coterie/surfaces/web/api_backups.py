"""Backups: listed, taken, and put back. S28

While one is put back the server is down for a moment, and a waiting room stands in its place; `/health` names a run in
its `Coterie-Run` header, by which a page knows that the new one is there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fastapi import APIRouter, BackgroundTasks, Request, status

from coterie.ops.copies import StoredCopy
from coterie.ops.errors import NotFromHere
from coterie.surfaces.web.errors import ERROR_RESPONSES
from coterie.surfaces.web.house import Here

backups_router = APIRouter(prefix="/backups", tags=["ops"], responses=ERROR_RESPONSES)


@dataclass(frozen=True)
class RestoreResponse:
    file: str
    run: str
    """The server that was asked; the next one has the backup."""


@backups_router.get("", summary="The backups there are, newest first")
async def backups(house: Here) -> list[StoredCopy]:
    return house.copies.backups()


@backups_router.post("", summary="Take a backup now, while playing goes on", status_code=status.HTTP_201_CREATED)
async def take(house: Here) -> StoredCopy:
    return await house.copies.take_backup()


@backups_router.post(
    "/{file}/restore",
    summary="Put a backup in the place of what is there, which is kept: checked, then Coterie starts anew with it",
    status_code=status.HTTP_202_ACCEPTED,
)
async def restore(request: Request, house: Here, file: str, later: BackgroundTasks) -> RestoreResponse:
    start_anew: Callable[[], None] | None = request.app.state.start_anew
    if start_anew is None:
        raise NotFromHere(
            "This Coterie does not start itself anew.",
            f"Stop it, then say in a terminal: coterie restore {house.copies.folder / file}",
        )
    await house.copies.request_restore(file)
    later.add_task(start_anew)
    return RestoreResponse(file, request.app.state.run)
