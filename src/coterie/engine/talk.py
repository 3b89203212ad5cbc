"""Talking in a room: the room's chat is found or begun, what was said goes to its mode, the answer returns. P2, D12"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from weakref import WeakValueDictionary

from coterie.cast.people import PeopleDesk, Person
from coterie.cast.roster import Roster
from coterie.engine.conversation import Conversation, Opened, Speech, Words
from coterie.engine.errors import NotAllowed
from coterie.engine.protocol import (
    Incoming,
    IncomingMessage,
    Outgoing,
    OutgoingMessage,
    OutgoingNotification,
    OutgoingPart,
    OutgoingTyping,
    RoomRef,
)
from coterie.engine.rooms import Bound, Kept, RoomBook
from coterie.engine.settings import SurfacesSettings
from coterie.kernel import Store


class Talk:
    def __init__(
        self,
        store: Store,
        roster: Roster,
        people: PeopleDesk,
        conversations: Mapping[str, Conversation],
        settings: SurfacesSettings,
    ) -> None:
        self.rooms = RoomBook(store)
        self.roster = roster
        self.people = people
        self._conversations = conversations
        self._settings = settings
        self._beginning: WeakValueDictionary[RoomRef, asyncio.Lock] = WeakValueDictionary()

    async def message(self, incoming: IncomingMessage) -> AsyncIterator[Outgoing]:
        person = self.person(incoming)
        bound = self.rooms.find(incoming.room)
        yield OutgoingTyping(room=incoming.room)
        if bound is None:
            bound, greeting = await self.begin(incoming.room, person)
            if greeting:
                yield OutgoingMessage(room=incoming.room, text=greeting)
        self.check(person, bound.character)
        talking = self.conversation(bound.mode).say(
            bound.context,
            incoming.text,
            person=person.id,
            key=f"{incoming.room.surface}/{incoming.room.id}:{incoming.key}",
            attachments=incoming.attachments,
        )
        async for outgoing in self.told(talking, incoming.room):
            yield outgoing

    async def told(self, talking: AsyncIterator[Speech], room: RoomRef) -> AsyncIterator[Outgoing]:
        async for speech in talking:
            if isinstance(speech, Words):
                yield OutgoingPart(room=room, text=speech.text)
                continue
            if speech.text.strip() or speech.attachments:
                yield OutgoingMessage(room=room, text=speech.text, attachments=speech.attachments)
            if speech.trouble:
                yield OutgoingNotification(room=room, text=speech.trouble)

    async def begin(
        self, room: RoomRef, person: Person, character: str | None = None, title: str = ""
    ) -> tuple[Bound, str]:
        """The first word in a room begins its chat, once, from however many sides it is asked for."""
        async with self._beginning.setdefault(room, asyncio.Lock()):
            if (bound := self.rooms.find(room)) is not None:
                return bound, ""
            return await self._begin(room, person, character, title)

    async def _begin(self, room: RoomRef, person: Person, character: str | None, title: str) -> tuple[Bound, str]:
        who = self.roster.find(character) if character else self.roster.find(self.default_for(room, person))
        self.check(person, who.id)
        mode, opened = await self.open(person, who.id, title)
        bound = await self.rooms.bind(room, person.id, mode, who.id, opened, title or who.name)
        return bound, opened.greeting

    async def start_over(self, bound: Bound, person: Person, character: str | None = None) -> str:
        """P9: a new context for this room only."""
        who = character or bound.character
        self.check(person, who)
        mode, opened = await self.open(person, who, bound.title)
        kept = Kept(opened.context, mode, who, "")
        await self.rooms.change_context(bound.room, kept, person.id, opened.drafts)
        return opened.greeting

    @property
    def modes(self) -> set[str]:
        return set(self._conversations)

    async def open(self, person: Person, character: str, title: str, *, at_once: bool = False) -> tuple[str, Opened]:
        # The first mode that is registered holds the conversations of characters nobody assigned to another.
        mode = next(iter(self._conversations))
        return mode, await self._conversations[mode].open(person.id, character, title, at_once=at_once)

    def conversation(self, mode: str) -> Conversation:
        return self._conversations[mode]

    def person(self, incoming: Incoming) -> Person:
        found = self.people.of(incoming.account.surface, incoming.account.id)
        if found is None:
            raise NotAllowed("I do not know you.", "Ask whoever runs me for an invitation.")
        return found

    def check(self, person: Person, character: str) -> None:
        if not self.people.may_talk(person.id, character):
            raise NotAllowed("There is nobody here for you to talk with yet.", "Ask whoever runs me.")

    def default_for(self, room: RoomRef, person: Person) -> str:
        for rule in self._settings.bindings:
            fits = (rule.surface in ("", room.surface), rule.room in ("", room.id), rule.person in ("", person.id))
            if all(fits):
                return rule.character
        if self._settings.default_character:
            return self._settings.default_character
        mine = [bot.id for bot in self.roster.bots() if self.people.may_talk(person.id, bot.id)]
        if not mine:
            raise NotAllowed("There is nobody here to talk with yet.", "Make a character first: coterie cast new NAME")
        return mine[0]
