"""Errors as answers: `{"error": what happened, "fix": what to do}`, with a status that says whose turn it is. S29"""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from coterie.base.errors import Conflict, CoterieError, JobError, StorageError
from coterie.base.masking import mask
from coterie.cast.errors import CardTooBig, NoSuchCharacter
from coterie.engine.errors import Busy, NoSuchRoom, NoSuchTurn
from coterie.llm.errors import ModelError, RoleUnset
from coterie.memory.errors import BadImport, BadMemory, NoSuchMemory
from coterie.modes.story import BadEdit
from coterie.ops.errors import BadSetting

_STATUS: tuple[tuple[type[CoterieError], int], ...] = (
    (NoSuchRoom, 404),
    (NoSuchTurn, 404),
    (NoSuchCharacter, 404),
    (NoSuchMemory, 404),
    (JobError, 404),
    (Busy, 409),
    (Conflict, 409),
    (CardTooBig, 413),
    (BadSetting, 422),
    (BadEdit, 422),
    (BadMemory, 422),
    (BadImport, 422),
    (RoleUnset, 422),
    (ModelError, 502),
    (StorageError, 503),  # a full disk is not the fault of who asked
)
_FIXES = {404: "See /openapi.json for what there is.", 405: "See /openapi.json for what can be done here."}


class Trouble(BaseModel):
    """What every error looks like."""

    error: str
    fix: str


TROUBLES: dict[int | str, dict[str, object]] = {
    400: {"model": Trouble, "description": "Something in the request does not fit."},
    403: {"model": Trouble, "description": "The request came from another site."},
    404: {"model": Trouble, "description": "There is no such thing (any more)."},
    409: {"model": Trouble, "description": "Somebody is speaking, or somebody was quicker."},
    422: {"model": Trouble, "description": "A value does not fit; nothing was changed."},
    503: {"model": Trouble, "description": "The disk or the database would not take it."},
}
"""For the API's description."""


def status_of(error: CoterieError) -> int:
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 400)


def answer(status: int, error: str, fix: str) -> JSONResponse:
    return JSONResponse({"error": mask(error), "fix": mask(fix)}, status_code=status)


def tell_errors(web: FastAPI) -> None:
    @web.exception_handler(CoterieError)
    async def ours(_: Request, error: CoterieError) -> JSONResponse:
        return answer(status_of(error), error.what, error.fix)

    @web.exception_handler(RequestValidationError)
    async def unfit(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part != "body") or "the request"
        # Only what is wrong, never what was sent: it may be long, or a secret in the wrong place.
        return answer(400, f"{where}: {first['msg']}.", "Correct it; /openapi.json describes every request.")

    @web.exception_handler(HTTPException)
    async def plain(_: Request, error: HTTPException) -> JSONResponse:
        return answer(error.status_code, f"{error.detail}.", _FIXES.get(error.status_code, "Try again."))

    @web.exception_handler(Exception)
    async def unexpected(_: Request, error: Exception) -> JSONResponse:
        told = f"Something unexpected went wrong ({type(error).__name__})."
        return answer(500, told, "Look at the log of the server; `coterie doctor` may know more.")
