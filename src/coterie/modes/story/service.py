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
from coterie.base.redaction import redact
from coterie.characters.errors import NoSuchCharacter
from coterie.characters.service import OWNER, Character, Characters
from coterie.characters.workspace import Workspaces
from coterie.conversation.errors import Busy, NoSuchTurn
from coterie.conversation.events import AssistantTurn, AssistantTurnStarted, Segment, UserTurn, UserTurnEdit
from coterie.conversation.turns import Turn
from coterie.eventstore import NewEvent, NewJob, Reset, Rewound, Store
from coterie.eventstore.ranges import Ranges
from coterie.eventstore.worker import Handler
from coterie.llm.roles import Role
from coterie.llm.router import Caller, Models
from coterie.memory import Memory
from coterie.memory.events import MemoryUsed
from coterie.modes.story import opening
from coterie.modes.story.chat_context import Decision, supersede
from coterie.modes.story.edits import Edits
from coterie.modes.story.events import (
    MAIN_WORLD,
    ChatCreated,
    GuestJoined,
    GuestLeft,
    PersonJoined,
    PersonLeft,
)
from coterie.modes.story.fork import world_of
from coterie.modes.story.jobs import (
    DIALOGUE_SUMMARY_JOB,
    SCENE_CLOSE_JOB,
    DialogueSummariser,
    PostTurnJobs,
    SceneCloser,
)
from coterie.modes.story.opening import confirmed_opening, opening_events
from coterie.modes.story.participants import next_speaker
from coterie.modes.story.queries import Chat
from coterie.modes.story.settings import StorySettings
from coterie.modes.story.turn_parser import classify_unmarked, parse_segments, visible_text
from coterie.modes.story.turns import Alternatives


@dataclass(frozen=True)
class StartedTurn:
    """A turn that has begun: what was said is durable, and the reply is on its way."""

    turn: str
    reply: str
    speaker: str


