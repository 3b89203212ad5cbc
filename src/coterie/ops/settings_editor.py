"""Listing settings with their values and origins, and changing them in the configuration file.

A change keeps the comments and the order of the file. Live settings apply at once; others are marked as pending until
the next start. Keys are never shown or written, only references to them (`env:NAME`, `secret:NAME`).

What gives power over this machine is changed only with a confirmation: protected settings, references, and what
`check_change` refuses.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from pydantic import BaseModel, SecretStr

from coterie.base.config import REFERENCES, LoadedSettings, contains_reference, edit_config, is_protected, is_secret
from coterie.base.errors import ConfigError, ConfirmationNeeded, CoterieError
from coterie.base.redaction import redact

CheckChange = Callable[[Any, Any, Collection[str]], None]
"""Raises `ConfirmationNeeded` if the step from one state of the settings to another needs a confirmation; the third
argument are keys that were entered together with their address."""


class BadSetting(ConfigError):
    """A change of a setting is not valid; the file is unchanged."""

    http_status = 422


@dataclass(frozen=True)
class Setting:
    key: str
    value: Any
    """For a secret, only whether it is set."""
    default: Any
    origin: str
    """The source of the value: `default`, a line of the file, or an environment variable."""
    about: str
    secret: bool
    protected: bool
    """Whether a change on the page needs the owner's password."""
    live: bool
    """Whether a change applies without a restart."""
    pending: bool
    """Whether the running server still uses another value, until it is restarted."""


