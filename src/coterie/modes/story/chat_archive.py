"""A chat to take along: Markdown to read, JSON to work with, JSONL for SillyTavern. S26

Secrets that were pasted somewhere do not leave the house with it (S29).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from pydantic import BaseModel

from coterie.base.ids import new_id
from coterie.base.redaction import redact
from coterie.characters.cards.tavern_chat import TavernChat, TavernTurn
from coterie.characters.service import OWNER, Character
from coterie.conversation.events import AssistantTurn, AssistantTurnStarted, Segment, UserTurn
from coterie.conversation.turns import Turn
from coterie.eventstore import NewEvent, Store
from coterie.memory import Memory
from coterie.memory.writer import NewMemory
from coterie.modes.story.chat_context import supersede
from coterie.modes.story.opening import Opening
from coterie.modes.story.queries import Chat
from coterie.modes.story.service import StoryService
from coterie.modes.story.turn_parser import parse_segments, visible_text

ExportFormat = Literal["md", "json", "jsonl"]
_EXPORT_PAGE = 1_000
CHAT_FORMAT_VERSION = 1


class ExportedTurn(BaseModel):
    id: str
    speaker: str
    name: str
    by_person: bool
    text: str
    at: datetime
    truncated: bool = False
    to: list[str] = []
    alternatives: list[str] = []
    """Every reply there was in its place, the chosen one among them; empty when there was only one."""
    chosen: int = 0


class ExportedChat(BaseModel):
    format: Literal["coterie-chat"] = "coterie-chat"
    version: int = CHAT_FORMAT_VERSION
    title: str
    host: str
    characters: dict[str, str]
    you: str
    clock: datetime
    turns: list[ExportedTurn]


async def export_chat(story: StoryService, room: str, kind: ExportFormat) -> bytes:
    chat = story.chats.chat(room)
    exported = await _collect_chat(story, chat)
    match kind:
        case "json":
            return (exported.model_dump_json(indent=2) + "\n").encode()
        case "jsonl":
            return _as_tavern_chat(exported).to_bytes() + b"\n"
        case "md":
            return _markdown(exported).encode()


async def _collect_chat(story: StoryService, chat: Chat) -> ExportedChat:
    names = story.participants.names(chat)
    others = await story.turns.alternatives.for_chat(chat.room)
    turns = [_exported_turn(turn, names, others.get(turn.answers, ())) for turn in _all_turns(story, chat.room)]
    return ExportedChat(
        title=redact(chat.title),
        host=chat.host,
        characters={bot: name for bot, name in names.items() if bot not in chat.people},
        you=names[chat.person],
        clock=chat.clock,
        turns=turns,
    )


def _all_turns(story: StoryService, room: str) -> list[Turn]:
    turns: list[Turn] = []
    while page := story.timeline.latest(room, _EXPORT_PAGE, turns[0].seq if turns else None):
        turns = [*page, *turns]
    return turns


def _exported_turn(turn: Turn, names: dict[str, str], given: list[AssistantTurn] | tuple[()]) -> ExportedTurn:
    ids = [reply.reply for reply in given]
    swiped = not turn.by_person and len(ids) > 1 and turn.id in ids
    return ExportedTurn(
        id=turn.id,
        speaker=turn.speaker,
        name=names.get(turn.speaker, turn.speaker),
        by_person=turn.by_person,
        text=redact(turn.text),
        at=turn.shown_at,
        truncated=turn.state != "done",
        to=list(turn.to),
        alternatives=[redact(reply.text) for reply in given] if swiped else [],
        chosen=ids.index(turn.id) if swiped else 0,
    )


def _as_tavern_chat(chat: ExportedChat) -> TavernChat:
    turns = [
        TavernTurn(
            speaker="user" if turn.by_person else "character",
            name=turn.name,
            text=turn.text,
            swipes=turn.alternatives,
            chosen=turn.chosen,
            sent=turn.at,
        )
        for turn in chat.turns
    ]
    created = chat.turns[0].at if chat.turns else chat.clock
    return TavernChat.compose(user=chat.you, character=chat.characters[chat.host], turns=turns, created=created)


def _markdown(chat: ExportedChat) -> str:
    company = ", ".join([chat.you, *chat.characters.values()])
    parts = [f"# {_one_line(chat.title)}", f"*{_one_line(company)}*"]
    for turn in chat.turns:
        whisper = " (whispered)" if turn.to else ""
        cut = " […]" if turn.truncated else ""
        parts.append(f"**{_one_line(turn.name)}**{whisper}: {turn.text.strip()}{cut}")
    return "\n\n".join(parts) + "\n"


def _one_line(text: str) -> str:
    """A name or title is one line: it must not become a heading of its own."""
    return " ".join(text.split())


# A SillyTavern chat becomes a chat here, with its turns and swipes, and the character remembers it. S9
#
# Replies that were swiped away are recorded and superseded, so that they can be swiped back to. No model is asked.


_BATCH = 500


@dataclass
class _ImportedChat:
    """The events of the turns, and what is to be remembered of them."""

    room: str
    bot: Character
    seq: int
    """The number of the last event so far."""
    drafts: list[NewEvent] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    memories: list[NewMemory] = field(default_factory=list)
    asked: str | None = None

    def add(self, draft: NewEvent) -> None:
        self.drafts.append(draft)
        self.seq += 1


async def import_tavern_chat(
    story: StoryService, store: Store, memory: Memory, character: Character, chat: TavernChat, title: str = ""
) -> Chat:
    """The whole chat in one transaction; what there is to remember follows."""
    room = f"room:{new_id()}"
    drafts = story.opening_events(room, character, Opening(title=title.strip() or f"{character.name} (imported)"))
    script = _ImportedChat(room, character, seq=len(drafts))
    for turn in chat.turns:
        if turn.speaker == "character":
            _add_reply(script, turn)
        else:
            _add_message(script, turn)
    drafts += script.drafts
    if script.dropped:
        drafts.append(NewEvent(room, supersede(script.dropped), OWNER))
    await store.append(drafts)
    for batch in _batches(script.memories):
        planned = memory.writer.plan(batch, by_meaning=False, actor="import")
        if remembered := [draft for plan in planned for draft in plan.new_events]:
            await store.append(remembered)
    return story.chats.chat(room)


def _add_message(script: _ImportedChat, turn: TavernTurn) -> None:
    """SillyTavern's system messages are for the player only, as notes are here."""
    note = turn.speaker == "system"
    segments = (Segment(kind="ooc", text=turn.text),) if note else tuple(parse_segments(turn.text))
    if not segments:
        return
    turn_id = new_id()
    text = f"(({turn.text}))" if note else turn.text
    said = UserTurn(turn=turn_id, author=OWNER, text=text, segments=segments, sent=turn.sent)
    script.add(NewEvent(script.room, said, OWNER, turn=turn_id))
    if not note:
        script.asked = turn_id
    _add_memory(script, visible_text(segments), turn.name or OWNER, turn_id)


def _add_reply(script: _ImportedChat, turn: TavernTurn) -> None:
    texts = turn.swipes or [turn.text]
    for number, text in enumerate(texts):
        reply = new_id()
        started = AssistantTurnStarted(reply=reply, speaker=script.bot.id, answers=script.asked, sent=turn.sent)
        script.add(NewEvent(script.room, started, script.bot.id, turn=reply))
        script.add(NewEvent(script.room, AssistantTurn(reply=reply, text=text), script.bot.id, turn=reply))
        if number != turn.chosen:
            script.dropped += [script.seq - 1, script.seq]
        else:
            _add_memory(script, text.strip(), script.bot.name, reply)


def _add_memory(script: _ImportedChat, text: str, speaker: str, source: str) -> None:
    if text:
        new = NewMemory(
            text,
            owner=script.bot.id,
            room=script.room,
            speaker=speaker,
            witnesses=(script.bot.id, OWNER),
            sources=(source,),
        )
        script.memories.append(new)


def _batches(memories: list[NewMemory]) -> Iterator[list[NewMemory]]:
    for start in range(0, len(memories), _BATCH):
        yield memories[start : start + _BATCH]
