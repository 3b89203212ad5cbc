"""What a rewind would take back, in words a person can judge: by count and as a list. S23"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel

from coterie.base.errors import BadPoint
from coterie.base.ids import new_id
from coterie.characters.service import OWNER
from coterie.conversation.errors import Busy
from coterie.conversation.events import AssistantTurn, AssistantTurnStarted, UserTurn
from coterie.eventstore import AnyEvent, Forked, NewEvent, NewJob, Reset, RewindImpact, Rewound, Superseded
from coterie.memory.events import MemoryAdded
from coterie.modes.story.chat_context import Decision, supersede
from coterie.modes.story.events import (
    ChatForkOpened,
    GuestJoined,
    GuestLeft,
    ManualEdit,
    RelationshipsSet,
    RelationshipSummaryRewritten,
    RelationshipUpdated,
    SceneClosed,
    SceneOpened,
)
from coterie.modes.story.fork import COPIED_KEY_PREFIX, Fork
from coterie.modes.story.queries import Chat
from coterie.modes.story.relationships import RELATIONSHIP_KINDS as EDGE_KINDS

LostKind = Literal["turns", "scenes", "edges", "memories", "guests", "edits"]
_LOST_TEXT_LENGTH = 120


class LostItem(BaseModel):
    what: LostKind
    event: int
    text: str


class ChatRewindImpact(BaseModel):
    turns: int = 0
    scenes: int = 0
    edges: int = 0
    memories: int = 0
    guests: int = 0
    edits: int = 0
    lost: list[LostItem] = []
    """Everything counted above, oldest first."""


def describe_impact(impact: RewindImpact) -> ChatRewindImpact:
    lost = [found for event in impact.dropped if (found := _lost_item(event)) is not None]
    counts = Counter(one.what for one in lost)
    return ChatRewindImpact(
        turns=counts["turns"],
        scenes=counts["scenes"],
        edges=counts["edges"],
        memories=counts["memories"],
        guests=counts["guests"],
        edits=counts["edits"],
        lost=lost,
    )


def _lost_item(event: AnyEvent) -> LostItem | None:
    match event.payload:
        case UserTurn() | AssistantTurn() as turn:
            return LostItem(what="turns", event=event.id, text=_shortened(turn.text))
        case SceneOpened() | SceneClosed() as scene:
            return LostItem(what="scenes", event=event.id, text=f"{scene.kind.replace('_', ' ')} {scene.scene}")
        case RelationshipUpdated() | RelationshipSummaryRewritten() as edge:
            return LostItem(what="edges", event=event.id, text=f"{edge.of} toward {edge.toward}")
        case RelationshipsSet():
            return LostItem(what="edges", event=event.id, text="all")
        case MemoryAdded() as memory:
            return LostItem(what="memories", event=event.id, text=_shortened(memory.text))
        case GuestJoined() | GuestLeft() as guest:
            return LostItem(what="guests", event=event.id, text=f"{guest.kind.replace('_', ' ')}: {guest.guest}")
        case ManualEdit() as edit:
            return LostItem(what="edits", event=event.id, text=_shortened(f"{edit.what}: {edit.value}"))
        case _:
            return None


def _shortened(text: str) -> str:
    return text if len(text) <= _LOST_TEXT_LENGTH else f"{text[: _LOST_TEXT_LENGTH - 1]}…"


# Taking things back: rewind and undo, and another line from any turn. S23, S24
#
# What a kept turn caused may be finished after later turns were played. It belongs to that turn: a rewind keeps it, a
# fork takes it along, an undo does not lose it.


_REWIND_KINDS = (Superseded.kind, RelationshipsSet.kind, ChatForkOpened.kind)


class Rewind(Fork):
    async def preview_rewind(self, room: str, turn: str) -> RewindImpact:
        """S23: what would be taken back."""
        to = self.end_of_turn(room, turn)
        impact = await self._store.preview_rewind(room, to)
        late = {event.seq for event in await self.late_events(room, to)}
        return RewindImpact([event for event in impact.dropped if event.seq not in late], impact.restored)

    async def rewind(self, room: str, turn: str) -> AnyEvent:
        """S23: back to how things were right after a turn, with all that the turn led to."""
        self.timeline.turn(room, turn)
        await self.replies.stop(room)
        if self._before_rewind is not None:
            await self._before_rewind()
        async with self.lock(room):
            await self.replies.stop(room)

            async def decide() -> Decision:
                chat, to = self.chats.chat(room), self.end_of_turn(room, turn)
                late, ended = await self.late_events(room, to), await self.before_reset(room, to)
                line = await self._reopened_fork(chat, to, late, turn)
                again = late if not line else [event for event in late if event.kind not in EDGE_KINDS]
                drafts = [NewEvent(room, Rewound(to=to), OWNER)]
                if again or ended:
                    drafts.append(NewEvent(room, supersede(ended, [event.seq for event in again]), OWNER))
                return [*drafts, *line], ()

            return (await self.decide_and_append(room, decide))[0]

    async def undo_rewind(self, room: str) -> AnyEvent:
        """S23: as if it had not been rewound; once something new was said, fork instead."""
        if not await self._store.head(room):
            self.chats.chat(room)
        async with self.lock(room):

            async def decide() -> Decision:
                rewound, since = await self._undoable_rewind(room)
                if isinstance(rewound.payload, Reset):
                    return await self.undo_events(rewound), ()
                drafts = [NewEvent(room, Rewound(to=rewound.seq - 1, redo=True), OWNER)]
                # Jobs of turns that were kept may have finished since.
                ended = await self.before_reset(room, rewound.seq - 1)
                if since or ended:
                    drafts.append(NewEvent(room, supersede(ended, since), OWNER))
                return drafts, ()

            return (await self.decide_and_append(room, decide))[0]

    async def fork(self, room: str, turn: str, title: str | None = None) -> Chat:
        """S24: a new chat that shares the past up to a turn, and nothing that comes after."""
        line = f"room:{new_id()}"

        async def decide() -> Decision:
            chat = self.chats.chat(room)
            at, late, later = await self._split_at(room, turn)
            if any(reply.seq <= at for reply in self.timeline.open_replies(room)):
                raise Busy("Somebody is still speaking.", "Wait for the reply, or press Stop, and fork then.")
            opened = ChatForkOpened(title=title or f"{chat.title} (fork)", world=line, forked_from=room)
            # A fork is made once: its parent must not have moved on between reading and writing.
            ended = await self.before_reset(room, at)
            drafts = [
                NewEvent(line, Forked(parent=room, at=at), OWNER),
                NewEvent(line, opened, OWNER),
                *await self.relationship_events(chat, at, late, turn, line),
                *([NewEvent(line, supersede(ended), OWNER)] if ended else ()),
                *(NewEvent(line, e.payload, e.actor, turn=e.turn) for e in late if e.kind not in EDGE_KINDS),
            ]
            return drafts, self._unfinished_jobs(room, line, later)

        await self.decide_and_append(room, decide)
        return self.chats.chat(line)

    async def late_events(self, room: str, to: int) -> list[AnyEvent]:
        """What turns up to a point led to, and was recorded after it."""
        later = self.timeline.ids_after(room, to)
        events = await self._store.history(room, after=to)
        return [event for event in events if event.turn is not None and event.turn not in later]

    async def _split_at(self, room: str, turn: str) -> tuple[int, list[AnyEvent], set[str]]:
        """The number of a turn's end; what turns up to there led to after it; and the turns that followed.

        A turn that was taken back is looked for on the line as it was when the turn last counted: what can no longer be
        undone can be forked. S23
        """
        begun = self._store.reader.turn_seqs(room, turn)
        if not begun or begun[0] in self._store.reader.active(room):
            at = self.end_of_turn(room, turn)
            return at, await self.late_events(room, at), self.timeline.ids_after(room, at)
        moment = await self.last_counted(room, begun[0])
        events = self._store.reader.events_at(room, self._store.reader.active(room, moment).after(begun[0]))
        turns = [event for event in events if isinstance(event.payload, UserTurn | AssistantTurnStarted)]
        at, later = (turns[0].seq - 1 if turns else moment), {str(event.turn) for event in turns}
        late = [event for event in events if event.seq > at and event.turn is not None and event.turn not in later]
        return at, late, later

    async def _undoable_rewind(self, room: str) -> tuple[AnyEvent, list[int]]:
        """The rewind that can still be undone, and what was recorded since that is to stay."""
        found = await self._store.read(room, kinds=[Rewound.kind, Reset.kind], limit=1, newest_first=True)
        if found and not (isinstance(found[0].payload, Rewound) and found[0].payload.redo):
            since = await self._store.read(room, after=found[0].seq, limit=10_000)
            jobs = [event for event in since if event.actor == "story" and event.turn is not None]
            told = [event for event in since if event not in jobs and event.kind not in _REWIND_KINDS]
            jobs = [event for event in jobs if not (event.key or "").startswith(COPIED_KEY_PREFIX)]
            if not told:
                return found[0], [event.seq for event in jobs]
        raise BadPoint(
            "There is no rewind to undo: something has been said since.", "Fork at the turn you want back instead."
        )

    def _unfinished_jobs(self, room: str, line: str, later: set[str]) -> list[NewJob]:
        """Work that is still to be done for turns both lines share is done for both."""
        return [
            NewJob(job.kind, f"{job.key}@{line}", {**job.payload, "room": line})
            for job in self._store.reader.jobs.pending(payload={"room": room})
            if job.payload.get("reply") is not None and job.payload["reply"] not in later
        ]

    def end_of_turn(self, room: str, turn: str) -> int:
        """The number of the last event before the next turn begins."""
        following = self.timeline.next_seq(room, self.timeline.turn(room, turn))
        return following - 1 if following is not None else self._store.reader.head(room)

    async def _reopened_fork(self, chat: Chat, to: int, late: Sequence[AnyEvent], turn: str) -> list[NewEvent]:
        """A fork that is rewound into what it inherited is still its own line, with feelings as they were then."""
        origin = self._store.reader.fork_origin(chat.room)
        if origin is None or to > origin[1] + 2:
            return []
        opened = ChatForkOpened(title=chat.title, world=chat.room, forked_from=origin[0])
        return [NewEvent(chat.room, opened, OWNER), *await self.relationship_events(chat, to, late, turn, chat.room)]
