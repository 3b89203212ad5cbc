"""Errors as JSON, `{"error": what happened, "fix": what to do}`, or as a page for a browser that navigates."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from coterie.base.errors import CoterieError
from coterie.base.redaction import redact
from coterie.surfaces.web.shared.templates import accepts_html, page_response

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
    403: {"model": ErrorBody, "description": "The request came from another site."},
    404: {"model": ErrorBody, "description": "Not found."},
    409: {"model": ErrorBody, "description": "A reply is running, or a concurrent change was made."},
    422: {"model": ErrorBody, "description": "A value is invalid; nothing was changed."},
    503: {"model": ErrorBody, "description": "The disk or database failed, or the server is stopping."},
}
"""Error responses, for OpenAPI."""


def error_response(status: int, error: str, fix: str) -> JSONResponse:
    return JSONResponse({"error": redact(error), "fix": redact(fix)}, status_code=status)


def negotiated_error(request: Request, status: int, error: str, fix: str) -> Response:
    """A page for a browser that navigates, JSON for htmx and scripts."""
    if request.method in ("GET", "HEAD") and accepts_html(request.headers) and "hx-request" not in request.headers:
        return page_response(request, "shared/error.html", status=status, what=redact(error), fix=redact(fix))
    return error_response(status, error, fix)


class ShutdownMiddleware:
    """Answers requests that are cancelled by a shutdown with 503."""

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


def add_error_handlers(web: FastAPI) -> None:
    @web.exception_handler(CoterieError)
    async def coterie_error(request: Request, error: CoterieError) -> Response:
        return negotiated_error(request, error.http_status, error.what, error.fix)

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
            return negotiated_error(request, 404, "There is nothing here.", "The address may be old, or misspelt.")
        return negotiated_error(
            request, error.status_code, f"{error.detail}.", _FIXES.get(error.status_code, "Try again.")
        )

    @web.exception_handler(Exception)
    async def unexpected_error(request: Request, error: Exception) -> Response:
        what = f"Internal error ({type(error).__name__})."
        return negotiated_error(request, 500, what, "Look at the log of the server; `coterie doctor` may know more.")
