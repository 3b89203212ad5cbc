"""Correcting by hand what the drawer shows: every field of it, each with what stood there before. S21

The fields are a closed set. What is put into one is checked before anything is written, so that no view ever has to
fold a value it cannot show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError

from coterie.cast.roster import YOU
from coterie.kernel import Draft, Store
from coterie.memory.errors import NoSuchMemory
from coterie.memory.events import MemoryEdited
from coterie.memory.reading import all_records
from coterie.memory.record import MemoryRecord
from coterie.modes.story.chats import Chat, ChatBook
from coterie.modes.story.edges import EdgeBook
from coterie.modes.story.errors import BadEdit
from coterie.modes.story.events import Activity, ManualEdit

_Line = Annotated[str, StringConstraints(strip_whitespace=True, max_length=500)]
_Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]
_Text = Annotated[str, StringConstraints(strip_whitespace=True, max_length=20_000)]
_Said = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=20_000)]
_Level = Annotated[int, Field(ge=0, le=100)]

_CHAT: Mapping[str, Any] = {"title": _Name, "clock": datetime, "weather": _Line, "anchor": _Line}
_CONTAINER: Mapping[str, Any] = {
    "name": _Name,
    "type": _Name,
    "parent": str | None,
    "moving": bool,
    "public": bool,
    "audible": Literal["room", "near", "far"],
}
_ACTIVITY: Mapping[str, Any] = {
    "container": str,
    "slot": _Line,
    "posture": _Line,
    "attention": _Line,
    "holding": Annotated[tuple[_Name, ...], Field(max_length=50)],
    "status": _Line,
    "action.verb": _Line,
    "action.interruptible": bool,
    "action.attention": Literal["low", "medium", "high"],
    "action.minutes": Annotated[float, Field(ge=0, le=1e6)] | None,
}
_EDGE: Mapping[str, Any] = {
    "affinity": _Level,
    "trust": _Level,
    "summary": _Text,
    "knowledge": Annotated[tuple[_Name, ...], Field(max_length=200)],
}
_MEMORY: Mapping[str, Any] = {"text": _Said, "significance": Annotated[int, Field(ge=0, le=3)]}

FIELDS = (
    *_CHAT,
    "scene.container",
    *(f"container.ID.{name}" for name in _CONTAINER),
    *(f"activity.WHO.{name}" for name in _ACTIVITY),
    *(f"edge.WHO.TOWARD.{name}" for name in _EDGE),
    *(f"memory.ID.{name}" for name in _MEMORY),
)
"""Everything that can be corrected; WHO is `you` or a character's id."""
_LATEST_YEAR = 9000
"""A clock goes on from where it is put, and there is no year 10000."""


