"""A story's commands: what a person can do, each turned into events. S8, S12, S22–S25

Commands decide and events carry what was decided, so that a replay never asks a model. One reply at a time is given in
a chat; whoever wants to say something meanwhile is told who is speaking.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from coterie.base.clock import Clock
from coterie.base.errors import BadPoint
from coterie.base.ids import new_id
from coterie.cast.errors import NoSuchCharacter, NotConfirmed
from coterie.cast.roster import YOU, Bot, Roster
from coterie.engine.errors import Busy, NoSuchTurn
from coterie.engine.events import AssistantTurn, AssistantTurnStarted, Segment, UserTurn, UserTurnEdit
from coterie.engine.replies import Replies
from coterie.engine.turns import Timeline, Turn
from coterie.kernel import AnyEvent, Draft, Forked, Impact, Reset, Rewound, Store
from coterie.kernel.ranges import Ranges
from coterie.kernel.worker import Handler
from coterie.llm.roles import Role
from coterie.llm.router import Caller, Models
from coterie.memory import Memory
from coterie.memory.events import MemoryUsed
from coterie.modes.story import kickoff
from coterie.modes.story.aftermath import CLOSE, Aftermath
from coterie.modes.story.alternatives import Alternatives
from coterie.modes.story.chats import Chat, ChatBook
from coterie.modes.story.edges import EdgeBook
from coterie.modes.story.events import (
    MAIN,
    ChatLineOpened,
    Edge,
    EdgesCleared,
    EdgesSet,
    EdgeSummaryRewritten,
    EdgeUpdate,
    GuestJoined,
    GuestLeft,
)
from coterie.modes.story.opening import opening_drafts
from coterie.modes.story.prompting import Prompter
from coterie.modes.story.resetting import reset_drafts, superseded
from coterie.modes.story.scenes import SceneCloser
from coterie.modes.story.segments import split, told
from coterie.modes.story.settings import StorySettings
from coterie.modes.story.speaking import next_speaker

_UNDO_LOOKS = 200
EDGE_KINDS = (EdgeUpdate.kind, EdgeSummaryRewritten.kind, EdgesSet.kind, EdgesCleared.kind)


@dataclass(frozen=True)
class Begun:
    """A turn that has begun: what was said is durable, and the reply is on its way."""

    turn: str
    reply: str
    speaker: str


class Story:
    def __init__(
        self,
        store: Store,
        roster: Roster,
        memory: Memory,
        models: Models,
        settings: StorySettings,
        clock: Clock,
        before_rewind: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        """`before_rewind` puts aside what is, each time before something is taken back."""
        self.chats = ChatBook(store)
        self.timeline = Timeline(store)
        self.edges = EdgeBook(store)
        self.swipes = Alternatives(store)
        self.prompter = Prompter(store, roster, memory, models, settings, clock)
        self.replies = Replies(store)
        self._store = store
        self._roster = roster
        self._memory = memory
        self._models = models
        self._settings = settings
        self._clock = clock
        self._before_rewind = before_rewind
        self._aftermath = Aftermath(store, models, memory, self.prompter)
        self._closer = SceneCloser(store, models, memory, self.prompter)

    def handlers(self) -> dict[str, Handler]:
        return {**self._aftermath.handlers(), CLOSE: self._closer.job}

    async def recover(self) -> int:
        """S12: close what a crash left open."""
        return await self.replies.recover(lambda turn: lambda ended: self._aftermath.jobs_after(turn.room, ended))

    # --- beginning ---------------------------------------------------------------------------------------

    async def propose(self, bot_id: str) -> kickoff.Proposal:
        return await kickoff.propose(self._models, self._roster.bot(bot_id), self._roster.you())

    async def begin(self, bot_id: str, opening: kickoff.Opening) -> Chat:
        """S8: everything a chat begins with, in one transaction."""
        room = f"room:{new_id()}"
        await self._store.append(self.beginning(room, self._roster.bot(bot_id), opening))
        return self.chats.chat(room)

    def beginning(self, room: str, bot: Bot, opening: kickoff.Opening) -> list[Draft]:
        acquainted = bool(self.edges.edge(MAIN, bot.id, YOU).summary)
        return opening_drafts(
            room, bot, self._roster.you(), opening, starts=opening.starts(self._clock.now()), acquainted=acquainted
        )

    # --- a turn ------------------------------------------------------------------------------------------

    async def say(
        self,
        room: str,
        text: str,
        *,
        speaker: str | None = None,
        to: Sequence[str] = (),
        key: str | None = None,
    ) -> Begun:
        """S12: what was said is durable before any model is asked; the reply is then given in the background."""
        chat = self.chats.chat(room)
        own_key = None if key is None else f"said:{room}:{key}"
        if own_key is not None and (before := self._said_before(own_key)) is not None:
            return await self._repeated(chat, before, speaker)
        self._quiet(chat)
        who = self._present(chat, speaker) if speaker else None
        segments = self._segments(text)
        heard = tuple(self._present(chat, bot) for bot in to)
        turn = new_id()
        said = UserTurn(turn=turn, author=YOU, text=text, segments=segments, to=heard)
        (event,) = await self._store.append([Draft(room, said, YOU, key=own_key, turn=turn)])
        recorded = event.payload
        if isinstance(recorded, UserTurn) and recorded.turn != turn:
            return await self._repeated(chat, recorded.turn, who)
        return await self._answer(chat, self.timeline.turn(room, turn), who)

    async def regenerate(self, room: str, *, text: str | None = None, speaker: str | None = None) -> Begun:
        """S22: another reply to the last message, with or without changing it. What the old one led to goes with it."""
        chat = self.chats.chat(room)
        self._quiet(chat)
        last = self._last_turn(room)
        asked = last.id if last.by_person else last.answers  # a message whose reply never began is answered now
        if asked is None:
            raise NoSuchTurn("The opening was not written in answer to anything.", "Say something first.")
        who = self._present(chat, speaker) if speaker else None if last.by_person else last.speaker
        drafts: list[Draft] = []
        if not last.by_person:
            drafts.append(Draft(room, superseded(await self._store.turn_seqs(room, last.id)), YOU))
        if text is not None:
            segments = self._segments(text)
            drafts.append(Draft(room, UserTurnEdit(turn=asked, text=text, segments=segments), YOU))
        if drafts:
            await self._store.append(drafts, expect={room: await self._store.head(room)})
        return await self._answer(self.chats.chat(room), self.timeline.turn(room, asked), who)

    async def alternatives(self, room: str, turn: str) -> list[AssistantTurn]:
        """S22: every reply there was to a message, oldest first, the chosen one among them."""
        return await self.swipes.to(room, turn)

    async def choose(self, room: str, reply: str) -> None:
        """S22: swipe to another reply; what the other led to comes back with it."""
        self._quiet(self.chats.chat(room))
        current = self._last_turn(room)
        if current.id == reply:
            return
        if current.by_person or reply not in {one.reply for one in await self.alternatives(room, current.id)}:
            raise NoSuchTurn("There is no such reply to the last message.", "Reload the chat.")
        drop = await self._store.turn_seqs(room, current.id)
        restore = await self._store.turn_seqs(room, reply)
        await self._store.supersede(room, drop=drop, restore=restore, actor=YOU)

    async def stop(self, room: str) -> bool:
        self.chats.chat(room)
        return await self.replies.stop(room)

    # --- taking back ---------------------------------------------------------------------------------------

    async def preview_rewind(self, room: str, turn: str) -> Impact:
        """S23: what a rewind to a turn would take back. What a kept turn caused later is kept, so it is not here."""
        to = self._end_of(room, turn)
        impact = await self._store.preview_rewind(room, to)
        gone = self.timeline.ids_after(room, to)
        return Impact([event for event in impact.dropped if event.turn is None or event.turn in gone], impact.restored)

    async def rewind(self, room: str, turn: str) -> AnyEvent:
        """S23: back to how things were right after a turn, with all that the turn led to."""
        chat = self.chats.chat(room)
        await self.replies.stop(room)
        to = self._end_of(room, turn)
        if self._before_rewind is not None:
            await self._before_rewind()
        head = await self._store.head(room)
        dropped = self.timeline.ids_after(room, to)
        # Work that a kept turn caused may have been finished later: it stays.
        late = [
            event.seq
            for event in await self._store.history(room, after=to)
            if event.turn is not None and event.turn not in dropped
        ]
        drafts = [Draft(room, Rewound(to=to), YOU)]
        if late:
            drafts.append(Draft(room, superseded((), late), YOU))
        drafts += await self._line_again(chat, to)
        return (await self._store.append(drafts, expect={room: head}))[0]

    async def undo_rewind(self, room: str) -> AnyEvent:
        """S23: as if it had not been rewound; once something new was said, fork instead."""
        events = await self._store.read(room, limit=_UNDO_LOOKS, newest_first=True)
        if not events:
            self.chats.chat(room)
        for event in events:
            if (isinstance(event.payload, Rewound) and not event.payload.redo) or isinstance(event.payload, Reset):
                drafts = [Draft(room, Rewound(to=event.seq - 1, redo=True), YOU)]
                # What turns that are still there caused meanwhile stays.
                if late := [one.seq for one in await self._store.history(room, after=event.seq) if one.turn]:
                    drafts.append(Draft(room, superseded((), late), YOU))
                return (await self._store.append(drafts, expect={room: events[0].seq}))[0]
            if isinstance(event.payload, UserTurn | AssistantTurnStarted | Rewound):
                break
        raise BadPoint(
            "There is no rewind to undo: something has been said since.", "Fork at the turn you want back instead."
        )

    async def fork(self, room: str, turn: str, title: str | None = None) -> Chat:
        """S24: a new chat that shares the past up to a turn, and nothing that comes after."""
        chat = self.chats.chat(room)
        at = self._end_of(room, turn)
        line = f"room:{new_id()}"
        opened = ChatLineOpened(title=title or f"{chat.title} (fork)", world=line, forked_from=room)
        edges = await self._edges_at(chat, at)
        await self._store.append(
            [
                Draft(line, Forked(parent=room, at=at), YOU),
                Draft(line, opened, YOU),
                Draft(line, EdgesSet(world=line, edges=tuple(edges)), YOU),
            ]
        )
        return self.chats.chat(line)

    async def reset(self, bot_id: str, confirm: str) -> None:
        """S25: everything a character lived through starts over; who it is stays."""
        bot = self._roster.bot(bot_id)
        if confirm.strip() != bot.name:
            raise NotConfirmed(
                f"To reset {bot.name}, its name has to be typed exactly.", f"Type {bot.name} to confirm."
            )
        for chat in self.chats.chats(host=bot.id):
            await self.replies.stop(chat.room)
        await self._store.append(reset_drafts(self._store, self.chats, bot.id))

    # --- company and scenes --------------------------------------------------------------------------------

    async def invite(self, room: str, bot_id: str) -> None:
        chat, bot = self.chats.chat(room), self._roster.bot(bot_id)
        if bot.id in chat.characters:
            raise Busy(f"{bot.name} is here already.", "Invite somebody else.")
        await self._store.append([Draft(room, GuestJoined(guest=bot.id, bot_version=bot.version), YOU)])

    async def send_away(self, room: str, bot_id: str) -> None:
        chat = self.chats.chat(room)
        if bot_id not in chat.guests:
            raise NoSuchCharacter("Nobody of that name is a guest here.", "Only guests can leave; a host stays.")
        self._quiet(chat)
        await self._store.append([Draft(room, GuestLeft(guest=bot_id), YOU)])

    async def close_scene(self, room: str) -> None:
        """S15, by hand."""
        chat = self.chats.chat(room)
        self._quiet(chat)
        last = self.timeline.latest(room, 1)
        drafts = await self._closer.close(chat, "by hand", turn=last[0].id if last else None, by_hand=True)
        if drafts:
            await self._store.append(drafts)

    # --- inside ----------------------------------------------------------------------------------------------

    async def _answer(self, chat: Chat, question: Turn, speaker: str | None) -> Begun:
        who = self._present(chat, speaker) if speaker else self._choose_speaker(chat, question)
        reply = new_id()
        assembled = self.prompter.assemble(chat, who, reply)
        started = AssistantTurnStarted(reply=reply, speaker=who, answers=question.id, to=question.to)
        drafts = [Draft(chat.room, started, who, turn=reply), Draft(chat.room, assembled.sent, who, turn=reply)]
        if assembled.recalled:
            used = MemoryUsed(owner=who, ids=tuple(memory.id for memory in assembled.recalled))
            drafts.append(Draft(chat.room, used, who, turn=reply))
        await self._store.append(drafts)
        stream = self._models.stream(Role.NARRATIVE, assembled.prompt, caller=Caller(chat.room, who))
        self.replies.start(chat.room, reply, stream, who, lambda ended: self._aftermath.jobs_after(chat.room, ended))
        return Begun(question.id, reply, who)

    def _choose_speaker(self, chat: Chat, question: Turn) -> str:
        can_hear = [bot for bot in chat.characters if question.heard_by(bot)]
        traits = {bot: self._roster.bot(bot, chat.version_of(bot)).identity.traits for bot in can_hear}
        last = next(
            (turn.speaker for turn in reversed(self.timeline.latest(chat.room, 10)) if not turn.by_person), None
        )
        return next_speaker(
            told(question.segments),
            can_hear or [chat.host],
            self.prompter.names(chat),
            traits,
            self.chats.activities(chat.room),
            last,
        )

    def _said_before(self, key: str) -> str | None:
        rows = self._store.query("SELECT turn FROM event WHERE key = ?", (key,))
        return rows[0][0] if rows else None

    async def _repeated(self, chat: Chat, said: str, speaker: str | None) -> Begun:
        """The same message sent again: what it began the first time, or the reply that a crash kept from beginning."""
        question = self.timeline.turn(chat.room, said)
        for turn in self.timeline.latest(chat.room, 50):
            if turn.answers == said:
                return Begun(said, turn.id, turn.speaker)
        self._quiet(chat)
        return await self._answer(chat, question, speaker)

    def _segments(self, text: str) -> tuple[Segment, ...]:
        segments = tuple(split(text, self._settings.ooc_marker))
        if not segments:
            raise BadPoint("There is nothing in the message.", "Write something, then send it.")
        return segments

    def _present(self, chat: Chat, bot: str) -> str:
        if bot in chat.characters:
            return bot
        names = self.prompter.names(chat)
        for entity, name in names.items():
            if entity != YOU and name.lower() == bot.lower():
                return entity
        raise NoSuchCharacter(f"{bot} is not here.", f"Here are: {', '.join(n for e, n in names.items() if e != YOU)}.")

    def _quiet(self, chat: Chat) -> None:
        if self.replies.speaking(chat.room) or self.timeline.open_replies(chat.room):
            raise Busy("Somebody is still speaking.", "Wait for the reply, or press Stop.")

    def _last_turn(self, room: str) -> Turn:
        turns = self.timeline.latest(room, 1)
        if not turns:
            raise NoSuchTurn("Nothing has been said yet.", "Say something first.")
        return turns[-1]

    def _end_of(self, room: str, turn: str) -> int:
        """The number of the last event before the next turn begins."""
        following = self.timeline.next_seq(room, self.timeline.turn(room, turn))
        return following - 1 if following is not None else self._store.reader.head(room)

    async def _edges_at(self, chat: Chat, at: int) -> list[Edge]:
        """What everybody in a chat's world felt at a moment of the chat."""
        origin = self._store.reader.origin(chat.room)
        if origin is not None and at <= origin[1]:
            return await self._edges_at(self.chats.chat(origin[0]), at)
        moment = await self._store.read(chat.room, after=at - 1, limit=1)
        last_id = moment[0].id if moment else self._store.reader.last_id()
        counted: dict[str, Ranges] = {chat.room: self._store.reader.counted(chat.room, at)}
        told: list[AnyEvent] = []
        after = 0
        while page := await self._store.read(after=after, kinds=EDGE_KINDS):
            for event in page:
                if event.stream not in counted:
                    counted[event.stream] = self._store.reader.counted(event.stream)
                if event.id <= last_id and event.seq in counted[event.stream]:
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
