"""A small chat server in Twitch's wire format (IRC with tags over WebSocket) that checks what it is sent."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import WebSocketException

_COMMANDS = {
    "CAP": re.compile(r"CAP REQ :twitch\.tv/tags twitch\.tv/commands"),
    "PASS": re.compile(r"PASS oauth:[a-z0-9]{4,60}"),
    "NICK": re.compile(r"NICK [a-z0-9_]{4,25}"),
    "JOIN": re.compile(r"JOIN #[a-z0-9_]{1,25}"),
    "PONG": re.compile(r"PONG :.+"),
    "PRIVMSG": re.compile(r"PRIVMSG #[a-z0-9_]{1,25} :[^\r\n\x00]{1,500}"),
}


@dataclass
class Viewer:
    socket: ServerConnection
    nick: str = ""
    tags: bool = False
    token: str = ""
    channels: set[str] = field(default_factory=set)
    pings: int = 0
    pongs: int = 0


class TwitchServer:
    """Sends lines to whoever has joined the channel. What is not in Twitch's format is an entry of `problems`."""

    def __init__(self, channel: str, token: str = "") -> None:
        self.channel = channel
        self._token = token
        self.viewers: list[Viewer] = []
        self.said: list[str] = []
        self.problems: list[str] = []
        self.joins = 0
        self._server: Server | None = None

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"ws://127.0.0.1:{next(iter(self._server.sockets)).getsockname()[1]}"

    async def start(self) -> None:
        self._server = await serve(self._handle, "127.0.0.1", 0, ping_interval=None)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    @property
    def joined(self) -> list[Viewer]:
        return [viewer for viewer in self.viewers if self.channel in viewer.channels]

    async def send(self, lines: Iterable[str], viewers: Iterable[Viewer] | None = None) -> None:
        """Send lines, several in one frame as Twitch does."""
        text = "\r\n".join(lines) + "\r\n"
        for viewer in list(self.joined if viewers is None else viewers):
            try:
                await viewer.socket.send(text)
            except WebSocketException:
                continue

    async def ping(self) -> None:
        for viewer in self.joined:
            viewer.pings += 1
        await self.send(["PING :tmi.twitch.tv"])

    async def cut(self, viewer: Viewer) -> None:
        """Lose a connection without a farewell."""
        viewer.channels.clear()
        viewer.socket.transport.abort()

    async def _handle(self, socket: ServerConnection) -> None:
        viewer = Viewer(socket)
        self.viewers.append(viewer)
        try:
            async for data in socket:
                for raw in str(data).split("\r\n"):
                    if raw:
                        await self._receive(viewer, raw)
        except WebSocketException:
            pass
        finally:
            viewer.channels.clear()
            self.viewers.remove(viewer)

    async def _receive(self, viewer: Viewer, raw: str) -> None:
        command = raw.partition(" ")[0]
        if command not in _COMMANDS or not _COMMANDS[command].fullmatch(raw):
            self.problems.append(raw[:200])
            return
        argument = raw.partition(" ")[2]
        if command == "CAP":
            viewer.tags = True
            await viewer.socket.send(":tmi.twitch.tv CAP * ACK :twitch.tv/tags twitch.tv/commands\r\n")
        elif command == "PASS":
            viewer.token = argument.removeprefix("oauth:")
        elif command == "NICK":
            viewer.nick = argument
            if not argument.startswith("justinfan") and viewer.token != self._token:
                await viewer.socket.send(":tmi.twitch.tv NOTICE * :Login authentication failed\r\n")
                await viewer.socket.close()
                return
            await viewer.socket.send(f":tmi.twitch.tv 001 {argument} :Welcome, GLHF!\r\n")
        elif command == "JOIN":
            if not (viewer.nick and viewer.tags):
                self.problems.append(f"{raw} before a name and tags")
            viewer.channels.add(argument.removeprefix("#"))
            self.joins += 1
            await viewer.socket.send(
                f":{viewer.nick}!{viewer.nick}@{viewer.nick}.tmi.twitch.tv JOIN {argument}\r\n"
                f":{viewer.nick}.tmi.twitch.tv 366 {viewer.nick} {argument} :End of /NAMES list\r\n"
                f"@emote-only=0;followers-only=-1;room-id=1;slow=0 :tmi.twitch.tv ROOMSTATE {argument}\r\n"
            )
        elif command == "PONG":
            viewer.pongs += 1
        elif command == "PRIVMSG":
            if viewer.nick.startswith("justinfan"):
                self.problems.append("an anonymous viewer cannot write")
            else:
                self.said.append(raw.partition(" :")[2])


def escape_tag(value: str) -> str:
    for sign, escaped in (("\\", "\\\\"), (";", "\\:"), (" ", "\\s"), ("\r", "\\r"), ("\n", "\\n")):
        value = value.replace(sign, escaped)
    return value


def privmsg(
    channel: str, login: str, text: str, message_id: str, reply_to: str = "", display: str = "", sent_ms: int = 1
) -> str:
    """A line of a viewer, as Twitch sends it."""
    reply = f"reply-parent-msg-id={reply_to};" if reply_to else ""
    return (
        f"@badge-info=;badges=subscriber/12;client-nonce=;color=#1E90FF;display-name={display or login};emotes=;"
        f"first-msg=0;flags=;id={message_id};mod=0;{reply}room-id=1;subscriber=1;tmi-sent-ts={sent_ms};turbo=0;user-id=9;"
        f"user-type= :{login}!{login}@{login}.tmi.twitch.tv PRIVMSG #{channel} :{text}"
    )


async def settle(condition: object, timeout_s: float = 30.0) -> None:
    """Wait until a condition holds."""
    assert callable(condition)
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - any condition
            await asyncio.sleep(0.02)
