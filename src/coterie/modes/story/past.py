"""Taking things back: rewind and undo, another line from any turn, a life that starts over. S23–S25

What a kept turn caused may be finished after later turns were played. It belongs to that turn: a rewind keeps it, a
fork takes it along, an undo does not lose it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from coterie.base.errors import BadPoint
from coterie.base.ids import new_id
from coterie.cast.roster import YOU, confirmed, reset_draft
from coterie.engine.errors import Busy
from coterie.kernel import AnyEvent, Draft, Forked, Impact, NewJob, Reset, Rewound, Superseded
from coterie.kernel.ranges import Ranges
from coterie.memory.events import MemoryForgotten
from coterie.modes.story.chats import Chat
from coterie.modes.story.edges import KINDS as EDGE_KINDS
from coterie.modes.story.events import (
    ChatLineOpened,
    Edge,
    EdgesCleared,
    EdgesSet,
    GuestLeft,
    SceneSummarised,
)
from coterie.modes.story.room import Decision, Room, superseded

_PART_OF_A_REWIND = (Superseded.kind, EdgesSet.kind, ChatLineOpened.kind)


class Past(Room):
    async def preview_rewind(self, room: str, turn: str) -> Impact:
        """S23: what would be taken back."""
        to = self._end_of(room, turn)
        impact = await self._store.preview_rewind(room, to)
        late = {event.seq for event in await self._late(room, to)}
        return Impact([event for event in impact.dropped if event.seq not in late], impact.restored)

    async def rewind(self, room: str, turn: str) -> AnyEvent:
        """S23: back to how things were right after a turn, with all that the turn led to."""
        self.timeline.turn(room, turn)
        await self.replies.stop(room)
        if self._before_rewind is not None:
            await self._before_rewind()
        async with self._alone(room):
            await self.replies.stop(room)

            async def decide() -> Decision:
                chat, to = self.chats.chat(room), self._end_of(room, turn)
                drafts = [Draft(room, Rewound(to=to), YOU)]
                if late := await self._late(room, to):
                    drafts.append(Draft(room, superseded((), [event.seq for event in late]), YOU))
                return [*drafts, *await self._line_again(chat, to)], ()

            return (await self._decide(room, decide))[0]

    async def undo_rewind(self, room: str) -> AnyEvent:
        """S23: as if it had not been rewound; once something new was said, fork instead."""
        if not await self._store.head(room):
            self.chats.chat(room)
        async with self._alone(room):

            async def decide() -> Decision:
                rewound, since = await self._last_rewind(room)
                drafts = [Draft(room, Rewound(to=rewound.seq - 1, redo=True), YOU)]
                # Jobs of turns that were kept may have finished since.
                if since:
                    drafts.append(Draft(room, superseded((), since), YOU))
                return drafts, ()

            return (await self._decide(room, decide))[0]

    async def fork(self, room: str, turn: str, title: str | None = None) -> Chat:
        """S24: a new chat that shares the past up to a turn, and nothing that comes after."""
        line = f"room:{new_id()}"

        async def decide() -> Decision:
            chat, at = self.chats.chat(room), self._end_of(room, turn)
            if any(reply.seq <= at for reply in self.timeline.open_replies(room)):
                raise Busy("Somebody is still speaking.", "Wait for the reply, or press Stop, and fork then.")
            opened = ChatLineOpened(title=title or f"{chat.title} (fork)", world=line, forked_from=room)
            late = await self._late(room, at)
            edges = await self._edges_at(chat, at, late)
            # A fork is made once: its parent must not have moved on between reading and writing.
            drafts = [
                Draft(line, Forked(parent=room, at=at), YOU),
                Draft(line, opened, YOU),
                Draft(line, EdgesSet(world=line, edges=tuple(edges)), YOU),
                *(Draft(line, e.payload, e.actor, turn=e.turn) for e in late if e.kind not in EDGE_KINDS),
            ]
            return drafts, self._owed(room, line, self.timeline.ids_after(room, at))

        await self._decide(room, decide)
        return self.chats.chat(line)

    async def reset(self, bot_id: str, confirm: str) -> None:
        """S25: everything a character lived through starts over; who it is stays."""
        bot = self._roster.bot(bot_id)
        confirmed(bot, confirm, "reset")
        if self._before_rewind is not None:
            await self._before_rewind()
        drafts = [reset_draft(bot.id)]
        hosted = {chat.room for chat in self.chats.chats(host=bot.id)}
        for room in sorted(hosted):
            await self.replies.stop(room)
            drafts.append(Draft(room, Reset(), YOU))
        visited = [chat for chat in self.chats.chats() if chat.room not in hosted]
        drafts += [Draft(chat.room, GuestLeft(guest=bot.id), YOU) for chat in visited if bot.id in chat.guests]
        lived = {chat.room for chat in visited} | {
            room for (room,) in self._store.query("SELECT DISTINCT stream FROM memory WHERE owner = ?", (bot.id,))
        }
        for room in sorted(lived - hosted):
            if remembered := await self._lived(room, bot.id):
                drafts.append(Draft(room, superseded(remembered), YOU))
        pairs = self._store.query("SELECT world, of, toward FROM edge WHERE of = ?1 OR toward = ?1", (bot.id,))
        if pairs:
            cleared = EdgesCleared(pairs=tuple((world, of, toward) for world, of, toward in pairs))
            drafts.append(Draft(f"cast:{bot.id}", cleared, YOU))
        await self._store.append(drafts)

    async def _lived(self, room: str, bot: str) -> list[int]:
        """The numbers of what a character remembers of somebody else's chat."""
        return [
            event.seq
            for event in await self._store.history(room)
            if (
                (event.kind.startswith("memory_") and event.kind != MemoryForgotten.kind)
                or isinstance(event.payload, SceneSummarised)
            )
            and getattr(event.payload, "owner", None) == bot
        ]

    async def _late(self, room: str, to: int) -> list[AnyEvent]:
        """What turns up to a point led to, and was recorded after it."""
        later = self.timeline.ids_after(room, to)
        events = await self._store.history(room, after=to)
        return [event for event in events if event.turn is not None and event.turn not in later]

    async def _last_rewind(self, room: str) -> tuple[AnyEvent, list[int]]:
        """The rewind that can still be undone, and what was recorded since that is to stay."""
        found = await self._store.read(room, kinds=[Rewound.kind, Reset.kind], limit=1, newest_first=True)
        if found and not (isinstance(found[0].payload, Rewound) and found[0].payload.redo):
            since = await self._store.read(room, after=found[0].seq, limit=10_000)
            jobs = [event for event in since if event.actor == "story" and event.turn is not None]
            told = [event for event in since if event not in jobs and event.kind not in _PART_OF_A_REWIND]
            if not told:
                return found[0], [event.seq for event in jobs]
        raise BadPoint(
            "There is no rewind to undo: something has been said since.", "Fork at the turn you want back instead."
        )

    def _owed(self, room: str, line: str, later: set[str]) -> list[NewJob]:
        """Work that is still to be done for turns both lines share is done for both."""
        rows = self._store.query(
            "SELECT kind, key, payload ->> '$.reply', payload FROM job WHERE state IN ('ready', 'leased')"
            " AND payload ->> '$.room' = ?",
            (room,),
        )
        return [
            NewJob(kind, f"{key}@{line}", {**_loads(payload), "room": line})
            for kind, key, reply, payload in rows
            if reply is not None and reply not in later
        ]

    def _end_of(self, room: str, turn: str) -> int:
        """The number of the last event before the next turn begins."""
        following = self.timeline.next_seq(room, self.timeline.turn(room, turn))
        return following - 1 if following is not None else self._store.reader.head(room)

    async def _edges_at(self, chat: Chat, at: int, late: Sequence[AnyEvent] = ()) -> list[Edge]:
        """What everybody in a chat's world felt at a moment of the chat; `late` also counts."""
        origin = self._store.reader.origin(chat.room)
        if origin is not None and at <= origin[1]:
            return await self._edges_at(self.chats.chat(origin[0]), at)
        moment = await self._store.read(chat.room, after=at - 1, limit=1)
        last_id = moment[0].id if moment else self._store.reader.last_id()
        also = {event.id for event in late}
        counted: dict[str, Ranges] = {chat.room: self._store.reader.counted(chat.room, at)}
        told: list[AnyEvent] = []
        after = 0
        while page := await self._store.read(after=after, kinds=EDGE_KINDS):
            for event in page:
                if event.stream not in counted:
                    counted[event.stream] = self._store.reader.counted(event.stream)
                then = event.id <= last_id and event.seq in counted[event.stream]
                if then or event.id in also:
                    told.append(event)
            after = page[-1].id
        return self.edges.at(chat.world, told)

    async def _line_again(self, chat: Chat, to: int) -> list[Draft]:
        """A fork that is rewound into what it inherited is still its own line, with feelings as they were then."""
        origin = self._store.reader.origin(chat.room)
        if origin is None or to > origin[1] + 2:
            return []
        opened = ChatLineOpened(title=chat.title, world=chat.room, forked_from=origin[0])
        edges = EdgesSet(world=chat.room, edges=tuple(await self._edges_at(chat, to)))
        return [Draft(chat.room, opened, YOU), Draft(chat.room, edges, YOU)]


def _loads(payload: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(payload)
    return loaded
