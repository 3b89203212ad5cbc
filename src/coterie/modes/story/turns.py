"""Turns: a person's message and the reply to it, regenerating a reply, and choosing among alternatives."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coterie.base.errors import BadPoint
from coterie.base.ids import new_id
from coterie.base.redaction import redact
from coterie.characters import OWNER, NoSuchCharacter
from coterie.conversation import (
    AssistantTurn,
    AssistantTurnStarted,
    NoSuchTurn,
    Segment,
    Turn,
    TurnQueries,
    UserTurn,
    UserTurnEdit,
)
from coterie.eventstore import AnyEvent, NewEvent, NewJob, Ranges, Store
from coterie.llm import Caller, Models, Role
from coterie.memory import MemoryUsed
from coterie.modes.story.chat_context import ChatContext, Decision, supersede
from coterie.modes.story.events import Activity, PersonJoined
from coterie.modes.story.fork import ForkRelationships, world_of
from coterie.modes.story.jobs import DialogueSummariser, PostTurnJobs
from coterie.modes.story.opening import ChatOpenings
from coterie.modes.story.prompts import StoryPromptBuilder
from coterie.modes.story.queries import Chat
from coterie.modes.story.reset import CharacterResets
from coterie.modes.story.settings import StorySettings
from coterie.modes.story.turn_parser import classify_unmarked, parse_segments, visible_text

_TALKATIVE = re.compile(r"talkative|chatty|outgoing|garrulous|lively|eager|loud", re.IGNORECASE)
_QUIET = re.compile(r"quiet|silent|shy|taciturn|reserved|laconic|withdrawn", re.IGNORECASE)
_LAST_SPEAKER_PENALTY = 0.5


@dataclass(frozen=True)
class StartedTurn:
    """A turn that has begun: the message is durable, and the reply is being generated."""

    turn: str
    reply: str
    speaker: str


class Turns:
    """One reply at a time is generated in a chat; a message sent meanwhile is refused with `Busy`."""

    def __init__(
        self,
        context: ChatContext,
        models: Models,
        settings: StorySettings,
        prompts: StoryPromptBuilder,
        openings: ChatOpenings,
        relationships: ForkRelationships,
        resets: CharacterResets,
        jobs: PostTurnJobs,
        summaries: DialogueSummariser,
    ) -> None:
        self.settings = settings
        self.alternatives = Alternatives(context.store)
        self._context = context
        self._store = context.store
        self._timeline = context.timeline
        self._models = models
        self._prompts = prompts
        self._openings = openings
        self._relationships = relationships
        self._resets = resets
        self._jobs = jobs
        self._summaries = summaries

    async def send_message(
        self, room: str, text: str, *, speaker: str | None, to: Sequence[str], key: str | None, author: str
    ) -> StartedTurn:
        """Record a message, then start the reply in the background. The message is durable before a model is asked.

        `to` whispers to some characters, `speaker` chooses who replies. The same `key` again is the same message.
        """
        context = self._context
        async with context.lock(room):
            event_key = None if key is None else f"say:{room}:{key}"
            if event_key is not None and (repeated := await self._find_repeated(room, event_key, speaker)) is not None:
                return repeated
            text = redact(text)
            segments = self._segments(text)
            chat = await self._openings.restart_after_reset(room)
            context.require_no_open_reply(room)
            listeners = tuple(context.find_character(chat, name) for name in to)
            replying = self._require_listener(chat, speaker, listeners) if speaker else None
            speakers = [replying] if replying else listeners or chat.characters
            self._prompts.check_fits(chat, speakers, text, self._timeline.latest(room, 1))
            turn = new_id()
            if author not in chat.people:  # the owner, writing on the page in somebody else's chat
                await self._store.append([NewEvent(room, PersonJoined(person=author), author)])
                chat = context.chats.chat(room)
            message = UserTurn(
                turn=turn,
                author=author,
                text=text,
                segments=segments,
                to=listeners,
                present=tuple(chat.participants),
            )
            await self._store.append([NewEvent(room, message, author, key=event_key, turn=turn)])
            await self._classify_unmarked(chat, turn, text, segments)
            return await self._reply(chat, self._timeline.turn(room, turn), replying)

    async def regenerate(self, room: str, *, text: str | None, speaker: str | None) -> StartedTurn:
        """Another reply to the last message, which `text` may change. What the old reply caused is superseded with it.

        A message that has no reply (after a crash, or a prompt that was too long) gets one now.
        """
        context = self._context
        text = None if text is None else redact(text)
        segments = self._segments(text) if text is not None else ()
        async with context.lock(room):
            chat = context.chats.chat(room)
            context.require_no_open_reply(room)
            message, old = self._last_exchange(room)
            replying = old.speaker if old is not None and old.speaker in chat.characters else None
            if speaker:
                replying = self._require_listener(chat, speaker, message.to)
            if text is not None:
                self._prompts.check_fits(chat, [replying] if replying else message.to or chat.characters, text)
            reply = new_id()

            async def decide() -> Decision:
                drop = [] if old is None else self._seqs(room, old.id)
                if text is not None:
                    drop += self._caused_by(room, message)
                new_events = [NewEvent(room, supersede(drop), OWNER)] if drop else []
                if text is not None:
                    edit = UserTurnEdit(turn=message.id, text=text, segments=segments)
                else:
                    edit = UserTurnEdit(turn=message.id, text=message.text, segments=message.segments)
                if text is not None or await self._was_edited(room, message):
                    # The edit carries the reply's id: another alternative may answer another wording.
                    new_events.append(NewEvent(room, edit, OWNER, turn=reply))
                return new_events, ()

            await context.decide_and_append(room, decide)
            return await self._reply(context.chats.chat(room), self._timeline.turn(room, message.id), replying, reply)

    async def choose(self, room: str, reply: str) -> None:
        """Make another alternative the reply to the last message; what it caused counts again."""
        context = self._context
        async with context.lock(room):
            chat = context.chats.chat(room)
            context.require_no_open_reply(room)
            last = self._timeline.latest(room, 1)
            current = last[0] if last and not last[0].by_person else None
            if current is not None and current.id == reply:
                return
            if not last or reply not in {one.reply for one in await self.alternatives.for_turn(room, last[0].id)}:
                raise NoSuchTurn("There is no such reply to the last message.", "Reload the chat.")

            async def decide() -> Decision:
                drop = self._seqs(room, current.id) if current is not None else []
                restore = self._resets.without_reset(room, await self._relationships.consequences(room, reply))
                # In a fork, an inherited reply changed relationships of another world: those changes are copied.
                changed = [
                    event for event in await self._relationships.changes(room, reply) if world_of(event) != chat.world
                ]
                copies = self._relationships.copies(changed, room)
                return [NewEvent(room, supersede(drop, restore), OWNER), *copies], ()

            await context.decide_and_append(room, decide)

    async def _reply(self, chat: Chat, message: Turn, speaker: str | None, reply: str | None = None) -> StartedTurn:
        replying = speaker or self._choose_speaker(chat, message)
        reply = reply or new_id()
        assembled = self._prompts.assemble(chat, replying, reply, message.to)
        started = AssistantTurnStarted(
            reply=reply,
            speaker=replying,
            answers=message.id,
            to=(message.speaker, *message.to) if message.to else (),
            present=tuple(chat.participants),
        )
        payloads = [started, assembled.sent]
        new_events = [NewEvent(chat.room, payload, replying, turn=reply) for payload in payloads]
        if assembled.recalled:
            used = MemoryUsed(owner=replying, ids=tuple(memory.id for memory in assembled.recalled))
            new_events.append(NewEvent(chat.room, used, replying, turn=reply))
        stream = self._models.stream(Role.NARRATIVE, assembled.prompt, caller=Caller(chat.room, replying))

        def after(ended: AssistantTurn) -> Sequence[NewJob]:
            summaries = self._summaries.jobs_after(chat.room, ended, assembled.first_turn_seq)
            return [*self._jobs.jobs_after(chat.room, ended), *summaries]

        await self._context.replies.start(
            chat.room, reply, stream, replying, after, start_events=new_events, guard=assembled.speaker_guard
        )
        return StartedTurn(message.id, reply, replying)

    async def _classify_unmarked(self, chat: Chat, turn: str, text: str, segments: tuple[Segment, ...]) -> None:
        """Let the classifier separate speech from action where the person used no marks."""
        words = self.settings.reader_from_words
        classified = await classify_unmarked(self._models, segments, words=words, caller=Caller(chat.room))
        if classified is not None and classified != segments:
            edit = UserTurnEdit(turn=turn, text=text, segments=classified)
            await self._store.append([NewEvent(chat.room, edit, "story", turn=turn)])

    def _choose_speaker(self, chat: Chat, message: Turn) -> str:
        listeners = [character for character in chat.characters if message.heard_by(character)] or [chat.host]
        if len(listeners) == 1:
            return listeners[0]
        characters = self._context.characters
        latest = self._timeline.latest(chat.room, 10)
        return next_speaker(
            visible_text(message.segments),
            listeners,
            self._context.participants.names(chat),
            {one: characters.get(one, chat.version_of(one)).identity.traits for one in listeners},
            self._context.chats.activities(chat.room),
            next((turn.speaker for turn in reversed(latest) if not turn.by_person), None),
        )

    async def _find_repeated(self, room: str, event_key: str, speaker: str | None) -> StartedTurn | None:
        """The turn that the same message began the first time. If a crash came in between, its reply starts now."""
        turn = self._store.reader.turn_by_key(event_key)
        if turn is None:
            return None
        for reply in self._timeline.latest(room, 50):
            if reply.answers == turn:
                return StartedTurn(turn, reply.id, reply.speaker)
        last = self._timeline.latest(room, 1)
        if not last or last[0].id != turn or self._context.replies.is_running(room):
            return StartedTurn(turn, "", "")  # it was rewound since
        chat = self._context.chats.chat(room)
        return await self._reply(chat, last[0], self._require_listener(chat, speaker, last[0].to) if speaker else None)

    async def _was_edited(self, room: str, message: Turn) -> bool:
        edits = await self._store.read(room, after=message.seq, kinds=[UserTurnEdit.kind])
        return any(isinstance(e.payload, UserTurnEdit) and e.payload.turn == message.id for e in edits)

    def _seqs(self, room: str, turn: str) -> list[int]:
        return self._store.reader.turn_seqs(room, turn)

    def _caused_by(self, room: str, message: Turn) -> list[int]:
        """What a message caused without its reply, such as the end of a scene: superseded if the message changes."""
        events = self._store.reader.events_at(room, Ranges((seq, seq) for seq in self._seqs(room, message.id)))
        return [event.seq for event in events if not isinstance(event.payload, UserTurn | UserTurnEdit)]

    def _segments(self, text: str) -> tuple[Segment, ...]:
        segments = tuple(parse_segments(text, self.settings.ooc_marker))
        if not segments:
            raise BadPoint("There is nothing in the message.", "Write something, then send it.")
        return segments

    def _require_listener(self, chat: Chat, name_or_id: str, to: Sequence[str]) -> str:
        """A character that is present and, for a whisper, among those it is addressed to."""
        character = self._context.find_character(chat, name_or_id)
        if to and character not in to:
            name = self._context.participants.names(chat)[character]
            raise NoSuchCharacter(f"The whisper is not addressed to {name}.", "Choose one of those it is addressed to.")
        return character

    def _last_exchange(self, room: str) -> tuple[Turn, Turn | None]:
        """The last message, and the reply to it if there is one."""
        turns = self._timeline.latest(room, 1)
        if not turns:
            raise NoSuchTurn("There is no message yet.", "Send a message first.")
        if turns[0].by_person:
            return turns[0], None
        if turns[0].answers is None:
            raise NoSuchTurn("The opening is not a reply to a message.", "Send a message first.")
        return self._timeline.turn(room, turns[0].answers), turns[0]


class Alternatives:
    """All replies that were ever given to a message, whether they count or not."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._timeline = TurnQueries(store)

    async def for_turn(self, room: str, turn: str) -> list[AssistantTurn]:
        """Every reply to a message (or in place of a reply), oldest first, including the chosen one."""
        message = self._timeline.turn(room, turn)
        if not message.by_person and message.answers is not None:
            message = self._timeline.turn(room, message.answers)
        answers, after = (message.id, message.seq) if message.by_person else (None, 0)
        return (await self._answers(room, after)).get(answers, [])

    async def for_chat(self, room: str) -> dict[str | None, list[AssistantTurn]]:
        """The same for every message of a chat; alternatives of the greeting are under None."""
        return await self._answers(room, 0)

    async def _answers(self, room: str, after: int) -> dict[str | None, list[AssistantTurn]]:
        message_by_reply: dict[str, str | None] = {}
        replies: dict[str | None, list[AssistantTurn]] = {}
        for event in await self._reply_events(room, after):
            if isinstance(event.payload, AssistantTurnStarted):
                message_by_reply[event.payload.reply] = event.payload.answers
            elif isinstance(event.payload, AssistantTurn) and event.payload.reply in message_by_reply:
                replies.setdefault(message_by_reply[event.payload.reply], []).append(event.payload)
        return replies

    async def _reply_events(self, room: str, after: int) -> list[AnyEvent]:
        """The events of all replies after a seq, including the inherited ones of a fork."""
        kinds = [AssistantTurnStarted.kind, AssistantTurn.kind]
        own: list[AnyEvent] = []
        while page := await self._store.read(room, after=own[-1].seq if own else after, kinds=kinds):
            own += page
        origin = self._store.reader.fork_origin(room)
        if origin is None or after >= origin[1]:
            return own
        return [*(event for event in await self._reply_events(origin[0], after) if event.seq <= origin[1]), *own]


