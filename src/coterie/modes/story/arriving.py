"""Characters that come to the house: written here, from a card, or whole from another house. S1, S9, S26"""

from __future__ import annotations

from coterie.cast.cards import export_card, import_card
from coterie.cast.identity import Identity
from coterie.cast.roster import Bot, Roster
from coterie.cast.workspace import Workspaces
from coterie.kernel import Store
from coterie.memory import Memory
from coterie.modes.story.luggage import is_luggage, read, unpack


class Arrivals:
    def __init__(self, store: Store, roster: Roster, memory: Memory, workspaces: Workspaces) -> None:
        self._store = store
        self._roster = roster
        self._memory = memory
        self._workspaces = workspaces

    async def author(self, identity: Identity) -> Bot:
        """Made or written anew, with a folder of its own."""
        bot = await self._roster.author(identity)
        self._workspaces.prepare(bot, self._roster.you())
        return bot

    async def take_in(self, data: bytes, file_name: str) -> tuple[Bot, list[str]]:
        """From a file, whichever kind it is; with what was odd about it."""
        notes: list[str] = []
        if is_luggage(data):
            bot, card = await unpack(self._store, self._roster, self._memory, read(data))
            if card is not None and (card.files or card.picture):
                self._workspaces.keep_card(bot.id, export_card(card, "charx").data, "charx")
        else:
            found = import_card(data, file_name)
            bot = await self._roster.author(Identity.from_card(found.card), found.card)
            self._workspaces.keep_card(bot.id, data, found.format)
            notes = found.notes
        self._workspaces.prepare(bot, self._roster.you())
        return bot, notes
