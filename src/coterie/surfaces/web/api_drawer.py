"""The drawer beside a chat: looked into, and corrected by hand. S21"""

from __future__ import annotations

from fastapi import APIRouter

from coterie.modes.story import EDITABLE_FIELDS, ChatDetails, chat_details
from coterie.surfaces.web.errors import ERROR_RESPONSES
from coterie.surfaces.web.house import Here, House
from coterie.surfaces.web.shapes import EditsRequest, PinRequest

drawer_router = APIRouter(prefix="/chats/{chat}", tags=["drawer"], responses=ERROR_RESPONSES)


@drawer_router.get("/drawer", summary="Scene, place, activities, feelings both ways, memories, pins, clock")
async def drawer(house: Here, chat: str) -> ChatDetails:
    return _drawer(house, chat)


@drawer_router.patch(
    "/drawer",
    summary="Correct what the drawer shows; each correction is kept with what stood there before",
    description=f"Fields: {', '.join(f'`{field}`' for field in EDITABLE_FIELDS)}. WHO is `you` or a character's id.",
)
async def correct(house: Here, chat: str, told: EditsRequest) -> ChatDetails:
    await house.story.edit(f"room:{chat}", told.edits)
    return _drawer(house, chat)


@drawer_router.put(
    "/memories/{memory}/pin", summary="Pin a memory, or no longer; at most eight of a character are pinned"
)
async def pin(house: Here, chat: str, memory: str, told: PinRequest) -> ChatDetails:
    await house.story.pin(f"room:{chat}", memory, told.pinned)
    return _drawer(house, chat)


@drawer_router.delete(
    "/memories/{memory}", summary="Forget a memory for good: it does not come back, nor what says the same"
)
async def forget(house: Here, chat: str, memory: str) -> ChatDetails:
    await house.story.forget(f"room:{chat}", memory)
    return _drawer(house, chat)


def _drawer(house: House, chat: str) -> ChatDetails:
    story = house.story
    found = story.chats.chat(f"room:{chat}")
    return chat_details(found, story.participants.names(found), story.chats, story.relationships, house.memory)
