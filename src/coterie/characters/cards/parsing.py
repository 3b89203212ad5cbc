"""Limits, JSON, lenient types and paths for reading cards from untrusted sources.

Every size is checked before memory is spent on it. The limits are far above real cards, the largest of which have a few
megabytes of text.
"""

from __future__ import annotations

import json
import math
import unicodedata
from collections.abc import Mapping
from typing import Annotated, Any, NoReturn

from pydantic import BeforeValidator

from coterie.characters.errors import BrokenCard, CardTooBig

MB = 1_000_000

MAX_FILE_BYTES = 100 * MB
"""A file of this size or more is refused."""

MAX_JSON_BYTES = 32 * MB
"""The text of one card, lorebook or chat line."""

MAX_JSON_VALUES = 1_000_000
"""Commas and opening brackets in a JSON text: each may become an object of about sixty bytes."""

MAX_JSON_DEPTH = 100
"""Levels of nesting."""

MAX_PNG_CHUNKS = 50_000
"""Chunks in a picture; a picture of 20 MB has about 2,500."""

MAX_ZIP_ENTRIES = 10_000
"""Files in a CHARX."""

MAX_ZIP_ENTRY_BYTES = 64 * MB
"""One file in a CHARX, unpacked."""

MAX_ZIP_TOTAL_BYTES = 256 * MB
"""All files in a CHARX, unpacked."""

MAX_ZIP_RATIO = 100
"""Unpacked bytes per byte of the CHARX …"""

ZIP_RATIO_ALLOWANCE = 10 * MB
"""… plus this much: a blank picture or a silent sound compresses to almost nothing."""

MAX_CHAT_MESSAGES = 50_000
"""Lines in a chat file, which are stored in one transaction."""


Document = dict[str, Any]

_EXPORT_AGAIN = "Export it again from its source, or ask its author for an intact copy."


def read_object(raw: bytes, what: str) -> Document:
    """The JSON object in `raw`, limited in size, count and depth; `what` names it in errors, such as "The card"."""
    if len(raw) > MAX_JSON_BYTES:
        raise CardTooBig(
            f"{what} has {len(raw) / 1e6:.0f} MB of text; at most {MAX_JSON_BYTES / 1e6:.0f} MB are allowed.",
            "Move pictures and sounds out of the text (a CHARX keeps them beside it).",
        )
    try:
        text = raw.decode(json.detect_encoding(raw))
    except UnicodeDecodeError as error:
        raise BrokenCard(f"{what} is not text: {error.reason} at byte {error.start}.", _EXPORT_AGAIN) from None
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
        raise BrokenCard(f"{what} is not JSON: {error.msg} at {where}.", _EXPORT_AGAIN) from None
    except ValueError as error:
        raise BrokenCard(f"{what} has a number out of range: {error}.", _EXPORT_AGAIN) from None
    if not isinstance(value, dict):
        raise BrokenCard(f"{what} is not a JSON object.", _EXPORT_AGAIN)
    if _depth(value) > MAX_JSON_DEPTH:
        _refuse_depth(what)
    return value


def write_object(document: Mapping[str, Any], *, pretty: bool = False) -> bytes:
    """The document as UTF-8 JSON, with lone surrogates as escapes."""
    layout: dict[str, Any] = {"indent": 2} if pretty else {"separators": (",", ":")}
    raw = json.dumps(document, ensure_ascii=False, allow_nan=False, **layout).encode(errors="backslashreplace")
    # Indentation must not make a card too big to be read again.
    return write_object(document) if pretty and len(raw) > MAX_JSON_BYTES else raw


def same_document(document: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Equal as JSON: unlike `==`, true is not 1 and 1 is not 1.0."""
    return json.dumps(document, sort_keys=True) == json.dumps(other, sort_keys=True)


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
        "No card needs that; ask its author for an intact copy.",
    ) from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError(f"{digits[:40]} is out of range")
    return value


# Lenient types for common mistakes in cards: null for an empty text, a number for a version, one text for a list.


def as_text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        # Lone surrogates cannot be sent to a model or a page; the document keeps them.
        return value if value.isascii() else value.encode(errors="replace").decode()
    if isinstance(value, bool | int | float):
        return str(value)
    raise ValueError("should be text")


def text_or_empty(value: object) -> str:
    """As `as_text`; empty for anything that is not text."""
    return as_text(value) if isinstance(value, str | int | float) else ""


def as_texts(value: object) -> list[str]:
    if value is None or value == "":
        return []
    if isinstance(value, list):
        return [as_text(item) for item in value]
    return [as_text(value)]


def comma_list(value: object) -> list[str]:
    """A list, or one text with commas, without blank items."""
    texts = value.split(",") if isinstance(value, str) else as_texts(value)
    return [text.strip() for text in map(as_text, texts) if text.strip()]


def as_number(value: object) -> float | int | None:
    """The number that a value is or contains, else None."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int | float):
        return value
    if isinstance(value, str):
        try:
            number = float(value.strip())
        except ValueError:
            return None
        return number if abs(number) < 1e300 else None
    return None


def as_flag(value: object) -> bool | None:
    if isinstance(value, str):
        return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}.get(
            value.strip().lower()
        )
    if isinstance(value, bool | int | float):
        return bool(value)
    return None


def as_object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


Text = Annotated[str, BeforeValidator(as_text)]
Texts = Annotated[list[str], BeforeValidator(as_texts)]
CommaList = Annotated[list[str], BeforeValidator(comma_list)]


# Paths inside a card's file are only keys, never places on a disk; those that would leave a folder are still refused.


CARD_FILE = "card.json"
COTERIE_FILE = "coterie.json"
PORTRAIT_FILE = "coterie/portrait.png"
RESERVED_PATHS = (CARD_FILE, COTERIE_FILE, PORTRAIT_FILE)
"""Paths with a meaning of their own in our CHARX files."""

_MAX_PATH = 500


def is_safe_path(path: str) -> bool:
    parts = path.split("/")
    return (
        0 < len(path) <= _MAX_PATH
        and not any(part in ("", ".", "..") for part in parts)
        and "\\" not in path
        and ":" not in parts[0]
        and not any(unicodedata.category(letter) in ("Cc", "Cs") for letter in path)
    )
