"""The configuration file a newcomer finds: every setting with its default and what it is for, commented out."""

from __future__ import annotations

import inspect
import json
from typing import Any

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo


def example_config(model: type[BaseModel]) -> str:
    lines = [
        "# Settings of Coterie. Everything here is optional; what is commented out shows the default.",
        '# A value can be "env:NAME" (an environment variable) or "secret:NAME" (`coterie secrets set NAME`).',
        "# An environment variable wins over this file: COTERIE_SERVER__PORT=9000 sets `port` in [server].",
    ]
    for name, info in model.model_fields.items():
        lines += _section(name, info)
    return "\n".join(lines) + "\n"


def _section(name: str, info: FieldInfo) -> list[str]:
    """A table with its settings, then the tables inside it: TOML wants them in this order."""
    section = info.annotation
    if not (isinstance(section, type) and issubclass(section, BaseModel)):
        return []
    lines = ["", *_told(info.description or inspect.getdoc(section) or ""), f"# [{name}]"]
    for key, inner in section.model_fields.items():
        lines += _setting(key, inner)
    for key, inner in section.model_fields.items():
        lines += _section(f"{name}.{key}", inner)
    return lines


def _setting(name: str, info: FieldInfo) -> list[str]:
    default: Any = info.get_default(call_default_factory=True)
    if isinstance(default, BaseModel | dict):
        return []
    if default is None:  # TOML has no word for nothing: a line that stays a comment when the rest is uncommented
        return [*_told(info.description or ""), f'# # {name} = "…"']
    shown = '""' if isinstance(default, SecretStr) else json.dumps(default, ensure_ascii=False, default=str)
    return [*_told(info.description or ""), f"# {name} = {shown}"]


def _told(text: str) -> list[str]:
    return [f"# {line}" for line in inspect.cleandoc(text).splitlines()]
