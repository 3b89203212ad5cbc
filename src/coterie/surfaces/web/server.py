"""The HTTP application, and the server that runs it."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import partial
from typing import NamedTuple

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from pydantic import SecretStr
from starlette.middleware.gzip import GZipMiddleware

from coterie import __version__
from coterie.base.errors import InUse
from coterie.base.ids import new_id
from coterie.surfaces.web.characters.imports import pages as import_pages
from coterie.surfaces.web.characters.imports import router as imports_router
from coterie.surfaces.web.characters.lorebooks import pages as lorebook_pages
from coterie.surfaces.web.characters.lorebooks import router as lorebooks_router
from coterie.surfaces.web.characters.pages import router as character_pages
from coterie.surfaces.web.characters.pictures import router as character_pictures_router
from coterie.surfaces.web.characters.routes import PortraitMiddleware, files_router, portrait_router
from coterie.surfaces.web.characters.routes import router as characters_router
from coterie.surfaces.web.crowd.pages import crowd_fragments as crowd_fragments
from coterie.surfaces.web.crowd.pages import overlay_pages as crowd_overlay_pages
from coterie.surfaces.web.crowd.pages import router as crowd_pages
from coterie.surfaces.web.crowd.routes import events_router as crowd_events_router
from coterie.surfaces.web.crowd.routes import overlay_router as crowd_overlay_router
from coterie.surfaces.web.crowd.routes import router as crowd_router
from coterie.surfaces.web.desk.pages import router as desk_pages
from coterie.surfaces.web.desk.routes import router as desk_router
from coterie.surfaces.web.draft.pages import router as draft_pages
from coterie.surfaces.web.draft.routes import editor_router, guests_router, join_pages, threads_router
from coterie.surfaces.web.draft.routes import router as draft_router
from coterie.surfaces.web.home.pages import about_router
from coterie.surfaces.web.home.pages import router as home_pages
from coterie.surfaces.web.memory.pages import router as memory_pages
from coterie.surfaces.web.memory.routes import router as memories_router
from coterie.surfaces.web.ops.pages import router as ops_pages
from coterie.surfaces.web.ops.routes import backups_router
from coterie.surfaces.web.ops.routes import router as ops_router
from coterie.surfaces.web.server_settings import ServerSettings
from coterie.surfaces.web.settings.messengers import pages as messenger_pages
from coterie.surfaces.web.settings.messengers import router as messengers_router
from coterie.surfaces.web.settings.model_routes import pages as model_pages
from coterie.surfaces.web.settings.model_routes import prompts_router
from coterie.surfaces.web.settings.model_routes import router as models_router
from coterie.surfaces.web.settings.pages import router as settings_pages
from coterie.surfaces.web.settings.personas import pages as persona_pages
from coterie.surfaces.web.settings.personas import pictures_router
from coterie.surfaces.web.settings.personas import router as personas_router
from coterie.surfaces.web.settings.routes import owner_router, people_router
from coterie.surfaces.web.settings.routes import router as settings_router
from coterie.surfaces.web.shared.access import GuestAccess, SecurityMiddleware, guest_tokens
from coterie.surfaces.web.shared.assets import router as assets_router
from coterie.surfaces.web.shared.dependencies import Services
from coterie.surfaces.web.shared.errors import ERROR_RESPONSES, ErrorMiddleware, add_error_handlers
from coterie.surfaces.web.shared.limits import (
    BodyLimitMiddleware,
    BodyLimits,
    ConnectionLimits,
    limited_protocol,
    limits_for_this_process,
)
from coterie.surfaces.web.shared.live_updates import router as live_router
from coterie.surfaces.web.shared.login import LoginMiddleware, Sessions, login_routes
from coterie.surfaces.web.shared.messages import LanguageMiddleware
from coterie.surfaces.web.shared.templates import available_items
from coterie.surfaces.web.story.live import router as chat_events_router
from coterie.surfaces.web.story.model_panel import pages as model_panel_pages
from coterie.surfaces.web.story.model_panel import router as model_panel_router
from coterie.surfaces.web.story.pages import prompt_pages, search_pages
from coterie.surfaces.web.story.pages import router as chat_pages
from coterie.surfaces.web.story.routes import drawer_router, search_router, shortcuts_router, turns_router
from coterie.surfaces.web.story.routes import router as chats_router

# The server


class ServerExit(NamedTuple):
    port: int
    by_signal: bool


def run_server(
    web: FastAPI,
    settings: ServerSettings,
    *,
    within: AbstractAsyncContextManager[None],
    anew: bool = False,
    on_listening: Callable[[str, int], None] = lambda host, port: None,
) -> ServerExit:
    """Run until a signal. A port in use is an error before anything starts; `within` is entered first and left last.
    `on_listening` is called with the address.

    `anew`: the caller restarts the server at the same port, so that a page may request it.
    """
    with open_listener(settings.host, settings.port) as listener:
        port: int = listener.getsockname()[1]
        limits = limits_for_this_process()
        web.state.max_streams = limits.streams
        config = uvicorn.Config(
            web,
            http=limited_protocol(limits),
            ws="none",
            backlog=limits.backlog,
            log_config=None,
            log_level="warning",
            access_log=False,
            lifespan="off",
            proxy_headers=bool(settings.trusted_proxies),
            forwarded_allow_ips=list(settings.trusted_proxies),
            timeout_graceful_shutdown=settings.drain_s,
        )
        server = uvicorn.Server(config)
        if anew:
            web.state.start_anew = partial(setattr, server, "should_exit", True)
        with _signals_stop(server) as signals:
            asyncio.run(_serve(server, listener, within, on_listening))
        return ServerExit(port, bool(signals))


def open_listener(host: str, port: int) -> socket.socket:
    """A socket at this address. `InUse` if it cannot be used.

    It names TCP, because asyncio sends without delay only on such sockets: else every response on a connection that
    stays open would wait 40 ms for an acknowledgement between its head and its body.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise InUse(
            f"Port {port} on {host} cannot be used ({error.strerror}).",
            "Stop whatever uses it, or choose another: coterie serve --port 8001",
        ) from error
    return listener


