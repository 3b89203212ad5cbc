"""How routes about documents tell what went wrong: a clash comes with the difference. F9"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import Depends, Request, Response
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


Who = Annotated[Person, Depends(_who)]
