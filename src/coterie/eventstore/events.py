"""Events and their payloads. A kind of event is a pydantic model; declaring it registers the kind.

Upcasters convert old versions of a payload when it is read, so handlers only see the newest version. An unknown kind
or a newer version is an error.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import PydanticSerializationError

from coterie.base.clock import from_micros
from coterie.base.errors import BadEvent, UnknownEvent
from coterie.base.redaction import redact
from coterie.base.values import replace_surrogates
from coterie.eventstore.sqlite.compression import compress

Upcaster = Callable[[dict[str, Any]], dict[str, Any]]

_payloads: dict[str, type[Payload]] = {}
_upcasters: dict[tuple[str, int], Upcaster] = {}
_rewriters: dict[tuple[str, int], Rewriter] = {}


class Payload(BaseModel):
    """The content of one kind of event: `class UserTurn(Payload, kind="user_turn", version=1): …`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: ClassVar[str]
    version: ClassVar[int]
    shares_texts: ClassVar[bool] = False
    """Whether it has texts that other events repeat; then it overrides the two methods below."""

    def __init_subclass__(cls, *, kind: str, version: int = 1, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        other = _payloads.get(kind)
        if other is not None and (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
            raise TypeError(f"The event kind {kind!r} is already declared by {other.__module__}.{other.__qualname__}.")
        cls.kind, cls.version = kind, version
        _payloads[kind] = cls

    def share_texts(self, number: Callable[[str], int]) -> Payload:
        """The payload as it is stored, with repeated texts replaced by the numbers that `number` gives them."""
        return self

    def shared_numbers(self) -> Collection[int]:
        """The numbers of all shared texts that the stored payload refers to."""
        return ()


def upcaster(kind: str, from_version: int) -> Callable[[Upcaster], Upcaster]:
    """Register the conversion of the fields of `from_version` to those of the next version."""

    def register(convert: Upcaster) -> Upcaster:
        _upcasters[kind, from_version] = convert
        return convert

    return register


class StoredPayload(NamedTuple):
    """A payload as it is stored, for a rewriter."""

    event: int
    stream: str
    seq: int
    fields: dict[str, Any]


Rewriter = Callable[[Callable[[], Iterator[StoredPayload]], Callable[[str, int], str]], Iterator[tuple[int, "Payload"]]]
"""Called with a function that reads all payloads of one stream and its forks, ordered by id, as often as it is called,
and one that names the stream in which an event of a stream is stored. Yields event ids with their new payloads."""


def rewriter(kind: str, from_version: int) -> Callable[[Rewriter], Rewriter]:
    """Register a rewriter for payloads whose stored form is replaced when the database is opened.

    Only for a change of form: the same content in fewer bytes. An upcaster is still needed, for readers of files that
    were not opened for writing since.
    """

    def register(rewrite: Rewriter) -> Rewriter:
        _rewriters[kind, from_version] = rewrite
        return rewrite

    return register


def declared_rewriters() -> dict[tuple[str, int], Rewriter]:
    return dict(sorted(_rewriters.items()))


def declared_kinds() -> dict[str, type[Payload]]:
    """Every kind that this process knows, by name."""
    return dict(sorted(_payloads.items()))


P = TypeVar("P", bound=Payload)
P_co = TypeVar("P_co", bound=Payload, covariant=True)


class NewEvent(NamedTuple):
    """An event that is to be appended."""

    stream: str
    payload: Payload
    actor: str = "system"
    cause: int | None = None
    """The id of the event that caused this one."""
    key: str | None = None
    """An idempotency key: of all events with one key, only the first is appended."""
    turn: str | None = None
    """Events of one turn share this, so that they can be rewound together."""


class Event(NamedTuple, Generic[P_co]):
    """An event of the log. A named tuple because a replay creates millions of them."""

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


def _without_surrogates(payload: Payload) -> Payload:
    """The payload with half surrogate pairs replaced. Documents of others, such as lorebooks, may contain some."""
    fields = json.dumps(payload.model_dump(mode="json"), ensure_ascii=False)
    return type(payload).model_validate_json(replace_surrogates(fields))


def encode_redacted(new: NewEvent) -> tuple[NewEvent, str | bytes]:
    """The event without secrets and half surrogate pairs, and its payload as it is stored.

    Raises `SecretInName` if an id or a name contains a secret.
    Every event passes this before it is stored, applied or published, so that all see the same payload.
    """
    stream, payload, actor, _, key, turn = new
    try:
        text = encode(payload)
    except PydanticSerializationError:
        payload = _without_surrogates(payload)
        new, text = new._replace(payload=payload), encode(payload)
    if not redact.may_contain_secret(f"{text} {stream} {actor} {key} {turn}"):
        return new, _stored(payload, text)
    redact.check_names(stream, actor, key, turn)
    redacted: Payload = redact.value(payload)
    if redacted is payload:
        return new, _stored(payload, text)
    text = encode(redacted)
    try:
        return new._replace(payload=type(payload).model_validate_json(text)), _stored(payload, text)
    except ValidationError:
        raise BadEvent(
            f"A configured secret was found in {payload.kind}, which would not be valid without it.",
            "Give another value, without a key, token or password. Nothing was stored.",
        ) from None


def _stored(payload: Payload, text: str) -> str | bytes:
    # A payload that shares texts is stored with their numbers instead, which it gets later.
    return "" if payload.shares_texts else compress(text)


def decode(row: EventRow) -> AnyEvent:
    event_id, stream, seq, kind, version, text, ts, actor, cause, key, turn = row
    payload = decode_payload(event_id, kind, version, text)
    return Event(event_id, stream, seq, kind, version, payload, from_micros(ts), actor, cause, key, turn)


def decode_payload(event_id: int, kind: str, version: int, text: str) -> Payload:
    payload_type = _payloads.get(kind)
    if payload_type is None or version > payload_type.version:
        raise unknown_event_error([(kind, version)])
    try:
        if version == payload_type.version:
            return payload_type.model_validate_json(text)
        return payload_type.model_validate(_upcast(kind, version, payload_type.version, json.loads(text)))
    except (ValidationError, ValueError) as error:
        raise BadEvent(
            f"Event {event_id} ({kind}, version {version}) is not valid for its kind: {error}.",
            "The log or the code that reads it is damaged: run `coterie verify`, and restore a backup if it fails.",
        ) from error


def unknown_kinds(pairs: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """The pairs of kind and version that this version of Coterie cannot read."""
    return [(kind, version) for kind, version in pairs if kind not in _payloads or version > _payloads[kind].version]


def unknown_event_error(pairs: Iterable[tuple[str, int]]) -> UnknownEvent:
    kinds = ", ".join(f"{kind} (version {version})" for kind, version in pairs)
    return UnknownEvent(
        f"The log holds events that this Coterie does not know: {kinds}.",
        "They come from a newer version or a missing extension: upgrade Coterie or install it. Nothing was changed.",
    )


def _upcast(kind: str, version: int, target: int, fields: dict[str, Any]) -> dict[str, Any]:
    for step in range(version, target):
        convert = _upcasters.get((kind, step))
        if convert is None:
            raise ValueError(f"no upcaster from version {step} of {kind}")
        fields = convert(fields)
    return fields


# Control events change which earlier events of a stream are active. They delete nothing.
#
# The active events after each of them are a pure function of the log up to it. Therefore a redo is a rewind to the
# position before the rewind, and a fork can start at any position, also at one that is no longer active.


class Rewound(Payload, kind="rewound"):
    """The active events are again those that were active when `to` was the stream's last event."""

    to: int
    """A sequence number of this stream; 0 is before its first event."""
    redo: bool = False
    """True if it undoes a rewind or a reset."""


class Superseded(Payload, kind="superseded"):
    """Some ranges of the stream become inactive and others active again (an alternative is chosen)."""

    drop: tuple[tuple[int, int], ...] = ()
    """First and last sequence number of each range that becomes inactive."""
    restore: tuple[tuple[int, int], ...] = ()
    """First and last sequence number of each range that becomes active again."""


class Reset(Payload, kind="reset"):
    """Every earlier event of the stream becomes inactive."""


class Forked(Payload, kind="forked"):
    """The first event of a forked stream, which inherits the events active in `parent` at `at`."""

    parent: str
    """The stream it was forked from."""
    at: int
    """The sequence number of the last event that both streams share."""


class Purged(Payload, kind="purged"):
    """Events were erased permanently, for privacy. This is the only kind of deletion."""

    stream: str
    """The stream they were erased from."""
    events: int
    """How many; control events (`rewound` …) among them are kept without key, turn and actor."""
    first_seq: int
    """The sequence number of the first of them."""
    last_seq: int
    """The sequence number of the last of them."""
    reason: str = ""
    """The reason that was given; may be empty."""


CONTROL_KINDS = (Rewound.kind, Superseded.kind, Reset.kind, Forked.kind)

_SMALL_BATCH = 16


def is_small(new_events: Sequence[NewEvent]) -> bool:
    """Whether they are quick to append: few, and no control event."""
    return len(new_events) <= _SMALL_BATCH and all(new.payload.kind not in CONTROL_KINDS for new in new_events)
