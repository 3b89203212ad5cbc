"""docs/reference/settings.md: every setting with its default and what it is for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from coterie.base.config import ChangeRule, declared_rule
from coterie.settings import LIVE_SETTINGS, Settings
from tools.reference.markdown import GENERATED, code, first_paragraph, table, type_name

_HEAD = """\
# Settings

Change a setting in `config.toml` in the data folder (the first run writes an example), on the settings
page, or in the environment, which takes precedence: `COTERIE_SERVER__PORT=9000` sets `server.port`.
`COTERIE_HOME` moves the data folder; `COTERIE_CONFIG` and `COTERIE_DB_PATH` move one file. A value
`env:NAME` is read from that variable, `secret:NAME` from the [secrets store](../models.md#secrets).

A setting marked ● takes effect immediately when you change it on the page; others need a restart. One
marked ▲ is [protected](../../SECURITY.md): change it in the file, with `coterie settings set`, or on
the page with your password."""


@dataclass(frozen=True)
class Setting:
    key: str
    type: str
    default: str
    meaning: str
    protected: bool

    @property
    def live(self) -> bool:
        return self.key.startswith(LIVE_SETTINGS)


def settings_of(model: type[BaseModel], prefix: str = "") -> Iterator[Setting]:
    """Every setting of a section and its subsections; NAME is a name that the user chooses."""
    for name, info in model.model_fields.items():
        key = f"{prefix}{name}"
        if (section := _section(info.annotation)) is not None:
            yield from settings_of(section, f"{key}.")
            continue
        protected = declared_rule(info) is not ChangeRule.PAGE
        yield Setting(key, type_name(info.annotation), _default(info), first_paragraph(info.description), protected)
        if (inner := _inner(info.annotation)) is not None:
            several = "[]" if get_origin(info.annotation) is tuple else ".NAME"
            yield from settings_of(inner, f"{key}{several}.")


def settings_page() -> str:
    lines = [GENERATED, "", _HEAD, ""]
    for name, info in Settings.model_fields.items():
        section = _section(info.annotation)
        assert section is not None, f"{name} is not a section"  # noqa: S101 (programming error)
        lines += [f"## {name}", "", first_paragraph(section.__doc__), ""]
        rows = [
            (
                code(setting.key) + (" ●" if setting.live else "") + (" ▲" if setting.protected else ""),
                code(setting.type),
                code(setting.default),
                setting.meaning,
            )
            for setting in settings_of(section, f"{name}.")
        ]
        lines += [*table(("setting", "type", "default", "meaning"), rows), ""]
    return "\n".join(lines).rstrip() + "\n"


def _section(annotation: Any) -> type[BaseModel] | None:
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def _inner(annotation: Any) -> type[BaseModel] | None:
    """The section type inside a table or a list of sections."""
    return next((section for argument in get_args(annotation) if (section := _section(argument)) is not None), None)


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return ""
    value = info.get_default(call_default_factory=True)
    if value is None or isinstance(value, SecretStr) or value in ((), {}, ""):
        return ""
    return json.dumps(value, ensure_ascii=False, default=str)
