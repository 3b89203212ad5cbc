"""Who handles what: by the type of what came in and its key, with `*` for the rest. P1

A command's key is its name, a callback's its action, a member change's what changed; a message has none. A surface may
put its own handler in the place of the common one. A handler that fails never stops a surface: the person gets a plain
sentence, the log gets the cause.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from coterie.base.errors import CoterieError
from coterie.base.logging import get_logger
from coterie.base.redaction import redact
from coterie.characters.people import People, Person
from coterie.characters.service import Characters
from coterie.conversation.errors import PermissionDenied
from coterie.eventstore import Store
from coterie.messaging.agents import AgentRegistry
from coterie.messaging.errors import NoSuchMode
from coterie.messaging.ports import Conversation, NewChat, ReplyActivity, ReplyText, ReplyUpdate
from coterie.messaging.protocol import (
    Incoming,
    IncomingCallback,
    IncomingCommand,
    IncomingMessage,
    MemberChange,
    Outgoing,
    OutgoingMessage,
    OutgoingNotification,
    OutgoingPart,
    OutgoingTyping,
    RoomRef,
)
from coterie.messaging.rooms import RoomBinding, RoomContext, Rooms
from coterie.messaging.settings import SurfacesSettings

Handler = Callable[[Any], AsyncIterator[Outgoing]]
H = TypeVar("H", bound=Handler)
ANY = "*"
HANDLER_FAILED = "Something went wrong here, and it has been noted. Please try again."
_log = get_logger(__name__)


class MessageDispatcher:
    def __init__(self) -> None:
        self._handlers: dict[tuple[str, type[Incoming], str], Handler] = {}

    def on(self, kind: type[Incoming], key: str = ANY, *, surface: str = ANY) -> Callable[[H], H]:
        """Mark a function as the handler of this type and key, everywhere or on one surface only."""

        def register(handler: H) -> H:
            self._handlers[surface, kind, key] = handler
            return handler

        return register

    def handler_for(self, incoming: Incoming) -> Handler | None:
        """The closest one: this surface before all surfaces, this key before any key."""
        key, kind = handler_key(incoming), type(incoming)
        for surface in (incoming.room.surface, ANY):
            for wanted in (key, ANY):
                if (found := self._handlers.get((surface, kind, wanted))) is not None:
                    return found
        return None

    async def dispatch(self, incoming: Incoming) -> AsyncIterator[Outgoing]:
        handler = self.handler_for(incoming)
        if handler is None:
            return
        try:
            async for outgoing in handler(incoming):
                yield outgoing
        except CoterieError as error:
            _log.warning("not handled", surface=incoming.room.surface, key=incoming.key, error=str(error))
            yield OutgoingNotification(room=incoming.room, text=redact(str(error)))
        except Exception:
            _log.exception("handler failed", surface=incoming.room.surface, key=incoming.key)
            yield OutgoingNotification(room=incoming.room, text=HANDLER_FAILED)


def handler_key(incoming: Incoming) -> str:
    match incoming:
        case IncomingCommand(name=name):
            return name
        case IncomingCallback(action=action):
            return action
        case MemberChange(change=change):
            return change
        case _:
            return ANY


# Talking in a room: the room's chat is found or begun, what was said goes to its mode, the answer returns. P2, D12


class ChatRouter:
    def __init__(
        self,
        store: Store,
        characters: Characters,
        people: People,
        conversations: Mapping[str, Conversation],
        settings: SurfacesSettings,
        agents: AgentRegistry | None = None,
    ) -> None:
        self.rooms = Rooms(store)
        self.characters = characters
        self.people = people
        self._conversations = conversations
        self._settings = settings
        self._agents = agents
        self._beginning: WeakValueDictionary[RoomRef, asyncio.Lock] = WeakValueDictionary()

    async def handle_message(self, incoming: IncomingMessage) -> AsyncIterator[Outgoing]:
        person = self.sender(incoming)
        bound = self.rooms.find(incoming.room)
        if bound is not None:
            self.check_room(person, bound)
        yield OutgoingTyping(room=incoming.room)
        if bound is None:
            bound, greeting = await self.begin_chat(incoming.room, person)
            if greeting:
                yield OutgoingMessage(room=incoming.room, text=greeting)
        conversation = self.conversation(bound.mode)
        if person.id != bound.person:
            await conversation.add_person(bound.context, person.id)
        talking = conversation.send_message(
            bound.context,
            incoming.text,
            person=person.id,
            key=f"{incoming.room.surface}/{incoming.room.id}:{incoming.key}",
            attachments=incoming.attachments,
        )
        async for outgoing in self.outgoing(talking, incoming.room):
            yield outgoing

    async def outgoing(self, talking: AsyncIterator[ReplyUpdate], room: RoomRef) -> AsyncIterator[Outgoing]:
        async for speech in talking:
            if isinstance(speech, ReplyText):
                yield OutgoingPart(room=room, text=speech.text)
                continue
            if isinstance(speech, ReplyActivity):
                yield OutgoingTyping(room=room)  # some platforms forget after a while that somebody writes
                continue
            if speech.text.strip() or speech.attachments:
                yield OutgoingMessage(room=room, text=speech.text, attachments=speech.attachments)
            if speech.error:
                yield OutgoingNotification(room=room, text=speech.error)

    async def begin_chat(
        self, room: RoomRef, person: Person, character: str | None = None, title: str = "", mode: str = ""
    ) -> tuple[RoomBinding, str]:
        """The first word in a room begins its chat, once, from however many sides it is asked for."""
        async with self._beginning.setdefault(room, asyncio.Lock()):
            if (bound := self.rooms.find(room)) is not None:
                return bound, ""
            who = self.characters.find(character or self.default_character(room, person))
            self.check_character(person, who.id)
            mode, opened = await self.create_chat(person, who.id, title, mode=mode)
            bound = await self.rooms.bind(room, person.id, mode, who.id, opened, title or who.name)
            return bound, opened.greeting

    async def restart_chat(
        self, bound: RoomBinding, person: Person, character: str | None = None, mode: str = ""
    ) -> str:
        """P9: a new context for this room only, in the mode it had unless another is asked for or another answers."""
        who = character or bound.character
        self.check_character(person, who)
        same = bound.mode if who == bound.character else ""
        mode, opened = await self.create_chat(person, who, bound.title, mode=mode or same)
        kept = RoomContext(opened.context, mode, who, "")
        await self.rooms.change_context(bound.room, kept, person.id, opened.new_events)
        return opened.greeting

    @property
    def modes(self) -> list[str]:
        """Every kind of chat there is, the usual one first."""
        return list(self._conversations)

    def modes_for(self, person: Person) -> list[str]:
        """What somebody may begin by asking for it."""
        open_to_all = (self.modes[0], *self._settings.guest_modes)
        return [mode for mode in self.modes if person.is_owner or mode in open_to_all]

    async def create_chat(
        self, person: Person, character: str, title: str, *, mode: str = "", at_once: bool = False
    ) -> tuple[str, NewChat]:
        """A chat of the mode that is asked for; else of the one that plays this character, or the usual one."""
        assigned = self._agents.mode_of(self.characters.get(character)) if self._agents is not None else ""
        mode = mode or assigned or self.modes[0]
        if mode not in self._conversations:
            raise NoSuchMode(f"There is no kind of chat called {mode[:40]}.", f"There is: {', '.join(self.modes)}.")
        if mode != assigned and mode not in self.modes_for(person):
            raise PermissionDenied("A chat of this kind is not for you to begin.", "Ask whoever runs me.")
        return mode, await self._conversations[mode].open(person.id, character, title, at_once=at_once)

    def conversation(self, mode: str) -> Conversation:
        return self._conversations[mode]

    def sender(self, incoming: Incoming) -> Person:
        found = self.people.by_account(incoming.account.surface, incoming.account.id)
        if found is None:
            raise PermissionDenied("I do not know you.", "Ask whoever runs me for an invitation.")
        return found

    def check_character(self, person: Person, character: str) -> None:
        if not self.people.may_talk(person.id, character):
            raise PermissionDenied("There is nobody here for you to talk with yet.", "Ask whoever runs me.")

    def check_room(self, person: Person, bound: RoomBinding) -> None:
        """A chat is for whose it is, for whoever was let into it, and for the owner."""
        if person.id == bound.person:
            self.check_character(person, bound.character)
        elif not person.is_owner and not self.rooms.is_guest(bound.room, person.id):
            raise PermissionDenied("This chat is somebody else's.", "Begin one of your own, or ask to be let in.")

    def default_character(self, room: RoomRef, person: Person) -> str:
        for rule in self._settings.bindings:
            fits = (rule.surface in ("", room.surface), rule.room in ("", room.id), rule.person in ("", person.id))
            if all(fits):
                return rule.character
        if self._agents is not None and (registered := self._agents.character_for(person)):
            return registered
        if self._settings.default_character:
            return self._settings.default_character
        mine = [bot.id for bot in self.characters.all() if self.people.may_talk(person.id, bot.id)]
        if not mine:
            raise PermissionDenied(
                "There is nobody here to talk with yet.", "Make a character first: coterie characters new NAME"
            )
        return mine[0]
