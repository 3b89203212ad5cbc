"""Every parser of what comes from outside refuses, or records and skips, whatever it cannot read.

Matrix's sync as a whole is tested in `tests/surfaces/matrix/test_sync.py`, the streams of providers also in
`tests/llm/test_router.py`. `python -m bench.fuzz_inbound` feeds the same parsers with a million inputs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench.fuzz_inbound import fuzz
from bench.lib.inbound_parsers import InboundParser, inbound_parsers
from tests.untrusted_values import as_json, damaged, json_values, mutated


@pytest.fixture(scope="module")
def parsers() -> Iterator[dict[str, InboundParser]]:
    with inbound_parsers() as parsers:
        yield {parser.name: parser for parser in parsers}


def _names() -> list[str]:
    with inbound_parsers() as parsers:
        return [parser.name for parser in parsers]


@pytest.mark.parametrize("name", _names())
def test_a_parser_accepts_at_least_one_of_its_examples(name: str, parsers: dict[str, InboundParser]) -> None:
    assert any(parsers[name].run(example) for example in parsers[name].examples)


@pytest.mark.parametrize("name", _names())
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_input_is_accepted_or_refused_with_an_error_of_ours(
    name: str, parsers: dict[str, InboundParser], data: st.DataObject
) -> None:
    example = data.draw(st.sampled_from(parsers[name].examples))
    inputs = [damaged(example), json_values.map(as_json)]
    with suppress(ValueError):  # not every example is JSON
        inputs.append(mutated(json.loads(example)).map(as_json))
    parsers[name].run(data.draw(st.one_of(inputs)))


def test_a_small_run_of_the_bench_finds_nothing(parsers: dict[str, InboundParser]) -> None:
    failures = [failure for parser in parsers.values() for failure in fuzz(parser, parser.weight, seed=1)[1]]
    assert failures == []
