"""The HTTP application: what a browser, a script or a watchdog can ask for."""

from __future__ import annotations

from fastapi import FastAPI
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import SecretStr
from starlette.middleware.gzip import GZipMiddleware

from coterie import __version__
from coterie.base.ids import new_id
from coterie.surfaces.web.api_backups import backups_router
from coterie.surfaces.web.api_bots import router as characters_router
from coterie.surfaces.web.api_chats import router as chats_router
from coterie.surfaces.web.api_crowd import router as crowd_router
from coterie.surfaces.web.api_desk import router as desk_router
from coterie.surfaces.web.api_draft import router as draft_router
from coterie.surfaces.web.api_draft_sheet import editor_router
from coterie.surfaces.web.api_draft_threads import threads_router
from coterie.surfaces.web.api_drawer import drawer_router
from coterie.surfaces.web.api_files import files_router
from coterie.surfaces.web.api_memories import router as memories_router
from coterie.surfaces.web.api_ops import router as ops_router
from coterie.surfaces.web.api_people import router as people_router
from coterie.surfaces.web.api_search import search_router
from coterie.surfaces.web.api_settings import router as settings_router
from coterie.surfaces.web.api_turns import turns_router
from coterie.surfaces.web.api_writers import join_pages as join_pages
from coterie.surfaces.web.api_writers import writers_router
from coterie.surfaces.web.api_you import owner_router
from coterie.surfaces.web.assets import router as assets_router
from coterie.surfaces.web.door import LoginMiddleware, login_routes
from coterie.surfaces.web.errors import ShutdownMiddleware, add_error_handlers
from coterie.surfaces.web.guard import SecurityMiddleware
from coterie.surfaces.web.house import House
from coterie.surfaces.web.live import router as chat_events_router
from coterie.surfaces.web.live_crowd import router as crowd_events_router
from coterie.surfaces.web.page_bots import router as character_pages
from coterie.surfaces.web.page_chats import router as chat_pages
from coterie.surfaces.web.page_crowd import crowd_fragments as crowd_fragments
from coterie.surfaces.web.page_crowd import router as crowd_pages
from coterie.surfaces.web.page_desk import router as desk_pages
from coterie.surfaces.web.page_draft import router as draft_pages
from coterie.surfaces.web.page_home import router as home_pages
from coterie.surfaces.web.page_house import about_router
from coterie.surfaces.web.page_live import router as live_router
from coterie.surfaces.web.page_memory import router as memory_pages
from coterie.surfaces.web.page_ops import router as ops_pages
from coterie.surfaces.web.page_prompt import prompt_pages
from coterie.surfaces.web.page_search import search_pages
from coterie.surfaces.web.page_settings import router as settings_pages
from coterie.surfaces.web.portraits import portrait_router
from coterie.surfaces.web.rail import available_items
from coterie.surfaces.web.sessions import Sessions

# Pages are asked first and step aside for whoever does not want HTML.
_PAGES = (
    assets_router,
    home_pages,
    about_router,
    chat_pages,
    desk_pages,
    draft_pages,
    join_pages,
    live_router,
    character_pages,
    portrait_router,
    settings_pages,
    memory_pages,
    ops_pages,
    search_pages,
    prompt_pages,
    crowd_pages,
    crowd_fragments,
)
# Files come first: /bots/import is not a character called import.
_API = (
    files_router,
    owner_router,
    people_router,
    characters_router,
    chats_router,
    drawer_router,
    turns_router,
    search_router,
    memories_router,
    ops_router,
    settings_router,
    backups_router,
    chat_events_router,
    draft_router,
    editor_router,
    threads_router,
    crowd_router,
    crowd_events_router,
    desk_router,
    writers_router,
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
    web.state.rail = available_items(_PAGES)
    web.state.start_anew = None
    web.state.run = new_id()
    web.add_middleware(GZipMiddleware, minimum_size=1_000, compresslevel=6)
    if password is not None:
        sessions = Sessions(password.get_secret_value())
        web.add_middleware(LoginMiddleware, sessions=sessions, keyed=keyed)
        web.include_router(login_routes(sessions))
    web.add_middleware(SecurityMiddleware, any_name=password is not None)
    web.add_middleware(ShutdownMiddleware)
    add_error_handlers(web)
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
