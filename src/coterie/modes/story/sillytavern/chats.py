"""SillyTavern's chats as events, and back.

Every message becomes a turn and every swipe an alternative. Fields of a line that a turn does not have are kept beside
the turns, so that an export gives the file back field by field.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from coterie.base.ids import new_id
from coterie.base.offload import run_limited
from coterie.base.redaction import redact
from coterie.characters import OWNER, Character, TavernChat, TavernTurn
from coterie.conversation import AssistantTurn, AssistantTurnStarted, Segment, UserTurn
from coterie.eventstore import NewEvent, Payload, Store
from coterie.memory import Memory, NewMemory
from coterie.modes.story.chat_context import IMPORT_ACTOR, supersede
from coterie.modes.story.events import GuestJoined
from coterie.modes.story.opening import Opening
from coterie.modes.story.queries import Chat
from coterie.modes.story.service import StoryService
from coterie.modes.story.sillytavern.source import Document, read_chat_file, storable
from coterie.modes.story.turn_parser import parse_segments, visible_text

_TURN_FIELDS = ("mes", "swipes", "swipe_id")
"""The fields of a line that its turn has."""
_KEPT_PAGE = 500


class KeptLine(BaseModel):
    """What a turn does not have of the line it was imported from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    fields: Document = {}
    """Its other fields, as they were."""
    hidden: bool = False
    """It was hidden from the prompt: its turn has it as an out-of-character note."""
    swipes: list[Any] | None = None
    """Its swipes, where they are not the alternatives of the turn."""
    has_swipes: bool = False
    alternatives: int = 1
    """How many alternatives its turn had."""
    chosen: int = 0
    """Which of them was chosen."""


class LinesKept(Payload, kind="story_lines_kept"):
    """Fields of an imported chat that its turns do not have, kept for an export."""

    header: Document | None = None
    """The first line of the file, in the first of these events."""
    lines: dict[str, KeptLine] = Field(default_factory=dict)
    """Turn id → the rest of its line. Of a message with swipes, the chosen one's turn is meant."""
    messages: int = 0
    """How many messages the file had."""


@dataclass(frozen=True)
class KeptChat:
    header: Document = field(default_factory=dict)
    lines: Mapping[str, KeptLine] = field(default_factory=dict)

    def line_of(self, replies: Sequence[str]) -> KeptLine | None:
        """The line that one of these turns, which are alternatives of each other, was imported from."""
        return next((self.lines[reply] for reply in replies if reply in self.lines), None)


SpeakerOf = Callable[[Document], str | None]
"""The id of the character that spoke a line of a chat; None if it is not known."""


