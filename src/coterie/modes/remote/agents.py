"""Every agent of the registry with its line, and what they push without being asked. P12"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from contextlib import suppress

from coterie.base.logging import get_logger
from coterie.base.masking import redact
from coterie.cast.errors import NoSuchCharacter
from coterie.cast.roster import Character, Characters
from coterie.engine.agents import REMOTE, STAND_IN, AgentEntry, AgentRegistry
from coterie.engine.protocol import Deliverable, OutgoingNotification, RoomRef
from coterie.modes.remote.chats import RemoteChatQueries
from coterie.modes.remote.errors import AgentUnreachable
from coterie.modes.remote.line import AgentConnection
from coterie.modes.remote.link import WebSocketConnection
from coterie.modes.remote.settings import AgentsSettings
from coterie.modes.remote.stand_in import ScriptedConnection
from coterie.modes.remote.wire import PushFrame

Notify = Callable[[Deliverable, str], Awaitable[None]]
_SYNC_INTERVAL_S = 1.0
_MAX_PUSH_LENGTH = 4_000
_log = get_logger(__name__)


class AgentConnections:
    def __init__(
        self,
        registry: AgentRegistry,
        roster: Characters,
        chats: RemoteChatQueries,
        settings: AgentsSettings,
        notify: Notify,
        room_of: Callable[[str], RoomRef | None],
    ) -> None:
        """`room_of` tells in which room a chat is held."""
        self._registry = registry
        self._roster = roster
        self._chats = chats
        self._settings = settings
        self._notify = notify
        self._room_of = room_of
        self._connections: dict[str, tuple[AgentEntry, AgentConnection]] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def run(self, stop: asyncio.Event) -> None:
        """Keep a line to every agent there is, for what they push; follow the registry as it changes."""
        while not stop.is_set():
            self.sync_registry()
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), _SYNC_INTERVAL_S)
        await self.close()

    def sync_registry(self) -> None:
        played: set[str] = set()
        for name, entry in self._registry.current.characters.items():
            with suppress(NoSuchCharacter):  # `coterie agent list` tells of those
                bot = self._roster.find(name)
                played.add(bot.id)
                if entry.backend == REMOTE:
                    self.connection(bot)
        for gone in set(self._connections) - played:
            self._disconnect(gone)

    def connection(self, bot: Character) -> AgentConnection:
        entry = self._registry.entry(bot)
        if entry is None or entry.backend not in (REMOTE, STAND_IN):
            raise AgentUnreachable(f"Nobody plays {bot.name} at the moment.", "Whoever runs me has to look.")
        known = self._connections.get(bot.id)
        if known is not None and known[0] == entry:
            return known[1]
        if known is not None:
            self._disconnect(bot.id)
        line: AgentConnection
        if entry.backend == STAND_IN:
            line = ScriptedConnection(entry)
        else:
            link = WebSocketConnection(bot.name, entry, self._settings, lambda push: self._deliver_push(bot, push))
            link.start()
            line = link
        self._connections[bot.id] = (entry, line)
        return line

    async def close(self) -> None:
        for bot in list(self._connections):
            self._disconnect(bot)
        await asyncio.gather(*self._closing, return_exceptions=True)

    def _disconnect(self, bot: str) -> None:
        _, line = self._connections.pop(bot)
        task = asyncio.create_task(line.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _deliver_push(self, bot: Character, push: PushFrame) -> None:
        """Once, however often it is sent; and only into chats that this agent holds."""
        room = self._room_of(push.chat)
        if room is None or self._chats.character_of(push.chat) != bot.id:
            _log.warning("an agent told something for a chat it does not hold", agent=bot.name, push=push.type)
            return
        text = redact(push.text.strip()[:_MAX_PUSH_LENGTH]) or push.type.replace("_", " ")
        token = hashlib.sha256(f"agent push\n{bot.id}\n{push.id}".encode()).hexdigest()[:20]
        await self._notify(OutgoingNotification(room=room, text=f"{bot.name}: {text}"), token)
