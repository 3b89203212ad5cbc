"""The details of a chat (scene, activities, relationships, memories, pins) and their correction by hand.

The editable fields are a closed set, and each value is validated before anything is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import permutations
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError

from coterie.base.errors import CoterieError
from coterie.base.ids import new_id
from coterie.base.values import Time, clamp_time
from coterie.characters import OWNER
from coterie.eventstore import NewEvent, Payload, Store
from coterie.memory import (
    MAX_PINS,
    BadMemory,
    Memory,
    MemoryEdited,
    MemoryPinChanged,
    MemoryRecord,
    NoSuchMemory,
    StreamForks,
    all_records,
)
from coterie.modes.story.chat_context import ChatContext, Decision
from coterie.modes.story.events import Activity, ActivityChange, ContainerCreated, ManualEdit, Relationship
from coterie.modes.story.pictures import MessagePictures
from coterie.modes.story.queries import Chat, ChatQueries, Container, ReplyOrder

RECENT_MEMORIES = 12

_ShortText = Annotated[str, StringConstraints(strip_whitespace=True, max_length=500)]
_Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]
_Text = Annotated[str, StringConstraints(strip_whitespace=True, max_length=20_000)]
_RequiredText = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=20_000)]
_Level = Annotated[int, Field(ge=0, le=100)]

_CHAT_FIELDS: Mapping[str, Any] = {"title": _Name, "clock": Time, "weather": _ShortText, "anchor": _ShortText}
_REPLY_FIELDS: Mapping[str, Any] = {
    "reply_order": ReplyOrder,
    "muted": Annotated[tuple[_Name, ...], Field(max_length=50)],
}
_CONTAINER_FIELDS: Mapping[str, Any] = {
    "name": _Name,
    "type": _Name,
    "parent": str | None,
    "moving": bool,
    "public": bool,
    "audible": Literal["room", "near", "far"],
    "background": Annotated[str, Field(max_length=64)],
}
_ACTIVITY_FIELDS: Mapping[str, Any] = {
    "container": str,
    "slot": _ShortText,
    "posture": _ShortText,
    "attention": _ShortText,
    "holding": Annotated[tuple[_Name, ...], Field(max_length=50)],
    "status": _ShortText,
    "action.verb": _ShortText,
    "action.interruptible": bool,
    "action.attention": Literal["low", "medium", "high"],
    "action.minutes": Annotated[float, Field(ge=0, le=1e6)] | None,
}
_RELATIONSHIP_FIELDS: Mapping[str, Any] = {
    "affinity": _Level,
    "trust": _Level,
    "summary": _Text,
    "knowledge": Annotated[tuple[_Name, ...], Field(max_length=200)],
}
_MEMORY_FIELDS: Mapping[str, Any] = {"text": _RequiredText, "significance": Annotated[int, Field(ge=0, le=3)]}

EDITABLE_FIELDS = (
    *_CHAT_FIELDS,
    *_REPLY_FIELDS,
    "scene.container",
    "scene.place",
    *(f"container.ID.{name}" for name in _CONTAINER_FIELDS),
    *(f"activity.WHO.{name}" for name in _ACTIVITY_FIELDS),
    *(f"edge.WHO.TOWARD.{name}" for name in _RELATIONSHIP_FIELDS),
    *(f"memory.ID.{name}" for name in _MEMORY_FIELDS),
)
"""The fields that can be edited; WHO and TOWARD are `you` or a character's id."""


class BadEdit(CoterieError):
    """An edit that does not fit; nothing was changed."""

    http_status = 422


