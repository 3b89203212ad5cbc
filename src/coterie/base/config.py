"""Settings from a TOML file, the database and the environment, with the origin of each value.

A package declares its settings as a `Section`; the composition root joins the sections into one model. Later layers
override earlier ones: default < file < database < environment (`COTERIE_SERVER__PORT=9000` sets `port` in `[server]`).
The value `env:NAME` is replaced by that environment variable and `secret:NAME` by an entry of the secrets store. An
error names the key, its line and what was expected.
"""

from __future__ import annotations

import difflib
import inspect
import json
import re
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Generic, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from coterie.base.errors import ConfigError
from coterie.base.paths import write_atomic
from coterie.base.redaction import redact

_PREFIX = "COTERIE_"
REFERENCES = ("env:", "secret:")
"""How a value begins that is replaced by an environment variable or a secret."""

FindSecret = Callable[[str, str], str | None]
"""The value of a secret, by its name and the dotted key of the setting that refers to it; None if there is none."""


T = TypeVar("T")


class ChangeRule(StrEnum):
    """Where a setting may be changed. Each setting declares it with its type."""

    PAGE = "page"
    PROTECTED = "protected"


PageSetting = Annotated[T, ChangeRule.PAGE]
"""A setting that the page may change."""
ProtectedSetting = Annotated[T, ChangeRule.PROTECTED]
"""A setting that gives power over this machine or its secrets: commands, the sandbox, addresses to listen on, paths.

It is changed in the file, on the command line, or on the page after the owner has confirmed it with the password."""


class Section(BaseModel):
    """One table of the configuration file. Unknown keys are errors, so that typing mistakes are noticed."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


S = TypeVar("S", bound=BaseModel)


@dataclass(frozen=True)
class LoadedSettings(Generic[S]):
    settings: S
    origins: Mapping[str, str] = field(default_factory=dict)
    """Dotted key → the source of its value. Other keys have their defaults."""
    secrets: Mapping[str, str] = field(default_factory=dict)
    """Dotted key → the name of the secret that its value was read from."""

    def origin(self, key: str) -> str:
        return self.origins.get(key, "default")


def load_config(
    model: type[S],
    *,
    file: Path | None = None,
    environ: Mapping[str, str] | None = None,
    database: Mapping[str, Any] | None = None,
    secret: FindSecret | None = None,
) -> LoadedSettings[S]:
    """Read the layers, resolve references and validate. `ConfigError` names the origin of an invalid value."""
    environ = environ or {}
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    if file is not None and file.exists():
        text, parsed = _read_toml(file)
        lines = _line_numbers(text)
        for key, value in _flatten(parsed):
            _set_nested(values, key, value)
            origins[_dotted(key)] = f"{file.name} line {_line_of(lines, key)}"
        # The entries of an array of tables, which are one value for the loop above.
        origins |= {key: f"{file.name} line {line}" for key, line in lines.items() if _ENTRY.search(key)}
    for dotted, value in (database or {}).items():
        _set_nested(values, tuple(dotted.split(".")), value)
        origins[dotted] = "set on the settings page"
    for name, raw in environ.items():
        if name.startswith(_PREFIX) and "__" in name:
            key = tuple(name.removeprefix(_PREFIX).lower().split("__"))
            _set_nested(values, key, _from_environment(raw))
            origins[_dotted(key)] = f"environment variable {name}"
    from_references: set[str] = set()
    secrets: dict[str, str] = {}
    for key, value in _flatten(values):
        dotted = _dotted(key)
        resolved = _resolve_all(value, _origin_of(dotted, origins), dotted, environ, secret)
        if resolved != value:
            from_references.add(dotted)
            if isinstance(value, str) and value.startswith("secret:"):
                secrets[dotted] = value.removeprefix("secret:")
            _set_nested(values, key, resolved)
        if is_secret(model, key) and isinstance(resolved, str):
            redact.register(resolved)  # before validation, so that no error message can contain it
    try:
        settings = model.model_validate(values)
    except ValidationError as error:
        raise ConfigError(
            " ".join(redact(_explain(model, detail, origins, from_references)) for detail in error.errors()),
            "Correct it and start again.",
        ) from None
    _register_secrets(settings)
    return LoadedSettings(settings, origins, secrets)


def _read_toml(file: Path) -> tuple[str, dict[str, Any]]:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{file} cannot be read: {error}.", "Check its permissions and that it is UTF-8 text."
        ) from None
    try:
        return text, tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also a number of thousands of digits, or deep nesting
        raise ConfigError(f"{file} is not valid TOML: {error}.", "Correct that line and start again.") from None


Key = tuple[str, ...]


def _flatten(table: Mapping[str, Any], prefix: Key = ()) -> list[tuple[Key, Any]]:
    items: list[tuple[Key, Any]] = []
    for name, value in table.items():
        key = (*prefix, name)
        if isinstance(value, Mapping) and value:
            items.extend(_flatten(value, key))
        else:
            items.append((key, value))
    return items


def _set_nested(table: dict[str, Any], key: Key, value: Any) -> None:
    for name in key[:-1]:
        inner = table.get(name)
        if not isinstance(inner, dict):
            inner = table[name] = {}
        table = inner
    table[key[-1]] = value


def _dotted(key: tuple[str | int, ...]) -> str:
    return ".".join(map(str, key))


_HEADER = re.compile(r"^\s*(\[\[?)\s*([^\]]+?)\s*\]\]?")
_ENTRY = re.compile(r"\.\d+(?:\.|$)")
_ASSIGNMENT = re.compile(r"""^\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
_PART = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")


