"""The page that is served while a backup is restored, by a server of its own at the same address."""

from __future__ import annotations

import json
import socket
import threading
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

from coterie.surfaces.web.shared.security import content_security_policy

_WHAT = "A backup is being restored."
_FIX = "Wait a moment; the page returns when it is done."
_PAGE = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="1">'
    '<meta name="viewport" content="width=device-width"><title>Coterie</title>'
    "<h1>{what}</h1><p>{step} …</p><progress{how_far}></progress><p>{fix}</p></html>"
)


class RestorePage:
    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._at = ("", 0, 0)

    def set_progress(self, what: str, done: int, most: int) -> None:
        """The present step and its progress; `most` is 0 where the total is unknown."""
        self._at = (what, done, most)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def __enter__(self) -> Self:
        room = self

        class Answer(BaseHTTPRequestHandler):
            def answer(self) -> None:
                kind, body = room.body(wants_page="text/html" in self.headers.get("Accept", ""))
                self.send_response(503)
                self.send_header("Retry-After", "1")
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Content-Security-Policy", content_security_policy())
                self.send_header("Cache-Control", "no-store")
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815 - as the library calls them

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """No access log."""

        class Server(ThreadingHTTPServer):
            address_family = socket.AF_INET6 if ":" in room._host else socket.AF_INET
            daemon_threads = True

        self._server = Server((self._host, self._port), Answer)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="restore page")
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def body(self, *, wants_page: bool) -> tuple[str, bytes]:
        step, done, most = self._at
        if not wants_page:
            payload = {"error": _WHAT, "fix": _FIX, "restoring": {"what": step, "done": done, "most": most}}
            return "application/json", json.dumps(payload).encode()
        how_far = f' value="{done}" max="{most}"' if most else ""
        page = _PAGE.format(what=escape(_WHAT), step=escape(step), how_far=how_far, fix=escape(_FIX))
        return "text/html; charset=utf-8", page.encode()
