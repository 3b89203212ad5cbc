"""Moving in from SillyTavern: the API and the pages of imports."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response, status
from pydantic import Field
from starlette.exceptions import HTTPException

from coterie.base.values import FilePath, Key
from coterie.modes.story import ITEM_KINDS, ImportedItem, ImportRun, Preview, SillyTavernImporter
from coterie.surfaces.web.shared.access import Confirmed
from coterie.surfaces.web.shared.dependencies import SillyTavernDep
from coterie.surfaces.web.shared.errors import ERROR_RESPONSES
from coterie.surfaces.web.shared.messages import N_, gettext
from coterie.surfaces.web.shared.templates import PageRouter, page_response
from coterie.surfaces.web.story.schemas import RequestModel, ResponseModel

router = APIRouter(prefix="/imports", tags=["files"], responses=ERROR_RESPONSES)
pages = PageRouter(prefix="/imports")

KIND_LABELS = {
    "preset": N_("Sampler presets"),
    "persona": N_("Personas"),
    "character": N_("Characters"),
    "expression": N_("Expressions"),
    "gallery picture": N_("Gallery pictures"),
    "lorebook": N_("Lorebooks"),
    "chat": N_("Chats"),
    "group": N_("Groups"),
    "group chat": N_("Group chats"),
    "quick replies": N_("Quick replies"),
    "other": N_("Other things"),
}
OUTCOME_LABELS = {
    "taken": N_("Imported"),
    "changed": N_("Imported with changes"),
    "known": N_("Here already"),
    "left": N_("Not imported"),
}


class FolderRequest(RequestModel):
    folder: Annotated[FilePath, Field(min_length=1)]
    """SillyTavern's folder on the machine of the server, or `data/default-user` in it."""


class StartImportRequest(FolderRequest):
    kinds: Annotated[tuple[Key, ...], Field(max_length=20)] = ITEM_KINDS
    """What to take: `character`, `chat`, `group`, `group chat`, `lorebook`, `persona`, `preset` …"""


class PreviewKind(ResponseModel):
    kind: str
    label: str
    items: int
    before: int
    """How many were imported before; they are taken again only where they changed."""


class LeftItem(ResponseModel):
    path: str
    why: str


class PreviewResponse(ResponseModel):
    folder: str
    """The data folder that was found."""
    kinds: list[PreviewKind]
    left: list[LeftItem]

    @classmethod
    def of(cls, preview: Preview) -> PreviewResponse:
        kinds = [
            PreviewKind(
                kind=kind,
                label=gettext(KIND_LABELS[kind]),
                items=number,
                before=sum(item.kind == kind and item.before for item in preview.items),
            )
            for kind, number in preview.kinds.items()
        ]
        left = [LeftItem(path=item.path, why=item.why_left) for item in preview.items if item.why_left]
        return cls(folder=str(preview.folder), kinds=kinds, left=left)


class ImportItemResponse(ResponseModel):
    path: str
    kind: str
    name: str
    outcome: str
    """`taken`, `changed`, `known` (here already) or `left`."""
    notes: tuple[str, ...]
    target: str
    """The character, chat or preset that it became."""
    counts: dict[str, int]
    kept: bool
    """Its content was kept as it is, and can be downloaded."""

    @classmethod
    def of(cls, item: ImportedItem) -> ImportItemResponse:
        return cls(
            path=item.path,
            kind=item.item,
            name=item.name,
            outcome=item.outcome,
            notes=item.notes,
            target=item.target,
            counts=item.counts,
            kept=item.kept,
        )


class ImportRunResponse(ResponseModel):
    id: str
    folder: str
    started: datetime
    ended: datetime | None
    failed: str
    done: int
    items: int
    outcomes: dict[str, int]

    @classmethod
    def of(cls, run: ImportRun) -> ImportRunResponse:
        return cls(
            id=run.id,
            folder=run.folder,
            started=run.started,
            ended=run.ended,
            failed=run.failed,
            done=run.done,
            items=max(run.items, run.done),
            outcomes={str(outcome): number for outcome, number in run.outcomes.items()},
        )


@router.get("", summary="All imports from SillyTavern, the newest first")
async def list_imports(importer: SillyTavernDep) -> list[ImportRunResponse]:
    return [ImportRunResponse.of(run) for run in importer.queries.runs()]


@router.post("/preview", summary="What an import of a SillyTavern folder would take; changes nothing")
async def preview_import(importer: SillyTavernDep, confirmed: Confirmed, body: FolderRequest) -> PreviewResponse:
    return PreviewResponse.of(await importer.preview(body.folder, confirmed=confirmed))


@router.post("", summary="Import a SillyTavern folder in the background", status_code=status.HTTP_202_ACCEPTED)
async def start_import(importer: SillyTavernDep, confirmed: Confirmed, body: StartImportRequest) -> ImportRunResponse:
    run_id = await importer.start(body.folder, body.kinds, confirmed=confirmed)
    return ImportRunResponse.of(_run(importer, run_id))


@router.get("/{run_id}", summary="The progress of an import")
async def show_import(importer: SillyTavernDep, run_id: str) -> ImportRunResponse:
    return ImportRunResponse.of(_run(importer, run_id))


@router.get("/{run_id}/items", summary="What was imported, changed and left, and why")
async def list_items(importer: SillyTavernDep, run_id: str) -> list[ImportItemResponse]:
    return [ImportItemResponse.of(item) for item in importer.queries.items(_run(importer, run_id).id)]


@router.get("/{run_id}/document", summary="The content of an item that was kept as it is", response_class=Response)
async def download(
    importer: SillyTavernDep,
    run_id: str,
    kind: Annotated[str, Query(max_length=40)],
    path: Annotated[str, Query(max_length=4_000)],
) -> Response:
    document = importer.queries.document(_run(importer, run_id).id, kind, path)
    if document is None:
        raise HTTPException(404, "Nothing is kept of this item")
    headers = {"Content-Disposition": 'attachment; filename="imported.json"'}
    return Response(json.dumps(document, indent=1), media_type="application/json", headers=headers)


def _run(importer: SillyTavernImporter, run_id: str) -> ImportRun:
    run = importer.queries.run(run_id)
    if run is None:
        raise HTTPException(404, "There is no such import")
    return run


@pages.get("")
async def imports_page(importer: SillyTavernDep, request: Request) -> Response:
    return page_response(
        request,
        "characters/imports.html",
        here="/characters",
        runs=importer.queries.runs(),
        found=[str(folder) for folder in importer.found_folders()],
        drop_folder=str(importer.drop_folder),
    )


@pages.get("/{run_id}")
async def import_page(importer: SillyTavernDep, request: Request, run_id: str) -> Response:
    run = _run(importer, run_id)
    items = importer.queries.items(run.id)
    grouped = {label: [item for item in items if item.outcome == outcome] for outcome, label in OUTCOME_LABELS.items()}
    return page_response(
        request,
        "characters/import.html",
        here="/characters",
        run=run,
        total=max(run.items, run.done),
        grouped={label: chosen for label, chosen in grouped.items() if chosen},
        kinds=KIND_LABELS,
    )
