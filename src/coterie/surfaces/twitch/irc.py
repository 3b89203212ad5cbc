"""Twitch's chat protocol: IRC lines with tags over a WebSocket."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from coterie.base.logging import get_logger

CHAT_URL = "wss://irc-ws.chat.twitch.tv:443"
_TIMEOUT_S = 10
_SILENCE_S = 360
"""Twitch sends a PING about every five minutes."""
_DRAIN_S = 0.3
"""After so much silence, an old connection has nothing more that the new one lacks."""
_MAX_DRAIN_S = 2.0
"""A busy chat is never silent: what was written before the new connection had joined has arrived by then."""
_JOINED = ("JOIN", "ROOMSTATE", "366")
"""What the server sends once a channel is joined."""
_MAX_LINE_BYTES = 65_536
_BACK_OFF_S = (0.5, 1, 2, 4, 8, 16, 30, 60)
_CAPABILITIES = "CAP REQ :twitch.tv/tags twitch.tv/commands"
_ESCAPES = {":": ";", "s": " ", "\\": "\\", "r": "\r", "n": "\n"}
_log = get_logger(__name__)


@dataclass(frozen=True)
class IrcLine:
    """One line of IRC with its tags (IRCv3 message tags)."""

    command: str
    params: tuple[str, ...] = ()
    nick: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The last parameter."""
        return self.params[-1] if self.params else ""

    @classmethod
    def parse(cls, raw: str) -> IrcLine | None:
        """Parse a line without its line break; None for what is not one."""
        rest, tags, nick = raw.strip("\r\n"), {}, ""
        if rest.startswith("@"):
            head, _, rest = rest[1:].partition(" ")
            for tag in head.split(";"):
                key, _, value = tag.partition("=")
                tags[key] = _unescape(value)
        rest = rest.lstrip(" ")
        if rest.startswith(":"):
            prefix, _, rest = rest[1:].partition(" ")
            nick = prefix.partition("!")[0]
        head, found, trailing = rest.partition(" :")
        words = head.split()
        if not words:
            return None
        params = (*words[1:], trailing) if found else tuple(words[1:])
        return cls(words[0].upper(), params, nick, tags)


def _unescape(value: str) -> str:
    """The value of a tag (IRCv3): a backslash before a letter stands for a sign."""
    if "\\" not in value:
        return value
    text, signs = "", iter(value)
    for sign in signs:
        if sign == "\\":
            following = next(signs, "")
            text += _ESCAPES.get(following, following)
        else:
            text += sign
    return text


@dataclass(frozen=True)
class ChatLogin:
    """The account a connection uses. Reading needs none: Twitch admits anybody as `justinfan` and a number."""

    nick: str = ""
    token: str = field(default="", repr=False)

    def lines(self) -> list[str]:
        if self.token:
            return [f"PASS oauth:{self.token.removeprefix('oauth:')}", f"NICK {self.nick.lower()}"]
        return [f"NICK justinfan{random.randrange(10_000, 99_999)}"]  # noqa: S311 - any number does


class ChatConnection:
    """A connection to the chat of one channel. It answers pings and reconnects with back-off."""

    def __init__(
        self,
        url: str,
        channel: str,
        login: ChatLogin | None = None,
        *,
        on_state: Callable[[str], None] = lambda _: None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`on_state` is told why there is no connection; an empty text when there is one."""
        self._url = url
        self._channel = channel.lower().lstrip("#")
        self._login = login or ChatLogin()
        self._on_state = on_state
        self._sleep = sleep
        self._socket: ClientConnection | None = None

    async def lines(self) -> AsyncIterator[IrcLine]:
        """Yield what the server sends, forever.

        When the server announces a RECONNECT, the old connection is read until the new one has joined the channel.
        """
        failures = 0
        socket: ClientConnection | None = None
        try:
            while True:
                try:
                    socket, waiting = await self._join()
                    failures = 0
                    self._on_state("")
                    while True:
                        self._socket = socket
                        if not waiting:
                            async with asyncio.timeout(_SILENCE_S):
                                waiting = _parse(await socket.recv())
                        line = waiting.pop(0) if waiting else None
                        if line is not None and line.command == "PING":
                            await socket.send(f"PONG :{line.text}")
                        elif line is not None and line.command == "RECONNECT":
                            old = socket
                            socket, joined = await self._join()
                            waiting += [*await _drain(old), *joined]
                        if line is not None:
                            yield line
                except (OSError, TimeoutError, WebSocketException) as error:
                    self._socket = None
                    if socket is not None:
                        await socket.close()
                        socket = None
                    delay = _BACK_OFF_S[min(failures, len(_BACK_OFF_S) - 1)]
                    failures += 1
                    reason = str(error) or type(error).__name__
                    self._on_state(f"The connection to Twitch was lost ({reason}).")
                    _log.warning("twitch connection lost", channel=self._channel, error=reason, retry_in_s=delay)
                    await self._sleep(delay)
        finally:
            self._socket = None
            if socket is not None:
                await socket.close()

    async def say(self, text: str) -> bool:
        """Send a line to the channel. False if there is no connection."""
        if self._socket is None:
            return False
        try:
            await self._socket.send(f"PRIVMSG #{self._channel} :{text}")
        except (OSError, WebSocketException):
            return False
        return True

    async def _join(self) -> tuple[ClientConnection, list[IrcLine]]:
        """Connect and join the channel. Returns what the server has sent until then."""
        async with asyncio.timeout(_TIMEOUT_S):
            socket = await connect(self._url, max_size=_MAX_LINE_BYTES, ping_interval=None, open_timeout=_TIMEOUT_S)
            try:
                for line in (_CAPABILITIES, *self._login.lines(), f"JOIN #{self._channel}"):
                    await socket.send(line)
                received: list[IrcLine] = []
                while not any(line.command in _JOINED for line in received):
                    received += _parse(await socket.recv())
                    if any(line.command == "NOTICE" and "login" in line.text.lower() for line in received):
                        raise OSError(received[-1].text[:200])
            except BaseException:
                await socket.close()
                raise
        return socket, received


def _parse(data: str | bytes) -> list[IrcLine]:
    text = data if isinstance(data, str) else data.decode("utf-8", "replace")
    return [line for raw in text.split("\r\n") if (line := IrcLine.parse(raw)) is not None]


async def _drain(socket: ClientConnection) -> list[IrcLine]:
    """Read what was sent before now, and close the connection."""
    received: list[IrcLine] = []
    until = asyncio.get_running_loop().time() + _MAX_DRAIN_S
    with suppress(OSError, TimeoutError, WebSocketException):
        while asyncio.get_running_loop().time() < until:
            async with asyncio.timeout(_DRAIN_S):
                received += _parse(await socket.recv())
    await socket.close()
    return received
