"""The configuration file a newcomer finds: every setting with its default and what it is for, commented out."""

from __future__ import annotations

import inspect
import json
from typing import Any

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo


def example(model: type[BaseModel]) -> str:
    lines = [
        "# Settings of Coterie. Everything here is optional; what is commented out shows the default.",
        '# A value can be "env:NAME" (an environment variable) or "secret:NAME" (`coterie secrets set NAME`).',
        "# An environment variable wins over this file: COTERIE_SERVER__PORT=9000 sets `port` in [server].",
    ]
    for name, info in model.model_fields.items():
        section = info.annotation
        if isinstance(section, type) and issubclass(section, BaseModel):
            lines += ["", *_told(inspect.getdoc(section) or ""), f"# [{name}]"]
            lines += [line for key, inner in section.model_fields.items() for line in _setting(key, inner)]
    return "\n".join(lines) + "\n"


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
