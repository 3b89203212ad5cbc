"""Making our own records right again from what the homeserver remembers. P10

It runs before live traffic, makes no room and invites nobody, leaves alone what is right, and says what it did. What
rooms should say about themselves is told to the homeserver afterwards, at leisure: nobody has to wait for that.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from coterie.base.errors import CoterieError
from coterie.base.logging import get_logger
from coterie.cast.errors import NoSuchCharacter, NoSuchPerson
from coterie.cast.people import Person
from coterie.engine.conversation import Opened
from coterie.engine.errors import NoSuchRoom
from coterie.engine.rooms import Bound
from coterie.engine.surface_errors import RateLimited
from coterie.engine.switchboard import Switchboard
from coterie.surfaces.matrix.inbound import NAME, room_ref
from coterie.surfaces.matrix.topology import MadeRoom, Topology

_AT_ONCE = 64
_log = get_logger(__name__)


@dataclass
class Report:
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
    def __init__(self, board: Switchboard, topology: Topology) -> None:
        self._board = board
        self._talk = board.talk
        self._topology = topology
        self._behind: dict[str, dict[str, object]] = {}
        """Rooms that say something else about themselves than is so."""
        self._noting = asyncio.Lock()

    async def run(self) -> Report:
        report = Report()
        made = [one for one in self._topology.rooms.values() if not one.is_space]
        self._look_for_conflicts(report)
        # Those with a number of their own can be made right at the same time; the others get what is left then.
        numbers: set[tuple[str, int | None]] = set()
        sure: list[MadeRoom] = []
        unsure: list[MadeRoom] = []
        for room in sorted(made, key=lambda one: one.room):
            mine = (room.account, _number(room))
            (unsure if mine in numbers or mine[1] is None else sure).append(room)
            numbers.add(mine)
        # One room of each account first: who it belongs to is found out once.
        first = {one.account: one for one in reversed(sure)}
        for room in first.values():
            await self.one(room, report)
        gate = asyncio.Semaphore(_AT_ONCE)

        async def gated(room: MadeRoom) -> None:
            async with gate:
                await self.one(room, report)

        await asyncio.gather(*(gated(room) for room in sure if first[room.account] is not room))
        for room in unsure:
            await self.one(room, report)
        report.restored.sort()
        return report

    async def one(self, made: MadeRoom, report: Report) -> None:
        """Make one room right."""
        try:
            bound = self._talk.rooms.find(room_ref(made.room)) or await self._restore(made, report)
            self._compare(made, bound, report)
        except CoterieError as error:
            _log.warning("a room was not reconciled", room=made.room, error=str(error))
            report.skipped.append(f"{made.room}: {error.what}")

    async def _restore(self, made: MadeRoom, report: Report) -> Bound:
        person = await self._person(made)
        bot = self._character(made, person)
        mode, opened = await self._context(made, person, bot, report)
        number = _number(made)
        if number is not None and self._talk.rooms.has_number(person.id, NAME, number):
            report.conflicts.append(f"{made.room}: number {number} is taken")
            number = None
        title = made.title or self._talk.roster.bot(bot).name
        bound = await self._talk.rooms.bind(room_ref(made.room), person.id, mode, bot, opened, title, number)
        report.restored.append(made.room)
        return bound

    async def _person(self, made: MadeRoom) -> Person:
        known = self._board.people.of(NAME, made.account)
        if known is not None:
            return known
        person = str(made.about.get("person", ""))
        if not person:
            raise NoSuchPerson(f"Nobody knows who {made.account} is.", "Link the account with a code.")
        return await self._board.people.restore(person, str(made.about.get("name", "")), NAME, made.account)

    def _character(self, made: MadeRoom, person: Person) -> str:
        roster = self._talk.roster
        for wanted in (made.about.get("character"), made.about.get("character_name")):
            try:
                return roster.find(str(wanted)).id
            except NoSuchCharacter:
                continue
        return roster.find(self._talk.default_for(room_ref(made.room), person)).id

    async def _context(self, made: MadeRoom, person: Person, bot: str, report: Report) -> tuple[str, Opened]:
        """The chat the room was about, or a fresh one if it is lost with the rest."""
        mode, context = str(made.about.get("mode", "")), str(made.about.get("context", ""))
        if context and mode in self._talk.modes:
            try:
                self._talk.conversation(mode).standing(context)
                return mode, Opened(context, ())
            except NoSuchRoom:
                pass
        report.repaired.append(f"{made.room}: a new context")
        return await self._talk.open(person, bot, made.title, at_once=True)

    def _compare(self, made: MadeRoom, bound: Bound, report: Report) -> None:
        told = about(bound, self._board)
        if {**made.about, **told} != made.about:
            self._behind[made.room] = told
            if made.room not in report.restored:
                report.repaired.append(f"{made.room}: what it says about itself")

    async def note(self) -> None:
        """Let rooms say what is so, each once. What is not written now is written after the next start."""
        async with self._noting:
            while self._behind:
                room = next(iter(self._behind))
                try:
                    await self._topology.note(room, **self._behind[room])
                except RateLimited as error:
                    await asyncio.sleep(error.retry_after_s)
                    continue
                except CoterieError as error:
                    _log.info("a room was not noted", room=room, error=str(error))
                self._behind.pop(room, None)

    def _look_for_conflicts(self, report: Report) -> None:
        spaces: dict[str, str] = {}
        for one in self._topology.rooms.values():
            if one.is_space and spaces.setdefault(one.account, one.room) != one.room:
                report.conflicts.append(f"{one.account} has two Spaces: {spaces[one.account]} and {one.room}")


def about(bound: Bound, board: Switchboard) -> dict[str, object]:
    """What a room's state event says of its chat."""
    return {
        "person": bound.person,
        "name": board.people.person(bound.person).name,
        "number": bound.number,
        "mode": bound.mode,
        "context": bound.context,
        "character": bound.character,
        "character_name": board.talk.roster.bot(bound.character).name,
    }


def _number(made: MadeRoom) -> int | None:
    number = made.about.get("number")
    return number if isinstance(number, int) and number > 0 else None
