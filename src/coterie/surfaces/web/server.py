"""The HTTP application: what a browser, a script or a watchdog can ask for."""

from __future__ import annotations

from html import escape
from importlib.resources import files

from fastapi import FastAPI, Response
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse

from coterie import __version__
from coterie.surfaces.web import (
    api_bots,
    api_chats,
    api_drawer,
    api_files,
    api_memories,
    api_ops,
    api_search,
    api_settings,
    api_turns,
    api_you,
    live,
)
from coterie.surfaces.web.errors import tell_errors
from coterie.surfaces.web.guard import Guard
from coterie.surfaces.web.house import House

# Files come first: /bots/import is not a character called import.
_ROUTERS = (
    api_files.router,
    api_you.router,
    api_bots.router,
    api_chats.router,
    api_drawer.router,
    api_turns.router,
    api_search.router,
    api_memories.router,
    api_ops.router,
    api_settings.router,
    live.router,
)


def create_web(house: House) -> FastAPI:
    web = FastAPI(
        title="Coterie",
        version=__version__,
        description="Characters that remember. Errors are `{error, fix}`: what happened, and what to do next.",
        docs_url=None,
        redoc_url=None,
    )
    web.state.house = house
    web.add_middleware(Guard)
    tell_errors(web)
    for router in _ROUTERS:
        web.include_router(router)

    @web.head("/health", include_in_schema=False)
    @web.get("/health", summary="Whether the server can read and write")
    async def health() -> JSONResponse:
        """Whether the server can read and write."""
        if house.healthy():
            return JSONResponse({"status": "ok"})
        return JSONResponse({"status": "failing"}, status_code=503)

    @web.get("/metrics", summary="Figures in Prometheus' text form")
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
