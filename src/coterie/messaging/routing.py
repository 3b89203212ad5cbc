"""Which handler answers an incoming event, and which chat a message goes to.

Handlers are registered by event type and key: a command's name, a callback's action, a membership change; messages have
none. A surface may override a common handler. A handler that fails never stops a surface: the person gets a plain
sentence, the log gets the cause.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from coterie.base.errors import CoterieError
from coterie.base.logging import get_logger
from coterie.base.redaction import redact
from coterie.characters import Character, Characters, People, Person
from coterie.conversation import PermissionDenied
from coterie.eventstore import Store
from coterie.messaging.agents import AgentRegistry
from coterie.messaging.delivery import Outbox
from coterie.messaging.errors import NoSuchMode
from coterie.messaging.inbox import Inbox
from coterie.messaging.ports import Conversation, NewChat, ReplyActivity, ReplyDelta, ReplyReaction, ReplyUpdate
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
    OutgoingReaction,
    OutgoingTyping,
    RoomRef,
)
from coterie.messaging.rooms import RoomBinding, RoomContext, Rooms
from coterie.messaging.settings import BindingRule, SurfacesSettings

Handler = Callable[[Any], AsyncIterator[Outgoing]]
H = TypeVar("H", bound=Handler)
ANY = "*"
_MAX_QUOTE = 300
HANDLER_FAILED = "Something went wrong here, and it has been noted. Please try again."
_log = get_logger(__name__)


class MessageDispatcher:
    def __init__(self) -> None:
        self._handlers: dict[tuple[str, type[Incoming], str], Handler] = {}

    def on(self, kind: type[Incoming], key: str = ANY, *, surface: str = ANY) -> Callable[[H], H]:
        """Register a function as the handler of this type and key, on every surface or on one."""

        def register(handler: H) -> H:
            self._handlers[surface, kind, key] = handler
            return handler

        return register

    def handler_for(self, incoming: Incoming) -> Handler | None:
        """The most specific handler: this surface before all surfaces, this key before any key."""
        key, kind = handler_key(incoming), type(incoming)
        for surface in (incoming.room.surface, ANY):
            for candidate in (key, ANY):
                if (handler := self._handlers.get((surface, kind, candidate))) is not None:
                    return handler
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


class ChatRouter:
    """Finds or begins the chat of a room, sends the message to its mode, and turns the reply into outgoing messages."""

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
        self._inbox, self._outbox = Inbox(store), Outbox(store)
        self.characters = characters
        self.people = people
        self._conversations = conversations
        self._settings = settings
        self._agents = agents
        self._begin_locks: WeakValueDictionary[RoomRef, asyncio.Lock] = WeakValueDictionary()

    async def handle_message(self, incoming: IncomingMessage) -> AsyncIterator[Outgoing]:
        person = self.sender(incoming)
        binding = self.rooms.find(incoming.room)
        if binding is not None:
            self.check_room(person, binding, group=incoming.group)
            if binding.archived:
                return
        yield OutgoingTyping(room=incoming.room)
        if binding is None:
            binding, greeting = await self.begin_chat(incoming.room, person, server=incoming.server)
            if greeting:
                yield OutgoingMessage(room=incoming.room, text=greeting)
        conversation = self.conversation(binding.mode)
        if person.id != binding.person:
            await conversation.add_person(binding.context, person.id)
        updates = conversation.send_message(
            binding.context,
            incoming.text,
            person=person.id,
            key=f"{incoming.room.surface}/{incoming.room.id}:{incoming.key}",
            attachments=incoming.attachments,
            quote=self._quote(incoming),
        )
        async for outgoing in self.to_outgoing(updates, incoming.room, incoming.key):
            yield outgoing

    def _quote(self, incoming: IncomingMessage) -> str:
        """The beginning of the message that it replies to, if we know it."""
        if incoming.reply_to is None:
            return ""
        quoted = self._outbox.text_of(incoming.room, incoming.reply_to)
        if quoted is None:
            quoted = self._inbox.text_of(incoming.room, incoming.reply_to)
        return (quoted or "").strip()[:_MAX_QUOTE]

    async def to_outgoing(
        self, updates: AsyncIterator[ReplyUpdate], room: RoomRef, answered: str = ""
    ) -> AsyncIterator[Outgoing]:
        """`answered` is the platform's id of the message that is answered."""
        async for update in updates:
            if isinstance(update, ReplyReaction):
                if answered:
                    yield OutgoingReaction(room=room, to=answered, emoji=update.emoji)
                continue
            if isinstance(update, ReplyDelta):
                yield OutgoingPart(room=room, text=update.text)
                continue
            if isinstance(update, ReplyActivity):
                yield OutgoingTyping(room=room)  # some platforms let the typing notice expire
                continue
            if update.text.strip() or update.attachments:
                yield OutgoingMessage(room=room, text=update.text, attachments=update.attachments)
            if update.error:
                yield OutgoingNotification(room=room, text=update.error)

    async def begin_chat(
        self,
        room: RoomRef,
        person: Person,
        character: str | None = None,
        title: str = "",
        mode: str = "",
        server: str = "",
    ) -> tuple[RoomBinding, str]:
        """The chat of a room and its greeting; begun once, also under concurrent calls. Without a character or a mode
        the bindings of the settings decide."""
        async with self._begin_locks.setdefault(room, asyncio.Lock()):
            if (binding := self.rooms.find(room)) is not None:
                return binding, ""
            chosen = self.characters.find(character or self.default_character(room, person, server))
            self.check_character(person, chosen.id)
            mode, chat = await self.create_chat(
                person, chosen.id, title, mode=mode, bound_mode=self._bound_mode(room, person, server)
            )
            binding = await self.rooms.bind(room, person.id, mode, chosen.id, chat, title or chosen.name)
            return binding, chat.greeting

    async def restart_chat(
        self, binding: RoomBinding, person: Person, character: str | None = None, mode: str = ""
    ) -> str:
        """Give this room a new context, in its current mode unless the mode or the character changes."""
        character = character or binding.character
        self.check_character(person, character)
        current_mode = binding.mode if character == binding.character else ""
        mode, chat = await self.create_chat(person, character, binding.title, mode=mode or current_mode)
        context = RoomContext(chat.context, mode, character, "")
        await self.rooms.change_context(binding.room, context, person.id, chat.new_events)
        return chat.greeting

    @property
    def modes(self) -> list[str]:
        """All modes, the default first."""
        return list(self._conversations)

    def modes_for(self, person: Person) -> list[str]:
        """The modes in which a person may begin a chat."""
        open_to_all = (self.modes[0], *self._settings.guest_modes)
        return [mode for mode in self.modes if person.is_owner or mode in open_to_all]

    def characters_for(self, person: Person) -> list[Character]:
        """The characters with whom a person may talk."""
        return [character for character in self.characters.all() if self.people.may_talk(person.id, character.id)]

    async def create_chat(
        self,
        person: Person,
        character: str,
        title: str,
        *,
        mode: str = "",
        bound_mode: str = "",
        at_once: bool = False,
    ) -> tuple[str, NewChat]:
        """A chat in the given mode, else in the room's bound mode, else in the character's assigned mode, else in the
        default mode. Other people may choose a mode only if the settings let them."""
        assigned = self._agents.mode_of(self.characters.get(character)) if self._agents is not None else ""
        assigned = bound_mode or assigned
        mode = mode or assigned or self.modes[0]
        if mode not in self._conversations:
            raise NoSuchMode(f"There is no kind of chat called {mode[:40]}.", f"There is: {', '.join(self.modes)}.")
        if mode != assigned and mode not in self.modes_for(person):
            raise PermissionDenied("You may not begin a chat of this kind.", "Ask the owner.")
        return mode, await self._conversations[mode].open(person.id, character, title, at_once=at_once)

    def conversation(self, mode: str) -> Conversation:
        return self._conversations[mode]

    def sender(self, incoming: Incoming) -> Person:
        person = self.people.by_account(incoming.account.surface, incoming.account.id)
        if person is None:
            raise PermissionDenied("I do not know you.", "Ask the owner for an invitation.")
        return person

    def check_character(self, person: Person, character: str) -> None:
        if not self.people.may_talk(person.id, character):
            raise PermissionDenied("There is no character that you may talk with here.", "Ask the owner.")

    def check_room(self, person: Person, binding: RoomBinding, *, group: bool = False) -> None:
        """A chat is for the person it belongs to, its guests, and the owner; in a group also for everybody who may talk
        with the character."""
        if person.id == binding.person:
            self.check_character(person, binding.character)
        elif not (
            person.is_owner
            or self.rooms.is_guest(binding.room, person.id)
            or (group and self.people.may_talk(person.id, binding.character))
        ):
            raise PermissionDenied("This chat is somebody else's.", "Begin one of your own, or ask to be invited.")

    def may_speak_in(self, incoming: Incoming) -> bool:
        """Whether what the account writes in this room is answered."""
        person = self.people.by_account(incoming.account.surface, incoming.account.id)
        binding = self.rooms.find(incoming.room)
        if person is None or binding is None:
            return person is not None
        try:
            self.check_room(person, binding, group=incoming.group)
        except PermissionDenied:
            return False
        return True

    def is_for_character(self, incoming: Incoming) -> bool:
        """Whether an event is to be handled: in a group, a message only if it addresses the character by a mention, a
        reply or its name, or if the room was asked to listen to all."""
        if not isinstance(incoming, IncomingMessage) or not incoming.group or incoming.addressed:
            return True
        if incoming.reply_to is not None and self._outbox.text_of(incoming.room, incoming.reply_to) is not None:
            return True
        person = self.people.by_account(incoming.account.surface, incoming.account.id)
        if person is None:  # strangers in a group are only answered if they mean us without doubt
            return False
        return self.rooms.listens_to_all(incoming.room) or self._is_named(incoming, person)

    def _is_named(self, incoming: IncomingMessage, person: Person) -> bool:
        binding = self.rooms.find(incoming.room)
        try:
            character = binding.character if binding is not None else None
            found = self.characters.find(character or self.default_character(incoming.room, person, incoming.server))
        except CoterieError:  # there is no character for this person
            return False
        names = {found.name, found.name.split()[0]} if found.name.split() else set()
        return any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", incoming.text, re.IGNORECASE) for name in names)

    def _matching_rules(self, room: RoomRef, person: Person, server: str) -> Iterator[BindingRule]:
        for rule in self._settings.bindings:
            matches = (
                rule.surface in ("", room.surface),
                rule.server in ("", server),
                rule.room in ("", room.id),
                rule.person in ("", person.id),
            )
            if all(matches):
                yield rule

    def _bound_mode(self, room: RoomRef, person: Person, server: str) -> str:
        return next((rule.mode for rule in self._matching_rules(room, person, server) if rule.mode), "")

    def default_character(self, room: RoomRef, person: Person, server: str = "") -> str:
        for rule in self._matching_rules(room, person, server):
            if rule.character:
                return rule.character
        if self._agents is not None and (registered := self._agents.character_for(person)):
            return registered
        if self._settings.default_character:
            return self._settings.default_character
        allowed = self.characters_for(person)
        if not allowed:
            raise PermissionDenied(
                "There is no character to talk with yet.",
                "The owner can create one on the page, or let you talk to one.",
            )
        return allowed[0].id
