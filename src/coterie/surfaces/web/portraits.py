"""Portraits: the picture that a character's card came with, shown small beside its words.

Only what begins like a picture is served, under the type it begins as: a card may carry anything.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from fastapi import APIRouter, Response
from starlette.exceptions import HTTPException

from coterie.cast.cards import import_card
from coterie.cast.errors import CardError
from coterie.surfaces.web.house import Here, House

router = APIRouter(include_in_schema=False)
_KINDS = ("png", "charx")


@lru_cache(maxsize=32)
def _picture(file: Path, _changed: int) -> tuple[bytes, str] | None:
    """The picture in a card's file, with its media type."""
    try:
        card = import_card(file.read_bytes(), file.name).card
    except (OSError, CardError):
        return None
    for data in (card.picture, card.main_icon):
        if data is not None and (kind := _media_type(data)):
            return data, kind
    return None


def _media_type(data: bytes) -> str:
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    return "image/webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else ""


def _found(house: House, bot: str) -> tuple[tuple[bytes, str], int] | None:
    for kind in _KINDS:
        file = house.workspaces.folder(bot) / f"card.{kind}"
        try:
            changed = file.stat().st_mtime_ns
        except OSError:
            continue
        if (picture := _picture(file, changed)) is not None:
            return picture, changed
    return None


def portrait(house: House, bot: str) -> str:
    """Where a character's picture is, or nothing if it has none. A new picture has a new address."""
    found = _found(house, bot)
    return f"/bots/{bot}/portrait?of={found[1]:x}" if found else ""


@router.get("/bots/{bot}/portrait")
async def serve(house: Here, bot: str) -> Response:
    found = _found(house, house.roster.bot(bot).id)
    if found is None:
        raise HTTPException(404, "This character has no portrait")
    (data, kind), _ = found
    return Response(data, media_type=kind, headers={"Cache-Control": "private, max-age=31536000, immutable"})