class ChatConversion:
    """The new events of a chat from the lines of its file, and the memories of its turns."""

    def __init__(
        self, room: str, characters: Sequence[Character], seq: int, speaker_of: SpeakerOf = lambda _: None
    ) -> None:
        """`characters` are those present, the host first; `seq` is that of the last event of the room so far."""
        self.room = room
        self.characters = list(characters)
        self.hidden = 0
        self.unknown_speakers: set[str] = set()
        self._host = characters[0]
        self._names = {character.id: character.name for character in characters}
        self._seq = seq
        self._speaker_of = speaker_of
        self._entries: list[NewEvent | NewMemory] = []
        """In order: a memory stands right after its turn, so that a rewind to the turn keeps it."""
        self._dropped: set[int] = set()
        """The positions of the events of replies that were not chosen."""
        self._previous: str | None = None
        """The turn that the next reply answers."""

    def add_all(self, chat: TavernChat, *, first: int = 0, after: str | None = None) -> None:
        """Convert all messages, or those from `first` on, which follow the turn `after`."""
        self._previous = after
        pairs = list(zip(chat.messages, chat.turns, strict=True))[first:]
        ids = [(new_id(), [new_id() for _ in turn.swipes or [turn.text]]) for _, turn in pairs]
        self._keep_lines(chat.header if not first else None, pairs, ids, len(chat.messages))
        for (raw, turn), (message, replies) in zip(pairs, ids, strict=True):
            if turn.speaker == "character":
                self._add_replies(raw, turn, replies)
            else:
                self._add_message(turn, message, hidden=is_hidden(raw, turn))

    def new_events(self, memory: Memory) -> list[NewEvent]:
        """All events, with those that store the memories. Calls no model."""
        memories = [entry for entry in self._entries if isinstance(entry, NewMemory)]
        planned = iter(memory.writer.plan(memories, by_meaning=False, actor="import"))
        new_events: list[NewEvent] = []
        dropped: list[int] = []
        for position, entry in enumerate(self._entries):
            if isinstance(entry, NewMemory):
                new_events += (event._replace(turn=entry.sources[0]) for event in next(planned).new_events)
                continue
            new_events.append(entry)
            if position in self._dropped:
                dropped.append(self._seq + len(new_events))
        if dropped:
            new_events.append(NewEvent(self.room, supersede(dropped), IMPORT_ACTOR))
        return new_events

    def _keep_lines(
        self,
        header: Document | None,
        pairs: Sequence[tuple[Document, TavernTurn]],
        ids: Sequence[tuple[str, list[str]]],
        messages: int,
    ) -> None:
        """Before the turns, so that a rewind to any of them keeps it."""
        kept = {}
        for (raw, turn), (message, replies) in zip(pairs, ids, strict=True):
            kept[replies[turn.chosen] if turn.speaker == "character" else message] = _kept_line(raw, turn)
        turns = list(kept)
        for start in range(0, max(len(turns), 1), _KEPT_PAGE):
            page = {turn: kept[turn] for turn in turns[start : start + _KEPT_PAGE]}
            payload = LinesKept(header=storable(header) if not start else None, lines=page, messages=messages)
            self._entries.append(NewEvent(self.room, payload, OWNER))

    def _add_message(self, turn: TavernTurn, turn_id: str, *, hidden: bool) -> None:
        # Hidden and system messages are for the player only, like out-of-character notes.
        segments = (Segment(kind="ooc", text=turn.text),) if hidden else tuple(parse_segments(turn.text))
        text = f"(({turn.text}))" if hidden else turn.text
        self.hidden += hidden
        message = UserTurn(turn=turn_id, author=OWNER, text=text, segments=segments, sent=turn.sent)
        self._entries.append(NewEvent(self.room, message, OWNER, turn=turn_id))
        if not hidden:
            self._previous = turn_id
        self._remember(visible_text(segments), turn.name or OWNER, turn_id)

    def _add_replies(self, raw: Document, turn: TavernTurn, ids: Sequence[str]) -> None:
        """Add all alternatives; those that were not chosen are superseded, and can be chosen later."""
        speaker = self._speaker_of(raw)
        if speaker is None:
            speaker = self._host.id
            if turn.name and turn.name != self._host.name:
                self.unknown_speakers.add(turn.name)
        for number, (reply, text) in enumerate(zip(ids, turn.swipes or [turn.text], strict=True)):
            started = AssistantTurnStarted(reply=reply, speaker=speaker, answers=self._previous, sent=turn.sent)
            self._entries.append(NewEvent(self.room, started, speaker, turn=reply))
            self._entries.append(NewEvent(self.room, AssistantTurn(reply=reply, text=text), speaker, turn=reply))
            if number != turn.chosen:
                self._dropped |= {len(self._entries) - 2, len(self._entries) - 1}
        self._previous = ids[turn.chosen]
        self._remember(turn.text.strip(), self._names.get(speaker, turn.name), self._previous)

    def _remember(self, text: str, speaker: str, source: str) -> None:
        if not text.replace("\0", "").strip():
            return
        witnesses = (*(character.id for character in self.characters), OWNER)
        for character in self.characters:
            memory = NewMemory(
                text, owner=character.id, room=self.room, speaker=speaker, witnesses=witnesses, sources=(source,)
            )
            self._entries.append(memory)


def is_hidden(raw: Document, turn: TavernTurn) -> bool:
    """Whether a line is not part of the story: a message of the program, or one that was hidden from the prompt."""
    return turn.speaker == "system" or (turn.speaker == "user" and raw.get("is_system") is True)


