"""Showing text that came from somewhere else on a terminal, without letting it act there."""

from __future__ import annotations

import json
import unicodedata


def one_line(value: object, max_length: int) -> str:
    """The value as text with control and direction characters shown, not obeyed, cut to a length."""
    text = value if isinstance(value, str) else repr(value)
    shown = "".join(_visible(character) for character in text[: max_length * 2])
    return shown if len(shown) <= max_length and len(text) <= max_length * 2 else shown[: max_length - 1] + "…"


def escape_controls(text: str) -> str:
    """Text of several lines, for a terminal: line breaks stay, whatever else could act there is shown instead."""
    return "".join(character if character == "\n" else _visible(character) for character in text)


def json_line(value: object) -> str:
    """The value as JSON that reads well in any language; characters that could act on a terminal are escaped."""
    text = json.dumps(value, ensure_ascii=False)
    return "".join(json.dumps(character)[1:-1] if _acts(character) else character for character in text)


def _visible(character: str) -> str:
    if character == "\n":
        return "⏎"
    return f"\\u{ord(character):04x}" if _acts(character) else character


def _acts(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")
