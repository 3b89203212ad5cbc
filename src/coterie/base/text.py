"""Untrusted text: on a terminal, with control characters escaped; in a prompt, kept within its place."""

from __future__ import annotations

import json
import re
import unicodedata


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
