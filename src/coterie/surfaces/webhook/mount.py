"""Puts the webhook and the API on the server."""

from __future__ import annotations

from fastapi import FastAPI

from coterie.base.clock import Clock
from coterie.engine.switchboard import Switchboard
from coterie.surfaces.webhook.completions import api_router
from coterie.surfaces.webhook.files import FilesOf
from coterie.surfaces.webhook.hook import hook_router
from coterie.surfaces.webhook.settings import ApiSettings, WebhookSettings


def mount(
    web: FastAPI, board: Switchboard, webhook: WebhookSettings, api: ApiSettings, clock: Clock, files_of: FilesOf
) -> None:
    web.include_router(hook_router(board, webhook, files_of))
    web.include_router(api_router(board, api, clock))