class Edit(BaseModel):
    """One correction: which field of the drawer, and what it should say."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    field: str = Field(max_length=400, description=f"One of: {', '.join(FIELDS)}.")
    value: Any


class Editing:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._chats = ChatBook(store)
        self._edges = EdgeBook(store)

    def drafts(self, chat: Chat, edits: Sequence[Edit]) -> list[Draft]:
        """What these corrections come to. A field that already says so is left alone."""
        fields = [edit.field for edit in edits]
        if twice := next((field for field in fields if fields.count(field) > 1), None):
            raise BadEdit(f"{twice} is corrected twice.", "Say once what it should be.")
        return [draft for edit in edits for draft in self._drafts(chat, edit)]

    def memory(self, room: str, memory_id: str) -> MemoryRecord:
        """A memory as this line of the chat has it."""
        for record in all_records(self._store, "id = ? AND stream = ?", (memory_id, room)):
            return record
        raise NoSuchMemory(f"There is no memory {memory_id} of this chat.", "It may have been forgotten or taken back.")

    def _drafts(self, chat: Chat, edit: Edit) -> list[Draft]:
        match edit.field.split("."):
            case ["clock"]:
                now = _clock(edit)
                return _edited(chat, edit.field, now.isoformat(), chat.clock.isoformat())
            case [name] if name in _CHAT:
                return _edited(chat, name, _fit(edit, _CHAT[name]), getattr(chat, name))
            case ["scene", "container"]:
                return self._scene(chat, edit)
            case ["container", container, name] if name in _CONTAINER:
                return self._container(chat, edit, container, name)
            case ["activity", entity, *path] if ".".join(path) in _ACTIVITY:
                return self._activity(chat, edit, entity, ".".join(path))
            case ["edge", of, toward, name] if name in _EDGE:
                return self._edge(chat, edit, of, toward, name)
            case ["memory", *parts, name] if parts and name in _MEMORY:
                return self._memory(chat, edit, ".".join(parts), name)
        raise BadEdit(f"The drawer has no field {edit.field[:80]}.", f"Correct one of: {', '.join(FIELDS)}.")

    def _scene(self, chat: Chat, edit: Edit) -> list[Draft]:
        if chat.scene is None:
            raise BadEdit("There is no scene to be moved.", "Say something first, and a scene begins.")
        scene = self._chats.scene(chat.room, chat.scene)
        return _edited(chat, f"scene.{scene.id}.container", self._place(chat, edit, _fit(edit, str)), scene.container)

    def _container(self, chat: Chat, edit: Edit, container: str, name: str) -> list[Draft]:
        places = self._chats.containers(chat.room)
        if container not in places:
            raise BadEdit(f"There is no place {container[:80]} in this chat.", _which(places))
        value = _fit(edit, _CONTAINER[name])
        above, around = (value if name == "parent" else None), {container}
        while above is not None:
            if above in around:
                raise BadEdit("A place cannot be inside itself.", "Choose another place around it, or none.")
            around.add(above)
            above = places[self._place(chat, edit, above)].parent
        return _edited(chat, edit.field, value, getattr(places[container], name))

    def _activity(self, chat: Chat, edit: Edit, entity: str, path: str) -> list[Draft]:
        _check_present(chat, entity)
        activity = self._chats.activities(chat.room).get(entity, Activity())
        value = _fit(edit, _ACTIVITY[path])
        if path == "container" and value:
            self._place(chat, edit, value)
        prior: Any = activity
        for name in path.split("."):
            prior = getattr(prior, name)
        return _edited(chat, edit.field, value, prior)

    def _edge(self, chat: Chat, edit: Edit, of: str, toward: str, name: str) -> list[Draft]:
        for entity in (of, toward):
            _check_present(chat, entity)
        if of == toward:
            raise BadEdit("An edge leads from one to another.", "Name two different people.")
        edge = self._edges.edge(chat.world, of, toward)
        value = _fit(edit, _EDGE[name])
        return _edited(chat, f"edge.{chat.world}.{of}.{toward}.{name}", value, getattr(edge, name))

    def _memory(self, chat: Chat, edit: Edit, memory_id: str, name: str) -> list[Draft]:
        record = self.memory(chat.room, memory_id)
        value = _fit(edit, _MEMORY[name])
        drafts = _edited(chat, edit.field, value, getattr(record, name))
        # Memory has its own word for it, which is what its index follows; the edit beside it keeps what stood there.
        changed = MemoryEdited.model_validate({"id": memory_id, name: value})
        return [*drafts, Draft(chat.room, changed, YOU)] if drafts else []

    def _place(self, chat: Chat, edit: Edit, container: str) -> str:
        places = self._chats.containers(chat.room)
        if container not in places:
            raise BadEdit(f"{edit.field}: there is no such place in this chat.", _which(places))
        return container


def _edited(chat: Chat, what: str, value: Any, prior: Any) -> list[Draft]:
    if value == prior:
        return []
    return [Draft(chat.room, ManualEdit(what=what, value=value, prior=prior), YOU)]


def _fit(edit: Edit, kind: Any) -> Any:
    try:
        return TypeAdapter(kind).validate_python(edit.value)
    except ValidationError as error:
        # Only what is wrong, never what was sent: it may be long, or a secret in the wrong place.
        reason = error.errors()[0]["msg"]
        raise BadEdit(f"{edit.field}: {reason}.", "Correct it; nothing was changed.") from None


def _clock(edit: Edit) -> datetime:
    """Without a zone it is UTC."""
    told: datetime = _fit(edit, datetime)
    try:
        now = told.replace(tzinfo=UTC) if told.tzinfo is None else told.astimezone(UTC)
    except OverflowError:
        now = datetime.max.replace(tzinfo=UTC)
    if now.year > _LATEST_YEAR:
        raise BadEdit(f"clock: the year must be {_LATEST_YEAR} or earlier.", "Choose another time.")
    return now


def _check_present(chat: Chat, entity: str) -> None:
    present = chat.everybody
    if entity not in present:
        raise BadEdit(f"{entity[:80]} is not in this chat.", f"Here are: {', '.join(present)}.")


def _which(places: Mapping[str, Any]) -> str:
    return f"There are: {', '.join(places)}." if places else "This chat has no places yet."
