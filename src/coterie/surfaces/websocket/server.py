"""WebSockets of a crowd's rooms: `/rooms/<room>?name=<you>[&after=<number>]`. C3

Out go frames `{"type": "snapshot" | "messages", "messages": […]}`; in come `ChatPost`s, answered by a frame of type
`posted`, or `error` with rule, reason and what to do. Who is on the other end is a person, whatever a post claims.
Like the page it answers to this machine's own names only, and to no other site's page.
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
from coterie.modes.crowd import MAX_OUTSTANDING_BYTES, ChatAuthor, ChatPost, ChatRoom, Encoding, MessageRefused

try:
    from picows import WSFrame, WSListener, WSMsgType, WSTransport, WSUpgradeRequest, ws_create_server
except ImportError as error:  # pragma: no cover - the extra is part of every development environment
    raise MissingExtra("crowd", "A crowd's live chat") from error

_LARGEST_POST = 16_384


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
        # Beneath the WebSocket: frames that are the same for everybody are written there as they are.
        beneath: asyncio.Transport = transport.underlying_transport
        beneath.set_write_buffer_limits(high=MAX_OUTSTANDING_BYTES, low=0)
        self.write = beneath.write
        if self._after is None:
            self._room.fanout.join(self)
        else:
            self._begin(self._resume(self._after))

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type == WSMsgType.TEXT:
            self._begin(self._post(frame.get_payload_as_bytes()))
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
            if self._slow:  # it fell behind before it had joined
                self._room.fanout.pause(self)

    async def _post(self, raw: bytes) -> None:
        try:
            sent = ChatPost.from_json(raw)
            message = await self._room.gateway.post(sent.model_copy(update={"author": self._author, "trace": None}))
            self._answer({"type": "posted", "id": sent.id, "message": message.id})
        except CoterieError as error:
            rule = error.rule if isinstance(error, MessageRefused) else "shape"
            self._answer({"type": "error", "rule": rule, "error": error.what, "fix": error.fix})

    def _answer(self, told: Mapping[str, Any]) -> None:
        if self._transport is not None:
            self._transport.send(WSMsgType.TEXT, json.dumps(told).encode())

    def _begin(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def serve(rooms: Mapping[str, ChatRoom], host: str = "127.0.0.1", port: int = 0) -> asyncio.Server:
    """Listen. Stop it by closing the server that is returned."""

    def listener(request: WSUpgradeRequest) -> _Connection | None:
        headers = {name.lower(): value for name, value in request.headers.items()}
        if not _is_ours(headers):
            return None
        where = urlsplit(request.path.decode("ascii", "replace"))
        asked = parse_qs(where.query)
        room = rooms.get(where.path.removeprefix("/rooms/"))
        after = asked.get("after", [""])[0]
        try:
            return (
                None
                if room is None
                else _Connection(room, asked.get("name", ["guest"])[0], int(after) if after.isdecimal() else None)
            )
        except ValidationError:
            return None  # no name a person can have here

    return await ws_create_server(listener, host, port, max_frame_size=_LARGEST_POST)


def _is_ours(headers: Mapping[str, str]) -> bool:
    """Whether a page or a program of this machine asks: a name elsewhere may point here, and a site may try."""
    origin = headers.get("origin")
    return is_loopback_url(f"//{headers.get('host', '')}") and (origin is None or is_loopback_url(origin))
