"""The drawer beside a chat: the scene, who is where doing what, how they feel, and what they remember of it. S21"""

from __future__ import annotations

from datetime import datetime
from itertools import permutations

from pydantic import BaseModel, ConfigDict

from coterie.memory import Memory
from coterie.memory.memory import MAX_PINS
from coterie.memory.records import MemoryRecord
from coterie.modes.story.events import Activity, Relationship
from coterie.modes.story.pins import Pins
from coterie.modes.story.queries import Chat, ChatQueries, Container
from coterie.modes.story.relationships import RelationshipQueries

RECENT_MEMORIES = 12


class _Details(BaseModel):
    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


class SceneDetails(_Details):
    id: str
    container: str
    place: str
    """Its name."""
    participants: list[str]
    starts: datetime


class MemoryDetails(_Details):
    id: str
    text: str
    speaker: str | None
    significance: int
    """0 trivial … 3 life-changing."""
    pinned: bool
    auto_pinned: bool
    witnesses: list[str]
    happened: datetime | None


class CharacterDetails(_Details):
    name: str
    memories: list[MemoryDetails]
    """The newest that it witnessed in this chat."""
    pins: int
    most_pins: int = MAX_PINS


class ChatDetails(_Details):
    title: str
    names: dict[str, str]
    """Everybody present, by the name that prose uses."""
    clock: datetime
    weather: str
    anchor: str
    scene: SceneDetails | None
    places: dict[str, str]
    """Their names."""
    containers: dict[str, Container]
    """The same places with their properties."""
    activities: dict[str, Activity]
    edges: list[Relationship]
    """Both ways, between everybody present."""
    characters: dict[str, CharacterDetails]


def chat_details(
    chat: Chat, names: dict[str, str], chats: ChatQueries, edges: RelationshipQueries, memory: Memory
) -> ChatDetails:
    scene = None
    if chat.scene is not None:
        found = chats.scene(chat.room, chat.scene)
        place = chats.container_name(chat.room, found.container)
        scene = SceneDetails(
            id=found.id,
            container=found.container,
            place=place,
            participants=list(found.participants),
            starts=found.starts,
        )
    felt = {(edge.of, edge.toward): edge for edge in edges.in_world(chat.world)}
    pairs = permutations(chat.participants, 2)
    containers = chats.containers(chat.room)
    doing = chats.activities(chat.room)
    pins = Pins(memory.store)
    return ChatDetails(
        title=chat.title,
        names=names,
        clock=chat.clock,
        weather=chat.weather,
        anchor=chat.anchor,
        scene=scene,
        places={place.id: place.name for place in containers.values()},
        containers=containers,
        activities={entity: doing.get(entity, Activity()) for entity in chat.participants},
        edges=[felt.get(pair) or Relationship(of=pair[0], toward=pair[1]) for pair in pairs],
        characters={
            bot: CharacterDetails(
                name=names[bot],
                memories=[
                    _memory(record) for record in memory.latest(owner=bot, room=chat.room, limit=RECENT_MEMORIES)
                ],
                pins=len(pins.pinned(chat.room, bot)),
            )
            for bot in chat.characters
        },
    )


def _memory(record: MemoryRecord) -> MemoryDetails:
    return MemoryDetails(
        id=record.id,
        text=record.text,
        speaker=record.speaker,
        significance=record.significance,
        pinned=record.pinned,
        auto_pinned=record.auto_pinned,
        witnesses=list(record.witnesses),
        happened=record.happened,
    )
