"""A whole character as one file: who it is in every version, its card, what it remembers and what it feels. S26

Imported where it is not known, it keeps its id and everything is as it was; beside its former self it becomes somebody
new with the same past. What it remembers is kept in a stream of its own, since the chats did not travel.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from collections.abc import Sequence
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from coterie.base.ids import new_id
from coterie.base.masking import mask
from coterie.cast.cards.card import Card
from coterie.cast.cards.document import read_object
from coterie.cast.cards.importer import check_size
from coterie.cast.errors import BrokenCard, CardError, NotACard
from coterie.cast.events import BotAuthored
from coterie.cast.identity import Identity
from coterie.cast.roster import YOU, Bot, Roster
from coterie.kernel import Draft, Store
from coterie.memory import Memory
from coterie.memory.library import MOST_PINS
from coterie.memory.portable import export_lines, import_lines
from coterie.modes.story.edges import EdgeBook
from coterie.modes.story.events import MAIN, Edge, EdgeUpdate
from coterie.modes.story.pins import Pins

FORMAT: Final = "coterie-character"
VERSION: Final = 1


class PackedCard(BaseModel):
    model_config = ConfigDict(extra="forbid")

    document: dict[str, Any]
    files: dict[str, str] = {}
    """Path → base64."""
    picture: str | None = None

    @classmethod
    def of(cls, card: Card) -> PackedCard:
        return cls(
            document=card.document,
            files={path: _packed(data) for path, data in card.files.items()},
            picture=None if card.picture is None else _packed(card.picture),
        )

    def card(self) -> Card:
        try:
            files = {path: base64.b64decode(data, validate=True) for path, data in self.files.items()}
            picture = None if self.picture is None else base64.b64decode(self.picture, validate=True)
        except (binascii.Error, ValueError):
            raise BrokenCard("A picture or file in it is damaged.", "Export the character again.") from None
        return Card.read(self.document, files, picture)


class Luggage(BaseModel):
    model_config = ConfigDict(extra="forbid")

    format: Literal["coterie-character"] = FORMAT
    version: Literal[1] = VERSION
    versions: list[Identity] = Field(min_length=1)
    """Every version there was, the newest last."""
    card: PackedCard | None = None
    memories: list[dict[str, Any]] = []
    edges: list[Edge] = []


def pack(store: Store, roster: Roster, bot: Bot, card: Card | None) -> bytes:
    """`card` with its pictures, if it came from one. What happened only in a fork stays there."""
    forks = store.reader.forks()
    memories = [json.loads(line) for line in export_lines(store, bot.id)][1:]
    luggage = Luggage(
        versions=[version.identity for version in roster.versions(bot.id)],
        card=None if card is None else PackedCard.of(card),
        memories=[_masked(entry) for entry in memories if entry["room"] not in forks],
        edges=[edge for edge in EdgeBook(store).edges(MAIN) if bot.id in (edge.of, edge.toward)],
    )
    return (luggage.model_dump_json(indent=1) + "\n").encode()


def is_luggage(data: bytes) -> bool:
    return data.lstrip()[:1] == b"{" and f'"{FORMAT}"'.encode() in data[:200]


def read(data: bytes) -> Luggage:
    check_size(len(data))
    document = read_object(data, "The character's file")
    if document.get("format") != FORMAT:
        raise NotACard("This is not a character exported from Coterie.", "Choose a file made by Export character.")
    if document.get("version") != VERSION:
        raise NotACard(
            f"The file is of version {str(document.get('version'))[:20]}; this Coterie reads version {VERSION}.",
            "Upgrade Coterie.",
        )
    try:
        return Luggage.model_validate(document)
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        raise BrokenCard(f"The file's {where} does not fit.", "Export the character again.") from None


async def unpack(store: Store, roster: Roster, memory: Memory, luggage: Luggage) -> tuple[Bot, Card | None]:
    """The character as it is known here now, and its card with pictures."""
    old = luggage.versions[-1].id
    known = {bot.id for bot in roster.bots()}
    new = new_id() if old in known or not _is_id(old) else old
    card = luggage.card.card() if luggage.card is not None else None
    room = f"memory:{new}"
    entries = [_moved(entry, old, new, fresh=new != old) for entry in luggage.memories]
    planned = [json.dumps(entry, ensure_ascii=False) for entry in entries]
    document = card.document if card is not None else None
    drafts = [
        Draft(f"cast:{new}", BotAuthored(identity=one.model_copy(update={"id": new}), card=document), YOU)
        for one in luggage.versions
    ]
    for edge in luggage.edges:
        of, toward = (new if entity == old else entity for entity in (edge.of, edge.toward))
        if {of, toward} <= {new, YOU, *known}:
            drafts.append(Draft(f"cast:{new}", _felt(edge, of, toward), YOU))
    # First what may not fit: a file that is refused leaves nobody behind.
    await asyncio.to_thread(import_lines, store, memory.writing, planned, owner=new, room=room)
    await store.append(drafts)
    return roster.bot(new), card


def adopted(store: Store, lines: Sequence[str], owner: str) -> list[str]:
    """Exported memories as another's own: who remembered them was there, and now this one was.

    What is no memory is left as it is, for whoever reads it to say so. Pins hold to their number.
    """
    pins_left = MOST_PINS - len(Pins(store).pinned(f"memory:{owner}", owner))
    told: list[str] = []
    for line in lines:
        try:
            entry = json.loads(line)
        except ValueError:
            entry = None
        if not isinstance(entry, dict) or not isinstance(entry.get("text"), str):
            told.append(line)
            continue
        old = str(entry.get("owner"))
        pinned = bool(entry.get("pinned")) and pins_left > 0
        pins_left -= pinned
        told.append(json.dumps({**_moved(entry, old, owner, fresh=old != owner), "pinned": pinned}, ensure_ascii=False))
    return told


def _felt(edge: Edge, of: str, toward: str) -> EdgeUpdate:
    return EdgeUpdate(
        world=MAIN,
        of=of,
        toward=toward,
        affinity_delta=max(-100, min(100, edge.affinity - 50)),
        trust_delta=max(-100, min(100, edge.trust - 50)),
        knowledge=edge.knowledge,
        summary=edge.summary or None,
        when=edge.when,
    )


def _moved(entry: dict[str, Any], old: str, new: str, *, fresh: bool) -> dict[str, Any]:
    """A memory of somebody who has another id now; beside the former self, ids are new too."""
    if not isinstance(entry.get("text"), str):
        raise CardError("A memory in the file has no text.", "Export the character again.")
    renamed = {
        name: [new if entity == old else entity for entity in entry.get(name) or []] for name in ("witnesses", "about")
    }
    moved = {**entry, **renamed, "owner": new}
    if fresh and entry.get("id"):
        moved["id"] = f"{entry['id']}-{new}"
        moved["links"] = [
            {**link, "target": f"{link.get('target')}-{new}"} for link in entry.get("links") or [] if link
        ]
        if entry.get("superseded_by"):
            moved["superseded_by"] = f"{entry['superseded_by']}-{new}"
    return moved


def _is_id(text: str) -> bool:
    """An id becomes the name of a stream and of a folder, so one from a file is not taken as it comes."""
    return text.isascii() and text.isalnum() and len(text) <= 40


def _masked(value: Any) -> Any:
    """S29: a secret that was pasted somewhere does not leave the house."""
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, dict):
        return {key: _masked(one) for key, one in value.items()}
    return [_masked(one) for one in value] if isinstance(value, list) else value


def _packed(data: bytes) -> str:
    return base64.b64encode(data).decode()