def _kept_line(raw: Document, turn: TavernTurn) -> KeptLine:
    fields = {name: value for name, value in raw.items() if name not in _TURN_FIELDS}
    if raw.get("mes") != turn.text:
        fields["mes"] = raw.get("mes")
    swipes = raw.get("swipes")
    has_swipes = isinstance(swipes, list)
    derived = turn.speaker == "character" and bool(swipes) and turn.swipes == swipes
    same = derived and type(raw.get("swipe_id")) is int and raw["swipe_id"] == turn.chosen
    if not same and "swipe_id" in raw:
        fields["swipe_id"] = raw["swipe_id"]
    if not has_swipes and "swipes" in raw:
        fields["swipes"] = swipes
    return KeptLine(
        fields=storable(fields),
        hidden=is_hidden(raw, turn),
        swipes=storable(swipes) if has_swipes and not same else None,
        has_swipes=has_swipes,
        alternatives=max(1, len(turn.swipes)) if turn.speaker == "character" else 1,
        chosen=turn.chosen if turn.speaker == "character" else 0,
    )


def exported_line(line: Document, kept: KeptLine) -> Document:
    """The line that a turn was imported from, with what the turn says today; `line` is what a new turn would get."""
    text, alternatives = str(line["mes"]), line.get("swipes") or [line["mes"]]
    merged: Document = {"mes": text, **kept.fields}
    if kept.hidden and "mes" not in kept.fields:
        merged["mes"] = text.removeprefix("((").removesuffix("))")
    if (len(alternatives), line.get("swipe_id", 0)) == (kept.alternatives, kept.chosen):
        if kept.swipes is not None:
            return {**merged, "swipes": kept.swipes}
        if not kept.has_swipes:
            return merged
    merged |= {"swipes": alternatives, "swipe_id": line.get("swipe_id", 0)}
    info = merged.get("swipe_info")
    if isinstance(info, list) and kept.alternatives < len(alternatives):
        merged["swipe_info"] = [*info, *({"extra": {}} for _ in alternatives[len(info) :])]
    return merged


async def read_kept_lines(store: Store, room: str) -> KeptChat:
    """What was kept of the file that a chat, or the one that it was forked from, was imported from."""
    header: Document = {}
    lines: dict[str, KeptLine] = {}
    if (origin := store.reader.fork_origin(room)) is not None:
        inherited = await read_kept_lines(store, origin[0])
        header, lines = dict(inherited.header), dict(inherited.lines)
    after = 0
    while page := await store.read(room, after=after, kinds=[LinesKept.kind]):
        for event in page:
            if isinstance(event.payload, LinesKept):
                header = header or event.payload.header or {}
                lines |= event.payload.lines
        after = page[-1].seq
    return KeptChat(redact.value(header), {turn: KeptLine.model_validate(redact.value(one.model_dump()))
                                           for turn, one in lines.items()})  # fmt: skip


async def read_tavern_chat(data: bytes) -> TavernChat:
    """The chat in a file, with its turns read."""
    return await run_limited("Reading the chat", len(data), read_chat_file, data)


async def import_tavern_chat(
    story: StoryService, store: Store, memory: Memory, character: Character, chat: TavernChat, title: str = ""
) -> Chat:
    """Import a SillyTavern chat with its memories in one transaction, without calling a model."""
    room = f"room:{new_id()}"
    opening = story.opening_events(room, character, Opening(title=title.strip() or f"{character.name} (imported)"))
    conversion = ChatConversion(room, [character], len(opening))

    def convert() -> None:
        conversion.add_all(chat)
        store.append_blocking([*opening, *conversion.new_events(memory)])

    await asyncio.to_thread(convert)
    return story.chats.chat(room)


def begin_group(room: str, guests: Sequence[Character]) -> list[NewEvent]:
    """The events with which the guests of an imported chat join it."""
    return [NewEvent(room, GuestJoined(guest=guest.id, bot_version=guest.version), OWNER) for guest in guests]
