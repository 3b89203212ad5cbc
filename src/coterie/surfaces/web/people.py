"""Names for ids: who is meant where the log holds an id."""

from __future__ import annotations

from coterie.surfaces.web.house import House
from coterie.surfaces.web.typeset import clean_line


class DisplayNames:
    def __init__(self, house: House) -> None:
        self.bots = {bot.id: clean_line(bot.name) for bot in house.roster.all()}
        self._people = {person.id: clean_line(person.name) for person in house.people.all()}
        self.rooms = {chat.room: clean_line(chat.title) for chat in house.story.chats.chats()}

    def name(self, who: str) -> str:
        """As people say it; what is nobody's id is a name already."""
        return self._people.get(who) or self.bots.get(who, clean_line(who))

    def room(self, stream: str) -> str:
        """The title of a chat, or where else something is kept."""
        if stream in self.rooms:
            return self.rooms[stream]
        kind, _, of = stream.partition(":")
        return f"came with {self.name(of)}" if kind == "memory" else "a chat that is gone"
