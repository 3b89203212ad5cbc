"""Servers on loopback: an OpenAI-compatible model server with a key, and one that serves a file with faults."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class ModelServer:
    """What the server does is in its attributes, which a test may change while it runs."""

    def __init__(self) -> None:
        self.key: str | None = "sk-right-0123456789"
        self.models: list[dict[str, Any]] = [{"id": "large-70b", "context_length": 64_000}, {"id": "small-8b"}]
        self.status = 0
        self.reply = "Hello from the other side."
        self.requests: list[tuple[str, str, str]] = []
        """Method, path and the key that came with it."""
        self.bodies: list[dict[str, Any]] = []
        self.pages: dict[str, object] = {}
        self.address = ""

    @property
    def base_url(self) -> str:
        return f"{self.address}/v1"


@contextmanager
def serving(server: ModelServer, port: int = 0) -> Iterator[ModelServer]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._note()
            path = self.path.partition("?")[0]
            if path in server.pages:
                return self._json(200, server.pages[path])
            if self._refused():
                return None
            if path == "/v1/models":
                return self._json(200, {"object": "list", "data": server.models})
            return self._json(404, {"error": {"message": "no such page"}})

        def do_POST(self) -> None:
            self._note()
            body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
            if self.path in server.pages:
                return self._json(200, server.pages[self.path])
            if self._refused():
                return None
            server.bodies.append(body)
            if not any(body.get("model") == one["id"] for one in server.models):
                return self._json(404, {"error": {"message": "The model does not exist."}})
            return self._stream(body)

        def _note(self) -> None:
            given = self.headers.get("authorization", "").removeprefix("Bearer ")
            server.requests.append((self.command, self.path, given))

        def _refused(self) -> bool:
            given = self.headers.get("authorization", "").removeprefix("Bearer ")
            if server.status:
                self._json(server.status, {"error": {"message": "down"}})
            elif server.key is not None and given != server.key:
                self._json(401, {"error": {"message": "Incorrect API key provided."}})
            else:
                return False
            return True

        def _stream(self, body: dict[str, Any]) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("connection", "close")
            self.end_headers()
            common = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": body["model"]}
            words = server.reply.split(" ")
            for at, word in enumerate(words):
                self._event({**common, "choices": [_choice(word if at == 0 else f" {word}", None)]})
            usage = {"prompt_tokens": 9, "completion_tokens": len(words), "total_tokens": 9 + len(words)}
            self._event({**common, "choices": [_choice("", "stop")], "usage": usage})
            self.wfile.write(b"data: [DONE]\n\n")

        def _event(self, data: object) -> None:
            self.wfile.write(b"data: " + json.dumps(data).encode() + b"\n\n")

        def _json(self, status: int, data: object) -> None:
            body = json.dumps(data).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Log nothing."""

    with running_server(Handler, port) as address:
        server.address = address
        yield server


def _choice(text: str, reason: str | None) -> dict[str, object]:
    return {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": reason}


class FileServer:
    """Serves one file by ranges. `cut_after` bytes it ends the connection, once per number in the list."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.cut_after: list[int] = []
        self.sha256 = hashlib.sha256(data).hexdigest()
        self.announce = True
        self.slow_s = 0.0
        self.redirect = ""
        self.tell_size = True
        self.ranges: list[str] = []
        self.address = ""

    @property
    def url(self) -> str:
        return f"{self.address}/models/resolve/main/other.gguf"


@contextmanager
def serving_file(server: FileServer) -> Iterator[FileServer]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if server.redirect:
                self.send_response(302)
                self.send_header("location", server.redirect)
                self.end_headers()
                return
            wanted = self.headers.get("range", "")
            server.ranges.append(wanted)
            start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
            if start >= len(server.data):
                self.send_response(416)
                self.end_headers()
                return
            body = server.data[start:]
            self.send_response(206 if wanted else 200)
            if server.tell_size:
                self.send_header("content-length", str(len(body)))
            if wanted:
                self.send_header("content-range", f"bytes {start}-{len(server.data) - 1}/{len(server.data)}")
            if server.announce:
                self.send_header("etag", f'"{server.sha256}"')
            self.end_headers()
            if server.cut_after:
                body = body[: server.cut_after.pop(0)]
            try:
                for at in range(0, len(body), 65_536):
                    self.wfile.write(body[at : at + 65_536])
                    if server.slow_s:
                        threading.Event().wait(server.slow_s)
            except OSError:
                return  # the client went away
            self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Log nothing."""

    with running_server(Handler) as address:
        server.address = address
        yield server


@contextmanager
def running_server(handler: type[BaseHTTPRequestHandler], port: int = 0) -> Iterator[str]:
    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """A client that goes away is part of the tests."""

    with Server(("127.0.0.1", port), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
