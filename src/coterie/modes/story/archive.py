"""Export and import of whole characters (JSON) and of chats (Markdown, JSON, SillyTavern JSONL).

Exports are redacted: a secret that somebody pasted into a chat does not leave the instance.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import pickle
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from coterie.base.ids import new_id
from coterie.base.offload import run_limited
from coterie.base.redaction import redact
from coterie.base.values import clamp_time
from coterie.characters import (
    OWNER,
    BrokenCard,
    Card,
    CardError,
    CardFormat,
    Character,
    CharacterAuthored,
    Characters,
    Identity,
    ImportedCard,
    NotACard,
    TavernChat,
    TavernTurn,
    Workspaces,
    check_identity,
    check_size,
    export_card,
    import_card,
    read_object,
)
from coterie.conversation import AssistantTurn, Turn
from coterie.eventstore import NewEvent, Store
from coterie.memory import (
    MAX_PINS,
    BadImport,
    Memory,
    export_lines,
    import_lines,
    in_batches,
    parse_import,
    store_import,
)
from coterie.modes.story.edits import Pins
from coterie.modes.story.events import MAIN_WORLD, Relationship, RelationshipUpdated
from coterie.modes.story.queries import Chat, RelationshipQueries
from coterie.modes.story.service import StoryService
from coterie.modes.story.sillytavern.chats import KeptChat, exported_line, read_kept_lines

CHARACTER_FORMAT: Final = "coterie-character"
CHARACTER_FORMAT_VERSION: Final = 1
CHAT_FORMAT_VERSION = 1
ExportFormat = Literal["md", "json", "jsonl"]
_EXPORT_PAGE = 1_000


class ArchivedCard(BaseModel):
    model_config = ConfigDict(extra="forbid")

    document: dict[str, Any]
    files: dict[str, str] = {}
    """Path → base64."""
    picture: str | None = None

    @classmethod
    def of(cls, card: Card) -> ArchivedCard:
        return cls(
            document=card.document,
            files={path: _base64(data) for path, data in card.files.items()},
            picture=None if card.picture is None else _base64(card.picture),
        )

    def card(self) -> Card:
        try:
            files = {path: base64.b64decode(data, validate=True) for path, data in self.files.items()}
            picture = None if self.picture is None else base64.b64decode(self.picture, validate=True)
        except (binascii.Error, ValueError):
            raise BrokenCard("A picture or file in it is damaged.", "Export the character again.") from None
        return Card.read(self.document, files, picture)


class CharacterArchive(BaseModel):
    model_config = ConfigDict(extra="forbid")

    format: Literal["coterie-character"] = CHARACTER_FORMAT
    version: Literal[1] = CHARACTER_FORMAT_VERSION
    versions: list[Identity] = Field(min_length=1)
    """Every version, the newest last."""
    card: ArchivedCard | None = None
    memories: list[dict[str, Any]] = []
    edges: list[Relationship] = []


def export_character(store: Store, characters: Characters, character: Character, card: Card | None) -> bytes:
    """A character with its versions, card, memories and relationships, except those of forks."""
    forks = store.reader.forks()
    memories = [json.loads(line) for line in export_lines(store, character.id)][1:]
    archive = CharacterArchive(
        versions=[version.identity for version in characters.versions(character.id)],
        card=None if card is None else ArchivedCard.of(card),
        memories=[redact.value(entry) for entry in memories if entry["room"] not in forks],
        edges=[one for one in RelationshipQueries(store).in_world(MAIN_WORLD) if character.id in (one.of, one.toward)],
    )
    return (archive.model_dump_json(indent=1) + "\n").encode()


def is_character_archive(data: bytes) -> bool:
    return data.lstrip()[:1] == b"{" and f'"{CHARACTER_FORMAT}"'.encode() in data[:200]


def read_character_archive(data: bytes) -> CharacterArchive:
    check_size(len(data))
    document = read_object(data, "The character's file")
    if document.get("format") != CHARACTER_FORMAT:
        raise NotACard("This is not a character exported from Coterie.", "Choose a file made by Export character.")
    if (version := document.get("version")) != CHARACTER_FORMAT_VERSION:
        raise NotACard(
            f"The file is of version {str(version)[:20]}; this Coterie reads version {CHARACTER_FORMAT_VERSION}.",
            "Upgrade Coterie.",
        )
    try:
        return CharacterArchive.model_validate(document)
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        raise BrokenCard(f"The file's {where} does not fit.", "Export the character again.") from None


async def import_character(
    store: Store, characters: Characters, memory: Memory, archive: CharacterArchive
) -> tuple[Character, Card | None]:
    """The imported character, and its card with pictures.

    It keeps its id unless that is taken; then it becomes another character with the same past. Its memories get
    their own stream, since its chats are not part of the archive.
    """
    old_id = archive.versions[-1].id
    taken = {character.id for character in characters.all()}
    character_id = new_id() if old_id in taken or not _is_id(old_id) else old_id
    card = archive.card.card() if archive.card is not None else None
    room, stream = f"memory:{character_id}", f"cast:{character_id}"
    document = card.document if card is not None else None
    for one in archive.versions:
        check_identity(one)
    new_events = [
        NewEvent(stream, CharacterAuthored(identity=one.model_copy(update={"id": character_id}), card=document), OWNER)
        for one in archive.versions
    ]
    for relationship in archive.edges:
        of, toward = (character_id if entity == old_id else entity for entity in (relationship.of, relationship.toward))
        if {of, toward} <= {character_id, OWNER, *taken}:
            new_events.append(NewEvent(stream, _relationship_update(relationship, of, toward), OWNER))
    # The memories come first: if they are refused, no character is left behind.
    lines = (
        json.dumps(_reassign_memory(entry, old_id, character_id, fresh=character_id != old_id), ensure_ascii=False)
        for entry in archive.memories
    )
    await asyncio.to_thread(import_lines, store, memory.writer, lines, owner=character_id, room=room)
    await store.append(new_events)
    return characters.get(character_id), card


MAX_IMPORTED_MEMORIES = 200_000


async def import_memories(store: Store, memory: Memory, data: bytes, character_id: str) -> int:
    """Import exported memories for a character, and return how many were new. Nothing is stored if a line is invalid.

    The character takes the place of the former owner. Rooms in the file belong to another instance, so that the
    memories get the character's own stream.
    """
    room = f"memory:{character_id}"
    pins_left = MAX_PINS - len(Pins(store).pinned(room, character_id))
    batches = await run_limited("Reading the memories", len(data), _read_memories, data, character_id, room, pins_left)
    # One batch at a time becomes objects again, in a thread, so that the event loop runs in between.
    parsed = (pickle.loads(batch) for batch in batches)  # noqa: S301 - from our own function
    return await asyncio.to_thread(store_import, store, memory.writer, parsed)


def _read_memories(data: bytes, owner: str, room: str, pins_left: int) -> list[bytes]:
    """The memories of a file, checked, in pickled batches."""
    if data.count(b"\n") > MAX_IMPORTED_MEMORIES:
        raise BadImport(
            f"The file has more than {MAX_IMPORTED_MEMORIES:,} lines.", "Split it, and import one part after the other."
        )
    try:
        lines = data.decode().split("\n")
    except UnicodeDecodeError:
        raise BadImport("This is not text.", "Choose a file of JSON lines, exported here.") from None
    memories = list(parse_import(reassign_memories(lines, owner, pins_left), owner=owner, room=room))
    return [pickle.dumps(batch) for batch in in_batches(memories)]


def reassign_memories(lines: Iterable[str], owner: str, pins_left: int) -> Iterator[str]:
    """Exported memories with another owner, who takes the place of the former one among witnesses.

    Lines that are no memory stay as they are, for the importer to refuse. Pins beyond the limit are dropped.
    """
    for line in lines:
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            entry = None
        if not isinstance(entry, dict) or not isinstance(entry.get("text"), str):
            yield line
            continue
        old = str(entry.get("owner"))
        pinned = bool(entry.get("pinned")) and pins_left > 0
        pins_left -= pinned
        moved = {**_reassign_memory(entry, old, owner, fresh=old != owner), "pinned": pinned}
        yield json.dumps(moved, ensure_ascii=False)


def _relationship_update(imported: Relationship, of: str, toward: str) -> RelationshipUpdated:
    return RelationshipUpdated(
        world=MAIN_WORLD,
        of=of,
        toward=toward,
        affinity_delta=max(-100, min(100, imported.affinity - 50)),
        trust_delta=max(-100, min(100, imported.trust - 50)),
        knowledge=imported.knowledge,
        summary=imported.summary or None,
        when=clamp_time(imported.when) if imported.when is not None else None,
    )


def _reassign_memory(entry: dict[str, Any], old: str, new: str, *, fresh: bool) -> dict[str, Any]:
    """A memory with another owner; `fresh` also gives it a new id, because the old one is in use."""
    if not isinstance(entry.get("text"), str):
        raise CardError("A memory in the file has no text.", "Export the character again.")
    renamed = {
        name: [new if entity == old else entity for entity in entities] if isinstance(entities, list) else entities
        for name in ("witnesses", "about")
        if (entities := entry.get(name))
    }
    moved = {**entry, **renamed, "owner": new}
    if fresh and entry.get("id"):
        moved["id"] = f"{entry['id']}-{new}"
        links = entry.get("links")
        moved["links"] = [
            {**link, "target": f"{link.get('target')}-{new}"}
            for link in (links if isinstance(links, list) else [])
            if isinstance(link, dict)
        ]
        if entry.get("superseded_by"):
            moved["superseded_by"] = f"{entry['superseded_by']}-{new}"
    return moved


def _is_id(text: str) -> bool:
    """Whether an id from a file is safe to become the name of a stream and of a folder."""
    return text.isascii() and text.isalnum() and len(text) <= 40


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


class CharacterImporter:
    """Saves characters that are written here, or imported from a card or an archive, and prepares their folders."""

    def __init__(self, store: Store, characters: Characters, memory: Memory, workspaces: Workspaces) -> None:
        self._store = store
        self._characters = characters
        self._memory = memory
        self._workspaces = workspaces

    async def author(self, identity: Identity) -> Character:
        """Create a character, or save a new version of it."""
        character = await self._characters.save(identity)
        self.prepare_folder(character)
        return character

    async def import_file(self, data: bytes, file_name: str) -> tuple[Character, list[str]]:
        """Import a card or an archive; returns the character, and notes about what was unusual in the file."""
        notes: list[str] = []
        if is_character_archive(data):
            archive, charx = await run_limited("Reading the character", len(data), _read_archive_file, data)
            character, archived = await import_character(self._store, self._characters, self._memory, archive)
            if charx is not None and archived is not None:
                await self.save_card_file(character.id, archived.document, charx, "charx")
        else:
            card, kind, notes = await run_limited("Reading the card", len(data), _read_card_file, data, file_name)
            character = await self._characters.save(Identity.from_card(card), card)
            await self.save_card_file(character.id, card.document, data, kind)
        self.prepare_folder(character)
        return character, notes

    def prepare_folder(self, character: Character) -> None:
        self._workspaces.prepare(character, self._characters.owner())

    async def save_card_file(self, character_id: str, document: dict[str, Any], data: bytes, kind: CardFormat) -> None:
        """Keep the file with its pictures. The document in it is stored as it is in the log, without secrets."""
        redacted = redact.value(document)
        if redacted is not document:
            data = await asyncio.to_thread(_without_secrets, data, kind, redacted)
        await asyncio.to_thread(self._workspaces.save_card, character_id, data, kind)


def _read_card_file(data: bytes, file_name: str) -> ImportedCard:
    """The card without its pictures and files: they stay in the file, which is kept as it is."""
    imported = import_card(data, file_name)
    return imported._replace(card=Card.read(imported.card.document))


def _read_archive_file(data: bytes) -> tuple[CharacterArchive, bytes | None]:
    """The archive without the pictures and files of its card, and a CHARX with them, if there are any."""
    archive = read_character_archive(data)
    card = archive.card.card() if archive.card is not None else None
    if card is None or not (card.files or card.picture):
        return archive, None
    bare = archive.model_copy(update={"card": ArchivedCard(document=card.document)})
    return bare, export_card(card, "charx").data


def _without_secrets(data: bytes, kind: CardFormat, document: dict[str, Any]) -> bytes:
    """The file of a card with its document replaced by a redacted one."""
    card = import_card(data, f"card.{kind}").card
    return export_card(Card.read(document, card.files, card.picture), kind).data


class ExportedPicture(BaseModel):
    id: str
    description: str = ""


class ExportedTurn(BaseModel):
    id: str
    speaker: str
    name: str
    by_person: bool
    text: str
    at: datetime
    truncated: bool = False
    to: list[str] = []
    hidden: bool = False
    """Left out of prompts and memories."""
    edited: bool = False
    alternatives: list[str] = []
    """All replies to the message, including the chosen one; empty if there was only one."""
    chosen: int = 0
    pictures: list[ExportedPicture] = []


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
            kept = await read_kept_lines(story.context.store, room)
            others = await story.turns.alternatives.for_chat(room)
            alternatives = {
                one.reply: [reply.reply for reply in replies] for replies in others.values() for one in replies
            }
            return _as_tavern_chat(exported, kept, alternatives).to_bytes() + b"\n"
        case "md":
            return _markdown(exported).encode()


async def _collect_chat(story: StoryService, chat: Chat) -> ExportedChat:
    names = story.participants.names(chat)
    others = await story.turns.alternatives.for_chat(chat.room)
    turns = [
        _export_turn(turn, story.participants.turn_name(chat, names, turn), others.get(turn.id, ()))
        for turn in _all_turns(story, chat.room)
    ]
    return ExportedChat(
        title=redact(chat.title),
        host=chat.host,
        characters={entity: name for entity, name in names.items() if entity not in chat.people},
        you=names[chat.person],
        clock=chat.clock,
        turns=turns,
    )


def _all_turns(story: StoryService, room: str) -> list[Turn]:
    turns: list[Turn] = []
    while page := story.timeline.latest(room, _EXPORT_PAGE, turns[0].seq if turns else None):
        turns = [*page, *turns]
    return turns


def _export_turn(turn: Turn, name: str, replies: list[AssistantTurn] | tuple[()]) -> ExportedTurn:
    ids = [reply.reply for reply in replies]
    swiped = not turn.by_person and len(ids) > 1 and turn.id in ids
    return ExportedTurn(
        id=turn.id,
        speaker=turn.speaker,
        name=name,
        by_person=turn.by_person,
        text=redact(turn.text),
        at=turn.shown_at,
        truncated=turn.state != "done",
        to=list(turn.to),
        hidden=turn.hidden,
        edited=turn.edited,
        alternatives=[redact(reply.text) for reply in replies] if swiped else [],
        chosen=ids.index(turn.id) if swiped else 0,
        pictures=[ExportedPicture(id=one.id, description=redact(one.description)) for one in turn.pictures],
    )


def _as_tavern_chat(chat: ExportedChat, kept: KeptChat, alternatives: dict[str, list[str]]) -> TavernChat:
    """Turns that were imported have the fields of their lines again."""
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
    composed = TavernChat.compose(user=chat.you, character=chat.characters[chat.host], turns=turns, created=created)
    messages = []
    for line, turn in zip(composed.messages, chat.turns, strict=True):
        imported = kept.line_of([turn.id, *alternatives.get(turn.id, ())])
        messages.append(exported_line(line, imported) if imported is not None else line)
    return TavernChat(header=kept.header or composed.header, messages=messages)


def _markdown(chat: ExportedChat) -> str:
    participants = ", ".join([chat.you, *chat.characters.values()])
    parts = [f"# {_one_line(chat.title)}", f"*{_one_line(participants)}*"]
    for turn in chat.turns:
        whisper = " (whispered)" if turn.to else ""
        cut = " […]" if turn.truncated else ""
        shown = "".join(f" *shows a picture: {_one_line(one.description)}*" for one in turn.pictures)
        parts.append(f"**{_one_line(turn.name)}**{whisper}: {turn.text.strip()}{shown}{cut}")
    return "\n\n".join(parts) + "\n"


def _one_line(text: str) -> str:
    """A name or title without line breaks, so that it cannot contain Markdown headings."""
    return " ".join(text.split())
