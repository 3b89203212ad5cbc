"""The commands that a person can give in any room, and the questions that wait for an answer.

The commands are the same on all surfaces; a surface decides their prefix (`!new`, `/new`) and may override one.
Commands that cannot be undone ask first; their questions survive a restart.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from coterie.characters import EVERY_CHARACTER, OWNER, Person
from coterie.conversation import NoSuchRoom, PermissionDenied, RoomError
from coterie.eventstore import Event, NewEvent, Payload, Projection, Rows, Store, on
from coterie.messaging.inbox import room_stream
from coterie.messaging.ports import KnowsPrivateRooms, Surface
from coterie.messaging.protocol import (
    Button,
    Incoming,
    IncomingCallback,
    IncomingCommand,
    IncomingMessage,
    MemberChange,
    Outgoing,
    OutgoingMessage,
    OutgoingNotification,
    OutgoingReaction,
    OutgoingTyping,
    OutgoingUI,
    RoomRef,
    RoomTitleChange,
)
from coterie.messaging.rooms import (
    ContextSaved,
    RoomArchived,
    RoomBinding,
    RoomContext,
    RoomForgotten,
    RoomListening,
    RoomRenamed,
    RoomShared,
)
from coterie.messaging.routing import ChatRouter, MessageDispatcher
from coterie.messaging.settings import SurfacesSettings


class QuestionAsked(Payload, kind="question_asked"):
    """A question waits for a person's yes, no or number."""

    room: RoomRef
    """The room in which it was asked."""
    person: str
    """The id of the person who is to answer."""
    action: str
    """What yes, or a choice, does."""
    choices: tuple[str, ...] = ()
    """The options, chosen by number; empty for a yes-or-no question."""


class QuestionSettled(Payload, kind="question_settled"):
    """A question was answered, or is no longer open."""

    room: RoomRef
    """The room in which it was asked."""
    person: str
    """The id of the person who was to answer."""


@dataclass(frozen=True)
class PendingQuestion:
    action: str
    choices: tuple[str, ...]


class PendingQuestionsProjection(Projection):
    name = "questions"
    schema = """
        CREATE TABLE question(surface TEXT, room TEXT, person TEXT, action TEXT NOT NULL, choices TEXT NOT NULL,
            PRIMARY KEY(surface, room, person)) WITHOUT ROWID;
    """

    @on(QuestionAsked)
    def asked(self, rows: Rows, event: Event[QuestionAsked]) -> None:
        payload = event.payload
        params = (payload.room.surface, payload.room.id, payload.person, payload.action, json.dumps(payload.choices))
        rows.run("INSERT OR REPLACE INTO question VALUES (?, ?, ?, ?, ?)", params)

    @on(QuestionSettled)
    def settled(self, rows: Rows, event: Event[QuestionSettled]) -> None:
        payload = event.payload
        params = (payload.room.surface, payload.room.id, payload.person)
        rows.run("DELETE FROM question WHERE surface = ? AND room = ? AND person = ?", params)


class PendingQuestions:
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
STOPPED = "👌"
"""The reaction to a command that ended a reply."""
_NOTHING: tuple[Outgoing, ...] = ()
_APPROVE = "approve "
"""The beginning of a question's action; the code of the request follows."""
_MAX_CHOICES = 20
HELP = {
    "start": "begin a chat and see who answers",
    "new [mode] [name]": "begin a new chat, in a room of its own if the platform can; modes: {modes}",
    "chats": "list your chats here",
    "rename NAME": "rename this chat",
    "archive": "archive this chat: I do not answer in it any more",
    "unarchive": "bring this chat back",
    "agent [name]": "show who answers here; with a name, change it",
    "settings": "show the settings and how to change them",
    "context": "show the current context of this room",
    "save [name]": "save the current context under a name",
    "load [n]": "return to an earlier context of this room",
    "clear": "start over in this room (also: reset)",
    "retry": "get another reply to your last message",
    "stop": "end the running reply",
    "listen [all|addressed]": "in a group, answer every message, or only those that address me",
    "invite NAME": "let a person talk in this chat (uninvite NAME: no longer)",
    "link [code]": "get a code for another account of yours; with a code, link this account",
    "approve CODE [character]": "let a person in who showed you this code, to talk with a character (owner only)",
    "yes / no": "answer a question",
}


