"""What is said of a shape's fields in strings beneath them, read from the source.

Pydantic can do this when a class is made (`use_attribute_docstrings`), which costs two milliseconds for each of two
hundred events whenever Coterie starts, and only the reference wants to know.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from itertools import pairwise

from pydantic import BaseModel

from tools.reference.words import first_paragraph


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
