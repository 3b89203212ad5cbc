"""Settings from a TOML file, the database and the environment, each with where it came from.

A room describes its settings as a `Section`; the composition root joins the sections into one model and
loads it here. Later layers win: default < file < database < environment (`COTERIE_SERVER__PORT=9000` sets
`port` in `[server]`). A text value `env:NAME` is replaced by that environment variable and
`secret:NAME` by what the secrets store holds. A wrong value names its key, its line and what was expected.
"""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, SecretStr, ValidationError
from pydantic_core import ErrorDetails

from coterie.base.errors import ConfigError
from coterie.base.masking import mask

_PREFIX = "COTERIE_"


class Section(BaseModel):
    """One table of the configuration file. Unknown keys are refused, so that a typo is never silent."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


S = TypeVar("S", bound=BaseModel)


@dataclass(frozen=True)
class Loaded(Generic[S]):
    settings: S
    origins: Mapping[str, str] = field(default_factory=dict)
    """Dotted key → where its value came from. A key that is not here has its default."""

    def origin(self, key: str) -> str:
        return self.origins.get(key, "default")


def load(
    model: type[S],
    *,
    file: Path | None = None,
    environ: Mapping[str, str] | None = None,
    database: Mapping[str, Any] | None = None,
    secret: Callable[[str], str | None] | None = None,
) -> Loaded[S]:
    """Read the layers, resolve references, validate. Raises `ConfigError` with the place to look."""
    environ = environ or {}
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    if file is not None and file.exists():
        text, parsed = _read_toml(file)
        lines = _line_numbers(text)
        for key, value in _flatten(parsed):
            _put(values, key, value)
            origins[_dotted(key)] = f"{file.name} line {_line_of(lines, key)}"
    for dotted, value in (database or {}).items():
        _put(values, tuple(dotted.split(".")), value)
        origins[dotted] = "set on the settings page"
    for name, raw in environ.items():
        if name.startswith(_PREFIX) and "__" in name:
            key = tuple(name.removeprefix(_PREFIX).lower().split("__"))
            _put(values, key, _from_environment(raw))
            origins[_dotted(key)] = f"environment variable {name}"
    for key, value in list(_flatten(values)):
        if isinstance(value, str):
            _put(values, key, _resolve(value, origins.get(_dotted(key), ""), _dotted(key), environ, secret))
    try:
        settings = model.model_validate(values)
    except ValidationError as error:
        raise ConfigError(
            " ".join(_explain(model, detail, origins) for detail in error.errors()),
            "Correct it and start again.",
        ) from None
    _register_secrets(settings)
    return Loaded(settings, origins)


def _read_toml(file: Path) -> tuple[str, dict[str, Any]]:
    try:
        text = file.read_text(encoding="utf-8")
        return text, tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file} is not valid TOML: {error}.", "Correct that line and start again.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{file} cannot be read: {error}.", "Check its permissions and that it is UTF-8 text."
        ) from None


Key = tuple[str, ...]


def _flatten(table: Mapping[str, Any], prefix: Key = ()) -> list[tuple[Key, Any]]:
    found: list[tuple[Key, Any]] = []
    for name, value in table.items():
        key = (*prefix, name)
        if isinstance(value, Mapping) and value:
            found.extend(_flatten(value, key))
        else:
            found.append((key, value))
    return found


def _put(table: dict[str, Any], key: Key, value: Any) -> None:
    for name in key[:-1]:
        inner = table.get(name)
        if not isinstance(inner, dict):
            inner = table[name] = {}
        table = inner
    table[key[-1]] = value


def _dotted(key: tuple[str | int, ...]) -> str:
    return ".".join(map(str, key))


_HEADER = re.compile(r"^\s*\[\[?\s*([^\]]+?)\s*\]\]?")
_ASSIGNMENT = re.compile(r"""^\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
_PART = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")


