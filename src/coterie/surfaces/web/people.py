"""Names for ids: who is meant where the log holds an id."""

from __future__ import annotations

from coterie.surfaces.web.house import House
from coterie.surfaces.web.typeset import harmless


class People:
    def __init__(self, house: House) -> None:
        self.bots = {bot.id: harmless(bot.name) for bot in house.roster.bots()}
        self._people = {person.id: harmless(person.name) for person in house.people.everybody()}
        self.rooms = {chat.room: harmless(chat.title) for chat in house.story.chats.chats()}

    def name(self, who: str) -> str:
        """As people say it; what is nobody's id is a name already."""
        return self._people.get(who) or self.bots.get(who, harmless(who))

    def room(self, stream: str) -> str:
        """The title of a chat, or where else something is kept."""
        if stream in self.rooms:
            return self.rooms[stream]
        kind, _, of = stream.partition(":")
        return f"came with {self.name(of)}" if kind == "memory" else "a chat that is gone"