class StoryService(Edits):
    def __init__(
        self,
        store: Store,
        roster: Characters,
        memory: Memory,
        models: Models,
        settings: StorySettings,
        clock: Clock,
        before_rewind: Callable[[], Awaitable[object]] | None = None,
        workspaces: Workspaces | None = None,
    ) -> None:
        super().__init__(store, roster, memory, models, settings, clock, before_rewind, workspaces)
        self.swipes = Alternatives(store)
        self._aftermath = PostTurnJobs(store, models, memory, self.participants)
        self._closer = SceneCloser(store, roster, models, memory, self.participants)
        self._retelling = DialogueSummariser(store, models, self.participants)

    def handlers(self) -> dict[str, Handler]:
        return {
            **self._aftermath.handlers(),
            SCENE_CLOSE_JOB: self._closer.run_job,
            DIALOGUE_SUMMARY_JOB: self._retelling.run_job,
        }

    async def recover(self) -> int:
        """S12: close what a crash left open."""
        return await self.replies.recover(lambda turn: lambda ended: self._aftermath.jobs_after(turn.room, ended))

    # --- beginning ---------------------------------------------------------------------------------------

    async def propose_opening(self, character_id: str, person: str = OWNER) -> opening.OpeningProposal:
        return await opening.propose_opening(
            self._models, self._roster.get(character_id), self.participants.person(person)
        )

    async def begin(self, character_id: str, opening: opening.Opening) -> Chat:
        """S8: everything a chat begins with, in one transaction."""
        room = f"room:{new_id()}"
        await self._store.append(self.opening_events(room, self._roster.get(character_id), opening))
        return self.chats.chat(room)

    def opening_events(
        self, room: str, character: Character, opening: opening.Opening, person: str = OWNER
    ) -> list[NewEvent]:
        acquainted = bool(self.relationships.get(MAIN_WORLD, character.id, person).summary)
        starts, who = opening.start_time(self._clock.now()), self.participants.person(person)
        return opening_events(room, character, who, opening, starts=starts, acquainted=acquainted, person=person)

    async def add_person(self, room: str, person: str) -> None:
        """P3: somebody else talks along from now on."""
        if person not in self.chats.chat(room).people:
            await self._store.append([NewEvent(room, PersonJoined(person=person), person)])

    async def remove_person(self, room: str, person: str) -> None:
        if person in self.chats.chat(room).people[1:]:  # whose chat it is stays
            await self._store.append([NewEvent(room, PersonLeft(person=person), person)])

    # --- a turn ------------------------------------------------------------------------------------------

    async def say(
        self,
        room: str,
        text: str,
        *,
        speaker: str | None = None,
        to: Sequence[str] = (),
        key: str | None = None,
        author: str = OWNER,
    ) -> StartedTurn:
        """S12: what was said is durable before any model is asked; the reply is then given in the background."""
        async with self.lock(room):
            mark = None if key is None else f"say:{room}:{key}"
            if mark is not None and (again := await self._repeated(room, mark, speaker)) is not None:
                return again
            text = redact(text)  # S29: who pastes a key by mistake finds it nowhere
            segments = self._segments(text)
            chat = await self._restart_after_reset(room)
            self.require_no_open_reply(room)
            if author not in chat.people:  # the owner, on the page, in somebody else's chat
                await self.add_person(room, author)
                chat = self.chats.chat(room)
            heard = tuple(self.find_character(chat, bot) for bot in to)
            who = self._listener(chat, speaker, heard) if speaker else None
            turn = new_id()
            present = tuple(chat.participants)
            said = UserTurn(turn=turn, author=author, text=text, segments=segments, to=heard, present=present)
            await self._store.append([NewEvent(room, said, author, key=mark, turn=turn)])
            await self._classify_unmarked(chat, turn, text, segments)
            return await self._answer(chat, self.timeline.turn(room, turn), who)

    async def regenerate(self, room: str, *, text: str | None = None, speaker: str | None = None) -> StartedTurn:
        """S22: another reply to the last message, with or without changing it. What the old one led to goes with it.

        A message that never got its reply (a crash, a prompt that was too long) gets one now.
        """
        text = None if text is None else redact(text)
        segments = self._segments(text) if text is not None else ()
        async with self.lock(room):
            chat = self.chats.chat(room)
            self.require_no_open_reply(room)
            question, old = self._last_exchange(room)
            who = old.speaker if old is not None and old.speaker in chat.characters else None
            if speaker:
                who = self._listener(chat, speaker, question.to)
            reply = new_id()

            async def decide() -> Decision:
                drop = [] if old is None else self._seqs(room, old.id)
                if text is not None:
                    drop += self._caused_by(room, question)
                drafts = [NewEvent(room, supersede(drop), OWNER)] if drop else []
                edit = UserTurnEdit(turn=question.id, text=text or "", segments=segments)
                if text is None:
                    edit = UserTurnEdit(turn=question.id, text=question.text, segments=question.segments)
                if text is not None or await self._was_edited(room, question):
                    # The change belongs to the reply that it led to: another alternative answers another message.
                    drafts.append(NewEvent(room, edit, OWNER, turn=reply))
                return drafts, ()

            await self.decide_and_append(room, decide)
            return await self._answer(self.chats.chat(room), self.timeline.turn(room, question.id), who, reply)

    async def alternatives(self, room: str, turn: str) -> list[AssistantTurn]:
        """S22: every reply there was to a message, oldest first, the chosen one among them."""
        return await self.swipes.for_turn(room, turn)

    async def choose(self, room: str, reply: str) -> None:
        """S22: swipe to another reply; what the other led to comes back with it."""
        async with self.lock(room):
            chat = self.chats.chat(room)
            self.require_no_open_reply(room)
            last = self.timeline.latest(room, 1)
            current = last[0] if last and not last[0].by_person else None
            if current is not None and current.id == reply:
                return
            if not last or reply not in {one.reply for one in await self.alternatives(room, last[0].id)}:
                raise NoSuchTurn("There is no such reply to the last message.", "Reload the chat.")

            async def decide() -> Decision:
                drop = self._seqs(room, current.id) if current is not None else []
                known = self.without_reset(room, await self.consequences(room, reply))
                # On a forked line, what an inherited reply changed in feelings was told in another world.
                changed = [
                    event for event in await self.relationship_changes(room, reply) if world_of(event) != chat.world
                ]
                return [NewEvent(room, supersede(drop, known), OWNER), *self.copied_changes(changed, room)], ()

            await self.decide_and_append(room, decide)

    async def stop(self, room: str) -> bool:
        self.chats.chat(room)
        return await self.replies.stop(room)

    # --- company and scenes --------------------------------------------------------------------------------

    async def invite(self, room: str, character_id: str) -> None:
        chat, bot = self.chats.chat(room), self._roster.get(character_id)
        if bot.id in chat.characters:
            raise Busy(f"{bot.name} is here already.", "Invite somebody else.")
        await self._store.append([NewEvent(room, GuestJoined(guest=bot.id, bot_version=bot.version), OWNER)])

    async def remove_guest(self, room: str, character_id: str) -> None:
        chat = self.chats.chat(room)
        if character_id not in chat.guests:
            raise NoSuchCharacter("Nobody of that name is a guest here.", "Only guests can leave; a host stays.")
        self.require_no_open_reply(room)
        await self._store.append([NewEvent(room, GuestLeft(guest=character_id), OWNER)])

    async def close_scene(self, room: str) -> None:
        """S15, by hand."""
        chat = self.chats.chat(room)
        self.require_no_open_reply(room)
        last = self.timeline.latest(room, 1)
        drafts = await self._closer.close(chat, "by hand", last[0] if last else None, by_hand=True)

        async def decide() -> Decision:
            # A model may have thought for a while about it: somebody else may have closed it, or taken turns back.
            now = self.timeline.latest(room, 200)
            same = self.chats.chat(room).scene == chat.scene and (not last or last[0].id in {turn.id for turn in now})
            return drafts if same else (), ()

        await self.decide_and_append(room, decide)

    # --- inside ----------------------------------------------------------------------------------------------

    async def _answer(self, chat: Chat, question: Turn, speaker: str | None, reply: str | None = None) -> StartedTurn:
        who = speaker or self._choose_speaker(chat, question)
        reply = reply or new_id()
        assembled = self.participants.assemble(chat, who, reply, question.to)
        to = (question.speaker, *question.to) if question.to else ()
        present = tuple(chat.participants)
        started = AssistantTurnStarted(reply=reply, speaker=who, answers=question.id, to=to, present=present)
        drafts = [NewEvent(chat.room, started, who, turn=reply), NewEvent(chat.room, assembled.sent, who, turn=reply)]
        if assembled.recalled:
            used = MemoryUsed(owner=who, ids=tuple(memory.id for memory in assembled.recalled))
            drafts.append(NewEvent(chat.room, used, who, turn=reply))
        stream = self._models.stream(Role.NARRATIVE, assembled.prompt, caller=Caller(chat.room, who))

        def after(ended: AssistantTurn) -> Sequence[NewJob]:
            retell = self._retelling.jobs_after(chat.room, ended, assembled.first_turn_seq)
            return [*self._aftermath.jobs_after(chat.room, ended), *retell]

        await self.replies.start(
            chat.room, reply, stream, who, after, start_events=drafts, guard=assembled.speaker_guard
        )
        return StartedTurn(question.id, reply, who)

    async def _restart_after_reset(self, room: str) -> Chat:
        """S25: a chat that was reset begins again with the next message, as it was confirmed the first time."""
        if not self._store.query("SELECT 1 FROM chat WHERE room = ?", (room,)):
            first = await self._store.read(self.root_room(room), limit=8)
            last = await self._store.read(room, kinds=[Reset.kind, Rewound.kind], newest_first=True, limit=1)
            if last and isinstance(last[0].payload, Reset) and isinstance(created := first[0].payload, ChatCreated):
                bot = self._roster.get(created.host)
                await self._store.append(self.opening_events(room, bot, confirmed_opening(first), created.person))
        return self.chats.chat(room)

    async def _classify_unmarked(self, chat: Chat, turn: str, text: str, segments: tuple[Segment, ...]) -> None:
        """S11: what no mark tells apart, a reader may; what was said is in the log already."""
        words = self._settings.reader_from_words
        read = await classify_unmarked(self._models, segments, words=words, caller=Caller(chat.room))
        if read is not None and read != segments:
            edit = UserTurnEdit(turn=turn, text=text, segments=read)
            await self._store.append([NewEvent(chat.room, edit, "story", turn=turn)])

    def _choose_speaker(self, chat: Chat, question: Turn) -> str:
        can_hear = [bot for bot in chat.characters if question.heard_by(bot)] or [chat.host]
        if len(can_hear) == 1:
            return can_hear[0]
        traits = {bot: self._roster.get(bot, chat.version_of(bot)).identity.traits for bot in can_hear}
        last = next(
            (turn.speaker for turn in reversed(self.timeline.latest(chat.room, 10)) if not turn.by_person), None
        )
        return next_speaker(
            visible_text(question.segments),
            can_hear,
            self.participants.names(chat),
            traits,
            self.chats.activities(chat.room),
            last,
        )

    async def _repeated(self, room: str, mark: str, speaker: str | None) -> StartedTurn | None:
        """The same message sent again: what it began the first time. If a crash came between, it begins now."""
        turn = self._store.reader.turn_by_key(mark)
        if turn is None:
            return None
        for one in self.timeline.latest(room, 50):
            if one.answers == turn:
                return StartedTurn(turn, one.id, one.speaker)
        last = self.timeline.latest(room, 1)
        if not last or last[0].id != turn or self.replies.is_running(room):
            return StartedTurn(turn, "", "")  # it was taken back since
        chat = self.chats.chat(room)
        return await self._answer(chat, last[0], self._listener(chat, speaker, last[0].to) if speaker else None)

    async def _was_edited(self, room: str, question: Turn) -> bool:
        edits = await self._store.read(room, after=question.seq, kinds=[UserTurnEdit.kind])
        return any(isinstance(e.payload, UserTurnEdit) and e.payload.turn == question.id for e in edits)

    def _seqs(self, room: str, turn: str) -> list[int]:
        return self._store.reader.turn_seqs(room, turn)

    def _caused_by(self, room: str, message: Turn) -> list[int]:
        """What a message led to by itself, such as a scene that was closed after it: if it changes, that was not so."""
        told = self._store.reader.events_at(room, Ranges((seq, seq) for seq in self._seqs(room, message.id)))
        return [event.seq for event in told if not isinstance(event.payload, UserTurn | UserTurnEdit)]

    def _segments(self, text: str) -> tuple[Segment, ...]:
        segments = tuple(parse_segments(text, self._settings.ooc_marker))
        if not segments:
            raise BadPoint("There is nothing in the message.", "Write something, then send it.")
        return segments

    def _listener(self, chat: Chat, bot: str, to: Sequence[str]) -> str:
        """Somebody who is here and can hear it: who was not whispered to has nothing to answer."""
        who = self.find_character(chat, bot)
        if to and who not in to:
            name = self.participants.names(chat)[who]
            raise NoSuchCharacter(f"{name} cannot hear what you whisper to somebody else.", "Pick who was told.")
        return who

    def _last_exchange(self, room: str) -> tuple[Turn, Turn | None]:
        """The last message, and the reply to it if it has one."""
        turns = self.timeline.latest(room, 1)
        if not turns:
            raise NoSuchTurn("Nothing has been said yet.", "Say something first.")
        if turns[0].by_person:
            return turns[0], None
        if turns[0].answers is None:
            raise NoSuchTurn("The opening was not written in answer to anything.", "Say something first.")
        return self.timeline.turn(room, turns[0].answers), turns[0]
