"""Strategies for what strangers may send: any JSON value, valid examples with parts changed, and bytes."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import strategies as st

_texts = st.text(max_size=8) | st.sampled_from(["", "\x00", "\ud800", "﷽" * 50, "{}", "NaN", "1e999", "-1"])
_numbers = (
    st.integers() | st.sampled_from([0, -1, 2**31, 2**63, 10**30]) | st.floats(allow_nan=False, allow_infinity=False)
)
scalars = st.none() | st.booleans() | _numbers | _texts
json_values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_texts, inner, max_size=4), max_leaves=12
)


def _places(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [place, *(deeper for key in keys for deeper in _places(value[key], (*place, key)))]


@st.composite
def mutated(draw: st.DrawFn, example: Any) -> Any:
    """The example with one to three of its parts replaced by any value, or removed."""
    value = copy.deepcopy(example)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.sampled_from(_places(value)))
        if not place:
            return draw(json_values)
        parent = value
        for key in place[:-1]:
            parent = parent[key]
        if draw(st.booleans()):
            parent[place[-1]] = draw(json_values)
        else:
            del parent[place[-1]]
    return value


@st.composite
def damaged(draw: st.DrawFn, example: bytes) -> bytes:
    """Any bytes, or the example with a part of its bytes replaced."""
    if draw(st.booleans()):
        return draw(st.binary(max_size=200))
    start = draw(st.integers(0, len(example)))
    end = draw(st.integers(start, min(len(example), start + 20)))
    return example[:start] + draw(st.binary(max_size=20)) + example[end:]


def as_json(value: Any) -> bytes:
    """JSON as a stranger's program may write it, lone surrogates included."""
    return json.dumps(value).encode()
