"""What happened, as data. A kind of event is a pydantic model; an event is one such payload in its place.

Declaring a payload registers its kind. Old versions of a payload are lifted by upcasters when they are
read, so handlers only ever see the newest shape; an unknown kind or a newer version is an error that says so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from coterie.base.clock import from_micros
from coterie.base.errors import BadEvent, UnknownEvent

Upcaster = Callable[[dict[str, Any]], dict[str, Any]]

_payloads: dict[str, type[Payload]] = {}
_upcasters: dict[tuple[str, int], Upcaster] = {}


class Payload(BaseModel):
    """The content of one kind of event: `class UserTurn(Payload, kind="user_turn", version=1): …`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: ClassVar[str]
    version: ClassVar[int]

    def __init_subclass__(cls, *, kind: str, version: int = 1, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        known = _payloads.get(kind)
        if known is not None and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise TypeError(f"The event kind {kind!r} is already declared by {known.__module__}.{known.__qualname__}.")
        cls.kind, cls.version = kind, version
        _payloads[kind] = cls


def upcaster(kind: str, from_version: int) -> Callable[[Upcaster], Upcaster]:
    """Register how the fields of `from_version` become those of the next version."""

    def register(lift: Upcaster) -> Upcaster:
        _upcasters[kind, from_version] = lift
        return lift

    return register


def declared_kinds() -> dict[str, type[Payload]]:
    """Every kind this process knows. Documentation and start-up checks read it."""
    return dict(sorted(_payloads.items()))


P = TypeVar("P", bound=Payload)
P_co = TypeVar("P_co", bound=Payload, covariant=True)


class NewEvent(NamedTuple):
    """An event that has not happened yet."""

    stream: str
    payload: Payload
    actor: str = "system"
    cause: int | None = None
    """The id of the event that led to this one."""
    key: str | None = None
    """An idempotency key: of all drafts with one key, only the first is recorded."""
    turn: str | None = None
    """Events of one turn share this, so that they can be taken back together."""


class Event(NamedTuple, Generic[P_co]):
    """A payload in its place. A named tuple because a fold makes millions of them."""

    id: int
    stream: str
    seq: int
    kind: str
    version: int
    payload: P_co
    ts: datetime
    actor: str
    cause: int | None
    key: str | None
    turn: str | None


AnyEvent = Event[Payload]

COLUMNS = "id, stream, seq, kind, version, payload, ts, actor, cause, key, turn"
EventRow = tuple[int, str, int, str, int, str, int, str, int | None, str | None, str | None]
"""One row of the log, in the order of COLUMNS; `ts` in microseconds, `payload` as JSON."""


def encode(payload: Payload) -> str:
    return payload.model_dump_json()


def decode(record: EventRow) -> AnyEvent:
    event_id, stream, seq, kind, version, text, ts, actor, cause, key, turn = record
    payload_type = _payloads.get(kind)
    if payload_type is None or version > payload_type.version:
        raise unknown_event_error([(kind, version)])
    try:
        if version == payload_type.version:
            payload = payload_type.model_validate_json(text)
        else:
            payload = payload_type.model_validate(_lift(kind, version, payload_type.version, json.loads(text)))
    except (ValidationError, ValueError) as error:
        raise BadEvent(
            f"Event {event_id} ({kind}, version {version}) does not fit its kind: {error}.",
            "The log or the code that reads it is damaged: run `coterie verify`, and restore a backup if it fails.",
        ) from error
    return Event(event_id, stream, seq, kind, version, payload, from_micros(ts), actor, cause, key, turn)


def unknown_kinds(pairs: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """Those of (kind, version) that this Coterie cannot read."""
    return [(kind, version) for kind, version in pairs if kind not in _payloads or version > _payloads[kind].version]


def unknown_event_error(pairs: Iterable[tuple[str, int]]) -> UnknownEvent:
    named = ", ".join(f"{kind} (version {version})" for kind, version in pairs)
    return UnknownEvent(
        f"The log holds events that this Coterie does not know: {named}.",
        "They come from a newer version or a missing extension: upgrade Coterie or install it. Nothing was changed.",
    )


def _lift(kind: str, version: int, target: int, fields: dict[str, Any]) -> dict[str, Any]:
    for step in range(version, target):
        lift = _upcasters.get((kind, step))
        if lift is None:
            raise ValueError(f"no upcaster from version {step} of {kind}")
        fields = lift(fields)
    return fields


# The events that change which earlier events count. None of them deletes anything.
#
# `counted` after each of them is a pure function of the stream's own log up to it, which is why a redo is
# just a rewind to the moment before the rewind, and why a fork can inherit any line, even an abandoned one.


class Rewound(Payload, kind="rewound"):
    """What counts is again exactly what counted when `to` was the stream's last event."""

    to: int
    """A number in this stream; 0 is before its first event."""
    redo: bool = False
    """True when it takes a rewind or a reset back."""


class Superseded(Payload, kind="superseded"):
    """These stretches of the stream stop counting, and those count again (an alternative is chosen)."""

    drop: tuple[tuple[int, int], ...] = ()
    """First and last number of each stretch that stops counting."""
    restore: tuple[tuple[int, int], ...] = ()
    """First and last number of each stretch that counts again."""


class Reset(Payload, kind="reset"):
    """Nothing before this counts any more."""


class Forked(Payload, kind="forked"):
    """The first event of a new line: it inherits what counted in `parent` at `at`, and goes on from there."""

    parent: str
    """The stream it comes from."""
    at: int
    """The number of the last event that both lines share."""


class Purged(Payload, kind="purged"):
    """The only deletion there is: these events were erased for privacy, and cannot come back."""

    stream: str
    """Where they stood."""
    events: int
    """How many there were; those that say what counts (`rewound` …) stay, without key, turn and actor."""
    first_seq: int
    """The number of the first of them."""
    last_seq: int
    """The number of the last of them."""
    reason: str = ""
    """As whoever did it gave it; may be empty."""


CONTROL_KINDS = (Rewound.kind, Superseded.kind, Reset.kind, Forked.kind)

_BRIEF = 16


def is_small(new_events: Sequence[NewEvent]) -> bool:
    """Whether they take a moment to record: a few, and none that changes what counts."""
    return len(new_events) <= _BRIEF and all(draft.payload.kind not in CONTROL_KINDS for draft in new_events)