@dataclass(frozen=True)
class CommandInfo:
    """A command, for platforms that show a list of them."""

    name: str
    about: str
    arguments: str
    """What is written after it, such as `[mode] [name]`; empty for nothing."""


def list_commands(modes: str = "") -> list[CommandInfo]:
    """All commands, without those of single surfaces."""
    found: list[CommandInfo] = []
    for usage, about in HELP.items():
        if " / " in usage:
            found += [CommandInfo(name, about, "") for name in usage.split(" / ")]
        else:
            name, _, arguments = usage.partition(" ")
            found.append(CommandInfo(name, about.format(modes=modes), arguments))
    clear = next(command for command in found if command.name == "clear")
    uninvite = CommandInfo("uninvite", "end a person's part in this chat", "NAME")
    return [CommandInfo("help", "list all commands", ""), *found, CommandInfo("reset", clear.about, ""), uninvite]


COMMAND_NAMES = frozenset(command.name for command in list_commands())


class Commands:
    def __init__(
        self, store: Store, chats: ChatRouter, surfaces: Mapping[str, Surface], settings: SurfacesSettings
    ) -> None:
        self._chats = chats
        self._rooms = chats.rooms
        self._people = chats.people
        self._questions = PendingQuestions(store)
        self._surfaces = surfaces
        self._settings = settings

    def register(self, dispatcher: MessageDispatcher) -> None:
        dispatcher.on(IncomingMessage)(self.message)
        dispatcher.on(IncomingCommand)(self.unknown)
        for handler in (
            *(self.start, self.help, self.new, self.chats, self.rename, self.archive, self.unarchive),
            *(self.agent, self.settings),
            *(self.context, self.save, self.load, self.clear, self.stop, self.retry, self.link, self.approve),
            *(self.invite, self.uninvite, self.listen),
        ):
            dispatcher.on(IncomingCommand, handler.__name__)(handler)
        dispatcher.on(IncomingCommand, "reset")(self.clear)
        dispatcher.on(MemberChange, "joined")(self.joined)
        dispatcher.on(MemberChange, "left")(self.left)
        dispatcher.on(RoomTitleChange)(self.title_changed)
        for answer in (self.yes, self.no):
            dispatcher.on(IncomingCommand, answer.__name__)(answer)
            dispatcher.on(IncomingCallback, answer.__name__)(answer)
        dispatcher.on(IncomingCallback, "choose")(self.choose)

    async def message(self, incoming: IncomingMessage) -> OutgoingStream:
        """A number answers an open question with choices; anything else goes to the chat."""
        person, text = self._chats.sender(incoming), incoming.text.strip()
        question = self._questions.pending(incoming.room, person.id)
        if question is not None and text.isdecimal() and 1 <= int(text) <= len(question.choices):
            yield await self._choose(incoming, person, int(text))
            return
        async for outgoing in self._chats.handle_message(incoming):
            yield outgoing

    async def unknown(self, incoming: IncomingCommand) -> OutgoingStream:
        prefix = self._prefix(incoming)
        yield _notice(incoming, f"I do not know {prefix}{incoming.name[:40]}. {prefix}help lists commands.")

    async def start(self, incoming: IncomingCommand) -> OutgoingStream:
        person = self._chats.sender(incoming)
        binding = self._rooms.find(incoming.room)
        if binding is not None:
            name = self._chats.characters.get(binding.character).name
            yield _notice(incoming, f"Hello {person.name}. {name} is here; just write. {self._prefix(incoming)}help")
            return
        binding, greeting = await self._chats.begin_chat(incoming.room, person, server=incoming.server)
        name = self._chats.characters.get(binding.character).name
        yield _notice(
            incoming, f"Hello {person.name}. You are with {name}. {self._prefix(incoming)}help lists commands."
        )
        if greeting:
            yield OutgoingMessage(room=incoming.room, text=greeting)

    async def help(self, incoming: IncomingCommand) -> OutgoingStream:
        prefix, modes = self._prefix(incoming), ", ".join(self._chats.modes_for(self._chats.sender(incoming)))
        yield _notice(incoming, "\n".join(f"{prefix}{name}: {text.format(modes=modes)}" for name, text in HELP.items()))

    async def new(self, incoming: IncomingCommand) -> OutgoingStream:
        person = self._chats.sender(incoming)
        mode, title = self._mode_and_title(incoming.arguments)
        surface, binding = self._surfaces[incoming.room.surface], self._rooms.find(incoming.room)
        if binding is not None:
            self._chats.check_room(person, binding, group=incoming.group)
        character = binding.character if binding is not None else None
        if mode not in ("", *self._chats.modes_for(person)):  # before a room is created in vain
            raise PermissionDenied("You may not begin a chat of this kind.", "Ask the owner.")
        name = title or f"Chat {self._rooms.next_number(person.id, surface.name)}"
        room = None
        if surface.capabilities.can_create_rooms:
            room = await surface.create_room(incoming.account, name, incoming.key, incoming.room)
        if room is None:
            if binding is None:
                _, greeting = await self._chats.begin_chat(
                    incoming.room, person, title=title, mode=mode, server=incoming.server
                )
            else:
                greeting = await self._chats.restart_chat(self._own_room(incoming, person), person, mode=mode)
            yield _notice(
                incoming, f"A new chat begins here. {self._prefix(incoming)}load returns to the previous one."
            )
            if greeting:
                yield OutgoingMessage(room=incoming.room, text=greeting)
            return
        _, greeting = await self._chats.begin_chat(room, person, character, name, mode, incoming.server)
        if greeting:
            yield OutgoingMessage(room=room, text=greeting)
        yield _notice(incoming, f"“{name}” is ready, in a room of its own.")

    def _mode_and_title(self, arguments: str) -> tuple[str, str]:
        """`story Harbour` is a mode and a title; `Storybook` is only a title."""
        first, _, rest = arguments.strip().partition(" ")
        return (first.lower(), rest.strip()) if first.lower() in self._chats.modes else ("", arguments.strip())

    async def chats(self, incoming: IncomingCommand) -> OutgoingStream:
        person = self._chats.sender(incoming)
        lines = [
            f"{room.number}. {self._title(room)}{' (here)' if room.room == incoming.room else ''}"
            for room in self._rooms.of_person(person.id, incoming.room.surface)
        ]
        yield _notice(incoming, "\n".join(lines) or "No chats yet. Write a message to begin one.")

    async def rename(self, incoming: IncomingCommand) -> OutgoingStream:
        person, title = self._chats.sender(incoming), " ".join(incoming.arguments.split())[:100]
        binding = self._own_room(incoming, person)
        if not title:
            yield _notice(incoming, f"Give the new name: {self._prefix(incoming)}rename NAME")
            return
        await self._rooms.record(RoomRenamed(room=binding.room, title=title), person.id)
        await self._chats.conversation(binding.mode).rename(binding.context, title)
        await self._surfaces[binding.room.surface].rename_room(binding.room, title)
        yield _notice(incoming, f"This chat is called “{title}” now.")

    async def agent(self, incoming: IncomingCommand) -> OutgoingStream:
        person, name = self._chats.sender(incoming), incoming.arguments.strip()
        binding = self._rooms.find(incoming.room)
        if not name:
            current = binding.character if binding is not None else None
            allowed = self._chats.characters_for(person)
            names = ", ".join(f"{each.name}{' (here)' if each.id == current else ''}" for each in allowed)
            yield _notice(incoming, f"You can talk with: {names or 'no character yet'}.")
            return
        character = self._chats.characters.find(name)
        if binding is None:
            _, greeting = await self._chats.begin_chat(incoming.room, person, character.id)
        else:
            greeting = await self._chats.restart_chat(self._own_room(incoming, person), person, character.id)
        yield _notice(incoming, f"{character.name} answers here from now on. The previous chat can be loaded again.")
        if greeting:
            yield OutgoingMessage(room=incoming.room, text=greeting)

    async def settings(self, incoming: IncomingCommand) -> OutgoingStream:
        prefix, binding = self._prefix(incoming), self._rooms.find(incoming.room)
        character = self._chats.characters.get(binding.character).name if binding is not None else "no character yet"
        lines = [
            f"Who answers here: {character} ({prefix}agent NAME)",
            f"Name of this chat: {binding.title if binding is not None else 'none yet'} ({prefix}rename NAME)",
            f"Who answers otherwise: {self._settings.default_character or 'the first character'}"
            " (surfaces.default_character in config.toml)",
            f"Strangers: {self._settings.strangers} (surfaces.strangers)",
            f"Old messages are answered together after: {self._settings.backlog_s / 60:.0f} min (surfaces.backlog_s)",
            f"Largest file: {self._settings.largest_file_mb} MB (surfaces.largest_file_mb)",
        ]
        yield _notice(incoming, "\n".join(lines))

    async def context(self, incoming: IncomingCommand) -> OutgoingStream:
        binding = self._own_room(incoming, self._chats.sender(incoming))
        status = self._chats.conversation(binding.mode).status(binding.context)
        lines = [f"{status.title}, with {status.character}: {status.turns} turns"]
        lines += [f"{name}: {value}" for name, value in status.notes]
        lines.append(f"id: {binding.context}")
        yield _notice(incoming, "\n".join(lines))

    async def save(self, incoming: IncomingCommand) -> OutgoingStream:
        person = self._chats.sender(incoming)
        binding = self._own_room(incoming, person)
        name = " ".join(incoming.arguments.split())[:100] or binding.title
        await self._rooms.record(ContextSaved(room=binding.room, context=binding.context, name=name), person.id)
        yield _notice(incoming, f"Saved as “{name}”. {self._prefix(incoming)}load returns to it.")

    async def load(self, incoming: IncomingCommand) -> OutgoingStream:
        person, number = self._chats.sender(incoming), incoming.arguments.strip()
        binding = self._own_room(incoming, person)
        contexts = self._rooms.contexts(binding.room)
        choices = tuple(context.context for context in contexts)
        if number.isdecimal() and 1 <= int(number) <= len(choices):
            yield await self._switch(incoming, person, contexts[int(number) - 1])
            return
        await self._questions.ask(binding.room, person.id, "load", choices)
        lines = [f"{n}. {self._describe(context, binding)}" for n, context in enumerate(contexts, 1)]
        buttons = tuple(Button(label=str(n), action="choose", payload=str(n)) for n in range(1, len(choices) + 1))
        text = "\n".join(["Which one? Answer with its number.", *lines])
        yield OutgoingUI(room=incoming.room, text=text, buttons=buttons)

    async def archive(self, incoming: IncomingCommand) -> OutgoingStream:
        yield await self._ask(incoming, "archive", "Archive this chat? It leaves your list; nothing is deleted.")

    async def unarchive(self, incoming: IncomingCommand) -> OutgoingStream:
        person = self._chats.sender(incoming)
        binding = self._own_room(incoming, person)
        if binding.archived:
            await self._rooms.record(RoomArchived(room=binding.room, archived=False), person.id)
        yield _notice(incoming, "This chat is back; just write." if binding.archived else "This chat is not archived.")

    async def clear(self, incoming: IncomingCommand) -> OutgoingStream:
        yield await self._ask(incoming, "clear", "Start over in this room? The current chat is kept and can be loaded.")

    async def yes(self, incoming: IncomingCommand | IncomingCallback) -> OutgoingStream:
        person = self._chats.sender(incoming)
        question = self._questions.pending(incoming.room, person.id)
        if question is None or question.choices:
            yield _notice(incoming, "There is no open question." if question is None else "Answer with a number.")
            return
        binding = self._own_room(incoming, person)
        await self._questions.close(incoming.room, person.id)
        if question.action == "archive":
            await self._rooms.record(RoomArchived(room=binding.room), person.id)
            prefix = self._prefix(incoming)
            yield _notice(incoming, f"This chat is archived: I do not answer here. {prefix}unarchive brings it back.")
        else:
            greeting = await self._chats.restart_chat(binding, person)
            yield _notice(incoming, "A new chat begins here.")
            if greeting:
                yield OutgoingMessage(room=incoming.room, text=greeting)

    async def no(self, incoming: IncomingCommand | IncomingCallback) -> OutgoingStream:
        person = self._chats.sender(incoming)
        if self._questions.pending(incoming.room, person.id) is None:
            yield _notice(incoming, "There is no open question.")
            return
        await self._questions.close(incoming.room, person.id)
        yield _notice(incoming, "Nothing was changed.")

    async def choose(self, incoming: IncomingCallback) -> OutgoingStream:
        person = self._chats.sender(incoming)
        question = self._questions.pending(incoming.room, person.id)
        number = int(incoming.payload) if incoming.payload.isdecimal() else 0
        if question is None or not 1 <= number <= len(question.choices):
            yield _notice(incoming, "That is no longer an option.")
            return
        yield await self._choose(incoming, person, number)

    async def stop(self, incoming: IncomingCommand) -> OutgoingStream:
        binding = self._own_room(incoming, self._chats.sender(incoming))
        if await self._chats.conversation(binding.mode).stop(binding.context):
            yield OutgoingReaction(room=incoming.room, to=incoming.key, emoji=STOPPED)
        else:
            yield _notice(incoming, "No reply is running.")

    async def retry(self, incoming: IncomingCommand) -> OutgoingStream:
        person = self._chats.sender(incoming)
        binding = self._own_room(incoming, person)
        yield OutgoingTyping(room=incoming.room)
        updates = self._chats.conversation(binding.mode).retry(binding.context, person=person.id)
        async for outgoing in self._chats.to_outgoing(updates, incoming.room):
            yield outgoing

    async def link(self, incoming: IncomingCommand) -> OutgoingStream:
        """For known people; `Permissions.refuse` handles a stranger's code.

        Whoever reads the code can become the person, so it is shown only in a room that nobody else is in.
        """
        person, minutes, room = self._chats.sender(incoming), self._settings.code_minutes, incoming.room
        surface = self._surfaces[room.surface]
        if not (isinstance(surface, KnowsPrivateRooms) and await surface.is_private(room, incoming.account)):
            private = await surface.direct_room(incoming.account)
            if private is None and surface.capabilities.can_create_rooms:
                private = await surface.create_room(incoming.account, "Link an account", incoming.key, incoming.room)
            if private is None:
                fix = "Get one on the settings page under People."
                yield _notice(incoming, f"Others may read this room, so no code is shown here. {fix}")
                return
            if private != room:
                yield _notice(incoming, "Others may read this room: you get the code in a room of your own.")
            room = private
        code = await self._people.issue_code(person.id, minutes)
        text = f"Write this from your other account within {minutes} minutes: {self._prefix(incoming)}link {code}"
        yield OutgoingNotification(room=room, text=text)

    async def approve(self, incoming: IncomingCommand) -> OutgoingStream:
        if not self._chats.sender(incoming).is_owner:
            yield _notice(incoming, "Only the owner can let people in.")
            return
        code, _, name = incoming.arguments.strip().partition(" ")
        request = self._people.request_with(code)
        characters = self._chats.characters.all()
        if name.strip() or len(characters) < 2:
            chosen = self._chats.characters.find(name).id if name.strip() else "".join(one.id for one in characters)
            yield await self._approve(incoming, code, chosen)
            return
        choices = (*(one.id for one in characters[:_MAX_CHOICES]), EVERY_CHARACTER, "")
        names = [*(one.name for one in characters[:_MAX_CHOICES]), "every character", "none yet"]
        await self._questions.ask(incoming.room, OWNER, f"{_APPROVE}{code}", choices)
        who = f"{request.name or request.account} ({request.account} on {request.surface})"
        lines = [f"{number}. {one}" for number, one in enumerate(names, 1)]
        buttons = tuple(Button(label=one, action="choose", payload=str(n)) for n, one in enumerate(names, 1))
        text = "\n".join([f"{who} asks to talk here. With which character? Answer with its number.", *lines])
        yield OutgoingUI(room=incoming.room, text=text, buttons=buttons)

    async def _approve(self, incoming: Incoming, code: str, character: str) -> Outgoing:
        person, pairing = await self._people.approve(code, character=character or None)
        name = "every character" if character == EVERY_CHARACTER else "no character yet"
        if character not in ("", EVERY_CHARACTER):
            name = self._chats.characters.get(character).name
        text = f"{person.name} ({pairing.account} on {pairing.surface}) may talk here now, with {name}."
        return _notice(incoming, text)

    async def invite(self, incoming: IncomingCommand) -> OutgoingStream:
        person, binding = self._chats.sender(incoming), self._own_room(incoming, self._chats.sender(incoming))
        if not incoming.arguments.strip():
            names = ", ".join(self._people.person(guest).name for guest in self._rooms.guests(binding.room))
            yield _notice(incoming, f"Guests here: {names or 'none'}. {self._prefix(incoming)}invite NAME adds one.")
            return
        guest = self._people.find(incoming.arguments.strip())
        if not person.is_owner:  # only the owner invites people who may not talk with the character otherwise
            self._chats.check_character(guest, binding.character)
        await self._rooms.record(RoomShared(room=binding.room, person=guest.id), person.id)
        yield _notice(incoming, f"{guest.name} may talk here from now on.")

    async def uninvite(self, incoming: IncomingCommand) -> OutgoingStream:
        person, binding = self._chats.sender(incoming), self._own_room(incoming, self._chats.sender(incoming))
        guest = self._people.find(incoming.arguments.strip())
        await self._rooms.record(RoomShared(room=binding.room, person=guest.id, shared=False), person.id)
        await self._chats.conversation(binding.mode).remove_person(binding.context, guest.id)
        yield _notice(incoming, f"{guest.name} is no longer in this chat.")

    async def listen(self, incoming: IncomingCommand) -> OutgoingStream:
        person, choice = self._chats.sender(incoming), incoming.arguments.strip().lower()
        binding = self._own_room(incoming, person)
        if choice in ("all", "addressed"):
            await self._rooms.record(RoomListening(room=binding.room, to_all=choice == "all"), person.id)
        elif choice:
            prefix = self._prefix(incoming)
            yield _notice(incoming, f"Write {prefix}listen all, or {prefix}listen addressed.")
            return
        if self._rooms.listens_to_all(binding.room):
            yield _notice(incoming, "I answer every message here.")
        else:
            yield _notice(incoming, "In a group I answer when I am mentioned, named or replied to.")

    async def joined(self, incoming: MemberChange) -> OutgoingStream:
        """Somebody who may talk with the character takes part in the chat from now on."""
        person, binding = self._chats.sender(incoming), self._rooms.find(incoming.room)
        if binding is not None and person.id != binding.person and self._chats.may_speak_in(incoming):
            await self._chats.conversation(binding.mode).add_person(binding.context, person.id)
        for outgoing in _NOTHING:
            yield outgoing

    async def left(self, incoming: MemberChange) -> OutgoingStream:
        """Leave a room that its person left; its chat is kept. Others are taken out of the chat."""
        person, binding = self._chats.sender(incoming), self._rooms.find(incoming.room)
        if binding is not None and person.id != binding.person:
            if self._chats.may_speak_in(incoming):
                await self._chats.conversation(binding.mode).remove_person(binding.context, person.id)
        elif binding is not None or person.is_owner:
            await self._surfaces[incoming.room.surface].leave_room(incoming.room)
            if binding is not None:
                await self._rooms.record(RoomForgotten(room=binding.room), person.id)
        for outgoing in _NOTHING:
            yield outgoing

    async def title_changed(self, incoming: RoomTitleChange) -> OutgoingStream:
        """Record that the room was renamed on the platform."""
        person, binding = self._chats.sender(incoming), self._rooms.find(incoming.room)
        title = " ".join(incoming.title.split())[:100]
        if binding is not None and title not in ("", binding.title) and self._chats.may_speak_in(incoming):
            await self._rooms.record(RoomRenamed(room=binding.room, title=title), person.id)
            await self._chats.conversation(binding.mode).rename(binding.context, title)
        for outgoing in _NOTHING:
            yield outgoing

    async def _ask(self, incoming: IncomingCommand, action: str, text: str) -> Outgoing:
        person, prefix = self._chats.sender(incoming), self._prefix(incoming)
        self._own_room(incoming, person)
        await self._questions.ask(incoming.room, person.id, action)
        buttons = (Button(label="Yes", action="yes"), Button(label="No", action="no"))
        return OutgoingUI(room=incoming.room, text=text, buttons=buttons, fallback=f"{prefix}yes or {prefix}no")

    async def _choose(self, incoming: Incoming, person: Person, number: int) -> Outgoing:
        question = self._questions.pending(incoming.room, person.id)
        await self._questions.close(incoming.room, person.id)
        chosen = question.choices[number - 1] if question is not None else ""
        if question is not None and question.action.startswith(_APPROVE):
            return await self._approve(incoming, question.action.removeprefix(_APPROVE), chosen)
        context = next((context for context in self._rooms.contexts(incoming.room) if context.context == chosen), None)
        if context is None:
            raise RoomError("This context no longer exists.", "List them again with the load command.")
        return await self._switch(incoming, person, context)

    async def _switch(self, incoming: Incoming, person: Person, context: RoomContext) -> Outgoing:
        self._chats.check_character(person, context.character)
        await self._rooms.change_context(incoming.room, context, person.id)
        return _notice(incoming, f"This chat continues here: {self._describe(context, None)}.")

    def _own_room(self, incoming: Incoming, person: Person) -> RoomBinding:
        binding = self._rooms.get(incoming.room)
        if binding.person != person.id and not person.is_owner:
            raise NoSuchRoom("This chat is somebody else's.", "Begin one of your own.")
        return binding

    def _describe(self, context: RoomContext, binding: RoomBinding | None) -> str:
        status = self._chats.conversation(context.mode).status(context.context)
        current = " (now)" if binding is not None and context.context == binding.context else ""
        return f"{context.name or status.title}, with {status.character}, {status.turns} turns{current}"

    def _title(self, binding: RoomBinding) -> str:
        name = self._chats.characters.get(binding.character).name
        return binding.title if name == binding.title else f"{binding.title}, with {name}"

    def _prefix(self, incoming: Incoming) -> str:
        return self._surfaces[incoming.room.surface].capabilities.command_prefix


def _notice(incoming: Incoming, text: str) -> OutgoingNotification:
    return OutgoingNotification(room=incoming.room, text=text)
