"""C1, C2: models, schemas and examples say the same; unknown fields stay; subjects are subjects."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from coterie.eventstore.bus import matches
from coterie.modes.crowd.errors import BadWireMessage
from coterie.modes.crowd.protocol import ChatMessage, Subjects
from coterie.modes.crowd.protocol.messages import EXAMPLES, MESSAGE_TYPES, SCHEMAS, WireMessage, schema_text


def example(shape: type[WireMessage]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((EXAMPLES / f"{shape.schema_name()}.json").read_text(encoding="utf-8"))
    return found


def schema(shape: type[WireMessage]) -> Draft202012Validator:
    told = json.loads((SCHEMAS / f"{shape.schema_name()}.json").read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(told)
    return Draft202012Validator(told)


@pytest.mark.parametrize("shape", MESSAGE_TYPES, ids=lambda shape: shape.message_type)
def test_c1_the_schema_file_is_what_the_model_says(shape: type[WireMessage]) -> None:
    assert (SCHEMAS / f"{shape.schema_name()}.json").read_text(encoding="utf-8") == schema_text(shape)


@pytest.mark.parametrize("shape", MESSAGE_TYPES, ids=lambda shape: shape.message_type)
def test_c1_the_example_fits_schema_and_model(shape: type[WireMessage]) -> None:
    schema(shape).validate(example(shape))
    read = shape.from_json(json.dumps(example(shape)))
    assert read.model_dump(mode="json", exclude_unset=True) == example(shape)
    schema(shape).validate(json.loads(read.to_json()))


@pytest.mark.parametrize("shape", MESSAGE_TYPES, ids=lambda shape: shape.message_type)
def test_c1_unknown_fields_are_kept_at_every_depth(shape: type[WireMessage]) -> None:
    told = example(shape)
    told["from_the_future"] = {"a": [1, 2]}
    for value in told.values():
        if isinstance(value, dict):
            value["more"] = "yes"
    read = json.loads(shape.from_json(json.dumps(told)).to_json())
    assert read["from_the_future"] == {"a": [1, 2], "more": "yes"}
    assert all(read[name]["more"] == "yes" for name, value in told.items() if isinstance(value, dict))


@pytest.mark.parametrize("shape", MESSAGE_TYPES, ids=lambda shape: shape.message_type)
def test_c1_a_missing_field_is_named_by_model_and_schema_alike(shape: type[WireMessage]) -> None:
    for name in shape.json_schema()["required"]:
        told = {key: value for key, value in example(shape).items() if key != name}
        assert not schema(shape).is_valid(told)
        with pytest.raises(BadWireMessage, match=name):
            shape.from_json(json.dumps(told))


@pytest.mark.parametrize("text", ["", "two\nlines", "bell\a", "x" * 501, "line\u2028break"])
def test_c1_a_message_is_one_line_of_at_most_500_characters(text: str) -> None:
    told = {**example(ChatMessage), "text": text}
    assert not schema(ChatMessage).is_valid(told)
    with pytest.raises(BadWireMessage, match="text"):
        ChatMessage.from_json(json.dumps(told))


@given(st.binary(max_size=200))
def test_c1_noise_is_refused_and_never_crashes(noise: bytes) -> None:
    with pytest.raises(BadWireMessage):
        ChatMessage.from_json(noise)


def test_c2_subjects_of_a_room() -> None:
    subjects = Subjects("late-shift")
    assert subjects.ingest == "chat.ingest.late-shift"
    assert matches("chat.*.late-shift", subjects.firehose)
    assert matches("stream.>", subjects.context)
    assert not matches("chat.firehose.other", subjects.firehose)
    assert len({subjects.ingest, subjects.firehose, subjects.context, subjects.trends, subjects.audit}) == 5
