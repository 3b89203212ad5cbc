"""How types, docstrings and table cells are written."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Annotated, Any, Literal, Union, get_args, get_origin

_NUMBERS = re.compile(r"^[A-Z]\d+: |(?:,? [A-Z]\d+[a-z]?)+$")
"""Docstrings name the behaviours they are about by number; readers of pages have no use for them."""

_MANY = 6
"""A choice among more than a few is told by its name."""


def first_paragraph(text: str | None) -> str:
    """A docstring's first paragraph on one line."""
    first = inspect.cleandoc(text or "").split("\n\n")[0]
    return _NUMBERS.sub("", " ".join(first.split()))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Columns in which nothing stands are left out."""
    cells = [[one.replace("|", "\\|").replace("\n", " ").strip() for one in row] for row in rows]
    kept = [number for number in range(len(head)) if any(row[number] for row in cells)]
    lines = [
        [head[number] for number in kept],
        ["---"] * len(kept),
        *([row[number] for number in kept] for row in cells),
    ]
    return [f"| {' | '.join(line)} |" for line in lines]


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def type_name(annotation: Any) -> str:
    """A type as a person would say it."""
    if annotation is None or annotation is type(None):
        return "null"
    if hasattr(annotation, "__value__"):  # an alias such as JsonValue, which may speak of itself
        return str(annotation.__name__)
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return type_name(inner[0])
    if origin is Literal:
        return " or ".join(str(one) if not isinstance(one, str) else f'"{one}"' for one in inner)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(type_name(one) for one in inner))
    if origin is not None:
        parts = ", ".join("…" if one is Ellipsis else type_name(one) for one in inner)
        return f"{getattr(origin, '__name__', str(origin))}[{parts}]"
    if isinstance(annotation, type) and issubclass(annotation, Enum) and len(annotation) < _MANY:
        return " or ".join(f'"{one.value}"' for one in annotation)
    return {"SecretStr": "secret str"}.get(name := getattr(annotation, "__name__", str(annotation)), name)


def classes_in(annotation: Any) -> list[type]:
    """Every class that an annotation speaks of."""
    inner = get_args(annotation)
    if get_origin(annotation) is Literal:
        return []
    if inner:
        return [found for one in inner for found in classes_in(one)]
    return [annotation] if isinstance(annotation, type) else []


GENERATED = "<!-- Made from the code by `python -m tools.reference`: change the code, not this page. -->"