def _line_numbers(text: str) -> dict[str, int]:
    """Key → line number. tomllib does not provide it, so this reads headers and assignments itself.

    Entries of an array of tables have their index in the key: `line.0.event`.
    """
    numbers: dict[str, int] = {}
    entries: dict[Key, int] = {}
    table: Key = ()
    delimiter: str | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        if delimiter is not None:  # lines of a multi-line string may look like settings
            delimiter = None if delimiter in line else delimiter
            continue
        delimiter = next((mark for mark in ('"""', "'''") if line.count(mark) % 2), None)
        if header := _HEADER.match(line):
            table = _parts(header[2])
            if header[1] == "[[":
                entries[table] = entries.get(table, -1) + 1
                numbers.setdefault(_dotted(table), number)
                table = (*table, str(entries[table]))
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


def _resolve_all(
    value: Any,
    origin: str,
    key: str,
    environ: Mapping[str, str],
    secret: FindSecret | None,
) -> Any:
    if isinstance(value, str):
        return resolve_reference(value, origin, key, environ, secret)
    if isinstance(value, list):
        return [_resolve_all(item, origin, key, environ, secret) for item in value]
    if isinstance(value, dict):
        return {name: _resolve_all(item, origin, f"{key}.{name}", environ, secret) for name, item in value.items()}
    return value


def resolve_reference(
    value: str,
    origin: str,
    key: str,
    environ: Mapping[str, str],
    secret: FindSecret | None,
) -> str:
    """Resolve `env:NAME` or `secret:NAME`; return any other value unchanged."""
    kind, _, name = value.partition(":")
    if kind == "env" and name.isidentifier():
        if name not in environ:
            raise ConfigError(
                f"{key} ({origin}) refers to the environment variable {name}, which is not set.",
                f"Set {name}, or write the value in another way.",
            )
        return environ[name]
    if kind == "secret" and name:
        resolved = secret(name, key) if secret else None
        if resolved is None:
            raise ConfigError(
                f"{key} ({origin}) refers to the secret {name}, which is not in the secrets store.",
                f"Store it with: coterie secrets set {name}",
            )
        redact.register(resolved)
        return resolved
    return value


def _origin_of(key: str, origins: Mapping[str, str]) -> str:
    """The origin of a key, of the table or list around it, or of something inside it."""
    outer = key
    while outer:
        if outer in origins:
            return origins[outer]
        outer = outer.rpartition(".")[0]
    return next((place for inner, place in origins.items() if inner.startswith(f"{key}.")), "")


