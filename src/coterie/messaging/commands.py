"""What a person can ask of the house in any room, besides talking. P8

The same commands everywhere; a surface only decides how they are written (`!new`, `/new`) and may put its own in the
place of one. What cannot simply be undone asks first.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from coterie.characters.people import Person
from coterie.conversation.errors import NoSuchRoom, PermissionDenied, RoomError
from coterie.eventstore import Event, NewEvent, Payload, Projection, Rows, Store, on
from coterie.messaging.inbox import room_stream
from coterie.messaging.ports import Surface
from coterie.messaging.protocol import (
    Button,
    Incoming,
    IncomingCallback,
    IncomingCommand,
    IncomingMessage,
    Outgoing,
    OutgoingMessage,
    OutgoingNotification,
    OutgoingTyping,
    OutgoingUI,
    RoomRef,
)
from coterie.messaging.rooms import ContextSaved, RoomArchived, RoomBinding, RoomContext, RoomRenamed, RoomShared
from coterie.messaging.routing import ChatRouter, MessageDispatcher
from coterie.messaging.settings import SurfacesSettings

# Questions that wait for a person's yes, no or number, in one room; they survive a restart. P8


class QuestionAsked(Payload, kind="question_asked"):
    """A question waits for a person's yes, no or number."""

    room: RoomRef
    """Where it was asked."""
    person: str
    """Whose answer counts, by id."""
    action: str
    """What a yes, or a choice, does."""
    choices: tuple[str, ...] = ()
    """To be chosen from by number; empty where it is yes or no."""


class QuestionSettled(Payload, kind="question_settled"):
    """A question was answered, or fell away."""

    room: RoomRef
    """Where it was asked."""
    person: str
    """Whose answer was waited for, by id."""


@dataclass(frozen=True)
class PendingQuestion:
    action: str
    choices: tuple[str, ...]


class ConfirmationsProjection(Projection):
    name = "questions"
    schema = """
        CREATE TABLE question(surface TEXT, room TEXT, person TEXT, action TEXT NOT NULL, choices TEXT NOT NULL,
            PRIMARY KEY(surface, room, person)) WITHOUT ROWID;
    """

    @on(QuestionAsked)
    def asked(self, rows: Rows, event: Event[QuestionAsked]) -> None:
        it = event.payload
        told = (it.room.surface, it.room.id, it.person, it.action, json.dumps(it.choices))
        rows.run("INSERT OR REPLACE INTO question VALUES (?, ?, ?, ?, ?)", told)

    @on(QuestionSettled)
    def settled(self, rows: Rows, event: Event[QuestionSettled]) -> None:
        it = event.payload
        told = (it.room.surface, it.room.id, it.person)
        rows.run("DELETE FROM question WHERE surface = ? AND room = ? AND person = ?", told)


class Confirmations:
    def __init__(self, store: Store) -> None:
        self._store = store

    def pending(self, room: RoomRef, person: str) -> PendingQuestion | None:
        rows = self._store.query(
            "SELECT action, choices FROM question WHERE surface = ? AND room = ? AND person = ?",
            (room.surface, room.id, person),
        )
        return PendingQuestion(rows[0][0], tuple(json.loads(rows[0][1]))) if rows else None

    async def ask(self, room: RoomRef, person: str, action: str, choices: tuple[str, ...] = ()) -> None:
        payload = QuestionAsked(room=room, person=person, action=action, choices=choices)
        await self._store.append([NewEvent(room_stream(room), payload, person)])

    async def close(self, room: RoomRef, person: str) -> None:
        await self._store.append([NewEvent(room_stream(room), QuestionSettled(room=room, person=person), person)])


OutgoingStream = AsyncIterator[Outgoing]
HELP = {
    "start": "say hello and see who is here",
    "new [kind] [name]": "a new chat, in a room of its own where that is possible; kinds: {modes}",
    "chats": "your chats here",
    "rename NAME": "give this chat another name",
    "archive": "put this chat away",
    "agent [name]": "who answers here; with a name, somebody else does from now on",
    "settings": "how things are set, and how to change them",
    "context": "what this room is about at the moment",
    "save [name]": "remember this point under a name",
    "load [n]": "go back to an earlier context of this room",
    "clear": "start over in this room (also: reset)",
    "retry": "another answer to your last message",
    "stop": "end what is being said",
    "invite NAME": "let somebody I know into this chat (uninvite NAME: no longer)",
    "link [code]": "a code for another account of yours; with a code, this account becomes yours",
    "approve CODE": "let somebody in who showed you this code (owner only)",
    "yes / no": "answer a question",
}


