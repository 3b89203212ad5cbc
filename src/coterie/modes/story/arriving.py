"""Characters that come to the house: written here, from a card, or whole from another house. S1, S9, S26"""

from __future__ import annotations

from coterie.cast.cards import export_card, import_card
from coterie.cast.identity import Identity
from coterie.cast.roster import Character, Characters
from coterie.cast.workspace import Workspaces
from coterie.kernel import Store
from coterie.memory import Memory
from coterie.modes.story.luggage import import_character, is_character_archive, read_character_archive


class CharacterImporter:
    def __init__(self, store: Store, roster: Characters, memory: Memory, workspaces: Workspaces) -> None:
        self._store = store
        self._roster = roster
        self._memory = memory
        self._workspaces = workspaces

    async def author(self, identity: Identity) -> Character:
        """Made or written anew, with a folder of its own."""
        bot = await self._roster.save(identity)
        self._workspaces.prepare(bot, self._roster.owner())
        return bot

    async def import_file(self, data: bytes, file_name: str) -> tuple[Character, list[str]]:
        """From a file, whichever kind it is; with what was odd about it."""
        notes: list[str] = []
        if is_character_archive(data):
            bot, card = await import_character(self._store, self._roster, self._memory, read_character_archive(data))
            if card is not None and (card.files or card.picture):
                self._workspaces.save_card(bot.id, export_card(card, "charx").data, "charx")
        else:
            found = import_card(data, file_name)
            bot = await self._roster.save(Identity.from_card(found.card), found.card)
            self._workspaces.save_card(bot.id, data, found.format)
            notes = found.notes
        self._workspaces.prepare(bot, self._roster.owner())
        return bot, notes
