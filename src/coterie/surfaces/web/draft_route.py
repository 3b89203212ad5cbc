"""How routes about documents tell what went wrong: a clash comes with the difference. F9"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import Depends, Header, Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute

from coterie.base.masking import redact
from coterie.modes.draft import Clash


class DraftRoute(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def told(request: Request) -> Response:
            try:
                return await handle(request)
            except Clash as error:
                body = {"error": redact(error.what), "fix": redact(error.fix), "difference": error.difference}
                return JSONResponse(body, status_code=error.http_status)

        return told


def _last_event_id(last_event_id: Annotated[str | None, Header(alias="Last-Event-ID")] = None) -> int | None:
    told = last_event_id or ""
    return int(told) if told.isascii() and told.isdecimal() and len(told) < 19 else None


LastEventId = Annotated[int | None, Depends(_last_event_id)]
"""The number of the last event that a listener who comes back has."""
