"""Rooms and Spaces on the homeserver, and reconciling our records with them.

Each room that we create carries its metadata in a state event, set when it is created. So every room can be found again
even if the process ended before it was recorded, and no room is created twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from coterie.base.errors import CoterieError
from coterie.base.logging import get_logger
from coterie.base.values import replace_surrogates
from coterie.characters import NoSuchCharacter, NoSuchPerson, Person
from coterie.conversation import NoSuchRoom
from coterie.messaging import (
    MessageRouter,
    NewChat,
    PlatformRateLimited,
    RoomArchived,
    RoomBinding,
    RoomListening,
    RoomShared,
)
from coterie.surfaces.matrix.homeserver import Homeserver, Json
from coterie.surfaces.matrix.schemas import NAME, SURFACE, StateEvent, room_ref

CHAT = "org.coterie.chat"
SPACE = "org.coterie.space"
CREATE = "m.room.create"
ENCRYPTION = "m.room.encryption"
ENCRYPTION_RULES = {"algorithm": "m.megolm.v1.aes-sha2"}


@dataclass
class CreatedRoom:
    room: str
    account: str
    """The Matrix account it was created for."""
    metadata: Json
    """The content of our state event."""
    title: str = ""
    is_space: bool = False


@dataclass
class MatrixRooms:
    server: Homeserver
    user: str
    rooms: dict[str, CreatedRoom] = field(default_factory=dict)
    foreign: set[str] = field(default_factory=set)
    """Joined rooms that we did not create."""
    encrypted: bool = False
    """Whether new rooms are encrypted."""
    _locks: dict[str, asyncio.Lock] = field(default_factory=dict)

    async def scan(self) -> dict[str, list[Json]]:
        """Read the state of every joined room, in one request."""
        states = await self.server.state_of_joined_rooms([CREATE, NAME, SPACE, CHAT, ENCRYPTION])
        for room, state in states.items():
            self._register(room, state)
        return states

    async def load(self, room: str) -> CreatedRoom | None:
        """Read one room; None if we did not create it. Only state events that we sent count."""
        return self._register(room, await self.server.state(room))

    def _register(self, room: str, state: list[Json]) -> CreatedRoom | None:
        created = self._read(room, state)
        if created is None:
            self.foreign.add(room)
        else:
            self.rooms[room] = created
        return created

    def _read(self, room: str, state: list[Json]) -> CreatedRoom | None:
        by_kind = {event.type: event for event in _state_events(state) if event.state_key == ""}
        if CREATE not in by_kind or by_kind[CREATE].sender != self.user:
            return None
        for kind in (SPACE, CHAT):
            event = by_kind.get(kind)
            if event is not None and event.sender == self.user:
                title = str(by_kind[NAME].content.get("name", "")) if NAME in by_kind else ""
                account = str(event.content.get("account", ""))
                return CreatedRoom(room, account, event.content, replace_surrogates(title), kind == SPACE)
        return None

    async def space_for(self, account: str, name: str) -> str:
        """The Space of an account, created if there is none."""
        async with self._lock(account):
            for created in self.rooms.values():
                if created.is_space and created.account == account:
                    await self.server.invite(created.room, account)
                    return created.room
            metadata: Json = {"account": account}
            options = _room_options(
                f"Coterie with {name}", account, SPACE, metadata, topic="Your characters, a room per chat."
            )
            options |= {"creation_content": {"type": "m.space"}, "power_level_content_override": {"events_default": 50}}
            return await self._create(options, metadata, is_space=True)

    async def room_for(self, account: str, title: str, topic: str, metadata: Json) -> str:
        """A room in the account's Space; the same key again gives the same room."""
        async with self._lock(f"{account} {metadata['key']}"):
            for created in self.rooms.values():
                is_same = created.account == account and created.metadata.get("key") == metadata["key"]
                if is_same and not created.is_space:
                    return created.room
            space = await self.space_for(account, account)
            metadata = {"account": account, **metadata}
            options = _room_options(title, account, CHAT, metadata, topic=topic)
            parent: Json = {"via": [_server_of(self.user)], "canonical": True}
            options["initial_state"].append({"type": "m.space.parent", "state_key": space, "content": parent})
            if self.encrypted:
                options["initial_state"].append({"type": ENCRYPTION, "state_key": "", "content": ENCRYPTION_RULES})
            room = await self._create(options, metadata, is_space=False)
            await self.server.put_state(space, "m.space.child", room, {"via": [_server_of(self.user)]})
            return room

    async def leave(self, room: str) -> None:
        await self.server.leave(room)
        await self.server.forget(room)
        self.rooms.pop(room, None)
        self.foreign.discard(room)

    async def update_metadata(self, room: str, **changes: Any) -> None:
        """Update a room's state event, from which our records can be restored."""
        created = self.rooms.get(room)
        if created is not None and {**created.metadata, **changes} != created.metadata:
            metadata = {**created.metadata, **changes}
            await self.server.put_state(room, CHAT, "", metadata)
            created.metadata = metadata

    def updating(self, room: str) -> asyncio.Lock:
        """Held while a room's metadata is read and written."""
        return self._lock(f"update {room}")

    async def _create(self, options: Json, metadata: Json, *, is_space: bool) -> str:
        room = await self.server.create_room(options)
        self.rooms[room] = CreatedRoom(room, metadata["account"], metadata, options["name"], is_space)
        return room

    def _lock(self, key: str) -> asyncio.Lock:
        return self._locks.setdefault(key, asyncio.Lock())


