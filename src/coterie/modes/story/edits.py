"""Correcting by hand what the drawer shows: every field of it, each with what stood there before. S21

The fields are a closed set. What is put into one is checked before anything is written, so that no view ever has to
fold a value it cannot show.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError

from coterie.characters.service import OWNER
from coterie.eventstore import NewEvent
from coterie.memory import Memory
from coterie.memory.errors import NoSuchMemory
from coterie.memory.events import MemoryEdited
from coterie.memory.records import MemoryRecord, all_records
from coterie.modes.story.chat_context import ChatContext, Decision
from coterie.modes.story.errors import BadEdit
from coterie.modes.story.events import Activity, ManualEdit
from coterie.modes.story.pins import Pins
from coterie.modes.story.queries import Chat

_ShortText = Annotated[str, StringConstraints(strip_whitespace=True, max_length=500)]
_Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]
_Text = Annotated[str, StringConstraints(strip_whitespace=True, max_length=20_000)]
_RequiredText = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=20_000)]
_Level = Annotated[int, Field(ge=0, le=100)]

_CHAT_FIELDS: Mapping[str, Any] = {"title": _Name, "clock": datetime, "weather": _ShortText, "anchor": _ShortText}
_CONTAINER_FIELDS: Mapping[str, Any] = {
    "name": _Name,
    "type": _Name,
    "parent": str | None,
    "moving": bool,
    "public": bool,
    "audible": Literal["room", "near", "far"],
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
    "scene.container",
    *(f"container.ID.{name}" for name in _CONTAINER_FIELDS),
    *(f"activity.WHO.{name}" for name in _ACTIVITY_FIELDS),
    *(f"edge.WHO.TOWARD.{name}" for name in _RELATIONSHIP_FIELDS),
    *(f"memory.ID.{name}" for name in _MEMORY_FIELDS),
)
"""Everything that can be corrected; WHO is `you` or a character's id."""
_LATEST_YEAR = 9000
"""A clock goes on from where it is put, and there is no year 10000."""


