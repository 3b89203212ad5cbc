"""The API for memories: list, recall, edit, pin, forget, import and export."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query, Request, status
from fastapi.responses import StreamingResponse
from pydantic import Field, StringConstraints

from coterie.base.redaction import redact
from coterie.base.values import Count, Time, clamp_time
from coterie.characters import Characters
from coterie.memory import Disclosure, Memory, MemoryRecord, MemoryType, export_lines
from coterie.modes.story import import_memories as import_exported
from coterie.surfaces.web.shared.dependencies import (
    FILE_BODY,
    CharactersDep,
    MemoryDep,
    StoreDep,
    StoryDep,
    read_upload,
)
from coterie.surfaces.web.shared.errors import ERROR_RESPONSES
from coterie.surfaces.web.story.schemas import DoneResponse, PinRequest, RequestModel, ResponseModel

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=20_000)]


class MemoryResponse(ResponseModel):
    id: str
    owner: str
    room: str
    """The stream it is stored in: `room:` and a chat's id, or `memory:` and a character's."""
    text: str
    type: str
    speaker: str | None
    told_by: str | None
    witnesses: list[str]
    about: list[str]
    sources: list[str]
    """The turns it came from."""
    happened: datetime | None
    """In the fiction."""
    made: datetime
    significance: int
    confidence: float
    reliability: float
    pinned: bool
    auto_pinned: bool
    private: bool
    disclosure: str
    superseded_by: str | None
    score: float | None = None
    """With `q`: the relevance score."""
    parts: dict[str, float] = Field(default_factory=dict)
    """The parts of the score, which sum to it."""

    @classmethod
    def of(
        cls, record: MemoryRecord, score: float | None = None, parts: dict[str, float] | None = None
    ) -> MemoryResponse:
        return cls(
            id=record.id,
            owner=record.owner,
            room=record.room,
            text=redact(record.text),
            type=record.type,
            speaker=record.speaker,
            told_by=record.told_by,
            witnesses=list(record.witnesses),
            about=list(record.about),
            sources=list(record.sources),
            happened=record.happened,
            made=record.made,
            significance=record.significance,
            confidence=record.confidence,
            reliability=record.reliability,
            pinned=record.pinned,
            auto_pinned=record.auto_pinned,
            private=record.private,
            disclosure=record.disclosure,
            superseded_by=record.superseded_by,
            score=score,
            parts=parts or {},
        )


class MemoryLinkResponse(ResponseModel):
    source: str
    relation: str
    target: str


class MemoryEditRequest(RequestModel):
    """Omitted fields stay as they are."""

    text: Text | None = None
    type: MemoryType | None = None
    significance: int | None = Field(default=None, ge=0, le=3)
    confidence: float | None = Field(default=None, ge=0, le=1)
    private: bool | None = None
    disclosure: Disclosure | None = None


class MemoryImportResponse(ResponseModel):
    added: int
    """How many were new."""


# A forked chat has memories of its own under the same ids; `room` says which chat is meant.


router = APIRouter(prefix="/memories", tags=["memories"], responses=ERROR_RESPONSES)
Line = Annotated[
    str | None, Query(max_length=200, description="`room:` and a chat's id, or `memory:` and a character's.")
]


@router.get("", summary="Memories, newest first; with `q` the most relevant first, with their scores")
async def memories(
    characters: CharactersDep,
    memory: MemoryDep,
    owner: Annotated[str | None, Query(max_length=200)] = None,
    q: Annotated[str, Query(max_length=1_000)] = "",
    kind: Annotated[MemoryType | None, Query(alias="type")] = None,
    room: Line = None,
    since: Time | None = None,
    until: Time | None = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    offset: Count = 0,
) -> list[MemoryResponse]:
    since, until = since and clamp_time(since), until and clamp_time(until)
    if not q.strip():
        page = memory.page(owner=owner, room=room, kind=kind, since=since, until=until, limit=limit, offset=offset)
        return [MemoryResponse.of(record) for record in page]
    return await asyncio.to_thread(_recalled, characters, memory, owner, q, kind, room, limit)


@router.get("/links", summary="Links between memories")
async def links(memory: MemoryDep, owner: Annotated[str, Query(max_length=200)]) -> list[MemoryLinkResponse]:
    links = memory.links(owner)
    return [MemoryLinkResponse(source=source, relation=relation, target=target) for source, relation, target in links]


@router.get("/export", summary="Memories as JSON lines", response_class=StreamingResponse)
async def export(store: StoreDep, owner: Annotated[str | None, Query(max_length=200)] = None) -> StreamingResponse:
    def lines() -> Iterator[str]:
        for line in export_lines(store, owner):
            yield f"{redact.json(line)}\n"

    headers = {"Content-Disposition": 'attachment; filename="memories.jsonl"'}
    return StreamingResponse(lines(), media_type="application/x-ndjson", headers=headers)


@router.post(
    "/import",
    summary="Import an export for one character; duplicates are skipped",
    status_code=status.HTTP_201_CREATED,
    openapi_extra=FILE_BODY,
)
async def import_memories(
    store: StoreDep,
    characters: CharactersDep,
    memory: MemoryDep,
    request: Request,
    owner: Annotated[str, Query(max_length=200)],
) -> MemoryImportResponse:
    character = characters.get(owner)
    added = await import_exported(store, memory, await read_upload(request), character.id)
    return MemoryImportResponse(added=added)


@router.get("/{memory_id}", summary="A memory")
async def show(memory: MemoryDep, memory_id: str, room: Line = None) -> MemoryResponse:
    return MemoryResponse.of(memory.get(memory_id, room))


@router.patch("/{memory_id}", summary="Correct a memory")
async def correct(memory: MemoryDep, memory_id: str, body: MemoryEditRequest, room: Line = None) -> MemoryResponse:
    record = memory.get(memory_id, room)
    changes = body.model_dump(exclude_none=True)
    if changes:
        await asyncio.to_thread(lambda: memory.edit(memory_id, room=record.room, **changes))
    return MemoryResponse.of(memory.get(memory_id, record.room))


@router.put("/{memory_id}/pin", summary="Pin or unpin a memory; at most eight per character")
async def pin(
    memory: MemoryDep, story: StoryDep, memory_id: str, body: PinRequest, room: Line = None
) -> MemoryResponse:
    record = memory.get(memory_id, room)
    await story.pin(record.room, memory_id, body.pinned)
    return MemoryResponse.of(memory.get(memory_id, record.room))


@router.delete("/{memory_id}", summary="Forget a memory permanently, with its duplicates")
async def forget(memory: MemoryDep, memory_id: str) -> DoneResponse:
    await asyncio.to_thread(memory.forget, memory_id)
    return DoneResponse()


def _recalled(
    characters: Characters, memory: Memory, owner: str | None, q: str, kind: str | None, room: str | None, limit: int
) -> list[MemoryResponse]:
    """What the owner would recall, including archived and superseded memories."""
    owners = [owner] if owner else [character.id for character in characters.all()]
    types = [kind] if kind else []
    memories = [
        one
        for who in owners
        for one in memory.recall(q, owner=who, room=room, k=limit, types=types, history=True, archived=True)
        if (room is None or one.memory.room == room) and (kind is None or one.memory.type == kind)
    ]
    memories.sort(key=lambda one: -one.score)
    return [MemoryResponse.of(one.memory, one.score, one.parts) for one in memories[:limit]]