def _state_events(state: Iterable[Json]) -> Iterator[StateEvent]:
    """The events that can be read; members can set state of any shape."""
    for event in state:
        with suppress(ValidationError):
            yield StateEvent.model_validate(event)


def _room_options(name: str, account: str, kind: str, metadata: Json, *, topic: str) -> Json:
    return {
        "preset": "private_chat",
        "name": name[:200],
        "topic": topic[:500],
        "invite": [account],
        "is_direct": False,
        "initial_state": [{"type": kind, "state_key": "", "content": metadata}],
    }


def _server_of(user: str) -> str:
    return user.partition(":")[2]


_CONCURRENCY = 64
_log = get_logger(__name__)


@dataclass
class ReconcileReport:
    restored: list[str] = field(default_factory=list)
    repaired: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{len(self.restored)} restored, {len(self.repaired)} repaired, {len(self.skipped)} skipped,"
            f" {len(self.conflicts)} conflicts"
        )


class Reconciler:
    """Restores our records from the metadata of the rooms, before messages are read.

    It creates no room, invites nobody and leaves correct records alone. Outdated metadata is written to the homeserver
    afterwards, because that takes long.
    """

    def __init__(self, router: MessageRouter, rooms: MatrixRooms) -> None:
        self._router = router
        self._chats = router.chats
        self._rooms = rooms
        self._outdated: set[str] = set()
        """The rooms whose metadata is to be written."""
        self._writing = asyncio.Lock()

    async def run(self) -> ReconcileReport:
        report = ReconcileReport()
        created = [room for room in self._rooms.rooms.values() if not room.is_space]
        self._find_conflicts(report)
        # Rooms with a number of their own can be restored concurrently; the others get the remaining numbers.
        numbers: set[tuple[str, int | None]] = set()
        numbered: list[CreatedRoom] = []
        unnumbered: list[CreatedRoom] = []
        for room in sorted(created, key=lambda room: room.room):
            number = (room.account, _number(room))
            (unnumbered if number in numbers or number[1] is None else numbered).append(room)
            numbers.add(number)
        # One room of each account first, so that its person is restored once.
        first = {room.account: room for room in reversed(numbered)}
        for room in first.values():
            await self.reconcile_room(room, report)
        gate = asyncio.Semaphore(_CONCURRENCY)

        async def reconcile(room: CreatedRoom) -> None:
            async with gate:
                await self.reconcile_room(room, report)

        await asyncio.gather(*(reconcile(room) for room in numbered if first[room.account] is not room))
        for room in unnumbered:
            await self.reconcile_room(room, report)
        report.restored.sort()
        return report

    async def reconcile_room(self, created: CreatedRoom, report: ReconcileReport) -> None:
        try:
            binding = self._chats.rooms.find(room_ref(created.room)) or await self._restore(created, report)
            self._compare(created, binding, report)
        except CoterieError as error:
            _log.warning("a room was not reconciled", room=created.room, error=str(error))
            report.skipped.append(f"{created.room}: {error.what}")

    async def _restore(self, created: CreatedRoom, report: ReconcileReport) -> RoomBinding:
        person = await self._person(created)
        character = self._character(created, person)
        mode, chat = await self._context(created, person, character, report)
        number = _number(created)
        if number is not None and self._chats.rooms.has_number(person.id, SURFACE, number):
            report.conflicts.append(f"{created.room}: number {number} is taken")
            number = None
        title = created.title or self._chats.characters.get(character).name
        binding = await self._chats.rooms.bind(room_ref(created.room), person.id, mode, character, chat, title, number)
        await self._restore_state(created, binding)
        report.restored.append(created.room)
        return self._chats.rooms.get(binding.room)

    async def _restore_state(self, created: CreatedRoom, binding: RoomBinding) -> None:
        """Whether the room is archived and listens to all, and its guests."""
        changes: list[RoomArchived | RoomListening | RoomShared] = []
        if created.metadata.get("archived") is True:
            changes.append(RoomArchived(room=binding.room))
        if created.metadata.get("listens_to_all") is True:
            changes.append(RoomListening(room=binding.room, to_all=True))
        guests, known = created.metadata.get("guests"), self._router.people.ids()
        guests = [guest for guest in guests if guest in known] if isinstance(guests, list) else []
        changes += [RoomShared(room=binding.room, person=guest) for guest in guests]
        for change in changes:
            await self._chats.rooms.record(change, binding.person)

    async def _person(self, created: CreatedRoom) -> Person:
        person = self._router.people.by_account(SURFACE, created.account)
        if person is not None:
            return person
        person_id = str(created.metadata.get("person", ""))
        if not person_id:
            raise NoSuchPerson(f"{created.account} belongs to no person.", "Link the account with a code.")
        name = str(created.metadata.get("name", ""))
        return await self._router.people.restore(person_id, name, [(SURFACE, created.account, "")])

    def _character(self, created: CreatedRoom, person: Person) -> str:
        characters = self._chats.characters
        for name in (created.metadata.get("character"), created.metadata.get("character_name")):
            try:
                return characters.find(str(name)).id
            except NoSuchCharacter:
                continue
        return characters.find(self._chats.default_character(room_ref(created.room), person)).id

    async def _context(
        self, created: CreatedRoom, person: Person, character: str, report: ReconcileReport
    ) -> tuple[str, NewChat]:
        """The room's chat, or a new one if it no longer exists."""
        mode, context = str(created.metadata.get("mode", "")), str(created.metadata.get("context", ""))
        if context and mode in self._chats.modes:
            try:
                self._chats.conversation(mode).status(context)
                return mode, NewChat(context, ())
            except NoSuchRoom:
                pass
        report.repaired.append(f"{created.room}: a new context")
        return await self._chats.create_chat(person, character, created.title, at_once=True)

    def _compare(self, created: CreatedRoom, binding: RoomBinding, report: ReconcileReport) -> None:
        metadata = room_metadata(binding, self._router)
        if {**created.metadata, **metadata} != created.metadata:
            self._outdated.add(created.room)
            if created.room not in report.restored:
                report.repaired.append(f"{created.room}: outdated metadata")

    async def write_metadata(self) -> None:
        """Write the outdated metadata. What fails is tried again after the next start."""
        async with self._writing:
            while self._outdated:
                room = next(iter(self._outdated))
                try:
                    async with self._rooms.updating(room):
                        binding = self._chats.rooms.get(room_ref(room))
                        await self._rooms.update_metadata(room, **room_metadata(binding, self._router))
                except PlatformRateLimited as error:
                    await asyncio.sleep(error.retry_after_s)
                    continue
                except CoterieError as error:
                    _log.info("the metadata of a room was not written", room=room, error=str(error))
                self._outdated.discard(room)

    def _find_conflicts(self, report: ReconcileReport) -> None:
        spaces: dict[str, str] = {}
        for room in self._rooms.rooms.values():
            if room.is_space and spaces.setdefault(room.account, room.room) != room.room:
                report.conflicts.append(f"{room.account} has two Spaces: {spaces[room.account]} and {room.room}")


def room_metadata(binding: RoomBinding, router: MessageRouter) -> dict[str, object]:
    """The metadata of a room's chat for its state event."""
    return {
        "person": binding.person,
        "name": router.people.person(binding.person).name,
        "number": binding.number,
        "mode": binding.mode,
        "context": binding.context,
        "character": binding.character,
        "character_name": router.chats.characters.get(binding.character).name,
        "archived": binding.archived,
        "listens_to_all": router.chats.rooms.listens_to_all(binding.room),
        "guests": router.chats.rooms.guests(binding.room),
    }


def _number(created: CreatedRoom) -> int | None:
    number = created.metadata.get("number")
    return number if isinstance(number, int) and number > 0 else None
