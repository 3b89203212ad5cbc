"""Turns: a person's message and the replies to it, regenerating and continuing a reply, choosing among alternatives."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coterie.base.errors import BadPoint
from coterie.base.ids import new_id
from coterie.base.redaction import redact
from coterie.base.supervisor import run_once
from coterie.characters import OWNER, NoSuchCharacter
from coterie.conversation import (
    AssistantTurn,
    AssistantTurnStarted,
    NoSuchTurn,
    PictureDescribed,
    RoomError,
    Segment,
    Turn,
    TurnHidden,
    TurnQueries,
    UserTurn,
    UserTurnEdit,
)
from coterie.eventstore import AnyEvent, NewEvent, NewJob, Ranges, Store
from coterie.llm import Caller, Models, Role, TextDelta
from coterie.memory import MemoryUsed
from coterie.modes.story.analysis.turn_analysis import PostTurnJobs
from coterie.modes.story.chat_context import ChatContext, Decision, supersede
from coterie.modes.story.events import Activity, PersonJoined
from coterie.modes.story.history.fork import ForkRelationships, world_of
from coterie.modes.story.history.reset import CharacterResets
from coterie.modes.story.history.turn_changes import TurnChanges
from coterie.modes.story.jobs import DialogueSummariser
from coterie.modes.story.opening import ChatOpenings
from coterie.modes.story.pictures import MessagePictures
from coterie.modes.story.prompts import StoryPromptBuilder
from coterie.modes.story.queries import Chat
from coterie.modes.story.settings import StorySettings
from coterie.modes.story.turn_parser import classify_unmarked, parse_segments, turn_text, visible_text

_TALKATIVE = re.compile(r"talkative|chatty|outgoing|garrulous|lively|eager|loud", re.IGNORECASE)
_QUIET = re.compile(r"quiet|silent|shy|taciturn|reserved|laconic|withdrawn", re.IGNORECASE)
_LAST_SPEAKER_PENALTY = 0.5


@dataclass(frozen=True)
class StartedTurn:
    """A turn that has begun: the message is durable, and the reply is being generated."""

    turn: str
    """Empty if the reply answers no message."""
    reply: str
    """Empty if nobody replies."""
    speaker: str


class Turns:
    """One reply at a time is generated in a chat; a message sent meanwhile is refused with `Busy`."""

    def __init__(
        self,
        context: ChatContext,
        models: Models,
        settings: StorySettings,
        prompts: StoryPromptBuilder,
        pictures: MessagePictures,
        openings: ChatOpenings,
        relationships: ForkRelationships,
        resets: CharacterResets,
        jobs: PostTurnJobs,
        summaries: DialogueSummariser,
        changes: TurnChanges,
    ) -> None:
        self.settings = settings
        self.alternatives = Alternatives(context.store)
        self._context = context
        self._store = context.store
        self._timeline = context.timeline
        self._models = models
        self._prompts = prompts
        self._pictures = pictures
        self._openings = openings
        self._relationships = relationships
        self._resets = resets
        self._jobs = jobs
        self._summaries = summaries
        self._changes = changes

    async def send_message(
        self,
        room: str,
        text: str,
        *,
        speaker: str | None,
        to: Sequence[str],
        key: str | None,
        author: str,
        reply: bool = True,
        everyone: bool = True,
        pictures: Sequence[str] = (),
    ) -> StartedTurn:
        """Record a message, then start the reply in the background. The message is durable before a model is asked.

        `to` whispers to some characters, `speaker` chooses who replies. The same `key` again is the same message.
        Nobody replies without `reply`, to a message of notes only, or if the chat's reply order leaves it to a person.
        `everyone` allows the chat's reply order to let several characters reply.
        """
        context = self._context
        async with context.lock(room):
            event_key = None if key is None else f"say:{room}:{key}"
            if (
                event_key is not None
                and (repeated := await self._find_repeated(room, event_key, speaker, reply=reply)) is not None
            ):
                return repeated
            text = redact(text)
            shown = self._pictures.check(pictures)
            segments = self._segments(text) if text.strip() or not shown else ()
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
                pictures=shown,
            )
            perceptible = bool(shown or visible_text(segments))
            reply = self._is_replied_to(room, replying, reply=reply and perceptible)
            jobs = () if reply or not perceptible else self._jobs.jobs_after_message(room, turn)
            await self._store.append([NewEvent(room, message, author, key=event_key, turn=turn)], jobs=jobs)
            if visible_text(segments):
                await self._classify_unmarked(chat, turn, text, segments)
            if not reply:
                return StartedTurn(turn, "", "")
            started = await self._reply(chat, self._timeline.turn(room, turn), replying)
            if everyone and replying is None and context.chats.reply_order(room).order == "everyone":
                run_once(f"replies to {turn}", self._let_others_reply(room, started))
            return started

    async def regenerate(self, room: str, *, text: str | None, speaker: str | None) -> StartedTurn:
        """Another reply to the last message, which `text` may change. What the old reply caused is superseded with it.

        A message that has no reply (after a crash, or a prompt that was too long) gets one now. The greeting of a chat
        is written anew.
        """
        context = self._context
        text = None if text is None else redact(text)
        segments = self._segments(text) if text is not None else ()
        async with context.lock(room):
            chat = context.chats.chat(room)
            context.require_no_open_reply(room)
            last_message, old = self._last_exchange(room)
            replying = old.speaker if old is not None and old.speaker in chat.characters else None
            if last_message is None:
                return await self._replace_unprompted(chat, old, text, replying)
            message: Turn = last_message
            if speaker:
                replying = self._require_listener(chat, speaker, message.to)
            if text is not None:
                self._prompts.check_fits(chat, [replying] if replying else message.to or chat.characters, text)
            reply = new_id()

            async def decide() -> Decision:
                # If the wording changes, every reply to it goes.
                replies = self._timeline.replies_to(room, message.id) if text is not None else []
                drop = [] if old is None else self._seqs(room, old.id)
                if text is not None:
                    drop += self._caused_by(room, message)
                    drop += [
                        seq for one in replies if old is None or one.id != old.id for seq in self._seqs(room, one.id)
                    ]
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
            follows = old.follows if old is not None and text is None else None
            worded = self._timeline.turn(room, message.id)
            return await self._reply(context.chats.chat(room), worded, replying, reply, follows=follows)

    async def _replace_unprompted(
        self, chat: Chat, old: Turn | None, text: str | None, speaker: str | None
    ) -> StartedTurn:
        """Another greeting, or another reply that answers no message."""
        if text is not None or old is None:
            raise BadPoint("There is no message to edit.", "Send a message first.")

        async def decide() -> Decision:
            return [NewEvent(chat.room, supersede(self._seqs(chat.room, old.id)), OWNER)], ()

        await self._context.decide_and_append(chat.room, decide)
        chat = self._context.chats.chat(chat.room)
        return await self._reply(chat, None, speaker or chat.host, follows=old.follows)

    async def continue_reply(self, room: str) -> StartedTurn:
        """Continue the last reply where it ended. The longer text is another alternative beside the original."""
        context = self._context
        async with context.lock(room):
            chat = context.chats.chat(room)
            context.require_no_open_reply(room)
            message, old = self._last_exchange(room)
            if old is None or not old.text.strip():
                raise NoSuchTurn("The last turn is not a reply that can be continued.", "Send a message first.")
            if old.speaker not in chat.characters:
                name = context.participants.name(context.participants.names(chat), old.speaker)
                raise NoSuchCharacter(f"{name} has left this chat.", "Invite them again, or send a message.")
            reply = new_id()

            async def decide() -> Decision:
                drop = self._seqs(room, old.id)
                new_events = [NewEvent(room, supersede(drop), OWNER)]
                if message is not None and await self._was_edited(room, message):
                    edit = UserTurnEdit(turn=message.id, text=message.text, segments=message.segments)
                    new_events.append(NewEvent(room, edit, OWNER, turn=reply))
                return new_events, ()

            await context.decide_and_append(room, decide)
            chat = context.chats.chat(room)  # the old reply may have opened a scene, which went with it
            return await self._reply(chat, message, old.speaker, reply, follows=old.follows, beginning=old.text)

    async def add_reply(self, room: str, speaker: str | None) -> StartedTurn:
        """Let a character, by default another one, reply after the last turn; to the same message if it has a reply."""
        context = self._context
        async with context.lock(room):
            chat = context.chats.chat(room)
            context.require_no_open_reply(room)
            message, last = self._last_exchange(room)
            replying = self._require_listener(chat, speaker, message.to if message else ()) if speaker else None
            if last is None:
                return await self._reply(chat, message, replying)
            replying = replying or self._next_to_reply(chat, message, last)
            return await self._reply(chat, message, replying, follows=last.id)

    async def suggest_message(self, room: str, person: str, beginning: str = "") -> str:
        """What the person could say next, written by the model. Nothing is recorded."""
        chat = self._context.chats.chat(room)
        self._context.require_no_open_reply(room)
        suggested = self._prompts.assemble_suggestion(chat, person, redact(beginning))
        stream = self._models.stream(Role.NARRATIVE, suggested.prompt, caller=Caller(room, chat.host))
        parts: list[str] = []
        try:
            async for chunk in stream:
                if isinstance(chunk, TextDelta):
                    parts.append(suggested.speaker_guard.filter(chunk.text))
                    if suggested.speaker_guard.ended:
                        break
        finally:
            await stream.stop()
        text = "".join([*parts, suggested.speaker_guard.flush()]).strip()
        if not text:
            raise BadPoint("The model wrote nothing.", "Try again, or write it yourself.")
        return text

    async def _let_others_reply(self, room: str, started: StartedTurn) -> None:
        """After a reply, let the other characters reply to the same message, as long as nothing else happens."""
        context = self._context
        while True:
            await context.replies.wait(room)
            async with context.lock(room):
                try:
                    chat, message = context.chats.chat(room), self._timeline.turn(room, started.turn)
                except RoomError:
                    return
                last = self._timeline.latest(room, 1)
                if not last or last[0].id != started.reply or last[0].state != "done":
                    return
                waiting = self._waiting(chat, message)
                if not waiting:
                    return
                started = await self._reply(chat, message, waiting[0], follows=started.reply)

    def _waiting(self, chat: Chat, message: Turn) -> list[str]:
        """The characters who heard a message, are not muted, and have not replied to it, in order."""
        muted = self._context.chats.reply_order(chat.room).muted
        replied = {turn.speaker for turn in self._timeline.replies_to(chat.room, message.id)}
        return [one for one in chat.characters if message.heard_by(one) and one not in replied and one not in muted]

    def _next_to_reply(self, chat: Chat, message: Turn | None, last: Turn) -> str:
        """Who speaks after a reply: who has not replied yet, else anybody but its speaker, else the same again."""
        if message is not None and (waiting := self._waiting(chat, message)):
            return self._choose_among(chat, turn_text(last), waiting, last.speaker)
        muted = self._context.chats.reply_order(chat.room).muted
        # Also a guest who joined after that reply, unless it was whispered.
        listeners = [one for one in chat.characters if not last.to or one in last.to]
        others = [one for one in listeners if one != last.speaker and one not in muted]
        return self._choose_among(chat, turn_text(last), others, last.speaker) if others else last.speaker

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
                outdated = self._changes.outdated(room, restore)
                restore = [seq for seq in restore if seq not in outdated]
                # In a fork, an inherited reply changed relationships of another world: those changes are copied.
                changed = [
                    event for event in await self._relationships.changes(room, reply) if world_of(event) != chat.world
                ]
                copies = self._relationships.copies(changed, room)
                return [NewEvent(room, supersede(drop, restore), OWNER), *copies], ()

            await context.decide_and_append(room, decide)
            chosen = self._timeline.turn(room, reply)
            if jobs := await self._changes.rework_after_choosing(room, chosen):
                await self._store.jobs.enqueue(jobs)

    async def _reply(
        self,
        chat: Chat,
        message: Turn | None,
        speaker: str | None,
        reply: str | None = None,
        *,
        follows: str | None = None,
        beginning: str = "",
    ) -> StartedTurn:
        """Start a reply to a message, or a greeting without one. `beginning` is text that it continues."""
        replying = speaker or (self._choose_speaker(chat, message) if message is not None else chat.host)
        reply = reply or new_id()
        to = message.to if message is not None else ()
        await self._pictures.describe_for_reply(chat.room, message)
        assembled = self._prompts.assemble(chat, replying, reply, to, beginning=beginning)
        started = AssistantTurnStarted(
            reply=reply,
            speaker=replying,
            answers=message.id if message is not None else None,
            follows=follows,
            to=(message.speaker, *to) if message is not None and to else (),
            present=tuple(chat.participants),
        )
        payloads = [started, assembled.sent]
        new_events = [NewEvent(chat.room, payload, replying, turn=reply) for payload in payloads]
        if assembled.recalled:
            used = MemoryUsed(owner=replying, ids=tuple(memory.id for memory in assembled.recalled))
            new_events.append(NewEvent(chat.room, used, replying, turn=reply))
        stream = self._models.stream(
            Role.NARRATIVE, assembled.prompt, caller=Caller(chat.room, replying, sampler=assembled.sampler)
        )

        def after(ended: AssistantTurn) -> Sequence[NewJob]:
            summaries = self._summaries.jobs_after(chat.room, ended, assembled.first_turn_seq)
            return [*self._jobs.jobs_after(chat.room, ended), *summaries]

        await self._context.replies.start(
            chat.room,
            reply,
            stream,
            replying,
            after,
            start_events=new_events,
            guard=assembled.speaker_guard,
            beginning=beginning,
        )
        return StartedTurn(started.answers or "", reply, replying)

    async def _classify_unmarked(self, chat: Chat, turn: str, text: str, segments: tuple[Segment, ...]) -> None:
        """Let the classifier separate speech from action where the person used no marks."""
        words = self.settings.reader_from_words
        classified = await classify_unmarked(self._models, segments, words=words, caller=Caller(chat.room))
        if classified is not None and classified != segments:
            edit = UserTurnEdit(turn=turn, text=text, segments=classified)
            await self._store.append([NewEvent(chat.room, edit, "story", turn=turn)])

    def _choose_speaker(self, chat: Chat, message: Turn) -> str:
        rule = self._context.chats.reply_order(chat.room)
        heard = [character for character in chat.characters if message.heard_by(character)] or [chat.host]
        listeners = [character for character in heard if character not in rule.muted] or heard
        last = next((turn for turn in reversed(self._timeline.latest(chat.room, 10)) if not turn.by_person), None)
        previous = last.speaker if last is not None else None
        if rule.order == "in turn" and previous in chat.characters:
            start = chat.characters.index(previous) + 1
            return next(one for one in chat.characters[start:] + chat.characters[:start] if one in listeners)
        if rule.order == "everyone":
            return listeners[0]
        return self._choose_among(chat, visible_text(message.segments), listeners, previous)

    def _choose_among(self, chat: Chat, text: str, listeners: Sequence[str], previous: str | None) -> str:
        if len(listeners) == 1:
            return listeners[0]
        characters = self._context.characters
        return next_speaker(
            text,
            listeners,
            self._context.participants.names(chat),
            {one: characters.get(one, chat.version_of(one)).identity.traits for one in listeners},
            self._context.chats.activities(chat.room),
            previous,
        )

    def _is_replied_to(self, room: str, speaker: str | None, *, reply: bool) -> bool:
        """Whether a message that characters perceive gets a reply at once."""
        return reply and (speaker is not None or self._context.chats.reply_order(room).order != "manual")

    async def _find_repeated(
        self, room: str, event_key: str, speaker: str | None, *, reply: bool
    ) -> StartedTurn | None:
        """The turn that the same message began the first time. If a crash came in between, its reply starts now."""
        turn = self._store.reader.turn_by_key(event_key)
        if turn is None:
            return None
        for begun in self._timeline.latest(room, 50):
            if begun.answers == turn:
                return StartedTurn(turn, begun.id, begun.speaker)
        last = self._timeline.latest(room, 1)
        if not last or last[0].id != turn or self._context.replies.is_running(room):
            return StartedTurn(turn, "", "")  # it was rewound since
        if not self._is_replied_to(room, speaker, reply=reply and bool(turn_text(last[0]))):
            return StartedTurn(turn, "", "")
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
        kept = UserTurn | UserTurnEdit | TurnHidden | PictureDescribed
        return [event.seq for event in events if not isinstance(event.payload, kept)]

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

    def _last_exchange(self, room: str) -> tuple[Turn | None, Turn | None]:
        """The last message, and the last reply to it if there is one; no message if the last reply answers none."""
        turns = self._timeline.latest(room, 1)
        if not turns:
            raise NoSuchTurn("There is no message yet.", "Send a message first.")
        if turns[0].by_person:
            return turns[0], None
        if turns[0].answers is None:
            return None, turns[0]
        try:
            return self._timeline.turn(room, turns[0].answers), turns[0]
        except NoSuchTurn:
            fix = "Restore it, or send another message."
            raise NoSuchTurn("The message that this reply answers was deleted.", fix) from None


class Alternatives:
    """All replies that were ever given to a message, whether they count or not.

    Several characters may reply to one message: the alternatives of a reply are those in its place, after the same
    earlier reply. Deleted replies are left out, and empty ones that failed, unless one of them is shown now.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._timeline = TurnQueries(store)

    async def for_turn(self, room: str, turn: str) -> list[AssistantTurn]:
        """Every reply to a message (its first reply), or in place of a reply; oldest first, the chosen one included."""
        found = self._timeline.turn(room, turn)
        place: tuple[str | None, str | None]
        if found.by_person:
            place, after = (found.id, None), found.seq
        else:
            place = (found.answers, found.follows)
            after = self._seq(room, found.answers) if found.answers is not None else 0
        return self._usable(room, (await self._answers(room, after)).get(place, []))

    async def for_chat(self, room: str) -> dict[str, list[AssistantTurn]]:
        """The same for every reply of a chat, by its id."""
        places = await self._answers(room, 0)
        return {
            one.reply: usable
            for replies in places.values()
            if (usable := self._usable(room, replies))
            for one in usable
        }

    def _usable(self, room: str, replies: Sequence[AssistantTurn]) -> list[AssistantTurn]:
        usable: list[AssistantTurn] = []
        deleted = {turn.id for turn in self._timeline.deleted(room)}
        for reply in replies:
            if reply.reply in deleted:
                continue
            shown = self._shown_text(room, reply.reply)
            if shown is not None:
                usable.append(reply.model_copy(update={"text": shown}))
            elif reply.text.strip() or not reply.truncated:
                usable.append(reply)
        return usable

    def _shown_text(self, room: str, reply: str) -> str | None:
        """The text of a reply that counts, which may have been edited; None for another alternative."""
        try:
            return self._timeline.turn(room, reply).text
        except NoSuchTurn:
            return None

    def _seq(self, room: str, turn: str) -> int:
        try:
            return self._timeline.turn(room, turn).seq
        except NoSuchTurn:
            return 0

    async def _answers(self, room: str, after: int) -> dict[tuple[str | None, str | None], list[AssistantTurn]]:
        """The replies by the message that they answer and the reply that they follow."""
        places: dict[str, tuple[str | None, str | None]] = {}
        replies: dict[tuple[str | None, str | None], list[AssistantTurn]] = {}
        for event in await self._reply_events(room, after):
            if isinstance(event.payload, AssistantTurnStarted):
                places[event.payload.reply] = event.payload.answers, event.payload.follows
            elif isinstance(event.payload, AssistantTurn) and event.payload.reply in places:
                replies.setdefault(places[event.payload.reply], []).append(event.payload)
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
