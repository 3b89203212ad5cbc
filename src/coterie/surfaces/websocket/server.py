"""WebSockets of a crowd's rooms: `/rooms/<room>?name=<you>[&after=<number>]`.

The server sends frames `{"type": "snapshot" | "messages", "messages": […]}`; the client sends `ChatPost`s, each
answered by a frame of type `posted`, or `error` with rule, reason and fix. The author is always a
human, whatever a post says. Only this machine's own host names are served, and no pages of other sites.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

from pydantic import ValidationError

from coterie.base.errors import CoterieError, MissingExtra
from coterie.base.network import is_loopback_url
from coterie.base.supervisor import run_once
from coterie.base.values import parse_int64
from coterie.modes.crowd import MAX_OUTSTANDING_BYTES, ChatAuthor, ChatPost, ChatRoom, Encoding, MessageRefused

try:
    from picows import WSFrame, WSListener, WSMsgType, WSTransport, WSUpgradeRequest, ws_create_server
except ImportError as error:  # pragma: no cover - the extra is part of every development environment
    raise MissingExtra("crowd", "A crowd's live chat") from error

_MAX_POST_BYTES = 16_384


class _Connection(WSListener):
    encoding: Encoding = "websocket"

    def __init__(self, room: ChatRoom, name: str, after: int | None) -> None:
        self._room = room
        self._author = ChatAuthor(name=name, kind="human")
        self._after = after
        self._transport: WSTransport | None = None
        self._slow = False
        self._tasks: set[asyncio.Task[None]] = set()

    def on_ws_connected(self, transport: WSTransport) -> None:
        self._transport = transport
        # Frames that are the same for every client are written directly to the TCP transport.
        tcp: asyncio.Transport = transport.underlying_transport
        tcp.set_write_buffer_limits(high=MAX_OUTSTANDING_BYTES, low=0)
        self.write = tcp.write
        if self._after is None:
            self._room.fanout.join(self)
        else:
            self._start_task(self._resume(self._after))

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type == WSMsgType.TEXT:
            self._start_task(self._post(frame.get_payload_as_bytes()))
        elif frame.msg_type == WSMsgType.CLOSE:
            transport.send_close(frame.get_close_code())
            transport.disconnect()

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        self._room.fanout.leave(self)
        self._transport = None

    def pause_writing(self) -> None:
        self._slow = True
        self._room.fanout.pause(self)

    def resume_writing(self) -> None:
        self._slow = False
        self._room.fanout.resume(self)

    async def _resume(self, after: int) -> None:
        missed = await self._room.gateway.after(after)
        if self._transport is not None:
            self._room.fanout.join(self, missed)
            if self._slow:  # it became slow before it had joined
                self._room.fanout.pause(self)

    async def _post(self, raw: bytes) -> None:
        try:
            post = ChatPost.from_json(raw)
            message = await self._room.gateway.post(post.model_copy(update={"author": self._author, "trace": None}))
            self._send({"type": "posted", "id": post.id, "message": message.id})
        except CoterieError as error:
            rule = error.rule if isinstance(error, MessageRefused) else "shape"
            self._send({"type": "error", "rule": rule, "error": error.what, "fix": error.fix})

    def _send(self, frame: Mapping[str, Any]) -> None:
        if self._transport is not None:
            self._transport.send(WSMsgType.TEXT, json.dumps(frame).encode())

    def _start_task(self, work: Any) -> None:
        task = run_once("chat connection", work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def serve(rooms: Mapping[str, ChatRoom], host: str = "127.0.0.1", port: int = 0) -> asyncio.Server:
    """Listen until the returned server is closed."""

    def listener(request: WSUpgradeRequest) -> _Connection | None:
        headers = {name.lower(): value for name, value in request.headers.items()}
        if not _is_local(headers):
            return None
        url = urlsplit(request.path.decode("ascii", "replace"))
        query = parse_qs(url.query)
        room = rooms.get(url.path.removeprefix("/rooms/"))
        if room is None:
            return None
        after = query.get("after", [""])[0]
        try:
            return _Connection(room, query.get("name", ["guest"])[0], parse_int64(after))
        except ValidationError:
            return None  # not a valid name

    return await ws_create_server(listener, host, port, max_frame_size=_MAX_POST_BYTES)


def _is_local(headers: Mapping[str, str]) -> bool:
    """Against DNS rebinding and requests from other sites' pages."""
    origin = headers.get("origin")
    return is_loopback_url(f"//{headers.get('host', '')}") and (origin is None or is_loopback_url(origin))
