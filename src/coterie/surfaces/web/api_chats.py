"""Chats: which there are, how they stand, who is there, and where they branch. S5, S6, S15, S23, S24"""

from __future__ import annotations

from fastapi import APIRouter, status

from coterie.modes.story import ChatRewindImpact, PromptQueries, ReadMarks, describe_impact
from coterie.surfaces.web.errors import ERROR_RESPONSES
from coterie.surfaces.web.house import Here
from coterie.surfaces.web.shapes import (
    ChatResponse,
    DoneResponse,
    ForkRequest,
    InviteRequest,
    PromptResponse,
    RewindRequest,
)

router = APIRouter(prefix="/chats", tags=["chats"], responses=ERROR_RESPONSES)


@router.get("", summary="All chats, newest first")
async def chats(house: Here) -> list[ChatResponse]:
    return [ChatResponse.of(house, chat) for chat in house.story.chats.chats()]


@router.get("/{chat}", summary="A chat as it stands")
async def show(house: Here, chat: str) -> ChatResponse:
    return ChatResponse.of(house, house.story.chats.chat(f"room:{chat}"))


@router.post("/{chat}/read", summary="All of it has been read: nothing in it is new")
async def mark_read(house: Here, chat: str) -> ChatResponse:
    found = house.story.chats.chat(f"room:{chat}")
    await ReadMarks(house.store).mark_read(found.room)
    return ChatResponse.of(house, found)


@router.get("/{chat}/prompt/{reply}", summary="Exactly what a model was told for a reply")
async def prompt(house: Here, chat: str, reply: str) -> PromptResponse:
    return PromptResponse.of(PromptQueries(house.store).inspect(f"room:{chat}", reply))


@router.post("/{chat}/guests", summary="Invite a second character", status_code=status.HTTP_201_CREATED)
async def invite(house: Here, chat: str, guest: InviteRequest) -> ChatResponse:
    await house.story.invite(f"room:{chat}", guest.bot)
    return ChatResponse.of(house, house.story.chats.chat(f"room:{chat}"))


@router.delete("/{chat}/guests/{bot}", summary="Let a guest leave")
async def remove_guest(house: Here, chat: str, bot: str) -> ChatResponse:
    await house.story.remove_guest(f"room:{chat}", bot)
    return ChatResponse.of(house, house.story.chats.chat(f"room:{chat}"))


@router.post("/{chat}/scene/close", summary="Close the scene: it is summarised, and the next one begins")
async def close_scene(house: Here, chat: str) -> ChatResponse:
    await house.story.close_scene(f"room:{chat}")
    return ChatResponse.of(house, house.story.chats.chat(f"room:{chat}"))


@router.get("/{chat}/rewind/{turn}", summary="What a rewind to this turn would take back")
async def preview(house: Here, chat: str, turn: str) -> ChatRewindImpact:
    return describe_impact(await house.story.preview_rewind(f"room:{chat}", turn))


@router.post("/{chat}/rewind", summary="Back to how things were right after a turn")
async def rewind(house: Here, chat: str, at: RewindRequest) -> ChatResponse:
    await house.story.rewind(f"room:{chat}", at.turn)
    return ChatResponse.of(house, house.story.chats.chat(f"room:{chat}"))


@router.post("/{chat}/undo", summary="Undo the last rewind, as long as nothing new was said")
async def undo(house: Here, chat: str) -> ChatResponse:
    await house.story.undo_rewind(f"room:{chat}")
    return ChatResponse.of(house, house.story.chats.chat(f"room:{chat}"))


@router.post(
    "/{chat}/fork", summary="A new chat that shares the past up to a turn", status_code=status.HTTP_201_CREATED
)
async def fork(house: Here, chat: str, at: ForkRequest) -> ChatResponse:
    return ChatResponse.of(house, await house.story.fork(f"room:{chat}", at.turn, at.title))


@router.post("/{chat}/stop", summary="Stop whoever is speaking; what was said is kept")
async def stop(house: Here, chat: str) -> DoneResponse:
    return DoneResponse(done=await house.story.stop(f"room:{chat}"))
