"""Chats: which there are, how they stand, who is there, and where they branch. S5, S6, S15, S23, S24"""

from __future__ import annotations

from fastapi import APIRouter, status

from coterie.modes.story import Bookmarks, PromptBook, RewindImpact, told
from coterie.surfaces.web.errors import TROUBLES
from coterie.surfaces.web.house import Here
from coterie.surfaces.web.shapes import At, ChatShape, Done, ForkAt, Invite, PromptShape

router = APIRouter(prefix="/chats", tags=["chats"], responses=TROUBLES)


@router.get("", summary="All chats, newest first")
async def chats(house: Here) -> list[ChatShape]:
    return [ChatShape.of(house, chat) for chat in house.story.chats.chats()]


@router.get("/{chat}", summary="A chat as it stands")
async def show(house: Here, chat: str) -> ChatShape:
    return ChatShape.of(house, house.story.chats.chat(f"room:{chat}"))


@router.post("/{chat}/read", summary="All of it has been read: nothing in it is new")
async def mark_read(house: Here, chat: str) -> ChatShape:
    found = house.story.chats.chat(f"room:{chat}")
    await Bookmarks(house.store).mark_read(found.room)
    return ChatShape.of(house, found)


@router.get("/{chat}/prompt/{reply}", summary="Exactly what a model was told for a reply")
async def prompt(house: Here, chat: str, reply: str) -> PromptShape:
    return PromptShape.of(PromptBook(house.store).inspect(f"room:{chat}", reply))


@router.post("/{chat}/guests", summary="Invite a second character", status_code=status.HTTP_201_CREATED)
async def invite(house: Here, chat: str, guest: Invite) -> ChatShape:
    await house.story.invite(f"room:{chat}", guest.bot)
    return ChatShape.of(house, house.story.chats.chat(f"room:{chat}"))


@router.delete("/{chat}/guests/{bot}", summary="Let a guest leave")
async def send_away(house: Here, chat: str, bot: str) -> ChatShape:
    await house.story.send_away(f"room:{chat}", bot)
    return ChatShape.of(house, house.story.chats.chat(f"room:{chat}"))


@router.post("/{chat}/scene/close", summary="Close the scene: it is summarised, and the next one begins")
async def close_scene(house: Here, chat: str) -> ChatShape:
    await house.story.close_scene(f"room:{chat}")
    return ChatShape.of(house, house.story.chats.chat(f"room:{chat}"))


@router.get("/{chat}/rewind/{turn}", summary="What a rewind to this turn would take back")
async def preview(house: Here, chat: str, turn: str) -> RewindImpact:
    return told(await house.story.preview_rewind(f"room:{chat}", turn))


@router.post("/{chat}/rewind", summary="Back to how things were right after a turn")
async def rewind(house: Here, chat: str, at: At) -> ChatShape:
    await house.story.rewind(f"room:{chat}", at.turn)
    return ChatShape.of(house, house.story.chats.chat(f"room:{chat}"))


@router.post("/{chat}/undo", summary="Undo the last rewind, as long as nothing new was said")
async def undo(house: Here, chat: str) -> ChatShape:
    await house.story.undo_rewind(f"room:{chat}")
    return ChatShape.of(house, house.story.chats.chat(f"room:{chat}"))


@router.post(
    "/{chat}/fork", summary="A new chat that shares the past up to a turn", status_code=status.HTTP_201_CREATED
)
async def fork(house: Here, chat: str, at: ForkAt) -> ChatShape:
    return ChatShape.of(house, await house.story.fork(f"room:{chat}", at.turn, at.title))


@router.post("/{chat}/stop", summary="Stop whoever is speaking; what was said is kept")
async def stop(house: Here, chat: str) -> Done:
    return Done(done=await house.story.stop(f"room:{chat}"))
