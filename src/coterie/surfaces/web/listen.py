"""Listening for requests until told to stop, then letting open ones finish."""

from __future__ import annotations

import socket

import uvicorn
from fastapi import FastAPI

from coterie.base.errors import InUse
from coterie.surfaces.web.settings import ServerSettings


def listen(web: FastAPI, settings: ServerSettings) -> None:
    """Blocks. A port that is taken is told before anything starts."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as door:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            door.bind((settings.host, settings.port))
        except OSError as error:
            raise InUse(
                f"Port {settings.port} on {settings.host} cannot be used ({error.strerror}).",
                "Stop whatever uses it, or choose another: coterie serve --port 8001",
            ) from error
        host, port = door.getsockname()[:2]
        print(f"Coterie is at http://{f'[{host}]' if ':' in host else host}:{port}  (Ctrl-C stops it)", flush=True)
        config = uvicorn.Config(
            web, log_config=None, access_log=False, lifespan="on", timeout_graceful_shutdown=settings.drain_s
        )
        uvicorn.Server(config).run(sockets=[door])