def _explain(
    model: type[BaseModel], detail: ErrorDetails, origins: Mapping[str, str], from_references: Collection[str]
) -> str:
    key = _dotted(detail["loc"])
    origin = _origin_of(key, origins)
    place = f" ({origin})" if origin else ""
    if detail["type"] == "extra_forbidden":
        known = _fields_at(model, detail["loc"][:-1])
        close = difflib.get_close_matches(str(detail["loc"][-1]), known, n=1)
        hint = f'did you mean "{close[0]}"?' if close else f"known here: {', '.join(sorted(known)) or 'nothing'}."
        return f"{key}{place} is not a setting; {hint}"
    if detail["type"] == "missing":
        return f"{key} is missing."
    problem = detail["msg"].removeprefix("Value error, ").replace("Input should be ", "should be ", 1)
    if not problem.startswith("should be "):
        problem = f"is not valid: {problem}"
    # The value of a reference may be a secret, and a whole table may contain one.
    scalar = isinstance(detail["input"], str | int | float)
    show_value = scalar and key not in from_references and not is_secret(model, detail["loc"])
    return f"{key}{place} {problem}" + (f", not {detail['input']!r}." if show_value else ".")


def _fields_at(model: type[BaseModel], loc: tuple[str | int, ...]) -> list[str]:
    section = _annotation_at(model, loc)
    return list(section.model_fields) if isinstance(section, type) and issubclass(section, BaseModel) else []


def is_secret(model: type[BaseModel], loc: tuple[str | int, ...]) -> bool:
    """Whether the setting at this location is a secret."""
    return _annotation_at(model, loc) is SecretStr


def declared_rule(info: FieldInfo) -> ChangeRule | None:
    """Where the setting may be changed, as it declares itself."""
    return next((rule for rule in info.metadata if isinstance(rule, ChangeRule)), None)


def is_protected(model: type[BaseModel], loc: tuple[str | int, ...]) -> bool:
    """Whether the setting at this location, or the table around it, is protected. One that declares nothing is."""
    declared = [declared_rule(info) for info in _fields_on_path(model, loc) if not _is_section(info.annotation)]
    return not declared or any(rule is not ChangeRule.PAGE for rule in declared)


def contains_reference(value: Any) -> bool:
    """Whether a value, or a part of it, refers to an environment variable or a secret."""
    if isinstance(value, str):
        return value.startswith(REFERENCES)
    if isinstance(value, Mapping):
        return any(map(contains_reference, value.values()))
    return isinstance(value, list | tuple) and any(map(contains_reference, value))


def _annotation_at(model: type[BaseModel], loc: tuple[str | int, ...]) -> Any:
    annotation: Any = model
    for name in loc:
        if _is_section(annotation):
            info = annotation.model_fields.get(str(name))
            annotation = info.annotation if info else None
        else:  # a dict or a list of sections: its last type argument
            types = [argument for argument in get_args(annotation) if argument is not Ellipsis]
            annotation = types[-1] if types else None
        annotation = _without_none(annotation)
    return annotation


def _fields_on_path(model: type[BaseModel], loc: tuple[str | int, ...]) -> Iterator[FieldInfo]:
    for depth, name in enumerate(loc):
        section = _annotation_at(model, loc[:depth])
        if _is_section(section) and (info := section.model_fields.get(str(name))) is not None:
            yield info


