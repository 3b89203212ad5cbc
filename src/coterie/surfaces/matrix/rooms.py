"""Spaces and rooms as they are on the homeserver: which we made, for whom, and what for. Trap 10

Each room carries what we know about it as a state event of our own, set while it is created. So whatever was made can
be found again, even if the process ended before it could note it, and nothing is made twice.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from coterie.base.errors import CoterieError
from coterie.base.logging import get_logger
from coterie.characters.errors import NoSuchCharacter, NoSuchPerson
from coterie.characters.people import Person
from coterie.conversation.errors import NoSuchRoom
from coterie.messaging.errors import PlatformRateLimited
from coterie.messaging.message_router import MessageRouter
from coterie.messaging.ports import NewChat
from coterie.messaging.rooms import RoomBinding
from coterie.surfaces.matrix.homeserver import Homeserver, Json
from coterie.surfaces.matrix.messages import SURFACE, room_ref

CHAT = "org.coterie.chat"
SPACE = "org.coterie.space"
CREATE, NAME = "m.room.create", "m.room.name"
ENCRYPTION = "m.room.encryption"
ENCRYPTION_RULES = {"algorithm": "m.megolm.v1.aes-sha2"}


@dataclass
class CreatedRoom:
    room: str
    account: str
    """The Matrix account it was made for."""
    metadata: Json
    """What the state event says."""
    title: str = ""
    is_space: bool = False


@dataclass
class MatrixRooms:
    server: Homeserver
    user: str
    rooms: dict[str, CreatedRoom] = field(default_factory=dict)
    foreign: set[str] = field(default_factory=set)
    """Rooms we are in and did not make."""
    encrypted: bool = False
    """Whether the rooms we make are sealed."""
    _locks: dict[str, asyncio.Lock] = field(default_factory=dict)

    async def scan(self) -> dict[str, list[Json]]:
        """Look at every room we are in, in one request. Changes nothing on the homeserver; returns what rooms say."""
        told = await self.server.state_of_joined_rooms([CREATE, NAME, SPACE, CHAT, ENCRYPTION])
        for room, state in told.items():
            self._register(room, state)
        return told

    async def load(self, room: str) -> CreatedRoom | None:
        """What one room says about itself; None where it is not ours. Only what we ourselves wrote is believed."""
        return self._register(room, await self.server.state(room))

    def _register(self, room: str, state: list[Json]) -> CreatedRoom | None:
        made = self._read(room, state)
        if made is None:
            self.foreign.add(room)
        else:
            self.rooms[room] = made
        return made

    def _read(self, room: str, state: list[Json]) -> CreatedRoom | None:
        by_kind: dict[str, Json] = {event["type"]: event for event in state if event.get("state_key") == ""}
        if by_kind.get(CREATE, {}).get("sender") != self.user:
            return None
        for kind in (SPACE, CHAT):
            event = by_kind.get(kind)
            if event is not None and event.get("sender") == self.user and isinstance(event["content"], dict):
                about = event["content"]
                title = str(by_kind.get(NAME, {}).get("content", {}).get("name", ""))
                return CreatedRoom(room, str(about.get("account", "")), about, title, kind == SPACE)
        return None

    async def space_for(self, account: str, name: str) -> str:
        """The person's Space, made if there is none."""
        async with self._lock(account):
            for one in self.rooms.values():
                if one.is_space and one.account == account:
                    await self.server.invite(one.room, account)
                    return one.room
            about: Json = {"account": account}
            told = _room(f"Coterie with {name}", account, SPACE, about, topic="Your characters, a room per chat.")
            told |= {"creation_content": {"type": "m.space"}, "power_level_content_override": {"events_default": 50}}
            return await self._create(told, about, is_space=True)

    async def room_for(self, account: str, title: str, topic: str, metadata: Json) -> str:
        """A room in the person's Space; one with the same key is the same room."""
        async with self._lock(f"{account} {metadata['key']}"):
            for one in self.rooms.values():
                if one.account == account and one.metadata.get("key") == metadata["key"] and not one.is_space:
                    return one.room
            space = await self.space_for(account, account)
            whole = {"account": account, **metadata}
            told = _room(title, account, CHAT, whole, topic=topic)
            parent: Json = {"via": [_server_of(self.user)], "canonical": True}
            told["initial_state"].append({"type": "m.space.parent", "state_key": space, "content": parent})
            if self.encrypted:
                told["initial_state"].append({"type": ENCRYPTION, "state_key": "", "content": ENCRYPTION_RULES})
            room = await self._create(told, whole, is_space=False)
            await self.server.put_state(space, "m.space.child", room, {"via": [_server_of(self.user)]})
            return room

    async def update_metadata(self, room: str, **about: Any) -> None:
        """Write down what became of a room, for the day when our own database is lost."""
        made = self.rooms.get(room)
        if made is not None and {**made.metadata, **about} != made.metadata:
            told = {**made.metadata, **about}
            await self.server.put_state(room, CHAT, "", told)
            made.metadata = told

    async def _create(self, told: Json, about: Json, *, is_space: bool) -> str:
        room = await self.server.create_room(told)
        self.rooms[room] = CreatedRoom(room, about["account"], about, told["name"], is_space)
        return room

    def _lock(self, what: str) -> asyncio.Lock:
        return self._locks.setdefault(what, asyncio.Lock())


def _room(name: str, account: str, kind: str, about: Json, *, topic: str) -> Json:
    return {
        "preset": "private_chat",
        "name": name[:200],
        "topic": topic[:500],
        "invite": [account],
        "is_direct": False,
        "initial_state": [{"type": kind, "state_key": "", "content": about}],
    }


def _server_of(user: str) -> str:
    return user.partition(":")[2]


