"""Looking for what was said, in every chat. S17"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from coterie.modes.story import SearchHit, search_chats
from coterie.surfaces.web.errors import ERROR_RESPONSES
from coterie.surfaces.web.house import Here

search_router = APIRouter(tags=["search"], responses=ERROR_RESPONSES)


@search_router.get("/search", summary="What was said in any chat, the best match first")
async def find(
    house: Here,
    q: Annotated[str, Query(max_length=1_000, description="Every word must occur, or one that begins with it.")],
    chat: Annotated[str | None, Query(description="Only in this chat.")] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
) -> list[SearchHit]:
    room = house.story.chats.chat(f"room:{chat}").room if chat is not None else None
    return search_chats(house.story, house.store, q, room=room, limit=limit, offset=offset)
