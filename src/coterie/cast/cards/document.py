"""JSON from strangers, in and out. Reading is bounded in size, count and depth before anything is built,
and refuses what other programs could not read back; writing keeps every value exactly.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NoReturn

from coterie.cast.cards.limits import MAX_JSON_BYTES, MAX_JSON_DEPTH, MAX_JSON_VALUES
from coterie.cast.errors import BrokenCard, CardTooBig

Document = dict[str, Any]

_ASK_AGAIN = "Export it again from where it came from, or ask its author for a sound copy."


def read_object(raw: bytes, what: str) -> Document:
    """The one JSON object in `raw`; `what` names it in errors, such as "The card"."""
    if len(raw) > MAX_JSON_BYTES:
        raise CardTooBig(
            f"{what} has {len(raw) / 1e6:.0f} MB of text; {MAX_JSON_BYTES / 1e6:.0f} MB is the most.",
            "Move pictures and sounds out of the text (a CHARX keeps them beside it).",
        )
    try:
        text = raw.decode(json.detect_encoding(raw))
    except UnicodeDecodeError as error:
        raise BrokenCard(f"{what} is not text: {error.reason} at byte {error.start}.", _ASK_AGAIN) from None
    if text.count(",") + text.count("[") + text.count("{") > MAX_JSON_VALUES:
        raise CardTooBig(
            f"{what} has more than a million values.", "A card of that size cannot be used; make it smaller."
        )
    try:
        value = json.loads(text.removeprefix("\ufeff"), parse_constant=_refuse_constant, parse_float=_finite)
    except RecursionError:
        _refuse_depth(what)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise BrokenCard(f"{what} is not JSON: {error.msg} at {where}.", _ASK_AGAIN) from None
    except ValueError as error:
        raise BrokenCard(f"{what} holds a number that cannot be kept: {error}.", _ASK_AGAIN) from None
    if not isinstance(value, dict):
        raise BrokenCard(f"{what} is not a JSON object.", _ASK_AGAIN)
    if _depth(value) > MAX_JSON_DEPTH:
        _refuse_depth(what)
    return value


def write_object(document: Mapping[str, Any], *, pretty: bool = False) -> bytes:
    """The document as UTF-8 JSON. Half characters (lone surrogates) survive as escapes."""
    layout: dict[str, Any] = {"indent": 2} if pretty else {"separators": (",", ":")}
    raw = json.dumps(document, ensure_ascii=False, allow_nan=False, **layout).encode(errors="backslashreplace")
    # Spaces for the eye must not make a card too big to be read again.
    return write_object(document) if pretty and len(raw) > MAX_JSON_BYTES else raw


def same_document(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Equal as JSON: unlike `==`, true is not 1 and 1 is not 1.0."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _depth(value: object) -> int:
    deepest, level = 0, [value]
    while level:
        below: list[object] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
        level = below
        deepest += 1
        if deepest > MAX_JSON_DEPTH + 1:
            break
    return deepest


def _refuse_depth(what: str) -> NoReturn:
    raise CardTooBig(
        f"{what} is nested more than {MAX_JSON_DEPTH} levels deep.",
        "No card needs that; ask its author for a sound copy.",
    ) from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError(f"{digits[:40]} is out of range")
    return value