def next_speaker(
    text: str,
    characters: Sequence[str],
    names: Mapping[str, str],
    traits: Mapping[str, Sequence[str]],
    activities: Mapping[str, Activity],
    last_speaker: str | None,
) -> str:
    """Who replies: the first character addressed by name, else the one most inclined to talk.

    The host comes first in `characters` and wins a tie.
    """
    mentions = {character: _first_mention(names[character], text) for character in characters}
    first = min(characters, key=mentions.__getitem__)
    if mentions[first] < len(text):
        return first

    def inclination(character: str) -> tuple[float, int]:
        described = " ".join(traits.get(character, ()))
        score: float = bool(_TALKATIVE.search(described)) - bool(_QUIET.search(described))
        activity = activities.get(character, Activity())
        score += "you" in activity.attention.lower()
        score -= {"low": 0, "medium": 1, "high": 2}[activity.action.attention]
        score -= _LAST_SPEAKER_PENALTY * (character == last_speaker)
        return score, -characters.index(character)

    return max(characters, key=inclination)


def _first_mention(name: str, text: str) -> int:
    """Where a name, or its first word, occurs; the length of the text if nowhere."""
    first = name.split()[0] if name.split() else name
    match = re.search(rf"(?<!\w)(?:{re.escape(name)}|{re.escape(first)})(?!\w)", text, re.IGNORECASE)
    return match.start() if match else len(text)