class FieldEdit(BaseModel):
    """A field and its new value."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    field: str = Field(max_length=400, description=f"One of: {', '.join(EDITABLE_FIELDS)}.")
    value: Any


class _Details(BaseModel):
    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


class SceneDetails(_Details):
    id: str
    container: str
    place: str
    """The name of its place."""
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
    """The name of everybody present, by id."""
    reply_order: ReplyOrder
    """Who replies to a message."""
    muted: list[str]
    """The characters that reply only if they are asked to."""
    clock: datetime
    weather: str
    anchor: str
    scene: SceneDetails | None
    places: dict[str, str]
    """The names of places, by id."""
    containers: dict[str, Container]
    """The same places with their properties."""
    activities: dict[str, Activity]
    edges: list[Relationship]
    """The relationships in both directions between everybody present."""
    characters: dict[str, CharacterDetails]


class Edits:
    """Reads and corrects the details of a chat.

    Edits and pins are events of the chat's stream and are rewound with it. A forgotten memory stays forgotten.
    """

    def __init__(self, context: ChatContext, memory: Memory, pictures: MessagePictures) -> None:
        self._context = context
        self._pictures = pictures
        self._store = context.store
        self._memories = memory
        self._chats = context.chats
        self._relationships = context.relationships
        self._pins = Pins(context.store)

    def details(self, room: str) -> ChatDetails:
        chat = self._chats.chat(room)
        names = self._context.participants.names(chat)
        scene = self._chats.scene(chat.room, chat.scene) if chat.scene is not None else None
        relationships = {(one.of, one.toward): one for one in self._relationships.in_world(chat.world)}
        containers = self._chats.containers(chat.room)
        activities = self._chats.activities(chat.room)
        return ChatDetails(
            title=chat.title,
            names=names,
            reply_order=self._chats.reply_order(chat.room).order,
            muted=[one for one in self._chats.reply_order(chat.room).muted if one in chat.characters],
            clock=chat.clock,
            weather=chat.weather,
            anchor=chat.anchor,
            scene=scene
            and SceneDetails(
                id=scene.id,
                container=scene.container,
                place=self._chats.container_name(chat.room, scene.container),
                participants=list(scene.participants),
                starts=scene.starts,
            ),
            places={place.id: place.name for place in containers.values()},
            containers=containers,
            activities={entity: activities.get(entity, Activity()) for entity in chat.participants},
            edges=[
                relationships.get(pair) or Relationship(of=pair[0], toward=pair[1])
                for pair in permutations(chat.participants, 2)
            ],
            characters={
                character: CharacterDetails(
                    name=names[character],
                    memories=[_memory_details(record) for record in self._recent_memories(chat, character)],
                    pins=len(self._pins.pinned(chat.room, character)),
                )
                for character in chat.characters
            },
        )

    def _recent_memories(self, chat: Chat, character: str) -> list[MemoryRecord]:
        """The newest memories; of a turn that has statements, those instead of its exact words."""
        records = self._memories.latest(owner=character, room=chat.room, limit=4 * RECENT_MEMORIES)
        return without_evidence(records)[:RECENT_MEMORIES]

    async def edit(self, room: str, edits: Sequence[FieldEdit]) -> bool:
        """Apply all of these edits, or none. False if every field has its value already."""

        async def decide() -> Decision:
            fields = [edit.field for edit in edits]
            if twice := next((field for field in fields if fields.count(field) > 1), None):
                raise BadEdit(f"{twice} is corrected twice.", "Give each field once.")
            chat = self._chats.chat(room)
            return [new_event for edit in edits for new_event in self._events_for(chat, edit)], ()

        return bool(await self._context.decide_and_append(room, decide))

    async def pin(self, room: str, memory_id: str, pinned: bool) -> bool:
        """Pin or unpin a memory; if all pins are taken, the weakest automatic pin is removed. False if unchanged.

        `room` is the memory's stream, which for an imported memory is no chat.
        """

        async def decide() -> Decision:
            return self._pins.set_by_hand(self._record(room, memory_id), pinned), ()

        return bool(await self._context.decide_and_append(room, decide))

    async def forget(self, room: str, memory_id: str) -> None:
        """Forget a memory, and any with the same text, in every fork of the chat."""
        await asyncio.to_thread(self._memories.forget, self._record(room, memory_id).id)

    def _record(self, room: str, memory_id: str) -> MemoryRecord:
        for record in all_records(self._store, "id = ? AND stream = ?", (memory_id, room)):
            return record
        raise NoSuchMemory(f"There is no memory {memory_id} of this chat.", "It may have been forgotten or rewound.")

    def _events_for(self, chat: Chat, edit: FieldEdit) -> list[NewEvent]:
        """The events of one edit; none if the field has the value already."""
        match edit.field.split("."):
            case ["clock"]:
                return _edit_events(chat, edit.field, _parse_clock(edit).isoformat(), chat.clock.isoformat())
            case [name] if name in _CHAT_FIELDS:
                return _edit_events(chat, name, _validate(edit, _CHAT_FIELDS[name]), getattr(chat, name))
            case [name] if name in _REPLY_FIELDS:
                return self._edit_reply_rule(chat, edit)
            case ["scene", "container"]:
                return self._edit_scene(chat, edit)
            case ["scene", "place"]:
                return self._move_scene(chat, edit)
            case ["container", container, name] if name in _CONTAINER_FIELDS:
                return self._edit_container(chat, edit, container, name)
            case ["activity", entity, *path] if ".".join(path) in _ACTIVITY_FIELDS:
                return self._edit_activity(chat, edit, entity, ".".join(path))
            case ["edge", of, toward, name] if name in _RELATIONSHIP_FIELDS:
                return self._edit_relationship(chat, edit, of, toward, name)
            case ["memory", *parts, name] if parts and name in _MEMORY_FIELDS:
                return self._edit_memory(chat, edit, ".".join(parts), name)
        raise BadEdit(f"There is no field {edit.field[:80]}.", f"Use one of: {', '.join(EDITABLE_FIELDS)}.")

    def _edit_reply_rule(self, chat: Chat, edit: FieldEdit) -> list[NewEvent]:
        rule = self._chats.reply_order(chat.room)
        value = _validate(edit, _REPLY_FIELDS[edit.field])
        if edit.field == "reply_order":
            return _edit_events(chat, edit.field, value, rule.order)
        muted = tuple(dict.fromkeys(self._context.find_character(chat, name) for name in value))
        return _edit_events(chat, edit.field, list(muted), list(rule.muted))

    def _edit_scene(self, chat: Chat, edit: FieldEdit) -> list[NewEvent]:
        if chat.scene is None:
            raise BadEdit("There is no scene to move.", "Send a message first; it begins a scene.")
        scene = self._chats.scene(chat.room, chat.scene)
        container = self._require_container(chat, edit, _validate(edit, str))
        return _edit_events(chat, f"scene.{scene.id}.container", container, scene.container)

    def _move_scene(self, chat: Chat, edit: FieldEdit) -> list[NewEvent]:
        """Move the scene and everybody in it to a place by its name, which may be new."""
        if chat.scene is None:
            raise BadEdit("There is no scene to move.", "Send a message first; it begins a scene.")
        scene = self._chats.scene(chat.room, chat.scene)
        container, moves = plan_move(self._chats, chat, _validate(edit, _Name))
        moved = _edit_events(chat, f"scene.{scene.id}.container", container, scene.container)
        return [*(NewEvent(chat.room, move, OWNER) for move in moves), *moved] if moved else []

    def _edit_container(self, chat: Chat, edit: FieldEdit, container: str, name: str) -> list[NewEvent]:
        places = self._chats.containers(chat.room)
        if container not in places:
            raise BadEdit(f"There is no place {container[:80]} in this chat.", _list_places(places))
        value = _validate(edit, _CONTAINER_FIELDS[name])
        if name == "background":
            self._pictures.check([value] if value else [])
        parent, visited = (value if name == "parent" else None), {container}
        while parent is not None:
            if parent in visited:
                raise BadEdit("A place cannot be inside itself.", "Choose another parent, or none.")
            visited.add(parent)
            parent = places[self._require_container(chat, edit, parent)].parent
        return _edit_events(chat, edit.field, value, getattr(places[container], name))

    def _edit_activity(self, chat: Chat, edit: FieldEdit, entity: str, path: str) -> list[NewEvent]:
        _require_present(chat, entity)
        value = _validate(edit, _ACTIVITY_FIELDS[path])
        if path == "container" and value:
            self._require_container(chat, edit, value)
        prior: Any = self._chats.activities(chat.room).get(entity, Activity())
        for name in path.split("."):
            prior = getattr(prior, name)
        return _edit_events(chat, edit.field, value, prior)

    def _edit_relationship(self, chat: Chat, edit: FieldEdit, of: str, toward: str, name: str) -> list[NewEvent]:
        for entity in (of, toward):
            _require_present(chat, entity)
        if of == toward:
            raise BadEdit("A relationship is between two participants.", "Name two different ones.")
        relationship = self._relationships.get(chat.world, of, toward)
        value = _validate(edit, _RELATIONSHIP_FIELDS[name])
        return _edit_events(chat, f"edge.{chat.world}.{of}.{toward}.{name}", value, getattr(relationship, name))

    def _edit_memory(self, chat: Chat, edit: FieldEdit, memory_id: str, name: str) -> list[NewEvent]:
        value = _validate(edit, _MEMORY_FIELDS[name])
        events = _edit_events(chat, edit.field, value, getattr(self._record(chat.room, memory_id), name))
        # The memory's index follows its own event; the manual edit records the prior value.
        changed = MemoryEdited.model_validate({"id": memory_id, name: value})
        return [*events, NewEvent(chat.room, changed, OWNER)] if events else []

    def _require_container(self, chat: Chat, edit: FieldEdit, container: str) -> str:
        places = self._chats.containers(chat.room)
        if container not in places:
            raise BadEdit(f"{edit.field}: there is no such place in this chat.", _list_places(places))
        return container


def without_evidence(records: Sequence[MemoryRecord]) -> list[MemoryRecord]:
    """Memories without the exact words of turns that statements among them are made from. Pinned ones stay."""
    stated = {source for record in records if record.type == "fact" for source in record.sources}

    def is_evidence(record: MemoryRecord) -> bool:
        return record.type == "observation" and bool(record.sources) and stated.issuperset(record.sources)

    return [record for record in records if record.pinned or not is_evidence(record)]


def plan_move(chats: ChatQueries, chat: Chat, place: str) -> tuple[str, list[Payload]]:
    """The id of a place by its name, and the events that create it if it is new and bring everybody present there."""
    wanted = _plain_place(place)
    known = next((one.id for one in chats.containers(chat.room).values() if _plain_place(one.name) == wanted), None)
    container = known or new_id()
    events: list[Payload] = [] if known else [ContainerCreated(container=container, name=place)]
    activities = chats.activities(chat.room)
    for entity in chat.participants:
        activity = activities.get(entity, Activity())
        if activity.container != container:
            # What somebody holds or feels stays; where and how they sat does not.
            kept = activity.model_dump(include={"holding", "status"})
            events.append(ActivityChange(entity=entity, activity=Activity(container=container, **kept)))
    return container, events


def _plain_place(name: str) -> str:
    return " ".join(name.lower().split()).removeprefix("the ")


class Pins:
    """Pinned memories, at most `MAX_PINS` per character.

    A new pin replaces the weakest automatic one; a pin set by a person is never removed automatically.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def pin_automatically(self, room: str, owner: str, ids: Sequence[str], turn: str | None) -> list[NewEvent]:
        """The events that pin these memories of one owner in a room, as far as there is space."""
        pinned = self.pinned(room, owner)
        new_events: list[NewEvent] = []
        weakest = _weakest_first(room, pinned.values())
        free = MAX_PINS - len(pinned)
        for memory_id in [one for one in ids if one not in pinned][:MAX_PINS]:
            if free > 0:
                free -= 1
            elif weakest:
                removed = weakest.pop(0)
                unpin = MemoryPinChanged(id=removed.id, pinned=False)
                new_events.append(NewEvent(removed.room, unpin, "story", turn=turn))
            else:
                break
            pin = MemoryPinChanged(id=memory_id, pinned=True, auto=True)
            new_events.append(NewEvent(room, pin, "story", turn=turn))
        return new_events

    def set_by_hand(self, memory: MemoryRecord, pinned: bool) -> list[NewEvent]:
        """The events with which a person pins or unpins a memory; none if that is the case already."""
        if pinned == memory.pinned and not memory.auto_pinned:
            return []
        new_events = [NewEvent(memory.room, MemoryPinChanged(id=memory.id, pinned=pinned), OWNER)]
        others = self.pinned(memory.room, memory.owner)
        others.pop(memory.id, None)
        if not pinned or len(others) < MAX_PINS:
            return new_events
        weakest = _weakest_first(memory.room, others.values())
        if not weakest:
            raise BadMemory(f"{MAX_PINS} memories are pinned by hand already.", "Unpin one of them first.")
        return [NewEvent(weakest[0].room, MemoryPinChanged(id=weakest[0].id, pinned=False), OWNER), *new_events]

    def pinned(self, room: str, owner: str) -> dict[str, MemoryRecord]:
        """The pinned memories that apply in a room. Other branches of a fork have their own."""
        forks = StreamForks(self._store.reader.roots())
        records = all_records(self._store, "owner = ? AND pin > 0", (owner,))
        pinned: dict[str, MemoryRecord] = {}
        for record in sorted(records, key=lambda record: record.room != room):
            if not forks.is_other_branch(record.room, room):
                pinned.setdefault(record.id, record)
        return pinned


