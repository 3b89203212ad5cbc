"""`POST /telegram/updates`: what Telegram sends to a bot with a webhook."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, HTTPException, Request

from coterie.base.untrusted import parse_json
from coterie.surfaces.telegram.settings import SECRET_HEADER, WEBHOOK_PATH
from coterie.surfaces.telegram.setup import TelegramMessenger

_BODY: dict[str, Any] = {
    "requestBody": {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}}
}


def telegram_router(messenger: TelegramMessenger) -> APIRouter:
    router = APIRouter(tags=["telegram"])

    @router.post(
        WEBHOOK_PATH,
        summary="An update from Telegram; with its secret only",
        status_code=204,
        openapi_extra=_BODY,
        responses={400: {"description": "It is not an update."}, 401: {"description": "The secret is wrong."}},
    )
    async def receive_update(request: Request, secret: Annotated[str, Header(alias=SECRET_HEADER)] = "") -> None:
        """Checks the secret before it reads the body."""
        service = messenger.service
        if service is None or not service.accepts_webhook(secret):
            raise HTTPException(401, f"The header {SECRET_HEADER} is missing or wrong")
        try:
            update = parse_json(await request.body())
        except ValueError as error:
            raise HTTPException(400, f"This is not JSON: {error}") from None
        if not isinstance(update, dict):
            raise HTTPException(400, "This is not an update")
        await service.accept([update])

    return router
