"""Untrusted data: reading JSON with limits, describing what was wrong with it, and showing text in its place."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from typing import Any, NoReturn

from pydantic import ValidationError

from coterie.base.redaction import redact
from coterie.base.values import replace_surrogates

# Untrusted text: on a terminal, with control characters escaped; in a prompt, kept within its place.


def one_line(value: object, max_length: int) -> str:
    """The value as one line of text with control and direction characters escaped, cut to a length."""
    text = value if isinstance(value, str) else repr(value)
    escaped = "".join(_escape(character) for character in text[: max_length * 2])
    return escaped if len(escaped) <= max_length and len(text) <= max_length * 2 else escaped[: max_length - 1] + "…"


def join_lines(text: str) -> str:
    """The text as one line, for a name, a title or a list item in a prompt: it cannot begin a line of its own."""
    if not text.isprintable():
        text = "".join(" " if unicodedata.category(letter) == "Cc" else letter for letter in text)
    return " ".join(text.split())


def inside_tag(text: str, tag: str) -> str:
    """The text for a section between `<tag>` and `</tag>` of a prompt: it cannot end the section or begin another."""
    return re.sub(rf"<(?=\s*/?\s*{tag}\b)", "&lt;", text, flags=re.IGNORECASE)


def escape_controls(text: str) -> str:
    """Text with control and direction characters escaped, except line breaks."""
    return "".join(character if character == "\n" else _escape(character) for character in text)


def json_line(value: object) -> str:
    """The value as JSON with readable non-ASCII characters; control and direction characters are escaped."""
    text = json.dumps(value, ensure_ascii=False)
    return "".join(json.dumps(character)[1:-1] if _is_control(character) else character for character in text)


def _escape(character: str) -> str:
    if character == "\n":
        return "⏎"
    return f"\\u{ord(character):04x}" if _is_control(character) else character


def _is_control(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")


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
