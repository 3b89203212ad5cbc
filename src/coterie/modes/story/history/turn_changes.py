"""Edits, hides and deletes turns anywhere in a chat, and takes these changes back.

A change is an event that belongs to its turn: a rewind that keeps the turn keeps the change, and a fork inherits it.
What was derived from the former text (memories, what was learned, summaries) stops counting with it, and jobs derive it
again from what remains. Places, the clock and scenes stay: they are what later turns build upon.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from coterie.base.errors import BadPoint
from coterie.base.ids import new_id
from coterie.base.redaction import redact
from coterie.characters import OWNER
from coterie.conversation import (
    AssistantTurn,
    AssistantTurnStarted,
    NoSuchTurn,
    ReplyEdited,
    Turn,
    TurnDeleted,
    TurnHidden,
    UserTurn,
    UserTurnEdit,
)
from coterie.eventstore import AnyEvent, NewEvent, NewJob, Payload, Ranges
from coterie.memory import MemoryAdded, MemoryForgotten
from coterie.modes.story.analysis.turn_analysis import PostTurnJobs
from coterie.modes.story.chat_context import ChatContext, Decision, supersede
from coterie.modes.story.events import (
    DialogueSummarised,
    RelationshipSummaryRewritten,
    RelationshipUpdated,
    SceneClosed,
    SceneSummarised,
)
from coterie.modes.story.jobs import REWORK_KEY_PREFIX, SceneCloser
from coterie.modes.story.turn_parser import parse_segments

MAX_CHANGED_TURNS = 500
"""Turns that one request may delete or hide."""
_CHANGES = (TurnDeleted, TurnHidden, ReplyEdited, UserTurnEdit)


class TurnChanges:
    def __init__(self, context: ChatContext, jobs: PostTurnJobs, scenes: SceneCloser, ooc_marker: str) -> None:
        self._context = context
        self._store = context.store
        self._timeline = context.timeline
        self._jobs = jobs
        self._scenes = scenes
        self._ooc_marker = ooc_marker

    async def edit(self, room: str, turn_id: str, text: str) -> str:
        """Change the text of a turn; returns the id under which it now is.

        A changed last reply is another alternative beside the original. Any other turn keeps its id, and `versions`
        has its former texts.
        """
        text = redact(text).strip()
        if not text:
            raise BadPoint("There is nothing in the text.", "Write something, or delete the turn.")
        context = self._context
        async with context.lock(room):
            context.chats.chat(room)
            context.require_no_open_reply(room)
            turn = self._timeline.turn(room, turn_id)
            if turn.text.strip() == text and turn.state == "done":
                return turn_id
            last = self._timeline.latest(room, 1)[0]
            if not turn.by_person and last.id == turn.id:
                return await self._add_alternative(room, turn, text)
            segments = tuple(parse_segments(text, self._ooc_marker)) if turn.by_person else ()

            async def decide() -> Decision:
                derived = self._derived_now(room, [turn])
                ranges = Ranges((seq, seq) for seq in derived).pairs
                payload: Payload = (
                    UserTurnEdit(turn=turn.id, text=text, segments=segments, derived=ranges)
                    if turn.by_person
                    else ReplyEdited(reply=turn.id, text=text, derived=ranges)
                )
                new_events = [NewEvent(room, payload, OWNER, turn=turn.id)]
                if derived:
                    new_events.append(NewEvent(room, supersede(derived), OWNER))
                return new_events, self._rework_jobs(room, [turn])

            await context.decide_and_append(room, decide)
            return turn_id

    async def versions(self, room: str, turn_id: str) -> list[str]:
        """The texts that a turn had, oldest first; the last one is its text now."""
        turn = self._timeline.turn(room, turn_id)
        texts: list[str] = []
        for event in self._own_events(room, turn_id):
            match event.payload:
                case UserTurn(text=text) | AssistantTurn(text=text) | ReplyEdited(text=text):
                    texts.append(text)
                case UserTurnEdit(turn=edited, text=text) if edited == turn_id:
                    texts.append(text)
        return [*dict.fromkeys(text for text in texts if text.strip() and text != turn.text), turn.text]

    async def delete(self, room: str, turn_ids: Sequence[str]) -> list[str]:
        """Delete turns, wherever they stand; returns the ids of those that were there."""
        return await self._remove(room, turn_ids, TurnDeleted)

    async def restore(self, room: str, turn_ids: Sequence[str]) -> list[str]:
        """Bring deleted turns back, with what had been derived from them; returns their ids."""
        deleted = {turn.id: turn for turn in self._timeline.deleted(room, MAX_CHANGED_TURNS)}
        return await self._take_back(room, [deleted[one] for one in turn_ids if one in deleted], TurnDeleted)

    async def set_hidden(self, room: str, turn_ids: Sequence[str], hidden: bool) -> list[str]:
        """Leave turns out of prompts and memories, or let them count again; returns the ids of those that changed."""
        if hidden:
            return await self._remove(room, turn_ids, TurnHidden)
        wanted = set(turn_ids)
        turns = [turn for turn in self._timeline.changed(room) if turn.hidden and turn.id in wanted]
        return await self._take_back(room, turns, TurnHidden)

    async def kept_at(self, room: str, seq: int) -> tuple[list[int], list[int]]:
        """What a rewind or fork to `seq` has to supersede and to restore, so that changes of turns stay as they are.

        A change belongs to its turn, as does what it took out and what was derived again: for the turns up to `seq`,
        the present state of these counts, not that of the time.
        """
        now, then = self._store.reader.active(room), self._store.reader.active(room, seq)
        drop: set[int] = set()
        restore: set[int] = set()
        for turn_id in await self._ever_changed(room):
            seqs = self._store.reader.turn_seqs(room, turn_id)
            if not seqs or seqs[0] > seq or seqs[0] not in now:
                continue
            events = self._store.reader.events_at(room, (now | then).up_to(seq).after(seqs[0]))
            key = f"{REWORK_KEY_PREFIX}{turn_id}:"
            concerned = {event.seq for event in _derived_from(turn_id, seqs[0], events)}
            concerned |= {
                event.seq for event in events if (event.key or "").startswith(key) or _changes(event, turn_id)
            }
            drop |= {one for one in concerned if one in then and one not in now}
            restore |= {one for one in concerned if one in now and one not in then}
        return sorted(drop), sorted(restore)

    def outdated(self, room: str, seqs: Sequence[int]) -> list[int]:
        """Of these events, those derived from text that was edited, hidden or deleted since."""
        found: set[int] = set()
        ranges = Ranges((seq, seq) for seq in seqs)
        for turn in self._timeline.changed(room):
            changes = [event.seq for event in self._own_events(room, turn.id) if _changes(event, turn.id)]
            if changes:
                events = self._store.reader.events_at(room, ranges.after(turn.seq))
                derived = _derived_from(turn.id, turn.seq, [event for event in events if event.seq < changes[-1]])
                found |= {event.seq for event in derived}
        return sorted(found)

    async def rework_after_choosing(self, room: str, reply: Turn) -> list[NewJob]:
        """The jobs for a chosen alternative, if its exchange was changed at any time: what it led to may be missing."""
        changed = await self._ever_changed(room)
        return self._rework_jobs(room, [reply]) if {reply.id, reply.answers} & changed else []

    async def _ever_changed(self, room: str) -> set[str]:
        """The turns that were ever changed, in this chat or in those that it was forked from."""
        found: set[str] = set()
        current: str | None = room
        while current is not None:
            kinds = [kind.kind for kind in _CHANGES]
            after = 0
            while page := await self._store.read(current, after=after, kinds=kinds):
                after = page[-1].seq
                found |= {str(event.turn) for event in page if _changes(event, str(event.turn))}
            origin = self._store.reader.fork_origin(current)
            current = origin[0] if origin is not None else None
        return found

    async def _add_alternative(self, room: str, old: Turn, text: str) -> str:
        """The changed text of the last reply, as another alternative; the memories are those of the new text."""
        reply = new_id()
        started = AssistantTurnStarted(
            reply=reply, speaker=old.speaker, answers=old.answers, follows=old.follows, to=old.to, present=old.present
        )
        ended = AssistantTurn(reply=reply, text=text, model=old.model)

        async def decide() -> Decision:
            drop = self._store.reader.turn_seqs(room, old.id)
            events = self._store.reader.events_at(room, Ranges((seq, seq) for seq in drop))
            # The wording of the message that the old reply answered is that of the new one, too.
            rewordings = [event.payload for event in events if isinstance(event.payload, UserTurnEdit)]
            new_events = [NewEvent(room, supersede(drop), OWNER)]
            new_events += [NewEvent(room, payload, OWNER, turn=reply) for payload in (*rewordings, started, ended)]
            return new_events, [] if old.hidden else self._jobs.jobs_after(room, ended)

        await self._context.decide_and_append(room, decide)
        return reply

    async def _remove(
        self, room: str, turn_ids: Sequence[str], kind: type[TurnDeleted] | type[TurnHidden]
    ) -> list[str]:
        if len(turn_ids) > MAX_CHANGED_TURNS:
            raise BadPoint(f"At most {MAX_CHANGED_TURNS} turns at once.", "Select fewer, or rewind the chat instead.")
        context = self._context
        changed: list[str] = []
        async with context.lock(room):
            context.chats.chat(room)
            context.require_no_open_reply(room)

            async def decide() -> Decision:
                turns = [turn for one in dict.fromkeys(turn_ids) if (turn := self._find(room, one)) is not None]
                turns = [turn for turn in turns if kind is TurnDeleted or not turn.hidden]
                changed[:] = [turn.id for turn in turns]
                if not turns:
                    return (), ()
                derived = self._derived_now(room, turns)
                ranges = Ranges((seq, seq) for seq in derived).pairs
                new_events = [NewEvent(room, kind(turn=one.id, derived=ranges), OWNER, turn=one.id) for one in turns]
                if derived:
                    new_events.append(NewEvent(room, supersede(derived), OWNER))
                return new_events, self._rework_jobs(room, turns)

            await context.decide_and_append(room, decide)
        if not changed and turn_ids:
            self._timeline.turn(room, turn_ids[0])  # raises for an unknown one
        return changed

    async def _take_back(
        self, room: str, turns: Sequence[Turn], kind: type[TurnDeleted] | type[TurnHidden]
    ) -> list[str]:
        """Supersede such changes of these turns, and let count again what they took out, as far as it still may."""
        context = self._context
        async with context.lock(room):
            context.require_no_open_reply(room)

            async def decide() -> Decision:
                drop: list[int] = []
                recorded: set[int] = set()
                for turn in turns:
                    for event in self._own_events(room, turn.id):
                        if isinstance(event.payload, kind):
                            drop.append(event.seq)
                            recorded |= {seq for low, high in event.payload.derived for seq in range(low, high + 1)}
                    drop += self._rework_of(room, turn.id)
                if not drop:
                    return (), ()
                restore = self._restorable(room, turns, sorted(recorded), drop)
                return [NewEvent(room, supersede(drop, restore), OWNER)], ()

            return [turn.id for turn in turns] if await context.decide_and_append(room, decide) else []

    def _restorable(self, room: str, turns: Sequence[Turn], recorded: Sequence[int], drop: Sequence[int]) -> list[int]:
        """Of the events that changes had taken out, those of turns that are still there and not changed otherwise."""
        taken_out = Ranges((seq, seq) for seq in recorded)
        context = self._store.reader.active(room).after(min(turn.seq for turn in turns))
        events = self._store.reader.events_at(room, context | taken_out)
        derived = {event.seq for turn in turns for event in _derived_from(turn.id, turn.seq, events)}
        there = self._timeline.ids_after(room, 0)
        candidates = {e.seq for e in events if e.seq in taken_out and (e.turn is None or e.turn in there)} & derived
        others = [turn for turn in self._timeline.changed(room) if turn.id not in {one.id for one in turns}]
        others += [turn for turn in turns if turn.edited or (turn.hidden and turn.id in self._deleted_ids(room))]
        for turn in others:
            changes = [event.seq for event in self._own_events(room, turn.id) if _changes(event, turn.id)]
            changes = [seq for seq in changes if seq not in set(drop)]
            if changes:
                before = [event for event in events if event.seq < changes[-1]]
                candidates -= {event.seq for event in _derived_from(turn.id, turn.seq, before)}
        return sorted(candidates)

    def _deleted_ids(self, room: str) -> set[str]:
        return {turn.id for turn in self._timeline.deleted(room, MAX_CHANGED_TURNS)}

    def _derived_now(self, room: str, turns: Sequence[Turn]) -> list[int]:
        """The seqs of what counts and was derived from these turns."""
        first = min(turn.seq for turn in turns)
        events = self._store.reader.events_at(room, self._store.reader.active(room).after(first))
        return sorted({event.seq for turn in turns for event in _derived_from(turn.id, turn.seq, events)})

    async def analyse_again(self, room: str, turn_id: str) -> None:
        """Derive again what an exchange led to, such as after the model gave no usable analysis of it."""
        context = self._context
        async with context.lock(room):
            context.chats.chat(room)
            turn = self._timeline.turn(room, turn_id)
            message = self._find(room, turn.answers) if turn.answers is not None else None

            async def decide() -> Decision:
                derived = self._derived_now(room, [turn, *([message] if message is not None else [])])
                new_events = [NewEvent(room, supersede(derived), OWNER)] if derived else []
                return new_events, [self._jobs.rework_job(room, turn.answers or turn.id, turn.id)]

            await context.decide_and_append(room, decide)

    def _rework_jobs(self, room: str, turns: Sequence[Turn]) -> list[NewJob]:
        """The jobs that derive again what the changed turns had a part in: one per exchange and per closed scene."""
        jobs: dict[str, NewJob] = {}
        for turn in turns:
            anchor = turn.answers if turn.answers is not None else turn.id
            jobs.setdefault(f"exchange {anchor}", self._jobs.rework_job(room, anchor, turn.id))
            scene = self._scenes.closed_scene_of(room, turn)
            if scene is not None:
                jobs.setdefault(f"scene {scene}", self._scenes.rework_job(room, scene, turn.id))
        return list(jobs.values())

    def _rework_of(self, room: str, turn: str) -> list[int]:
        """The seqs of what was derived again because of a change of this turn."""
        active = self._store.reader.active(room)
        events = self._store.reader.by_key_prefix(f"{REWORK_KEY_PREFIX}{turn}:")
        return [event.seq for event in events if event.stream == room and event.seq in active]

    def _own_events(self, room: str, turn: str) -> list[AnyEvent]:
        """The events of a turn that count."""
        active = self._store.reader.active(room)
        seqs = [seq for seq in self._store.reader.turn_seqs(room, turn) if seq in active]
        return self._store.reader.events_at(room, Ranges((seq, seq) for seq in seqs))

    def _find(self, room: str, turn_id: str) -> Turn | None:
        try:
            return self._timeline.turn(room, turn_id)
        except NoSuchTurn:
            return None


def _changes(event: AnyEvent, turn_id: str) -> bool:
    """Whether an event is a person's change of this turn. The wording that an alternative answers is none."""
    if isinstance(event.payload, UserTurnEdit):
        return event.turn == event.payload.turn == turn_id and event.actor == OWNER
    return isinstance(event.payload, _CHANGES) and event.turn == turn_id


