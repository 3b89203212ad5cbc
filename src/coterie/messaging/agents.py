"""The registry of agents in `agents.yaml`: which character answers a person, and which backend plays a character.

The file is checked whenever it is used, so that a change takes effect with the next message. One that cannot be read
changes nothing and is reported in the log.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import yaml
from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator

from coterie.base.config import Section
from coterie.base.errors import ConfigError, CoterieError
from coterie.base.logging import get_logger
from coterie.base.redaction import redact
from coterie.base.values import is_loopback_url
from coterie.characters import Character, Person

REMOTE, STAND_IN = "remote", "stand-in"
_MAX_CHARS = 1_000_000
_log = get_logger(__name__)


class AgentEntry(Section):
    """The backend of a character."""

    backend: str = ""
    """A mode (`story`, `desk`), `remote`, or `stand-in`; empty for the default mode."""
    base_url: str = ""
    """The address of the remote agent: ws://… or wss://…"""
    token: SecretStr | None = None
    """The token for the remote agent; best written as `env:NAME` or `secret:NAME`."""
    workspace: str = Field(default="", pattern=r"^[\w][\w -]{0,60}$|^$")
    """The name of the folder for its files; the character's own if empty."""
    says: tuple[str, ...] = ()
    """The replies of a stand-in, one after the other."""
    latency_s: float = Field(default=0.5, ge=0, le=600)
    """How long a stand-in waits before it replies."""

    @property
    def mode(self) -> str:
        return REMOTE if self.backend == STAND_IN else self.backend

    @field_validator("base_url")
    @classmethod
    def _check_address(cls, url: str) -> str:
        try:
            if url and (urlsplit(url).scheme not in ("ws", "wss") or not urlsplit(url).hostname):
                raise ValueError("it has to begin with ws:// or wss://")
        except ValueError as error:
            raise ValueError(f"not a valid address: {error}") from None
        return url

    @model_validator(mode="after")
    def _check_consistency(self) -> AgentEntry:
        if (self.backend == REMOTE) != bool(self.base_url):
            raise ValueError("base_url is needed for a remote agent, and only for one")
        if self.token is not None and urlsplit(self.base_url).scheme == "ws" and not is_loopback_url(self.base_url):
            raise ValueError("a token is sent to another machine only over wss://")
        return self


class AgentsFile(Section):
    people: dict[str, str] = Field(default_factory=dict)
    """Person (name, id, `owner`, or `*` for everybody else) → character."""
    characters: dict[str, AgentEntry] = Field(default_factory=dict)
    """Character (name or id) → its backend."""


@dataclass(frozen=True)
class _LoadedFile:
    stamp: tuple[int, int] | None
    content: AgentsFile
    problem: CoterieError | None = None


class AgentRegistry:
    def __init__(self, file: Path, resolve: Callable[[str], str] = lambda value: value) -> None:
        """`resolve` gives the value of `env:NAME` and `secret:NAME`."""
        self.file = file
        self._resolve = resolve
        self._loaded = _LoadedFile(None, AgentsFile())

    @property
    def current(self) -> AgentsFile:
        """The file's content as it could last be read."""
        stamp = self._stamp()
        if stamp != self._loaded.stamp:
            self._loaded = self._load(stamp)
        return self._loaded.content

    @property
    def problem(self) -> CoterieError | None:
        """The error in the file, if there is one."""
        _ = self.current
        return self._loaded.problem

    def entry(self, character: Character) -> AgentEntry | None:
        names = {character.id.lower(), character.name.lower()}
        return next((entry for name, entry in self.current.characters.items() if name.lower() in names), None)

    def mode_of(self, character: Character) -> str:
        """The assigned mode of a character; empty if there is none."""
        entry = self.entry(character)
        return entry.mode if entry is not None else ""

    def character_for(self, person: Person) -> str:
        names = {person.id.lower(), person.name.lower()} | ({"owner"} if person.is_owner else set())
        people = self.current.people
        own = next((character for name, character in people.items() if name.lower() in names), "")
        return own or people.get("*", "")

    def workspace_of(self, character: Character) -> str:
        entry = self.entry(character)
        return entry.workspace if entry is not None else ""

    def _stamp(self) -> tuple[int, int] | None:
        try:
            status = self.file.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size

    def _load(self, stamp: tuple[int, int] | None) -> _LoadedFile:
        if stamp is None:
            return _LoadedFile(None, AgentsFile())
        try:
            return _LoadedFile(stamp, self._parse())
        except CoterieError as error:
            _log.warning("the registry of agents cannot be read", error=redact(str(error)))
            return _LoadedFile(stamp, self._loaded.content, error)

    def _parse(self) -> AgentsFile:
        fix = f"Correct {self.file}; until then the previous content is used."
        try:
            with self.file.open(encoding="utf-8") as file:
                text = file.read(_MAX_CHARS + 1)
            if len(text) > _MAX_CHARS:
                raise ConfigError("The registry of agents is too large.", fix)
            content = yaml.safe_load(text)
        except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:  # a date can be out of range
            raise ConfigError(f"The registry of agents cannot be read: {error}.", fix) from None
        content = {} if content is None else content
        for entry in _entries(content):
            if isinstance(token := entry.get("token"), str):
                entry["token"] = token = self._resolve(token)
                redact.register(token)
        try:
            return AgentsFile.model_validate(content)
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            place = ".".join(map(str, first["loc"])) or "the file"
            raise ConfigError(f"The registry of agents is wrong at {place}: {first['msg']}.", fix) from None


def _entries(content: object) -> list[dict[str, object]]:
    characters = content.get("characters") if isinstance(content, dict) else None
    return [entry for entry in characters.values() if isinstance(entry, dict)] if isinstance(characters, dict) else []
