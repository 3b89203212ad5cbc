"""Backups, listed and taken. Putting one back needs a stopped server: `coterie restore`. S28"""

from __future__ import annotations

from fastapi import APIRouter, status

from coterie.ops.copies import Copy
from coterie.surfaces.web.errors import TROUBLES
from coterie.surfaces.web.house import Here

router = APIRouter(prefix="/backups", tags=["ops"], responses=TROUBLES)


@router.get("", summary="The backups there are, newest first")
async def backups(house: Here) -> list[Copy]:
    return house.copies.backups()


@router.post("", summary="Take a backup now, while playing goes on", status_code=status.HTTP_201_CREATED)
async def take(house: Here) -> Copy:
    return await house.copies.take_backup()
