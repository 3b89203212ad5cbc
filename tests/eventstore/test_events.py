from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from coterie.base.errors import BadEvent, UnknownEvent
from coterie.eventstore import NewEvent, Payload, Store, declared_kinds, upcaster
from coterie.eventstore.events import EventRow, decode, encode, unknown_kinds


class Greeted(Payload, kind="test_greeted", version=3):
    name: str
    warmly: bool


@upcaster("test_greeted", 1)
def _split_name(fields: dict[str, Any]) -> dict[str, Any]:
    return {"name": f"{fields['first']} {fields['last']}"}


@upcaster("test_greeted", 2)
def _add_warmth(fields: dict[str, Any]) -> dict[str, Any]:
    return {**fields, "warmly": False}


def event_row(kind: str = "test_greeted", version: int = 3, payload: str = '{"name":"Mara","warmly":true}') -> EventRow:
    return (1, "room:a", 1, kind, version, payload, 0, "you", None, None, None)


def test_a_payload_is_read_back_as_it_was_written() -> None:
    greeted = Greeted(name="Mara", warmly=True)
    assert decode(event_row(payload=encode(greeted))).payload == greeted


def test_old_versions_are_upcast_step_by_step() -> None:
    event = decode(event_row(version=1, payload='{"first":"Mara","last":"Lind"}'))
    assert event.payload == Greeted(name="Mara Lind", warmly=False)


def test_a_newer_version_and_an_unknown_kind_are_refused() -> None:
    with pytest.raises(UnknownEvent, match=r"test_greeted \(version 4\).*upgrade Coterie"):
        decode(event_row(version=4))
    with pytest.raises(UnknownEvent, match="test_never_declared"):
        decode(event_row(kind="test_never_declared", version=1))
    assert unknown_kinds([("test_greeted", 2), ("test_greeted", 4), ("nope", 1)]) == [("test_greeted", 4), ("nope", 1)]


@pytest.mark.parametrize("payload", ["{", '{"name":"Mara"}', '{"name":"Mara","warmly":true,"more":1}', "[]"])
def test_an_invalid_payload_is_reported(payload: str) -> None:
    with pytest.raises(BadEvent, match=r"Event 1 \(test_greeted"):
        decode(event_row(payload=payload))


def test_a_missing_upcaster_is_reported() -> None:
    with pytest.raises(BadEvent, match="no upcaster from version 0"):
        decode(event_row(version=0))


def test_a_kind_belongs_to_one_class() -> None:
    with pytest.raises(TypeError, match="already declared"):

        class Other(Payload, kind="test_greeted"):
            pass


def test_payloads_are_frozen_and_strict() -> None:
    greeted = Greeted(name="Mara", warmly=True)
    with pytest.raises(ValidationError):
        greeted.name = "Teo"  # type: ignore[misc]
    with pytest.raises(ValidationError):
        Greeted(name="Mara", warmly=True, more=1)  # type: ignore[call-arg]
    assert declared_kinds()["test_greeted"] is Greeted


class Copied(Payload, kind="test_copied"):
    text: str
    document: dict[str, Any]


def test_half_surrogate_pairs_are_replaced_before_an_event_is_stored(store: Store) -> None:
    """Wherever they come from: a document of somebody else, or text that no boundary has checked."""
    document = {"keys": ["\ud800", "\ud83d\ude00"], "\udfff": {"content": "half \ud83d"}, "number": 2**70}
    (event,) = store.append_blocking([NewEvent("room:a", Copied(text="\udc80 end", document=document))])
    expected = {"keys": ["\ufffd", "\U0001f600"], "\ufffd" * 3: {"content": "half \ufffd"}, "number": 2**70}
    assert event.payload == Copied(text="\ufffd end", document=expected)
    assert [each.payload for each in store.reader.read("room:a")] == [event.payload]
