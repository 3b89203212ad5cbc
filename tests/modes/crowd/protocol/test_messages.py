"""C1, C2: models, schemas and examples agree; unknown fields are kept; subjects of a room."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from coterie.eventstore.bus import matches
from coterie.modes.crowd.errors import BadWireMessage
from coterie.modes.crowd.protocol import (
    EXAMPLES,
    MESSAGE_TYPES,
    SCHEMAS,
    ChatMessage,
    Subjects,
    WireMessage,
    schema_text,
)


def example(message_type: type[WireMessage]) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((EXAMPLES / f"{message_type.schema_name()}.json").read_text(encoding="utf-8"))
    return loaded


def schema(message_type: type[WireMessage]) -> Draft202012Validator:
    parsed = json.loads((SCHEMAS / f"{message_type.schema_name()}.json").read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(parsed)
    return Draft202012Validator(parsed)


@pytest.mark.parametrize("message_type", MESSAGE_TYPES, ids=lambda message_type: message_type.message_type)
def test_c1_schema_files_match_the_models(message_type: type[WireMessage]) -> None:
    assert (SCHEMAS / f"{message_type.schema_name()}.json").read_text(encoding="utf-8") == schema_text(message_type)


@pytest.mark.parametrize("message_type", MESSAGE_TYPES, ids=lambda message_type: message_type.message_type)
def test_c1_examples_match_schema_and_model(message_type: type[WireMessage]) -> None:
    schema(message_type).validate(example(message_type))
    read = message_type.from_json(json.dumps(example(message_type)))
    assert read.model_dump(mode="json", exclude_unset=True) == example(message_type)
    schema(message_type).validate(json.loads(read.to_json()))


@pytest.mark.parametrize("message_type", MESSAGE_TYPES, ids=lambda message_type: message_type.message_type)
def test_c1_unknown_fields_are_kept_at_every_depth(message_type: type[WireMessage]) -> None:
    message = example(message_type)
    message["from_the_future"] = {"a": [1, 2]}
    for value in message.values():
        if isinstance(value, dict):
            value["more"] = "yes"
    read = json.loads(message_type.from_json(json.dumps(message)).to_json())
    assert read["from_the_future"] == {"a": [1, 2], "more": "yes"}
    assert all(read[name]["more"] == "yes" for name, value in message.items() if isinstance(value, dict))


@pytest.mark.parametrize("message_type", MESSAGE_TYPES, ids=lambda message_type: message_type.message_type)
def test_c1_a_missing_field_is_rejected_by_model_and_schema(message_type: type[WireMessage]) -> None:
    for name in message_type.json_schema()["required"]:
        message = {key: value for key, value in example(message_type).items() if key != name}
        assert not schema(message_type).is_valid(message)
        with pytest.raises(BadWireMessage, match=name):
            message_type.from_json(json.dumps(message))


@pytest.mark.parametrize("text", ["", "two\nlines", "bell\a", "x" * 501, "line\u2028break"])
def test_c1_a_message_is_one_line_of_at_most_500_characters(text: str) -> None:
    message = {**example(ChatMessage), "text": text}
    assert not schema(ChatMessage).is_valid(message)
    with pytest.raises(BadWireMessage, match="text"):
        ChatMessage.from_json(json.dumps(message))


@given(st.binary(max_size=200))
def test_c1_random_bytes_raise_a_typed_error(noise: bytes) -> None:
    with pytest.raises(BadWireMessage):
        ChatMessage.from_json(noise)


def test_c2_subjects_of_a_room() -> None:
    subjects = Subjects("late-shift")
    assert subjects.ingest == "chat.ingest.late-shift"
    assert matches("chat.*.late-shift", subjects.firehose)
    assert matches("stream.>", subjects.context)
    assert not matches("chat.firehose.other", subjects.firehose)
    assert len({subjects.ingest, subjects.firehose, subjects.context, subjects.trends, subjects.audit}) == 5
