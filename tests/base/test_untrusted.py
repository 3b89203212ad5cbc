"""Reading what others send."""

from __future__ import annotations

import json

import pytest
from hypothesis import given

from coterie.base.redaction import redact
from coterie.base.untrusted import describe_problem, excerpt, parse_json, parse_json_without_deep_parts
from tests.untrusted_values import as_json, json_values


@pytest.mark.parametrize("data", [b"", b"\xff", b"NaN", b"1e999", b"9" * 5_000, b"[" * 100_000, b'{"a":'])
def test_what_is_not_json_is_a_value_error(data: bytes) -> None:
    for parse in (parse_json, parse_json_without_deep_parts):
        with pytest.raises(ValueError):
            parse(data)


@given(json_values)
def test_json_is_read_as_it_was_written(value: object) -> None:
    assert parse_json(as_json(value)) == parse_json_without_deep_parts(as_json(value)) == json.loads(as_json(value))


def test_one_part_that_is_nested_too_deeply_leaves_the_rest_readable() -> None:
    nested = b'[{"x":' * 5_000 + b'"}]"' + b"}]" * 5_000
    value = parse_json_without_deep_parts(b'{"a": ["]\\""], "b": ' + nested + b', "c": [1, {"d": 2}]}')
    assert (value["a"], value["c"]) == ([']"'], [1, {"d": 2}])


def test_an_excerpt_is_short_and_has_no_secrets() -> None:
    redact.register("hunter2-hunter2")
    assert "hunter2" not in excerpt({"password": "hunter2-hunter2"})
    assert len(excerpt("x" * 100_000)) == 300
    assert excerpt("a\ud800b") == "a\ufffdb"
    loop: list[object] = []
    loop.append(loop)
    assert excerpt(loop) == "(list)"
    assert describe_problem(ValueError("too\nlong")) == "too long"
