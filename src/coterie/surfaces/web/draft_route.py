"""How routes about documents tell what went wrong: a clash comes with the difference. F9"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import Depends, Header, Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute

from coterie.base.masking import mask
from coterie.cast.roster import YOU
from coterie.modes.draft import Clash, DraftError, NoSuchDocument, NotPending, Person, StaleChange, Unplaced
from coterie.surfaces.web.house import Here

_STATUS: tuple[tuple[type[DraftError], int], ...] = (
    (NoSuchDocument, 404),
    (Clash, 409),
    (NotPending, 409),
    (StaleChange, 409),
    (Unplaced, 409),
)


class DraftRoute(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def told(request: Request) -> Response:
            try:
                return await handle(request)
            except DraftError as error:
                status = next((status for kind, status in _STATUS if isinstance(error, kind)), 400)
                body = {"error": mask(error.what), "fix": mask(error.fix)}
                if isinstance(error, Clash) and error.difference:
                    body["difference"] = error.difference
                return JSONResponse(body, status_code=status)

        return told


def _who(house: Here) -> Person:
    """Until there are accounts, whoever asks is you."""
    return Person(YOU, house.roster.you().name)


def _number(last_event_id: Annotated[str | None, Header(alias="Last-Event-ID")] = None) -> int | None:
    told = last_event_id or ""
    return int(told) if told.isascii() and told.isdecimal() and len(told) < 19 else None


LastEvent = Annotated[int | None, Depends(_number)]
"""The number of the last event that a listener who comes back has."""
Who = Annotated[Person, Depends(_who)]