# Making our own records right again from what the homeserver remembers. P10
#
# It runs before live traffic, makes no room and invites nobody, leaves alone what is right, and says what it did. What
# rooms should say about themselves is told to the homeserver afterwards, at leisure: nobody has to wait for that.


_AT_ONCE = 64
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
    def __init__(self, router: MessageRouter, topology: MatrixRooms) -> None:
        self._board = router
        self._talk = router.chats
        self._topology = topology
        self._behind: dict[str, dict[str, object]] = {}
        """Rooms that say something else about themselves than is so."""
        self._noting = asyncio.Lock()

    async def run(self) -> ReconcileReport:
        report = ReconcileReport()
        made = [one for one in self._topology.rooms.values() if not one.is_space]
        self._look_for_conflicts(report)
        # Those with a number of their own can be made right at the same time; the others get what is left then.
        numbers: set[tuple[str, int | None]] = set()
        sure: list[CreatedRoom] = []
        unsure: list[CreatedRoom] = []
        for room in sorted(made, key=lambda one: one.room):
            mine = (room.account, _number(room))
            (unsure if mine in numbers or mine[1] is None else sure).append(room)
            numbers.add(mine)
        # One room of each account first: who it belongs to is found out once.
        first = {one.account: one for one in reversed(sure)}
        for room in first.values():
            await self.reconcile_room(room, report)
        gate = asyncio.Semaphore(_AT_ONCE)

        async def gated(room: CreatedRoom) -> None:
            async with gate:
                await self.reconcile_room(room, report)

        await asyncio.gather(*(gated(room) for room in sure if first[room.account] is not room))
        for room in unsure:
            await self.reconcile_room(room, report)
        report.restored.sort()
        return report

    async def reconcile_room(self, made: CreatedRoom, report: ReconcileReport) -> None:
        """Make one room right."""
        try:
            bound = self._talk.rooms.find(room_ref(made.room)) or await self._restore(made, report)
            self._compare(made, bound, report)
        except CoterieError as error:
            _log.warning("a room was not reconciled", room=made.room, error=str(error))
            report.skipped.append(f"{made.room}: {error.what}")

    async def _restore(self, made: CreatedRoom, report: ReconcileReport) -> RoomBinding:
        person = await self._person(made)
        bot = self._character(made, person)
        mode, opened = await self._context(made, person, bot, report)
        number = _number(made)
        if number is not None and self._talk.rooms.has_number(person.id, SURFACE, number):
            report.conflicts.append(f"{made.room}: number {number} is taken")
            number = None
        title = made.title or self._talk.characters.get(bot).name
        bound = await self._talk.rooms.bind(room_ref(made.room), person.id, mode, bot, opened, title, number)
        report.restored.append(made.room)
        return bound

    async def _person(self, made: CreatedRoom) -> Person:
        known = self._board.people.by_account(SURFACE, made.account)
        if known is not None:
            return known
        person = str(made.metadata.get("person", ""))
        if not person:
            raise NoSuchPerson(f"Nobody knows who {made.account} is.", "Link the account with a code.")
        return await self._board.people.restore(person, str(made.metadata.get("name", "")), SURFACE, made.account)

    def _character(self, made: CreatedRoom, person: Person) -> str:
        roster = self._talk.characters
        for wanted in (made.metadata.get("character"), made.metadata.get("character_name")):
            try:
                return roster.find(str(wanted)).id
            except NoSuchCharacter:
                continue
        return roster.find(self._talk.default_character(room_ref(made.room), person)).id

    async def _context(
        self, made: CreatedRoom, person: Person, bot: str, report: ReconcileReport
    ) -> tuple[str, NewChat]:
        """The chat the room was about, or a fresh one if it is lost with the rest."""
        mode, context = str(made.metadata.get("mode", "")), str(made.metadata.get("context", ""))
        if context and mode in self._talk.modes:
            try:
                self._talk.conversation(mode).status(context)
                return mode, NewChat(context, ())
            except NoSuchRoom:
                pass
        report.repaired.append(f"{made.room}: a new context")
        return await self._talk.create_chat(person, bot, made.title, at_once=True)

    def _compare(self, made: CreatedRoom, bound: RoomBinding, report: ReconcileReport) -> None:
        told = room_metadata(bound, self._board)
        if {**made.metadata, **told} != made.metadata:
            self._behind[made.room] = told
            if made.room not in report.restored:
                report.repaired.append(f"{made.room}: what it says about itself")

    async def write_metadata(self) -> None:
        """Let rooms say what is so, each once. What is not written now is written after the next start."""
        async with self._noting:
            while self._behind:
                room = next(iter(self._behind))
                try:
                    await self._topology.update_metadata(room, **self._behind[room])
                except PlatformRateLimited as error:
                    await asyncio.sleep(error.retry_after_s)
                    continue
                except CoterieError as error:
                    _log.info("a room was not noted", room=room, error=str(error))
                self._behind.pop(room, None)

    def _look_for_conflicts(self, report: ReconcileReport) -> None:
        spaces: dict[str, str] = {}
        for one in self._topology.rooms.values():
            if one.is_space and spaces.setdefault(one.account, one.room) != one.room:
                report.conflicts.append(f"{one.account} has two Spaces: {spaces[one.account]} and {one.room}")


def room_metadata(bound: RoomBinding, router: MessageRouter) -> dict[str, object]:
    """What a room's state event says of its chat."""
    return {
        "person": bound.person,
        "name": router.people.person(bound.person).name,
        "number": bound.number,
        "mode": bound.mode,
        "context": bound.context,
        "character": bound.character,
        "character_name": router.chats.characters.get(bound.character).name,
    }


def _number(made: CreatedRoom) -> int | None:
    number = made.metadata.get("number")
    return number if isinstance(number, int) and number > 0 else None