class SettingsEditor:
    def __init__(
        self,
        running: BaseModel,
        file: Path,
        read: Callable[[], LoadedSettings[Any]],
        prepare: Callable[[], None],
        live: tuple[str, ...] = (),
        *,
        check: Callable[[Any], None] = lambda settings: None,
        check_change: CheckChange = lambda before, after, entered: None,
    ) -> None:
        """`read` loads the settings again, and `check` raises for changed ones that cannot be used;
        `prepare` creates the file if it does not exist.

        `live` are prefixes of the settings that are read each time they are needed: changes of those are applied to
        `running`.
        """
        self._running = running
        self._file = file
        self._read = read
        self._prepare = prepare
        self._live = live
        self._check_settings = check
        self._check_change = check_change
        self._lock = threading.Lock()

    def settings(self) -> list[Setting]:
        try:
            loaded = self._read()
        except CoterieError:  # the file is invalid now, or its secrets need a passphrase: show the running settings
            loaded = LoadedSettings(self._running)
        return [self._setting(key, loaded) for key in _leaves(type(self._running))]

    def change(self, changes: Mapping[str, Any], *, confirmed: bool = False) -> list[Setting]:
        """Apply all changes or none; None resets a setting to its default.

        `confirmed` if the owner gave the password for these changes, or makes them on the command line. Without it,
        `ConfirmationNeeded` is raised for what gives power over this machine.
        """
        by_path = {tuple(key.split(".")): value for key, value in changes.items()}
        with self._lock:
            try:
                before = self._read()
                for key, value in changes.items():
                    self._check(key, value, before)
                    if not confirmed:
                        self._check_power(key, value)
                self._prepare()

                def check() -> None:
                    after = self._read().settings
                    self._check_settings(after)
                    if not confirmed:
                        self._check_change(before.settings, after, ())

                edit_config(self._file, by_path, check)
                self._apply(self._read().settings, changes)
            except ConfigError as error:
                raise BadSetting(error.what, error.fix) from None
        return self.settings()

    def write(
        self,
        changes: Mapping[tuple[str, ...], Any],
        *,
        entered: Collection[str] = (),
        references: Collection[str] = (),
    ) -> None:
        """Write settings that Coterie itself decided on, such as a tested model; all of them or none.

        Settings are given by their parts, because names of models contain dots. What the environment sets is refused,
        and so is what `check_change` refuses; `entered` are keys of providers that were entered with their address.
        Parts of the values come from requests, so references are refused, except `references` to secrets that were
        stored for this change.
        """
        for path, value in changes.items():
            if contains_reference(value) and value not in references:
                self._refuse_reference(".".join(path))
        with self._lock:
            try:
                loaded = self._read()
                for path in changes:
                    origin = loaded.origin(".".join(path))
                    if origin.startswith("environment variable"):
                        raise ConfigError(f"{'.'.join(path)} is set by the {origin}.", "Change or unset that variable.")
                self._prepare()

                def check() -> None:
                    self._check_change(loaded.settings, self._read().settings, entered)

                edit_config(self._file, changes, check)
                self._apply(self._read().settings, {".".join(path): value for path, value in changes.items()})
            except ConfigError as error:
                raise BadSetting(error.what, error.fix) from None

    def _apply(self, settings: BaseModel, changes: Mapping[str, Any]) -> None:
        """Write live settings into the running ones. Sections are frozen against accidents; this bypasses that."""
        changed = {leaf for leaf in _leaves(type(self._running)) for key in changes if f"{key}.".startswith(f"{leaf}.")}
        for key in filter(self._is_live, changed):
            *tables, name = key.split(".")
            vars(_at(self._running, ".".join(tables)) if tables else self._running)[name] = _at(settings, key)

    def _is_live(self, key: str) -> bool:
        return key.startswith(self._live)

    def _check_power(self, key: str, value: Any) -> None:
        if is_protected(type(self._running), tuple(key.split("."))):
            what = f"{key} is protected: it gives power over this machine."
            raise ConfirmationNeeded(what, self._command_for(key))
        if contains_reference(value):
            self._refuse_reference(key)

    def _refuse_reference(self, key: str) -> NoReturn:
        what = f"{key}: a reference to a secret or a variable is protected."
        raise ConfirmationNeeded(what, self._command_for(key))

    def _command_for(self, key: str) -> str:
        return f"Set it in {self._file.name}, or with: coterie settings set {key[:80]} VALUE"

    def _check(self, key: str, value: Any, loaded: LoadedSettings[Any]) -> None:
        model = type(self._running)
        if not any(key == leaf or self._is_table_entry(key, leaf) for leaf in _leaves(model)):
            raise ConfigError(f"There is no setting {key[:80]}.", "GET /settings lists the settings.")
        if (origin := loaded.origin(key)).startswith("environment variable"):
            raise ConfigError(f"{key} is set by the {origin}.", "Change or unset that variable; it overrides the file.")
        reference = value is None or (isinstance(value, str) and value.startswith(REFERENCES))
        if is_secret(model, tuple(key.split("."))) and not reference:
            raise ConfigError(
                f"{key}: a key itself does not belong in the configuration file.",
                "Store it (coterie secrets set NAME) and write secret:NAME, or env:VARIABLE.",
            )
        if isinstance(value, dict):
            raise ConfigError(f"{key} is a table.", f"Set its parts one by one, as {key}.NAME.")

    def _is_table_entry(self, key: str, leaf: str) -> bool:
        """Whether a key is inside a setting that is a table with free names, such as providers or roles."""
        return key.startswith(f"{leaf}.") and isinstance(_at(self._running, leaf), dict)

    def _setting(self, key: str, loaded: LoadedSettings[Any]) -> Setting:
        value, running = _at(loaded.settings, key), _at(self._running, key)
        *tables, name = key.split(".")
        section = type(_at(self._running, ".".join(tables)) if tables else self._running)
        info = section.model_fields[name]
        return Setting(
            key=key,
            value=_plain(value),
            default=_plain(info.get_default(call_default_factory=True)),
            origin=_origin(loaded, key),
            about=info.description or "",
            secret=is_secret(type(self._running), tuple(key.split("."))),
            protected=is_protected(type(self._running), tuple(key.split("."))),
            live=self._is_live(key),
            pending=value != running,
        )


def _leaves(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, info in model.model_fields.items():
        inner = info.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from _leaves(inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def _at(settings: BaseModel, key: str) -> Any:
    value: Any = settings
    for name in key.split("."):
        value = getattr(value, name)
    return value


def _origin(loaded: LoadedSettings[Any], key: str) -> str:
    inner = (origin for inside, origin in loaded.origins.items() if inside.startswith(f"{key}."))
    return loaded.origins.get(key) or next(inner, "default")


def _plain(value: Any) -> Any:
    """The value as JSON data, without secrets; a secret setting becomes whether it is set."""
    if isinstance(value, SecretStr):
        return bool(value.get_secret_value())
    if isinstance(value, BaseModel):
        return {name: _plain(getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, dict):
        return {redact(str(name)): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, int | float | bool) else redact(str(value))
