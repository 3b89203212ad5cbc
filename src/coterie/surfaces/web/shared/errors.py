"""Errors as JSON, `{"error": what happened, "fix": what to do}`, or as a page for a browser that navigates."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import MutableMapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from coterie.base.errors import ConfirmationNeeded, CoterieError
from coterie.base.logging import get_logger
from coterie.base.redaction import redact
from coterie.base.values import replace_surrogates
from coterie.surfaces.web.shared.templates import accepts_html, page_response

_log = get_logger(__name__)
_STORAGE_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE}
_PATH_ERRNOS = {
    errno.EACCES,
    errno.EEXIST,
    errno.EINVAL,
    errno.EISDIR,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.ENOTEMPTY,
    errno.EPERM,
}
_NULL_CHARACTER = ("embedded null", "source code string cannot contain null", "lstat: embedded null")
_FIXES = {404: "See /openapi.json for all paths.", 405: "See /openapi.json for the methods of this path."}


_VALIDATION_MESSAGES = {
    "string_too_short": "This cannot be empty",
    "missing": "This is required",
    "string_too_long": "This is too long",
}
"""Replacements for validation messages that are written for programmers."""


class ErrorBody(BaseModel):
    """The body of every error response."""

    error: str
    fix: str


ERROR_RESPONSES: dict[int | str, dict[str, object]] = {
    400: {"model": ErrorBody, "description": "The request is invalid."},
    401: {"model": ErrorBody, "description": "A session or a link is required."},
    403: {
        "model": ErrorBody,
        "description": "The request came from another site, is for the owner only, or needs a confirmation.",
    },
    404: {"model": ErrorBody, "description": "Not found."},
    408: {"model": ErrorBody, "description": "The request's body took too long to arrive."},
    409: {"model": ErrorBody, "description": "A reply is running, or a concurrent change was made."},
    410: {"model": ErrorBody, "description": "The document was changed meanwhile; load it again."},
    413: {"model": ErrorBody, "description": "The request is too large."},
    421: {"model": ErrorBody, "description": "The host is not a name of this machine."},
    422: {"model": ErrorBody, "description": "A value is invalid; nothing was changed."},
    429: {"model": ErrorBody, "description": "There were too many tries or calls; wait."},
    502: {"model": ErrorBody, "description": "The model failed."},
    503: {"model": ErrorBody, "description": "The disk or database failed, or the server is stopping."},
}
"""Error responses, for OpenAPI."""


def error_response(status: int, error: str, fix: str) -> JSONResponse:
    body = {"error": _printable(error), "fix": _printable(fix)}
    return JSONResponse(body, status_code=status)


def _printable(text: str) -> str:
    return redact(replace_surrogates(text))


def negotiated_error(request: Request, status: int, error: str, fix: str) -> Response:
    """A page for a browser that navigates, JSON for htmx and scripts."""
    if request.method in ("GET", "HEAD") and accepts_html(request.headers) and "hx-request" not in request.headers:
        return page_response(request, "shared/error.html", status=status, what=_printable(error), fix=_printable(fix))
    return error_response(status, error, fix)


class ErrorMiddleware:
    """Answers what no handler answers: any other exception, and requests that are cancelled by a shutdown.

    The framework's own handler of exceptions raises them again, whereupon the server logs them once more and resets
    the connection.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def send_and_note(message: MutableMapping[str, Any]) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, send_and_note)
        except asyncio.CancelledError:
            if started or scope["type"] != "http":
                raise
            what = "Coterie was stopped before this was answered."
            await error_response(503, what, "Start it again; what was said until then is kept.")(scope, receive, send)
        except Exception as error:
            if scope["type"] != "http":
                raise
            status, what, fix = describe_exception(error)
            where = {"method": scope["method"], "path": scope["path"][:200], "status": status}
            _log.error("a request failed", exc_info=error, **where)
            if not started:
                await _safe_error(Request(scope), status, what, fix)(scope, receive, send)


def describe_exception(error: Exception) -> tuple[int, str, str]:
    """Status, what happened and what to do, for an exception that is not one of ours."""
    if isinstance(error, OSError) and error.errno in _STORAGE_ERRNOS:
        return 503, f"The disk refused it ({error.strerror}).", "Make room, or check the disk; `coterie doctor` helps."
    if isinstance(error, OSError) and error.errno in _PATH_ERRNOS:
        return 400, f"A file or folder cannot be used ({error.strerror}).", "Check the path or name that you gave."
    if isinstance(error, UnicodeError):
        return 400, "A text has characters that cannot be stored.", "Remove them, and send it again."
    if isinstance(error, OverflowError):
        return 400, "A number is too large.", "Use a smaller one."
    if isinstance(error, ValueError) and str(error).startswith(_NULL_CHARACTER):
        return 400, "A file or folder cannot be used (null character).", "Check the path or name that you gave."
    what = f"Internal error ({type(error).__name__})."
    return 500, what, "Look at the log of the server; `coterie doctor` may know more."


def _safe_error(request: Request, status: int, what: str, fix: str) -> Response:
    try:
        return negotiated_error(request, status, what, fix)
    except Exception:  # the page itself is broken
        return error_response(status, what, fix)


def add_error_handlers(web: FastAPI) -> None:
    @web.exception_handler(CoterieError)
    async def coterie_error(request: Request, error: CoterieError) -> Response:
        return negotiated_error(request, error.http_status, error.what, error.fix)

    @web.exception_handler(ConfirmationNeeded)
    async def confirmation_needed(request: Request, error: ConfirmationNeeded) -> Response:
        """`confirm` says that the same request works with a confirmation; without a password there is none."""
        body = {"error": _printable(error.what), "fix": _printable(error.fix)}
        if request.app.state.confirmations is None:
            return JSONResponse(body, status_code=error.http_status)
        return JSONResponse({**body, "confirm": True}, status_code=error.http_status)

    @web.exception_handler(RequestValidationError)
    async def validation_error(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part != "body") or "the request"
        # Without the rejected value: it may be long, or a secret in the wrong field.
        what = _VALIDATION_MESSAGES.get(first["type"], first["msg"])
        return negotiated_error(request, 400, f"{where}: {what}.", "Correct it; /openapi.json describes every request.")

    @web.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> Response:
        if error.status_code == 404 and accepts_html(request.headers):
            return negotiated_error(request, 404, "Page not found.", "The address may be old, or misspelt.")
        fix = getattr(error, "fix", "") or _FIXES.get(error.status_code, "Try again.")
        response = negotiated_error(request, error.status_code, f"{error.detail}.", fix)
        response.headers.update(error.headers or {})
        return response