class Commands:
    def __init__(
        self, store: Store, chats: ChatRouter, surfaces: Mapping[str, Surface], settings: SurfacesSettings
    ) -> None:
        self._talk = chats
        self._rooms = chats.rooms
        self._people = chats.people
        self._questions = Confirmations(store)
        self._surfaces = surfaces
        self._settings = settings

    def register(self, dispatcher: MessageDispatcher) -> None:
        dispatcher.on(IncomingMessage)(self.message)
        dispatcher.on(IncomingCommand)(self.unknown)
        for handler in (
            *(self.start, self.help, self.new, self.chats, self.rename, self.archive, self.agent, self.settings),
            *(self.context, self.save, self.load, self.clear, self.stop, self.retry, self.link, self.approve),
            *(self.invite, self.uninvite),
        ):
            dispatcher.on(IncomingCommand, handler.__name__)(handler)
        dispatcher.on(IncomingCommand, "reset")(self.clear)
        for answer in (self.yes, self.no):
            dispatcher.on(IncomingCommand, answer.__name__)(answer)
            dispatcher.on(IncomingCallback, answer.__name__)(answer)
        dispatcher.on(IncomingCallback, "choose")(self.choose)

    async def message(self, incoming: IncomingMessage) -> OutgoingStream:
        """A bare number answers a choice that waits; everything else is talk."""
        person, text = self._talk.sender(incoming), incoming.text.strip()
        asked = self._questions.pending(incoming.room, person.id)
        if asked is not None and asked.choices and text.isdecimal() and 1 <= int(text) <= len(asked.choices):
            yield await self._choose(incoming, person, int(text))
            return
        async for outgoing in self._talk.handle_message(incoming):
            yield outgoing

    async def unknown(self, incoming: IncomingCommand) -> OutgoingStream:
        mark = self._mark(incoming)
        yield _notice(incoming, f"I do not know {mark}{incoming.name[:40]}. {mark}help tells what there is.")

    async def start(self, incoming: IncomingCommand) -> OutgoingStream:
        person = self._talk.sender(incoming)
        bound = self._rooms.find(incoming.room)
        if bound is not None:
            name = self._talk.characters.get(bound.character).name
            yield _notice(incoming, f"Hello {person.name}. {name} is here; just write. {self._mark(incoming)}help")
            return
        bound, greeting = await self._talk.begin_chat(incoming.room, person)
        name = self._talk.characters.get(bound.character).name
        yield _notice(incoming, f"Hello {person.name}. You are with {name}. {self._mark(incoming)}help tells the rest.")
        if greeting:
            yield OutgoingMessage(room=incoming.room, text=greeting)

    async def help(self, incoming: IncomingCommand) -> OutgoingStream:
        mark, modes = self._mark(incoming), ", ".join(self._talk.modes_for(self._talk.sender(incoming)))
        yield _notice(incoming, "\n".join(f"{mark}{name}: {what.format(modes=modes)}" for name, what in HELP.items()))

    async def new(self, incoming: IncomingCommand) -> OutgoingStream:
        person = self._talk.sender(incoming)
        mode, title = self._kind_and_name(incoming.arguments)
        surface, here = self._surfaces[incoming.room.surface], self._rooms.find(incoming.room)
        if here is not None:
            self._talk.check_room(person, here)
        character = here.character if here is not None else None
        if not surface.capabilities.can_create_rooms:
            if here is None:
                _, greeting = await self._talk.begin_chat(incoming.room, person, title=title, mode=mode)
            else:
                greeting = await self._talk.restart_chat(self._mine(incoming, person), person, mode=mode)
            yield _notice(incoming, f"A new chat begins here. {self._mark(incoming)}load finds the one before.")
            if greeting:
                yield OutgoingMessage(room=incoming.room, text=greeting)
            return
        number = self._rooms.next_number(person.id, surface.name)
        name = title or f"Chat {number}"
        if mode not in ("", *self._talk.modes_for(person)):  # before a room is made for nothing
            raise PermissionDenied("A chat of this kind is not for you to begin.", "Ask whoever runs me.")
        room = await surface.create_room(incoming.account, name, incoming.key)
        _, greeting = await self._talk.begin_chat(room, person, character, name, mode)
        if greeting:
            yield OutgoingMessage(room=room, text=greeting)
        yield _notice(incoming, f"“{name}” is ready: you are invited to its room.")

    def _kind_and_name(self, arguments: str) -> tuple[str, str]:
        """`story Evening` is an evening's story; `Storytelling` is only a name."""
        first, _, rest = arguments.strip().partition(" ")
        return (first.lower(), rest.strip()) if first.lower() in self._talk.modes else ("", arguments.strip())

    async def chats(self, incoming: IncomingCommand) -> OutgoingStream:
        person = self._talk.sender(incoming)
        rooms = self._rooms.of_person(person.id, incoming.room.surface)
        lines = [f"{one.number}. {self._title(one)}{' (here)' if one.room == incoming.room else ''}" for one in rooms]
        yield _notice(incoming, "\n".join(lines) or "No chats yet. Just write, and one begins.")

    async def rename(self, incoming: IncomingCommand) -> OutgoingStream:
        person, title = self._talk.sender(incoming), " ".join(incoming.arguments.split())[:100]
        bound = self._mine(incoming, person)
        if not title:
            yield _notice(incoming, f"Write the new name after it: {self._mark(incoming)}rename NAME")
            return
        await self._rooms.record(RoomRenamed(room=bound.room, title=title), person.id)
        await self._talk.conversation(bound.mode).rename(bound.context, title)
        await self._surfaces[bound.room.surface].rename_room(bound.room, title)
        yield _notice(incoming, f"This chat is called “{title}” now.")

    async def agent(self, incoming: IncomingCommand) -> OutgoingStream:
        person, name = self._talk.sender(incoming), incoming.arguments.strip()
        bound = self._rooms.find(incoming.room)
        if not name:
            mine = [bot for bot in self._talk.characters.all() if self._people.may_talk(person.id, bot.id)]
            here = bound.character if bound is not None else None
            names = ", ".join(f"{bot.name} (here)" if bot.id == here else bot.name for bot in mine)
            yield _notice(incoming, f"You can talk with: {names or 'nobody yet'}.")
            return
        bot = self._talk.characters.find(name)
        if bound is None:
            _, greeting = await self._talk.begin_chat(incoming.room, person, bot.id)
        else:
            greeting = await self._talk.restart_chat(self._mine(incoming, person), person, bot.id)
        yield _notice(incoming, f"{bot.name} answers here from now on. The chat before can be loaded again.")
        if greeting:
            yield OutgoingMessage(room=incoming.room, text=greeting)

    async def settings(self, incoming: IncomingCommand) -> OutgoingStream:
        """Read-only, with how to change each."""
        mark, bound = self._mark(incoming), self._rooms.find(incoming.room)
        here = self._talk.characters.get(bound.character).name if bound is not None else "nobody yet"
        lines = [
            f"Who answers here: {here} ({mark}agent NAME)",
            f"Name of this chat: {bound.title if bound is not None else 'none yet'} ({mark}rename NAME)",
            f"Who answers otherwise: {self._settings.default_character or 'the first character'}"
            " (surfaces.default_character in config.toml)",
            f"Strangers: {self._settings.strangers} (surfaces.strangers)",
            f"Old messages are answered together after: {self._settings.backlog_s / 60:.0f} min (surfaces.backlog_s)",
            f"Largest file: {self._settings.largest_file_mb} MB (surfaces.largest_file_mb)",
        ]
        yield _notice(incoming, "\n".join(lines))

    async def context(self, incoming: IncomingCommand) -> OutgoingStream:
        bound = self._mine(incoming, self._talk.sender(incoming))
        standing = self._talk.conversation(bound.mode).status(bound.context)
        lines = [f"{standing.title}, with {standing.character}: {standing.turns} turns"]
        lines += [f"{name}: {what}" for name, what in standing.notes]
        lines.append(f"id: {bound.context}")
        yield _notice(incoming, "\n".join(lines))

    async def save(self, incoming: IncomingCommand) -> OutgoingStream:
        person = self._talk.sender(incoming)
        bound = self._mine(incoming, person)
        name = " ".join(incoming.arguments.split())[:100] or bound.title
        await self._rooms.record(ContextSaved(room=bound.room, context=bound.context, name=name), person.id)
        yield _notice(incoming, f"Saved as “{name}”. {self._mark(incoming)}load finds it again.")

    async def load(self, incoming: IncomingCommand) -> OutgoingStream:
        person, wanted = self._talk.sender(incoming), incoming.arguments.strip()
        bound = self._mine(incoming, person)
        contexts = self._rooms.contexts(bound.room)
        choices = tuple(one.context for one in contexts)
        if wanted.isdecimal() and 1 <= int(wanted) <= len(choices):
            yield await self._switch(incoming, person, contexts[int(wanted) - 1])
            return
        await self._questions.ask(bound.room, person.id, "load", choices)
        lines = [f"{n}. {self._described(one, bound)}" for n, one in enumerate(contexts, 1)]
        buttons = tuple(Button(label=str(n), action="choose", payload=str(n)) for n in range(1, len(choices) + 1))
        asked = "\n".join(["Which one? Answer with its number.", *lines])
        yield OutgoingUI(room=incoming.room, text=asked, buttons=buttons)

    async def archive(self, incoming: IncomingCommand) -> OutgoingStream:
        yield await self._ask(incoming, "archive", "Put this chat away? It leaves your list; nothing is deleted.")

    async def clear(self, incoming: IncomingCommand) -> OutgoingStream:
        yield await self._ask(incoming, "clear", "Start over in this room? What was said stays and can be loaded.")

    async def yes(self, incoming: IncomingCommand | IncomingCallback) -> OutgoingStream:
        person = self._talk.sender(incoming)
        asked = self._questions.pending(incoming.room, person.id)
        if asked is None or asked.choices:
            yield _notice(incoming, "There is nothing to say yes to." if asked is None else "Answer with a number.")
            return
        bound = self._mine(incoming, person)
        await self._questions.close(incoming.room, person.id)
        if asked.action == "archive":
            await self._rooms.record(RoomArchived(room=bound.room), person.id)
            yield _notice(incoming, "This chat is put away.")
        else:
            greeting = await self._talk.restart_chat(bound, person)
            yield _notice(incoming, "We start over.")
            if greeting:
                yield OutgoingMessage(room=incoming.room, text=greeting)

    async def no(self, incoming: IncomingCommand | IncomingCallback) -> OutgoingStream:
        person = self._talk.sender(incoming)
        if self._questions.pending(incoming.room, person.id) is None:
            yield _notice(incoming, "There is nothing to say no to.")
            return
        await self._questions.close(incoming.room, person.id)
        yield _notice(incoming, "Everything stays as it is.")

    async def choose(self, incoming: IncomingCallback) -> OutgoingStream:
        person = self._talk.sender(incoming)
        asked = self._questions.pending(incoming.room, person.id)
        number = int(incoming.payload) if incoming.payload.isdecimal() else 0
        if asked is None or not 1 <= number <= len(asked.choices):
            yield _notice(incoming, "That can no longer be chosen.")
            return
        yield await self._choose(incoming, person, number)

    async def stop(self, incoming: IncomingCommand) -> OutgoingStream:
        bound = self._mine(incoming, self._talk.sender(incoming))
        if not await self._talk.conversation(bound.mode).stop(bound.context):
            yield _notice(incoming, "Nobody is speaking.")

    async def retry(self, incoming: IncomingCommand) -> OutgoingStream:
        person = self._talk.sender(incoming)
        bound = self._mine(incoming, person)
        yield OutgoingTyping(room=incoming.room)
        talking = self._talk.conversation(bound.mode).retry(bound.context, person=person.id)
        async for outgoing in self._talk.outgoing(talking, incoming.room):
            yield outgoing

    async def link(self, incoming: IncomingCommand) -> OutgoingStream:
        """Only people get here: a stranger's code is tried at the door."""
        person = self._talk.sender(incoming)
        code = await self._people.issue_code(person.id, self._settings.code_minutes)
        told = f"Write this from your other account within {self._settings.code_minutes} minutes: {code}"
        yield _notice(incoming, told)

    async def approve(self, incoming: IncomingCommand) -> OutgoingStream:
        if not self._talk.sender(incoming).is_owner:
            yield _notice(incoming, "Only the owner can let people in.")
            return
        person, asking = await self._people.approve(incoming.arguments)
        yield _notice(incoming, f"{person.name} ({asking.account} on {asking.surface}) is let in.")

    async def invite(self, incoming: IncomingCommand) -> OutgoingStream:
        person, bound = self._talk.sender(incoming), self._mine(incoming, self._talk.sender(incoming))
        if not incoming.arguments.strip():
            names = ", ".join(self._people.person(one).name for one in self._rooms.guests(bound.room))
            yield _notice(
                incoming, f"Let in here: {names or 'nobody'}. {self._mark(incoming)}invite NAME lets in more."
            )
            return
        guest = self._people.find(incoming.arguments.strip())
        if not person.is_owner:  # only the owner lets people to characters who were not theirs to talk with
            self._talk.check_character(guest, bound.character)
        await self._rooms.record(RoomShared(room=bound.room, person=guest.id), person.id)
        yield _notice(incoming, f"{guest.name} may talk here from now on.")

    async def uninvite(self, incoming: IncomingCommand) -> OutgoingStream:
        person, bound = self._talk.sender(incoming), self._mine(incoming, self._talk.sender(incoming))
        guest = self._people.find(incoming.arguments.strip())
        await self._rooms.record(RoomShared(room=bound.room, person=guest.id, shared=False), person.id)
        await self._talk.conversation(bound.mode).remove_person(bound.context, guest.id)
        yield _notice(incoming, f"{guest.name} is no longer in this chat.")

    async def _ask(self, incoming: IncomingCommand, action: str, text: str) -> Outgoing:
        person, mark = self._talk.sender(incoming), self._mark(incoming)
        self._mine(incoming, person)
        await self._questions.ask(incoming.room, person.id, action)
        buttons = (Button(label="Yes", action="yes"), Button(label="No", action="no"))
        return OutgoingUI(room=incoming.room, text=text, buttons=buttons, fallback=f"{mark}yes or {mark}no")

    async def _choose(self, incoming: Incoming, person: Person, number: int) -> Outgoing:
        asked = self._questions.pending(incoming.room, person.id)
        await self._questions.close(incoming.room, person.id)
        wanted = asked.choices[number - 1] if asked is not None else ""
        kept = next((one for one in self._rooms.contexts(incoming.room) if one.context == wanted), None)
        if kept is None:
            raise RoomError("That is not there any more.", "Ask for the list again.")
        return await self._switch(incoming, person, kept)

    async def _switch(self, incoming: Incoming, person: Person, kept: RoomContext) -> Outgoing:
        self._talk.check_character(person, kept.character)
        await self._rooms.change_context(incoming.room, kept, person.id)
        return _notice(incoming, f"We go on where we were: {self._described(kept, None)}.")

    def _mine(self, incoming: Incoming, person: Person) -> RoomBinding:
        bound = self._rooms.get(incoming.room)
        if bound.person != person.id and not person.is_owner:
            raise NoSuchRoom("This chat is somebody else's.", "Begin one of your own.")
        return bound

    def _described(self, kept: RoomContext, bound: RoomBinding | None) -> str:
        standing = self._talk.conversation(kept.mode).status(kept.context)
        here = " (now)" if bound is not None and kept.context == bound.context else ""
        return f"{kept.name or standing.title}, with {standing.character}, {standing.turns} turns{here}"

    def _title(self, bound: RoomBinding) -> str:
        name = self._talk.characters.get(bound.character).name
        return bound.title if name == bound.title else f"{bound.title}, with {name}"

    def _mark(self, incoming: Incoming) -> str:
        return self._surfaces[incoming.room.surface].capabilities.command_prefix


def _notice(incoming: Incoming, text: str) -> OutgoingNotification:
    return OutgoingNotification(room=incoming.room, text=text)