def _derived_from(turn_id: str, turn_seq: int, events: Iterable[AnyEvent]) -> list[AnyEvent]:
    """Of these events, in order, those that contain or depend on what was written in a turn."""
    exchange = {turn_id}
    memories: set[str] = set()
    derived: list[AnyEvent] = []
    closed: SceneClosed | None = None
    closed_with: str | None = None
    for event in events:
        if event.seq <= turn_seq:
            continue
        payload = event.payload
        if isinstance(payload, AssistantTurnStarted) and payload.answers == turn_id:
            exchange.add(payload.reply)
        elif isinstance(payload, SceneClosed) and closed is None:
            closed, closed_with = payload, event.turn
        elif isinstance(payload, SceneSummarised):
            if closed is not None and payload.scene == closed.scene:
                derived.append(event)
        elif isinstance(payload, RelationshipSummaryRewritten):
            if closed is not None and event.turn == closed_with:
                derived.append(event)
        elif isinstance(payload, RelationshipUpdated):
            if event.turn in exchange:
                derived.append(event)
        elif isinstance(payload, DialogueSummarised):
            if payload.upto > turn_seq:
                derived.append(event)
        elif event.kind.startswith("memory_") and not isinstance(payload, MemoryForgotten):
            ids = {str(getattr(payload, "id", "")), str(getattr(payload, "source", ""))}
            if turn_id in getattr(payload, "sources", ()) or ids & memories:
                memories |= {payload.id} if isinstance(payload, MemoryAdded) else set()
                derived.append(event)
    return derived
