"""The HTTP application: what a browser, a script or a watchdog can ask for."""

from __future__ import annotations

from fastapi import FastAPI
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import SecretStr
from starlette.middleware.gzip import GZipMiddleware

from coterie import __version__
from coterie.base.ids import new_id
from coterie.surfaces.web import (
    api_backups,
    api_bots,
    api_chats,
    api_crowd,
    api_desk,
    api_draft,
    api_draft_sheet,
    api_draft_threads,
    api_drawer,
    api_files,
    api_memories,
    api_ops,
    api_people,
    api_search,
    api_settings,
    api_turns,
    api_writers,
    api_you,
    assets,
    live,
    live_crowd,
    page_bots,
    page_chats,
    page_crowd,
    page_desk,
    page_draft,
    page_home,
    page_house,
    page_live,
    page_memory,
    page_ops,
    page_prompt,
    page_search,
    page_settings,
    portraits,
)
from coterie.surfaces.web.door import Door, door_routes
from coterie.surfaces.web.errors import Leaving, tell_errors
from coterie.surfaces.web.guard import Guard
from coterie.surfaces.web.house import House
from coterie.surfaces.web.rail import rail
from coterie.surfaces.web.sessions import Sessions

# Pages are asked first and step aside for whoever does not want HTML.
_PAGES = (
    assets.router,
    page_home.router,
    page_house.router,
    page_chats.router,
    page_desk.router,
    page_draft.router,
    api_writers.pages,
    page_live.router,
    page_bots.router,
    portraits.router,
    page_settings.router,
    page_memory.router,
    page_ops.router,
    page_search.router,
    page_prompt.router,
    page_crowd.router,
    page_crowd.parts,
)
# Files come first: /bots/import is not a character called import.
_API = (
    api_files.router,
    api_you.router,
    api_people.router,
    api_bots.router,
    api_chats.router,
    api_drawer.router,
    api_turns.router,
    api_search.router,
    api_memories.router,
    api_ops.router,
    api_settings.router,
    api_backups.router,
    live.router,
    api_draft.router,
    api_draft_sheet.router,
    api_draft_threads.router,
    api_crowd.router,
    live_crowd.router,
    api_desk.router,
    api_writers.router,
)


def create_web(house: House, password: SecretStr | None = None, keyed: tuple[str, ...] = ()) -> FastAPI:
    """With a password, everybody is asked for it at the door; without one, only this machine comes in.

    `keyed` are paths whose callers bring a key of their own.
    """
    web = FastAPI(
        title="Coterie",
        version=__version__,
        description="Characters that remember. Errors are `{error, fix}`: what happened, and what to do next.",
        docs_url=None,
        redoc_url=None,
    )
    web.state.house = house
    web.state.rail = rail(_PAGES)
    web.state.start_anew = None
    web.state.run = new_id()
    web.add_middleware(GZipMiddleware, minimum_size=1_000, compresslevel=6)
    if password is not None:
        sessions = Sessions(password.get_secret_value())
        web.add_middleware(Door, sessions=sessions, keyed=keyed)
        web.include_router(door_routes(sessions))
    web.add_middleware(Guard, any_name=password is not None)
    web.add_middleware(Leaving)
    tell_errors(web)
    for router in (*_PAGES, *_API):
        web.include_router(router)

    @web.head("/health", include_in_schema=False)
    @web.get("/health", summary="Whether the server can read and write")
    async def health() -> JSONResponse:
        """Whether the server can read and write."""
        run = {"Coterie-Run": web.state.run}
        if house.healthy():
            return JSONResponse({"status": "ok"}, headers=run)
        return JSONResponse({"status": "failing"}, status_code=503, headers=run)

    @web.get("/metrics", summary="Figures in Prometheus' text form")
    async def metrics() -> PlainTextResponse:
        """Figures in Prometheus' text form."""
        return PlainTextResponse(house.metrics(), media_type="text/plain; version=0.0.4")

    return web
