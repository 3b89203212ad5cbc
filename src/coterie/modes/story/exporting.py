"""A chat to take along: Markdown to read, JSON to work with, JSONL for SillyTavern. S26

Secrets that were pasted somewhere do not leave the house with it (S29).
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel

from coterie.base.masking import redact
from coterie.cast.cards.tavern_chat import TavernChat, TavernTurn
from coterie.engine.events import AssistantTurn
from coterie.engine.turns import Turn
from coterie.modes.story.chats import Chat
from coterie.modes.story.story import StoryService

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
    others = await story.swipes.for_chat(chat.room)
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