def _weakest_first(room: str, pinned: Iterable[MemoryRecord]) -> list[MemoryRecord]:
    """The automatic pins, those of this room first: a rewind or regenerate here can bring them back."""
    return sorted(
        (record for record in pinned if record.auto_pinned),
        key=lambda record: (record.room != room, record.significance, record.made, record.id),
    )


def _memory_details(record: MemoryRecord) -> MemoryDetails:
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


def _edit_events(chat: Chat, what: str, value: Any, prior: Any) -> list[NewEvent]:
    if value == prior:
        return []
    return [NewEvent(chat.room, ManualEdit(what=what, value=value, prior=prior), OWNER)]


def _validate(edit: FieldEdit, kind: Any) -> Any:
    try:
        return TypeAdapter(kind).validate_python(edit.value)
    except ValidationError as error:
        # The message leaves out the value: it may be long, or a secret in the wrong field.
        reason = error.errors()[0]["msg"]
        raise BadEdit(f"{edit.field}: {reason}.", "Correct it; nothing was changed.") from None


def _parse_clock(edit: FieldEdit) -> datetime:
    """The time in UTC, which is also assumed if no zone is given."""
    return clamp_time(_validate(edit, Time))


def _require_present(chat: Chat, entity: str) -> None:
    if entity not in chat.participants:
        raise BadEdit(f"{entity[:80]} is not in this chat.", f"In this chat are: {', '.join(chat.participants)}.")


def _list_places(places: Mapping[str, Any]) -> str:
    return f"There are: {', '.join(places)}." if places else "This chat has no places yet."
