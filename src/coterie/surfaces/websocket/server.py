"""WebSockets of a crowd's rooms: `/rooms/<room>[?token=<token>][&after=<number>]`.

The server sends frames `{"type": "snapshot" | "messages", "messages": […]}`; the client sends `chat_post`s, each
answered by a frame of type `posted`, or `error` with rule, reason and fix. The author is who the token was given to,
whatever a post says; a connection without a token can only read. Only this machine's own host names are served, and no
pages of other sites.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, urlsplit

from coterie.base.errors import CoterieError, MissingExtra
from coterie.base.logging import get_logger
from coterie.base.supervisor import run_once
from coterie.base.values import is_loopback_url, parse_int64
from coterie.modes.crowd import (
    MAX_OUTSTANDING_BYTES,
    ChatIdentity,
    ChatMessage,
    ChatRoom,
    ChatTokens,
    Encoding,
    IdentityRefused,
    MessageRefused,
    SenderPost,
)

try:
    from picows import (
        WSCloseCode,
        WSFrame,
        WSListener,
        WSMsgType,
        WSTransport,
        WSUpgradeRequest,
        WSUpgradeResponse,
        WSUpgradeResponseWithListener,
        ws_create_server,
    )
except ImportError as error:  # pragma: no cover - the extra is part of every development environment
    raise MissingExtra("crowd", "A crowd's live chat") from error

_log = get_logger(__name__)
MAX_CONNECTIONS = 5_000
SLOW_READER_S = 60.0
"""A reader that takes nothing for this long is disconnected; until then it is skipped and gets a snapshot."""
_MAX_POST_BYTES = 16_384
_MAX_FRAME_BYTES = 65_536
"""A larger frame ends the connection with the code 1009, before it is read into memory."""
_MAX_POSTS_IN_PROGRESS = 32
_MAX_MISSED = 1_000
"""A client that missed more gets a snapshot."""


class _Connection(WSListener):
    encoding: Encoding = "websocket"

    def __init__(
        self, room: ChatRoom, identity: ChatIdentity | None, after: int | None, connections: set[_Connection]
    ) -> None:
        self._room = room
        self._identity = identity
        self._after = after
        self._connections = connections
        self._transport: WSTransport | None = None
        self._slow = False
        self._slow_timer: asyncio.TimerHandle | None = None
        self._in_progress = 0

    def on_ws_connected(self, transport: WSTransport) -> None:
        self._transport = transport
        self._connections.add(self)
        # Frames that are the same for every client are written directly to the TCP transport.
        tcp: asyncio.Transport = transport.underlying_transport
        tcp.set_write_buffer_limits(high=MAX_OUTSTANDING_BYTES, low=0)
        self.write = tcp.write
        if self._after is None:
            self._room.fanout.join(self)
        else:
            run_once("resume of a crowd reader", self._resume(self._after))

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type == WSMsgType.TEXT and frame.fin:
            if frame.payload_size > _MAX_POST_BYTES:
                self._send_error("length", "This is too long for a message.", "A message has at most 500 characters.")
            else:
                self._post(frame.get_payload_as_bytes())
        elif frame.msg_type == WSMsgType.PING:
            if not self._slow:
                transport.send_pong(frame.get_payload_as_bytes())
        elif frame.msg_type == WSMsgType.CLOSE:
            transport.send_close(frame.get_close_code())
            transport.disconnect()
        elif frame.msg_type != WSMsgType.PONG:
            self._send_error("shape", "A post is one text frame.", "Send it as JSON in one frame.")

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        self._connections.discard(self)
        self._room.fanout.leave(self)
        self._transport = None
        self._cancel_slow_timer()

    def pause_writing(self) -> None:
        self._slow = True
        self._room.fanout.pause(self)
        self._cancel_slow_timer()
        self._slow_timer = asyncio.get_running_loop().call_later(SLOW_READER_S, self._disconnect_slow)

    def resume_writing(self) -> None:
        self._slow = False
        self._cancel_slow_timer()
        self._room.fanout.resume(self)

    def _cancel_slow_timer(self) -> None:
        if self._slow_timer is not None:
            self._slow_timer.cancel()
            self._slow_timer = None

    def _disconnect_slow(self) -> None:
        if (transport := self._transport) is None:
            return
        _log.warning("slow crowd reader disconnected", room=self._room.gateway.admission.room)
        self._room.fanout.leave(self)
        transport.send_close(WSCloseCode.TRY_AGAIN_LATER, b"You read too slowly. Connect again with after=NUMBER.")
        transport.disconnect(graceful=False)

    async def _resume(self, after: int) -> None:
        missed = await self._room.gateway.after(after, _MAX_MISSED + 1)
        if self._transport is not None:
            self._room.fanout.join(self, missed if len(missed) <= _MAX_MISSED else None)
            if self._slow:  # it became slow before it had joined
                self._room.fanout.pause(self)

    def _post(self, raw: bytes) -> None:
        if self._in_progress >= _MAX_POSTS_IN_PROGRESS:
            self._send_error("rate", "You are sending too fast.", "Wait for the answers to your posts.")
            return
        try:
            if self._identity is None:
                raise MessageRefused("identity", "This connection can only read.", "Connect with a token of your own.")
            post = SenderPost.from_json(raw)
            answer = self._room.gateway.post_from(self._identity, post)
        except CoterieError as error:
            self._send_refusal(error)
            return
        self._in_progress += 1
        answer.add_done_callback(partial(self._answer, post.id))

    def _answer(self, post: str, answer: asyncio.Future[ChatMessage]) -> None:
        self._in_progress -= 1
        error = answer.exception() if not answer.cancelled() else None
        if isinstance(error, CoterieError):
            self._send_refusal(error)
        elif error is not None or answer.cancelled():
            _log.error("crowd post failed", room=self._room.gateway.admission.room, error=str(error), exc_info=error)
            self._send_error("failed", "The message could not be stored.", "Send it again.")
        else:
            self._send({"type": "posted", "id": post, "message": answer.result().id})

    def _send_refusal(self, error: CoterieError) -> None:
        rule = error.rule if isinstance(error, MessageRefused) else "shape"
        self._send_error(rule, error.what, error.fix)

    def _send_error(self, rule: str, what: str, fix: str) -> None:
        self._send({"type": "error", "rule": rule, "error": what, "fix": fix})

    def _send(self, frame: Mapping[str, Any]) -> None:
        # Answers to a client that does not read would fill the memory.
        if self._transport is not None and not self._slow:
            self._transport.send(WSMsgType.TEXT, json.dumps(frame).encode())


async def serve(
    rooms: Mapping[str, ChatRoom], host: str = "127.0.0.1", port: int = 0, *, tokens: ChatTokens | None = None
) -> asyncio.Server:
    """Listen until the returned server is closed. Without `tokens` clients can only read."""
    connections: set[_Connection] = set()

    def listener(request: WSUpgradeRequest) -> _Connection | WSUpgradeResponseWithListener | None:
        headers = {name.lower(): value for name, value in request.headers.items()}
        if not _is_local(headers):
            return None
        try:
            url = urlsplit(request.path.decode("ascii", "replace"))
            query = parse_qs(url.query, max_num_fields=20)
        except ValueError:
            return None
        name = url.path.removeprefix("/rooms/")
        if (room := rooms.get(name)) is None:
            return None
        if len(connections) >= MAX_CONNECTIONS:
            return _refuse(HTTPStatus.SERVICE_UNAVAILABLE, "There are too many connections. Try again later.")
        token = query.get("token", [""])[0] or headers.get("authorization", "").removeprefix("Bearer ").strip()
        try:
            identity = tokens.check(token, name) if token and tokens is not None else None
        except IdentityRefused as error:
            return _refuse(HTTPStatus.UNAUTHORIZED, str(error))
        return _Connection(room, identity, parse_int64(query.get("after", [""])[0]), connections)

    return await ws_create_server(listener, host, port, max_frame_size=_MAX_FRAME_BYTES, enable_auto_pong=False)


def _refuse(status: HTTPStatus, why: str) -> WSUpgradeResponseWithListener:
    return WSUpgradeResponseWithListener(WSUpgradeResponse.create_error_response(status, why.encode()), None)


def _is_local(headers: Mapping[str, str]) -> bool:
    """Against DNS rebinding and requests from other sites' pages."""
    origin = headers.get("origin")
    return is_loopback_url(f"//{headers.get('host', '')}") and (origin is None or is_loopback_url(origin))