async def _serve(
    server: uvicorn.Server,
    listener: socket.socket,
    within: AbstractAsyncContextManager[None],
    on_listening: Callable[[str, int], None],
) -> None:
    # Not a lifespan of the framework, which would turn an error at startup into a traceback.
    async with within:
        # What is loaded at the start stays: scanning it took 50 ms each time, in the middle of a reply.
        gc.collect()
        gc.freeze()
        listener.listen(server.config.backlog)  # before the address is printed, so that an early client can connect
        host, port = listener.getsockname()[:2]
        on_listening(host, port)
        print(f"Coterie is at http://{f'[{host}]' if ':' in host else host}:{port}  (Ctrl-C stops it)", flush=True)
        await server.serve(sockets=[listener])


@contextmanager
def _signals_stop(server: uvicorn.Server) -> Iterator[list[int]]:
    """Stop the server on a signal; uvicorn alone would raise it again and end the process with an open store."""
    signals: list[int] = []

    def stop(number: int, _frame: object) -> None:
        signals.append(number)
        server.should_exit = True

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# Pages come first; they do not match requests that do not ask for HTML.
_PAGES = (
    assets_router,
    home_pages,
    about_router,
    chat_pages,
    model_panel_pages,
    desk_pages,
    draft_pages,
    join_pages,
    live_router,
    character_pages,
    import_pages,
    lorebook_pages,
    portrait_router,
    settings_pages,
    persona_pages,
    pictures_router,
    model_pages,
    messenger_pages,
    memory_pages,
    ops_pages,
    search_pages,
    prompt_pages,
    crowd_pages,
    crowd_fragments,
    crowd_overlay_pages,
)
# Files come before characters: /characters/import is not a character called import.
_API = (
    files_router,
    imports_router,
    personas_router,
    owner_router,
    people_router,
    messengers_router,
    characters_router,
    character_pictures_router,
    lorebooks_router,
    chats_router,
    drawer_router,
    turns_router,
    search_router,
    shortcuts_router,
    memories_router,
    ops_router,
    settings_router,
    model_panel_router,
    models_router,
    prompts_router,
    backups_router,
    chat_events_router,
    draft_router,
    editor_router,
    threads_router,
    crowd_router,
    crowd_events_router,
    crowd_overlay_router,
    desk_router,
    guests_router,
)


def create_web(
    services: Services,
    password: SecretStr | None = None,
    keyed: tuple[str, ...] = (),
    body_limits: BodyLimits | None = None,
    local_key: str = "",
) -> FastAPI:
    """With a password every request needs a login; without one, only this machine is admitted. A guest with a link is
    admitted to the routes that are declared for guests.

    `keyed` are path prefixes whose routes check a key themselves; `local_key` admits commands of this machine.
    """
    web = FastAPI(
        title="Coterie",
        version=__version__,
        description="Errors are `{error, fix}`: what happened, and what to do next.",
        docs_url=None,
        redoc_url=None,
        responses=ERROR_RESPONSES,
    )
    web.state.services = services
    web.state.rail = available_items(_PAGES)
    web.state.start_anew = None
    web.state.confirmations = None
    web.state.run = new_id()
    web.state.max_streams = ConnectionLimits().streams
    web.add_middleware(PortraitMiddleware, services=services)
    web.add_middleware(BodyLimitMiddleware, limits=body_limits)
    web.add_middleware(GZipMiddleware, minimum_size=1_000, compresslevel=6)
    sessions: Sessions | None = None
    if password is not None:
        sessions = Sessions(password.get_secret_value())
        web.state.confirmations = sessions
        web.include_router(login_routes(sessions))
    guests = GuestAccess((*_PAGES, *_API), services)
    web.add_middleware(
        LoginMiddleware, sessions=sessions, guests=guests, keyed=("/overlay", *keyed), local_key=local_key
    )
    web.add_middleware(SecurityMiddleware, any_name=password is not None)
    web.add_middleware(LanguageMiddleware)
    web.add_middleware(ErrorMiddleware)
    add_error_handlers(web)
    # Not by `include_router`: it would make every route anew at the first request, and match each request twice.
    for router in (*_PAGES, *_API):
        web.router.routes.extend(router.routes)

    @web.head("/health", include_in_schema=False)
    @web.get("/health", summary="Whether the server and its parts work")
    async def health(request: Request) -> JSONResponse:
        """`ok`; `degraded` if some parts have a problem; `failing` (503) if the database cannot be read or written.

        Without a login, only the names and states of the parts are given.
        """
        found = services.health()
        is_owner = sessions.admits(request.headers) if sessions is not None else not guest_tokens(request.headers)
        return JSONResponse(
            found.details() if is_owner else found.public(),
            status_code=503 if found.status == "failing" else 200,
            headers={"Coterie-Run": web.state.run},
        )

    @web.get(
        "/metrics",
        summary="Metrics in Prometheus text format",
        response_class=Response,
        responses={200: {"description": "The metrics.", "content": {"text/plain": {}}}},
    )
    async def metrics() -> PlainTextResponse:
        """Metrics in Prometheus text format."""
        return PlainTextResponse(services.metrics(), media_type="text/plain; version=0.0.4")

    return web
