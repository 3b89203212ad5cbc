"""Reading what others send: JSON with limits, and short descriptions of what was wrong with it."""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

from pydantic import ValidationError

from coterie.base.redaction import redact
from coterie.base.values import replace_surrogates

MAX_EXCERPT = 300
_MAX_DEPTH = 100
_STRING_OR_BRACKET = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


def parse_json(data: str | bytes) -> Any:
    """The value of a JSON text. Raises ValueError for anything else: text that is not JSON or not UTF-8, numbers that
    are not finite or have thousands of digits, and values that are nested too deeply."""
    try:
        return json.loads(data, parse_constant=_refuse_constant, parse_float=_finite)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def parse_json_without_deep_parts(data: bytes) -> Any:
    """As `parse_json`, but parts that are nested too deeply are left out (null), so that one of many things in a
    response cannot make all of it unreadable."""
    try:
        return json.loads(data, parse_constant=_refuse_constant, parse_float=_finite)
    except RecursionError:
        return parse_json(_cut_deep_parts(data))


def _cut_deep_parts(data: bytes) -> bytes:
    kept: list[bytes] = []
    depth = done = 0
    for token in _STRING_OR_BRACKET.finditer(data):
        if token[0] in (b"{", b"["):
            depth += 1
            if depth == _MAX_DEPTH + 1:
                kept += [data[done : token.start()], b"null"]
        elif token[0] in (b"}", b"]"):
            if depth == _MAX_DEPTH + 1:
                done = token.end()
            depth -= 1
    return b"".join([*kept, data[done:]])


def describe_problem(error: Exception) -> str:
    """Why something could not be read, in one line and without the value itself."""
    if isinstance(error, ValidationError):
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        place = ".".join(map(str, first["loc"]))
        text = f"{place}: {first['msg']}" if place else first["msg"]
    elif isinstance(error, ValueError) and type(error) is ValueError:
        text = str(error)
    else:
        text = f"{type(error).__name__}: {error}"
    return redact(replace_surrogates(" ".join(text.split())))[:MAX_EXCERPT]


def excerpt(value: object, limit: int = MAX_EXCERPT) -> str:
    """The beginning of what was received, without secrets."""
    try:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=repr)
    except (ValueError, RecursionError):
        text = f"({type(value).__name__})"
    # Redacted before it is cut: half a secret would not be recognised.
    return redact(replace_surrogates(text[: limit * 20]))[:limit]


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError(f"{digits[:40]} is out of range")
    return value
