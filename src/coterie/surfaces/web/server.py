"""The HTTP application: what a browser, a script or a watchdog can ask for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from html import escape
from importlib.resources import files
from typing import Protocol

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse

from coterie import __version__
from coterie.base.errors import CoterieError, StorageError
from coterie.base.masking import mask

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none';"
    " form-action 'self'; frame-ancestors 'none'",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}


class House(Protocol):
    """What the pages need to know of the rest."""

    def healthy(self) -> bool: ...

    def metrics(self) -> bytes: ...

    def summary(self) -> list[tuple[str, str]]: ...


def create_web(house: House) -> FastAPI:
    web = FastAPI(title="Coterie", version=__version__, docs_url=None, redoc_url=None)

    @web.middleware("http")
    async def guard(request: Request, proceed: Callable[[Request], Awaitable[Response]]) -> Response:
        response = await proceed(request)
        for name, value in _HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    @web.exception_handler(CoterieError)
    async def told(_: Request, error: CoterieError) -> JSONResponse:
        status = 503 if isinstance(error, StorageError) else 400  # a full disk is not the fault of who asked
        return JSONResponse({"error": mask(error.what), "fix": mask(error.fix)}, status_code=status)

    @web.head("/health", include_in_schema=False)
    @web.get("/health")
    async def health() -> JSONResponse:
        """Whether the server can read and write."""
        if house.healthy():
            return JSONResponse({"status": "ok"})
        return JSONResponse({"status": "failing"}, status_code=503)

    @web.get("/metrics")
    async def metrics() -> PlainTextResponse:
        """Figures in Prometheus' text form."""
        return PlainTextResponse(house.metrics(), media_type="text/plain; version=0.0.4")

    @web.head("/", include_in_schema=False)
    @web.get("/", include_in_schema=False)
    async def home() -> HTMLResponse:
        rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in house.summary())
        return HTMLResponse(_read("home.html").replace("{rows}", rows))

    @web.get("/home.css", include_in_schema=False)
    async def style() -> Response:
        return Response(_read("home.css"), media_type="text/css")

    return web


def _read(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
