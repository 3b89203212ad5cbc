"""Settings, shown with where each came from, and changed in the configuration file."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter

from coterie.ops.settings_editor import Setting
from coterie.surfaces.web.shared.dependencies import Here
from coterie.surfaces.web.shared.errors import ERROR_RESPONSES
from coterie.surfaces.web.story.schemas import RequestModel, ResponseModel

router = APIRouter(tags=["settings"], responses=ERROR_RESPONSES)


class SettingsResponse(ResponseModel):
    settings: list[Setting]
    restart_needed: bool
    """Whether something was changed that counts only from the next start."""

    @classmethod
    def of(cls, settings: list[Setting]) -> SettingsResponse:
        return cls(settings=settings, restart_needed=any(setting.pending for setting in settings))


class SettingsRequest(RequestModel):
    changes: dict[str, Any]
    """Setting → value; null puts it back to its default. A key is given as `env:NAME` or `secret:NAME`."""


@router.get("/settings", summary="Every setting with its value, its meaning and where it came from; never a secret")
async def settings(house: Here) -> SettingsResponse:
    return SettingsResponse.of(await asyncio.to_thread(house.settings_editor.settings))


@router.patch(
    "/settings", summary="Change settings in the configuration file; all of them, or none if one does not fit"
)
async def change(house: Here, told: SettingsRequest) -> SettingsResponse:
    return SettingsResponse.of(await asyncio.to_thread(house.settings_editor.change, told.changes))
