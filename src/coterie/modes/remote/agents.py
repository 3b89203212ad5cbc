"""Every agent of the registry with its line, and what they push without being asked. P12"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from contextlib import suppress

from coterie.base.logging import get_logger
from coterie.base.masking import mask
from coterie.cast.errors import NoSuchCharacter
from coterie.cast.roster import Bot, Roster
from coterie.engine.agents import REMOTE, STAND_IN, AgentEntry, AgentRegistry
from coterie.engine.protocol import Lasting, OutgoingNotification, RoomRef
from coterie.modes.remote.chats import RemoteBook
from coterie.modes.remote.errors import AgentUnreachable
from coterie.modes.remote.line import AgentLine
from coterie.modes.remote.link import AgentLink
from coterie.modes.remote.settings import AgentsSettings
from coterie.modes.remote.stand_in import StandIn
from coterie.modes.remote.wire import Push

Notify = Callable[[Lasting, str], Awaitable[None]]
_LOOK_EVERY_S = 1.0
_LONGEST_PUSH = 4_000
_log = get_logger(__name__)


class RemoteAgents:
    def __init__(
        self,
        registry: AgentRegistry,
        roster: Roster,
        book: RemoteBook,
        settings: AgentsSettings,
        notify: Notify,
        room_of: Callable[[str], RoomRef | None],
    ) -> None:
        """`room_of` tells in which room a chat is held."""
        self._registry = registry
        self._roster = roster
        self._book = book
        self._settings = settings
        self._notify = notify
        self._room_of = room_of
        self._lines: dict[str, tuple[AgentEntry, AgentLine]] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def run(self, stop: asyncio.Event) -> None:
        """Keep a line to every agent there is, for what they push; follow the registry as it changes."""
        while not stop.is_set():
            self.look()
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), _LOOK_EVERY_S)
        await self.close()

    def look(self) -> None:
        played: set[str] = set()
        for name, entry in self._registry.now.characters.items():
            with suppress(NoSuchCharacter):  # `coterie agent list` tells of those
                bot = self._roster.find(name)
                played.add(bot.id)
                if entry.backend == REMOTE:
                    self.line(bot)
        for gone in set(self._lines) - played:
            self._hang_up(gone)

    def line(self, bot: Bot) -> AgentLine:
        entry = self._registry.entry(bot)
        if entry is None or entry.backend not in (REMOTE, STAND_IN):
            raise AgentUnreachable(f"Nobody plays {bot.name} at the moment.", "Whoever runs me has to look.")
        known = self._lines.get(bot.id)
        if known is not None and known[0] == entry:
            return known[1]
        if known is not None:
            self._hang_up(bot.id)
        line: AgentLine
        if entry.backend == STAND_IN:
            line = StandIn(entry)
        else:
            link = AgentLink(bot.name, entry, self._settings, lambda push: self._pushed(bot, push))
            link.start()
            line = link
        self._lines[bot.id] = (entry, line)
        return line

    async def close(self) -> None:
        for bot in list(self._lines):
            self._hang_up(bot)
        await asyncio.gather(*self._closing, return_exceptions=True)

    def _hang_up(self, bot: str) -> None:
        _, line = self._lines.pop(bot)
        task = asyncio.create_task(line.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _pushed(self, bot: Bot, push: Push) -> None:
        """Once, however often it is sent; and only into chats that this agent holds."""
        room = self._room_of(push.chat)
        if room is None or self._book.character_of(push.chat) != bot.id:
            _log.warning("an agent told something for a chat it does not hold", agent=bot.name, push=push.type)
            return
        text = mask(push.text.strip()[:_LONGEST_PUSH]) or push.type.replace("_", " ")
        token = hashlib.sha256(f"agent push\n{bot.id}\n{push.id}".encode()).hexdigest()[:20]
        await self._notify(OutgoingNotification(room=room, text=f"{bot.name}: {text}"), token)
