"""A chat to take along: Markdown to read, JSON to work with, JSONL for SillyTavern. S26

Secrets that were pasted somewhere do not leave the house with it (S29).
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel

from coterie.base.masking import mask
from coterie.cast.cards.tavern_chat import TavernChat, TavernTurn
from coterie.engine.events import AssistantTurn
from coterie.engine.turns import Turn
from coterie.modes.story.chats import Chat
from coterie.modes.story.story import Story

ExportFormat = Literal["md", "json", "jsonl"]
_PAGE = 1_000
VERSION = 1


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
    version: int = VERSION
    title: str
    host: str
    characters: dict[str, str]
    you: str
    clock: datetime
    turns: list[ExportedTurn]


async def export_chat(story: Story, room: str, kind: ExportFormat) -> bytes:
    chat = story.chats.chat(room)
    exported = await _exported(story, chat)
    match kind:
        case "json":
            return (exported.model_dump_json(indent=2) + "\n").encode()
        case "jsonl":
            return _tavern(exported).to_bytes() + b"\n"
        case "md":
            return _markdown(exported).encode()


async def _exported(story: Story, chat: Chat) -> ExportedChat:
    names = story.prompter.names(chat)
    others = await story.swipes.everywhere(chat.room)
    turns = [_turn(turn, names, others.get(turn.answers, ())) for turn in _all_turns(story, chat.room)]
    return ExportedChat(
        title=mask(chat.title),
        host=chat.host,
        characters={bot: name for bot, name in names.items() if bot not in chat.people},
        you=names[chat.person],
        clock=chat.clock,
        turns=turns,
    )


def _all_turns(story: Story, room: str) -> list[Turn]:
    turns: list[Turn] = []
    while page := story.timeline.latest(room, _PAGE, turns[0].seq if turns else None):
        turns = [*page, *turns]
    return turns


def _turn(turn: Turn, names: dict[str, str], given: list[AssistantTurn] | tuple[()]) -> ExportedTurn:
    ids = [reply.reply for reply in given]
    swiped = not turn.by_person and len(ids) > 1 and turn.id in ids
    return ExportedTurn(
        id=turn.id,
        speaker=turn.speaker,
        name=names.get(turn.speaker, turn.speaker),
        by_person=turn.by_person,
        text=mask(turn.text),
        at=turn.shown_at,
        truncated=turn.state != "done",
        to=list(turn.to),
        alternatives=[mask(reply.text) for reply in given] if swiped else [],
        chosen=ids.index(turn.id) if swiped else 0,
    )


def _tavern(chat: ExportedChat) -> TavernChat:
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
    parts = [f"# {_line(chat.title)}", f"*{_line(company)}*"]
    for turn in chat.turns:
        whisper = " (whispered)" if turn.to else ""
        cut = " […]" if turn.truncated else ""
        parts.append(f"**{_line(turn.name)}**{whisper}: {turn.text.strip()}{cut}")
    return "\n\n".join(parts) + "\n"


def _line(text: str) -> str:
    """A name or title is one line: it must not become a heading of its own."""
    return " ".join(text.split())