def _line_numbers(text: str) -> dict[str, int]:
    """Which line each key stands on. tomllib does not say, so this reads headers and assignments itself."""
    numbers: dict[str, int] = {}
    table: Key = ()
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            table = _parts(header[1])
            numbers.setdefault(_dotted(table), number)
        elif assignment := _ASSIGNMENT.match(line):
            numbers.setdefault(_dotted((*table, *_parts(assignment[1]))), number)
    return numbers


def _parts(text: str) -> Key:
    return tuple(part.strip("\"'") for part in _PART.findall(text))


def _line_of(lines: Mapping[str, int], key: Key) -> int | str:
    for length in range(len(key), 0, -1):
        if (line := lines.get(_dotted(key[:length]))) is not None:
            return line
    return "?"


def _from_environment(raw: str) -> Any:
    if raw[:1] in ("[", "{"):
        try:
            return json.loads(raw)
        except ValueError:
            return raw
    return raw


def _resolve(
    value: str,
    origin: str,
    key: str,
    environ: Mapping[str, str],
    secret: Callable[[str], str | None] | None,
) -> str:
    kind, _, name = value.partition(":")
    if kind == "env" and name.isidentifier():
        if name not in environ:
            raise ConfigError(
                f"{key} ({origin}) refers to the environment variable {name}, which is not set.",
                f"Set {name}, or write the value in another way.",
            )
        return environ[name]
    if kind == "secret" and name:
        found = secret(name) if secret else None
        if found is None:
            raise ConfigError(
                f"{key} ({origin}) refers to the secret {name}, which the secrets store does not hold.",
                f"Store it with: coterie secrets set {name}",
            )
        mask.register(found)
        return found
    return value


def _explain(model: type[BaseModel], detail: ErrorDetails, origins: Mapping[str, str]) -> str:
    key = _dotted(detail["loc"])
    origin = origins.get(key) or next((place for k, place in origins.items() if k.startswith(f"{key}.")), "")
    place = f" ({origin})" if origin else ""
    if detail["type"] == "extra_forbidden":
        known = _fields_at(model, detail["loc"][:-1])
        close = difflib.get_close_matches(str(detail["loc"][-1]), known, n=1)
        hint = f'did you mean "{close[0]}"?' if close else f"known here: {', '.join(sorted(known)) or 'nothing'}."
        return f"{key}{place} is not a setting; {hint}"
    if detail["type"] == "missing":
        return f"{key} is missing."
    expected = detail["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    shown = "" if _is_secret(model, detail["loc"]) else f", not {detail['input']!r}"
    return mask(f"{key}{place} should be {expected}{shown}.")


def _fields_at(model: type[BaseModel], loc: tuple[str | int, ...]) -> list[str]:
    found = _annotation_at(model, loc)
    return list(found.model_fields) if isinstance(found, type) and issubclass(found, BaseModel) else []


def _is_secret(model: type[BaseModel], loc: tuple[str | int, ...]) -> bool:
    annotation = _annotation_at(model, loc)
    return annotation is SecretStr or SecretStr in get_args(annotation)


def _annotation_at(model: type[BaseModel], loc: tuple[str | int, ...]) -> Any:
    here: Any = model
    for name in loc:
        if isinstance(here, type) and issubclass(here, BaseModel):
            info = here.model_fields.get(str(name))
            here = info.annotation if info else None
        else:  # a dict or a list of sections: its last argument is what it holds
            here = next(iter(reversed(get_args(here))), None)
    return here


def _register_secrets(settings: BaseModel) -> None:
    values: list[Any] = [settings]
    while values:
        value = values.pop()
        if isinstance(value, SecretStr):
            mask.register(value.get_secret_value())
        elif isinstance(value, BaseModel):
            values.extend(getattr(value, name) for name in type(value).model_fields)
        elif isinstance(value, Mapping):
            values.extend(value.values())
        elif isinstance(value, list | tuple):
            values.extend(value)