class FieldEdit(BaseModel):
    """One correction: which field of the drawer, and what it should say."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    field: str = Field(max_length=400, description=f"One of: {', '.join(EDITABLE_FIELDS)}.")
    value: Any


class Edits:
    """Corrections by hand in a chat's details.

    Edits and pins are events of the chat's stream and are rewound with it. A forgotten memory stays forgotten.
    """

    def __init__(self, context: ChatContext, memory: Memory) -> None:
        self._context = context
        self._store = context.store
        self._memories = memory
        self._chats = context.chats
        self._relationships = context.relationships
        self._pins = Pins(context.store)

    async def edit(self, room: str, edits: Sequence[FieldEdit]) -> bool:
        """Apply all of these corrections, or none. False if every field has its value already."""

        async def decide() -> Decision:
            return self.plan(self._chats.chat(room), edits), ()

        return bool(await self._context.decide_and_append(room, decide))

    async def pin(self, room: str, memory_id: str, pinned: bool) -> bool:
        """Pin or unpin a memory; if all pins are taken, the weakest automatic pin is removed. False if unchanged.

        `room` is the memory's stream, which for an imported memory is no chat.
        """

        async def decide() -> Decision:
            return self._pins.set_by_hand(self.memory(room, memory_id), pinned), ()

        return bool(await self._context.decide_and_append(room, decide))

    async def forget(self, room: str, memory_id: str) -> None:
        """Forget a memory, and any with the same text, in every fork of the chat."""
        memory = self.memory(room, memory_id)
        await asyncio.to_thread(self._memories.forget, memory.id)

    def plan(self, chat: Chat, edits: Sequence[FieldEdit]) -> list[NewEvent]:
        """What these corrections come to. A field that already says so is left alone."""
        fields = [edit.field for edit in edits]
        if twice := next((field for field in fields if fields.count(field) > 1), None):
            raise BadEdit(f"{twice} is corrected twice.", "Say once what it should be.")
        return [draft for edit in edits for draft in self._plan_one(chat, edit)]

    def memory(self, room: str, memory_id: str) -> MemoryRecord:
        """A memory as this line of the chat has it."""
        for record in all_records(self._store, "id = ? AND stream = ?", (memory_id, room)):
            return record
        raise NoSuchMemory(f"There is no memory {memory_id} of this chat.", "It may have been forgotten or taken back.")

    def _plan_one(self, chat: Chat, edit: FieldEdit) -> list[NewEvent]:
        match edit.field.split("."):
            case ["clock"]:
                now = _clock(edit)
                return _edited(chat, edit.field, now.isoformat(), chat.clock.isoformat())
            case [name] if name in _CHAT_FIELDS:
                return _edited(chat, name, _validated(edit, _CHAT_FIELDS[name]), getattr(chat, name))
            case ["scene", "container"]:
                return self._scene(chat, edit)
            case ["container", container, name] if name in _CONTAINER_FIELDS:
                return self._container(chat, edit, container, name)
            case ["activity", entity, *path] if ".".join(path) in _ACTIVITY_FIELDS:
                return self._activity(chat, edit, entity, ".".join(path))
            case ["edge", of, toward, name] if name in _RELATIONSHIP_FIELDS:
                return self._relationship(chat, edit, of, toward, name)
            case ["memory", *parts, name] if parts and name in _MEMORY_FIELDS:
                return self._memory(chat, edit, ".".join(parts), name)
        raise BadEdit(f"The drawer has no field {edit.field[:80]}.", f"Correct one of: {', '.join(EDITABLE_FIELDS)}.")

    def _scene(self, chat: Chat, edit: FieldEdit) -> list[NewEvent]:
        if chat.scene is None:
            raise BadEdit("There is no scene to be moved.", "Say something first, and a scene begins.")
        scene = self._chats.scene(chat.room, chat.scene)
        return _edited(
            chat, f"scene.{scene.id}.container", self._place(chat, edit, _validated(edit, str)), scene.container
        )

    def _container(self, chat: Chat, edit: FieldEdit, container: str, name: str) -> list[NewEvent]:
        places = self._chats.containers(chat.room)
        if container not in places:
            raise BadEdit(f"There is no place {container[:80]} in this chat.", _list_places(places))
        value = _validated(edit, _CONTAINER_FIELDS[name])
        above, around = (value if name == "parent" else None), {container}
        while above is not None:
            if above in around:
                raise BadEdit("A place cannot be inside itself.", "Choose another place around it, or none.")
            around.add(above)
            above = places[self._place(chat, edit, above)].parent
        return _edited(chat, edit.field, value, getattr(places[container], name))

    def _activity(self, chat: Chat, edit: FieldEdit, entity: str, path: str) -> list[NewEvent]:
        _check_present(chat, entity)
        activity = self._chats.activities(chat.room).get(entity, Activity())
        value = _validated(edit, _ACTIVITY_FIELDS[path])
        if path == "container" and value:
            self._place(chat, edit, value)
        prior: Any = activity
        for name in path.split("."):
            prior = getattr(prior, name)
        return _edited(chat, edit.field, value, prior)

    def _relationship(self, chat: Chat, edit: FieldEdit, of: str, toward: str, name: str) -> list[NewEvent]:
        for entity in (of, toward):
            _check_present(chat, entity)
        if of == toward:
            raise BadEdit("An edge leads from one to another.", "Name two different people.")
        edge = self._relationships.get(chat.world, of, toward)
        value = _validated(edit, _RELATIONSHIP_FIELDS[name])
        return _edited(chat, f"edge.{chat.world}.{of}.{toward}.{name}", value, getattr(edge, name))

    def _memory(self, chat: Chat, edit: FieldEdit, memory_id: str, name: str) -> list[NewEvent]:
        record = self.memory(chat.room, memory_id)
        value = _validated(edit, _MEMORY_FIELDS[name])
        drafts = _edited(chat, edit.field, value, getattr(record, name))
        # Memory has its own word for it, which is what its index follows; the edit beside it keeps what stood there.
        changed = MemoryEdited.model_validate({"id": memory_id, name: value})
        return [*drafts, NewEvent(chat.room, changed, OWNER)] if drafts else []

    def _place(self, chat: Chat, edit: FieldEdit, container: str) -> str:
        places = self._chats.containers(chat.room)
        if container not in places:
            raise BadEdit(f"{edit.field}: there is no such place in this chat.", _list_places(places))
        return container


def _edited(chat: Chat, what: str, value: Any, prior: Any) -> list[NewEvent]:
    if value == prior:
        return []
    return [NewEvent(chat.room, ManualEdit(what=what, value=value, prior=prior), OWNER)]


def _validated(edit: FieldEdit, kind: Any) -> Any:
    try:
        return TypeAdapter(kind).validate_python(edit.value)
    except ValidationError as error:
        # Only what is wrong, never what was sent: it may be long, or a secret in the wrong place.
        reason = error.errors()[0]["msg"]
        raise BadEdit(f"{edit.field}: {reason}.", "Correct it; nothing was changed.") from None


def _clock(edit: FieldEdit) -> datetime:
    """Without a zone it is UTC."""
    told: datetime = _validated(edit, datetime)
    try:
        now = told.replace(tzinfo=UTC) if told.tzinfo is None else told.astimezone(UTC)
    except OverflowError:
        now = datetime.max.replace(tzinfo=UTC)
    if now.year > _LATEST_YEAR:
        raise BadEdit(f"clock: the year must be {_LATEST_YEAR} or earlier.", "Choose another time.")
    return now


def _check_present(chat: Chat, entity: str) -> None:
    present = chat.participants
    if entity not in present:
        raise BadEdit(f"{entity[:80]} is not in this chat.", f"Here are: {', '.join(present)}.")


def _list_places(places: Mapping[str, Any]) -> str:
    return f"There are: {', '.join(places)}." if places else "This chat has no places yet."
