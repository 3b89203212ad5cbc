"""Portraits of characters, shown small beside their words."""

from __future__ import annotations

from fastapi import APIRouter, Response
from starlette.exceptions import HTTPException

from coterie.cast.portraits import read_portrait
from coterie.surfaces.web.house import Here, House

portrait_router = APIRouter(include_in_schema=False)


def portrait_url(house: House, bot: str) -> str:
    """Where a character's picture is, or nothing if it has none. A new picture has a new address."""
    found = read_portrait(house.workspaces.folder(bot))
    return f"/bots/{bot}/portrait?of={found.version:x}" if found else ""


@portrait_router.get("/bots/{bot}/portrait")
async def serve_portrait(house: Here, bot: str) -> Response:
    found = read_portrait(house.workspaces.folder(house.roster.get(bot).id))
    if found is None:
        raise HTTPException(404, "This character has no portrait")
    headers = {"Cache-Control": "private, max-age=31536000, immutable"}
    return Response(found.data, media_type=found.media_type, headers=headers)