def _is_section(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _without_none(annotation: Any) -> Any:
    """The type of an optional setting without None."""
    choices = [choice for choice in get_args(annotation) if choice is not NoneType]
    return choices[0] if NoneType in get_args(annotation) and len(choices) == 1 else annotation


def _register_secrets(settings: BaseModel) -> None:
    values: list[Any] = [settings]
    while values:
        value = values.pop()
        if isinstance(value, SecretStr):
            redact.register(value.get_secret_value())
        elif isinstance(value, BaseModel):
            values.extend(getattr(value, name) for name in type(value).model_fields)
        elif isinstance(value, Mapping):
            values.extend(value.values())
        elif isinstance(value, list | tuple):
            values.extend(value)


def edit_config(file: Path, changes: Mapping[tuple[str, ...], Any], check: Callable[[], object]) -> None:
    """Set each key (table, …, name), or remove it with None; comments and order are kept.

    What TOML cannot hold is a `ConfigError`. If `check` then raises, the file is restored.
    """
    target = file.resolve()  # a link to the file is kept
    before = target.read_bytes()
    try:
        after = _edited_toml(before.decode(), changes)
    except Exception as error:  # tomlkit raises many kinds for values that TOML does not have
        raise ConfigError(
            f"{', '.join('.'.join(key)[:80] for key in changes)}: this cannot be written to the configuration file.",
            "Give text, numbers, true or false, or lists of them.",
        ) from error
    write_atomic(target, after)
    try:
        check()
    except BaseException:
        write_atomic(target, before)
        raise


def without_secrets(model: type[BaseModel], file: Path) -> tuple[bytes, list[str]]:
    """The text of a configuration file without secret values, and the keys that were removed. References are kept."""
    text, parsed = _read_toml(file)
    secret = [key for key, value in _flatten(parsed) if is_secret(model, key) and not is_reference(value)]
    cleaned = _edited_toml(text, dict.fromkeys(secret)) if secret else text.encode()
    return redact(cleaned.decode()).encode(), [_dotted(key) for key in secret]


def is_reference(value: object) -> bool:
    """Whether a value refers to an environment variable or to the secrets store."""
    return isinstance(value, str) and value.startswith(("env:", "secret:"))


def _edited_toml(before: str, changes: Mapping[tuple[str, ...], Any]) -> bytes:
    import tomlkit
    from tomlkit.items import Table

    document = tomlkit.parse(before)
    for (*tables, name), value in changes.items():
        target: Any = document
        for depth, table in enumerate(tables):
            if table not in target:
                # Tables that only hold other tables need no header of their own.
                target[table] = tomlkit.table(is_super_table=depth < len(tables) - 1)
            target = target[table]
        if value is None:
            target.pop(name, None)
        elif isinstance(target, Table) or target is document:
            target[name] = value
        else:
            target.update({name: value})
    after = tomlkit.dumps(document).encode()
    tomllib.loads(after.decode())
    return after


def example_config(model: type[BaseModel]) -> str:
    """A configuration file with every setting, its default and its description, commented out."""
    lines = [
        "# Settings of Coterie. Everything is optional; commented lines show the defaults.",
        '# A value can be "env:NAME" (an environment variable) or "secret:NAME" (`coterie secrets set NAME`).',
        "# An environment variable overrides this file: COTERIE_SERVER__PORT=9000 sets `port` in [server].",
    ]
    for name, info in model.model_fields.items():
        lines += _section(name, info)
    return "\n".join(lines) + "\n"


def _section(name: str, info: FieldInfo) -> list[str]:
    """A table with its settings, then its sub-tables, in the order that TOML requires."""
    section = info.annotation
    if not (isinstance(section, type) and issubclass(section, BaseModel)):
        return []
    lines = ["", *_comment(info.description or inspect.getdoc(section) or ""), f"# [{name}]"]
    for key, inner in section.model_fields.items():
        lines += _setting(key, inner)
    for key, inner in section.model_fields.items():
        lines += _section(f"{name}.{key}", inner)
    return lines


def _setting(name: str, info: FieldInfo) -> list[str]:
    default: Any = info.get_default(call_default_factory=True)
    if isinstance(default, BaseModel | dict):
        return []
    if default is None:  # TOML has no null: a line that stays a comment when the rest is uncommented
        return [*_comment(info.description or ""), f'# # {name} = "…"']
    shown = '""' if isinstance(default, SecretStr) else json.dumps(default, ensure_ascii=False, default=str)
    return [*_comment(info.description or ""), f"# {name} = {shown}"]


def _comment(text: str) -> list[str]:
    return [f"# {line}" for line in inspect.cleandoc(text).splitlines()]
