"""How types, docstrings and table cells are written."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
import types
from collections.abc import Iterable, Sequence
from enum import Enum
from itertools import pairwise
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

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


# What is said of a shape's fields in strings beneath them, read from the source.
#
# Pydantic can do this when a class is made (`use_attribute_docstrings`), which costs two milliseconds for each of two
# hundred events whenever Coterie starts, and only the reference wants to know.


def field_descriptions(shape: type[BaseModel]) -> dict[str, str]:
    """By field; one that nothing is said of has an empty one."""
    found = {name: first_paragraph(info.description) for name, info in shape.model_fields.items()}
    for one in reversed(shape.__mro__):
        if one.__module__.startswith("coterie."):
            found |= {name: said for name, said in _beneath(one).items() if name in found}
    return found


def _beneath(one: type) -> dict[str, str]:
    (declared,) = ast.parse(textwrap.dedent(inspect.getsource(one))).body
    return {
        field.target.id: first_paragraph(said.value.value)
        for field, said in pairwise(declared.body if isinstance(declared, ast.ClassDef) else ())
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(said, ast.Expr)
        and isinstance(said.value, ast.Constant)
        and isinstance(said.value.value, str)
    }
