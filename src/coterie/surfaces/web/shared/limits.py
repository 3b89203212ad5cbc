"""Limits of a request's body: its size and its duration as it arrives, and what its JSON may contain.

Plain ASGI, below the framework: the framework reads a whole body before it calls a route, and only bytes that were
counted as they arrived are safe to keep. `connections` has the limits of connections and of a request's head.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from functools import partial

from pydantic_core import from_json
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from coterie.surfaces.web.shared.errors import error_response

_MAX_JSON_VALUES = 100_000
"""More take seconds to parse, in which nothing else is answered."""
_STREAMS_STARTING = 8
_JSON_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')


@dataclass(frozen=True)
class BodyLimits:
    login_bytes: int = 10_000
    """`/login` is the one route with a body that needs no session."""
    bytes: int = 4_000_000
    upload_bytes: int = 101_000_000
    """Slightly more than a card may have, so that the card's own error is shown."""
    seconds: float = 20.0
    bytes_per_s: float = 20_000.0
    """A body may take `seconds`, and longer while it arrives at this rate."""

    def max_bytes(self, path: str) -> int:
        if path == "/login":
            return self.login_bytes
        return self.upload_bytes if is_upload(path) else self.bytes

    def max_seconds(self, received: int) -> float:
        return self.seconds + received / self.bytes_per_s


def is_upload(path: str) -> bool:
    """Whether the body is a file, whatever content type it claims."""
    return path.endswith(("/import", "/webhook/files"))


def is_live_stream(method: str, path: str) -> bool:
    return method == "GET" and path.endswith(("/live", "/events"))


class RequestRefused(HTTPException):
    """A body that is too large, too slow or unreadable. The framework passes on only this kind while it reads."""

    def __init__(self, status: int, what: str, fix: str) -> None:
        super().__init__(status, what.removesuffix("."))
        self.fix = fix


class BodyLimitMiddleware:
    def __init__(self, app: ASGIApp, limits: BodyLimits | None = None) -> None:
        self._app = app
        self._limits = limits or BodyLimits()
        self._streams = 0
        self._starting = asyncio.Semaphore(_STREAMS_STARTING)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = _Body(scope, receive, self._limits)
        try:
            body.check_declared_size()
        except RequestRefused as refused:
            await error_response(refused.status_code, f"{refused.detail}.", refused.fix)(scope, receive, send)
            return

        if not is_live_stream(scope["method"], scope["path"]):
            await self._app(scope, body.receive, partial(_send_and_note, body, send))
            return
        if self._streams >= scope["app"].state.max_streams:
            refusal = error_response(503, "Too many pages follow live changes.", "Close some of them, or try later.")
            await refusal(scope, receive, send)
            return
        await self._stream(scope, body, send)

    async def _stream(self, scope: Scope, body: _Body, send: Send) -> None:
        """A few streams start at a time: after a restart all pages come back at once, and others must be answered."""
        await self._starting.acquire()
        starting = True

        async def send_and_release(message: Message) -> None:
            nonlocal starting
            await _send_and_note(body, send, message)
            if starting:
                starting = False
                self._starting.release()

        self._streams += 1
        try:
            await self._app(scope, body.receive, send_and_release)
        finally:
            self._streams -= 1
            if starting:
                self._starting.release()


class _Body:
    """The body of one request, counted and timed as it arrives; JSON is checked before it is passed on."""

    def __init__(self, scope: Scope, receive: Receive, limits: BodyLimits) -> None:
        self._receive = receive
        self._headers = Headers(scope=scope)
        self._path: str = scope["path"]
        self._limits = limits
        self._max_bytes = limits.max_bytes(self._path)
        self._received = 0
        self._complete = False
        self._started_at: float | None = None
        self.response_started = False

    def check_declared_size(self) -> None:
        size = self._headers.get("content-length", "0")
        if not size.isdecimal() or len(size) > 18 or int(size) > self._max_bytes:
            raise self._too_large()

    async def receive(self) -> Message:
        if self._complete:
            return await self._receive()
        try:
            message = await self._receive_part()
            if is_upload(self._path) or message["type"] != "http.request":
                return message
            parts = [message.get("body", b"")]
            while message.get("more_body", False):
                message = await self._receive_part()
                if message["type"] != "http.request":
                    return message
                parts.append(message.get("body", b""))
            whole = b"".join(parts)
            if whole and self._is_json():
                _check_json(whole)
        except RequestRefused:
            if self.response_started:  # a live stream waits for the end of its connection here
                return {"type": "http.disconnect"}
            raise
        return {"type": "http.request", "body": whole, "more_body": False}

    async def _receive_part(self) -> Message:
        now = asyncio.get_running_loop().time()
        if self._started_at is None:
            self._started_at = now
        limit = self._started_at + self._limits.max_seconds(self._received)
        try:
            async with asyncio.timeout_at(limit):
                message = await self._receive()
        except TimeoutError:
            raise RequestRefused(408, "The request's body took too long to arrive.", "Send it again, faster.") from None
        if message["type"] == "http.request":
            self._received += len(message.get("body", b""))
            self._complete = not message.get("more_body", False)
            if self._received > self._max_bytes:
                raise self._too_large()
        return message

    def _is_json(self) -> bool:
        kind = self._headers.get("content-type", "application/json").partition(";")[0].strip().lower()
        return kind.startswith("application/") and kind.endswith(("/json", "+json"))

    def _too_large(self) -> RequestRefused:
        most = f"{self._max_bytes // 1_000_000} MB" if self._max_bytes >= 1_000_000 else f"{self._max_bytes:,} bytes"
        return RequestRefused(413, f"The request is larger than {most}.", "Send less at once.")


async def _send_and_note(body: _Body, send: Send, message: Message) -> None:
    body.response_started = True
    await send(message)


def _check_json(body: bytes) -> None:
    """Refuse what cannot be stored or computed with: deep nesting, half of a surrogate pair, NaN, other encodings."""
    if _has_too_many_values(body):
        raise RequestRefused(
            400, f"The request's body has more than {_MAX_JSON_VALUES:,} values.", "Send less at once."
        )
    try:
        from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise RequestRefused(
            400, f"The request's body is not valid JSON: {error}.", "Correct it; /openapi.json describes every request."
        ) from None


def _has_too_many_values(body: bytes) -> bool:
    if _count_marks(body) <= _MAX_JSON_VALUES:
        return False
    # Long texts have many commas too. Without their strings only the structure is left.
    return body.count(b'"') > 2 * _MAX_JSON_VALUES or _count_marks(_JSON_STRING.sub(b"", body)) > _MAX_JSON_VALUES


def _count_marks(body: bytes) -> int:
    return body.count(b",") + body.count(b"[") + body.count(b"{")
