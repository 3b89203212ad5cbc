"""Looking for what was said, in every chat. S17"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Request, Response

from coterie.modes.story import search_chats
from coterie.surfaces.web.house import Here
from coterie.surfaces.web.negotiation import PageRouter
from coterie.surfaces.web.paper import fragment_response, page_response
from coterie.surfaces.web.people import DisplayNames

search_pages = PageRouter(prefix="/search")
_PAGE = 30


@search_pages.get("")
async def find(
    house: Here,
    request: Request,
    q: Annotated[str, Query(max_length=1_000)] = "",
    chat: Annotated[str, Query(max_length=200)] = "",
    offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
) -> Response:
    room = house.story.chats.chat(f"room:{chat}").room if chat else None
    asked = q.strip()
    hits = search_chats(house.story, house.store, asked, room=room, limit=_PAGE, offset=offset) if asked else []
    more = offset + _PAGE if len(hits) == _PAGE else 0
    told: dict[str, Any] = {"hits": hits, "q": asked, "chat": chat, "more": more}
    if offset:
        return fragment_response("search_hits.html", **told)
    chats = {room.partition(":")[2]: title for room, title in DisplayNames(house).rooms.items()}
    return page_response(request, "search.html", here="/chats", chats=chats, **told)
