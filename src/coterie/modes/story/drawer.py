"""The drawer beside a chat: the scene, who is where doing what, how they feel, and what they remember of it. S21"""

from __future__ import annotations

from datetime import datetime
from itertools import permutations

from pydantic import BaseModel, ConfigDict

from coterie.memory import Memory
from coterie.memory.library import MOST_PINS
from coterie.memory.record import MemoryRecord
from coterie.modes.story.chats import Chat, ChatBook, Container
from coterie.modes.story.edges import EdgeBook
from coterie.modes.story.events import Activity, Edge
from coterie.modes.story.pins import Pins

RECENT = 12


class _Seen(BaseModel):
    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


class SceneSeen(_Seen):
    id: str
    container: str
    place: str
    """Its name."""
    participants: list[str]
    starts: datetime


class MemorySeen(_Seen):
    id: str
    text: str
    speaker: str | None
    significance: int
    """0 trivial … 3 life-changing."""
    pinned: bool
    auto_pinned: bool
    witnesses: list[str]
    happened: datetime | None


class CharacterSeen(_Seen):
    name: str
    memories: list[MemorySeen]
    """The newest that it witnessed in this chat."""
    pins: int
    most_pins: int = MOST_PINS


class Drawer(_Seen):
    title: str
    names: dict[str, str]
    """Everybody present, by the name that prose uses."""
    clock: datetime
    weather: str
    anchor: str
    scene: SceneSeen | None
    places: dict[str, str]
    """Their names."""
    containers: dict[str, Container]
    """The same places with their properties."""
    activities: dict[str, Activity]
    edges: list[Edge]
    """Both ways, between everybody present."""
    characters: dict[str, CharacterSeen]


def open_drawer(chat: Chat, names: dict[str, str], chats: ChatBook, edges: EdgeBook, memory: Memory) -> Drawer:
    scene = None
    if chat.scene is not None:
        found = chats.scene(chat.room, chat.scene)
        place = chats.container_name(chat.room, found.container)
        scene = SceneSeen(
            id=found.id,
            container=found.container,
            place=place,
            participants=list(found.participants),
            starts=found.starts,
        )
    felt = {(edge.of, edge.toward): edge for edge in edges.edges(chat.world)}
    pairs = permutations(chat.everybody, 2)
    containers = chats.containers(chat.room)
    doing = chats.activities(chat.room)
    pins = Pins(memory.store)
    return Drawer(
        title=chat.title,
        names=names,
        clock=chat.clock,
        weather=chat.weather,
        anchor=chat.anchor,
        scene=scene,
        places={place.id: place.name for place in containers.values()},
        containers=containers,
        activities={entity: doing.get(entity, Activity()) for entity in chat.everybody},
        edges=[felt.get(pair) or Edge(of=pair[0], toward=pair[1]) for pair in pairs],
        characters={
            bot: CharacterSeen(
                name=names[bot],
                memories=[_memory(record) for record in memory.latest(owner=bot, room=chat.room, limit=RECENT)],
                pins=len(pins.pinned(chat.room, bot)),
            )
            for bot in chat.characters
        },
    )


def _memory(record: MemoryRecord) -> MemorySeen:
    return MemorySeen(
        id=record.id,
        text=record.text,
        speaker=record.speaker,
        significance=record.significance,
        pinned=record.pinned,
        auto_pinned=record.auto_pinned,
        witnesses=list(record.witnesses),
        happened=record.happened,
    )
