"""Types that forgive what cards in the wild get wrong: null for empty text, a number for a version, one
text for a list of them. Only what cannot be understood at all is refused.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator


def as_text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        # Half characters cannot be sent to a model or a page; the document keeps them.
        return value if value.isascii() else value.encode(errors="replace").decode()
    if isinstance(value, bool | int | float):
        return str(value)
    raise ValueError("text belongs here")


def text_or_empty(value: object) -> str:
    """As `as_text`; empty for what is no text."""
    return as_text(value) if isinstance(value, str | int | float) else ""


def as_texts(value: object) -> list[str]:
    if value is None or value == "":
        return []
    if isinstance(value, list):
        return [as_text(item) for item in value]
    return [as_text(value)]


def comma_list(value: object) -> list[str]:
    """A list, or one text with commas; blanks fall away."""
    texts = value.split(",") if isinstance(value, str) else as_texts(value)
    return [text.strip() for text in map(as_text, texts) if text.strip()]


def as_number(value: object) -> float | int | None:
    """The number a value says, or None: a wrong number never costs anybody the card."""
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
