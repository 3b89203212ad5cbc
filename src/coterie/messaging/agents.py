"""The registry of agents: who answers whom, and who plays which character. P12

`agents.yaml` in the data folder maps people to characters, and characters to what plays them: a mode of the house, a
remote agent, or a stand-in. It is looked at whenever it matters, so that a change counts from the next message on; one
that cannot be read changes nothing, and says so in the log.
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
from coterie.base.network import is_loopback_url
from coterie.base.redaction import redact
from coterie.characters.people import Person
from coterie.characters.service import Character

REMOTE, STAND_IN = "remote", "stand-in"
_LARGEST = 1_000_000
_log = get_logger(__name__)


class AgentEntry(Section):
    """What plays a character."""

    backend: str = ""
    """A mode of the house (`story`, `desk`), `remote`, or `stand-in`; empty is as everybody else is played."""
    base_url: str = ""
    """Where the remote agent listens: ws://… or wss://…"""
    token: SecretStr | None = None
    """What we show the agent at its door; best written as `env:NAME` or `secret:NAME`."""
    workspace: str = Field(default="", pattern=r"^[\w][\w -]{0,60}$|^$")
    """The name of the folder for its files; the character's own without it."""
    says: tuple[str, ...] = ()
    """What a stand-in says, one after the other."""
    latency_s: float = Field(default=0.5, ge=0, le=600)
    """How long a stand-in thinks."""

    @property
    def mode(self) -> str:
        return REMOTE if self.backend == STAND_IN else self.backend

    @field_validator("base_url")
    @classmethod
    def _an_address(cls, url: str) -> str:
        try:
            if url and (urlsplit(url).scheme not in ("ws", "wss") or not urlsplit(url).hostname):
                raise ValueError("an address begins with ws:// or wss://")
        except ValueError as error:
            raise ValueError(f"this is no address: {error}") from None
        return url

    @model_validator(mode="after")
    def _fits_together(self) -> AgentEntry:
        if (self.backend == REMOTE) != bool(self.base_url):
            raise ValueError("a remote agent has a base_url, and only that has one")
        if self.token is not None and urlsplit(self.base_url).scheme == "ws" and not is_loopback_url(self.base_url):
            raise ValueError("a token may leave this machine only by wss://")
        return self


class AgentsFile(Section):
    people: dict[str, str] = Field(default_factory=dict)
    """Person (name or id; `owner`; `*` for everybody else) → character."""
    characters: dict[str, AgentEntry] = Field(default_factory=dict)
    """Character (name or id) → what plays it."""


@dataclass(frozen=True)
class _Read:
    stamp: tuple[int, int] | None
    told: AgentsFile
    problem: CoterieError | None = None


class AgentRegistry:
    def __init__(self, file: Path, resolve: Callable[[str], str] = lambda told: told) -> None:
        """`resolve` tells what `env:NAME` and `secret:NAME` stand for."""
        self.file = file
        self._resolve = resolve
        self._read = _Read(None, AgentsFile())

    @property
    def current(self) -> AgentsFile:
        """As the file says at this moment, or said when it could last be read."""
        stamp = self._stamp()
        if stamp != self._read.stamp:
            self._read = self._load(stamp)
        return self._read.told

    @property
    def problem(self) -> CoterieError | None:
        """What is wrong with the file as it is."""
        _ = self.current
        return self._read.problem

    def entry(self, bot: Character) -> AgentEntry | None:
        wanted = {bot.id.lower(), bot.name.lower()}
        return next((entry for name, entry in self.current.characters.items() if name.lower() in wanted), None)

    def mode_of(self, bot: Character) -> str:
        """The mode a character is played in; empty where nothing is said."""
        entry = self.entry(bot)
        return entry.mode if entry is not None else ""

    def character_for(self, person: Person) -> str:
        names = {person.id.lower(), person.name.lower()} | ({"owner"} if person.is_owner else set())
        people = self.current.people
        own = next((character for name, character in people.items() if name.lower() in names), "")
        return own or people.get("*", "")

    def workspace_of(self, bot: Character) -> str:
        entry = self.entry(bot)
        return entry.workspace if entry is not None else ""

    def _stamp(self) -> tuple[int, int] | None:
        try:
            found = self.file.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size

    def _load(self, stamp: tuple[int, int] | None) -> _Read:
        if stamp is None:
            return _Read(None, AgentsFile())
        try:
            return _Read(stamp, self._parse())
        except CoterieError as error:
            _log.warning("the registry of agents cannot be used as it is", error=redact(str(error)))
            return _Read(stamp, self._read.told, error)

    def _parse(self) -> AgentsFile:
        fix = f"Correct {self.file}; until then everything stays as it was."
        try:
            with self.file.open(encoding="utf-8") as file:
                text = file.read(_LARGEST + 1)
            if len(text) > _LARGEST:
                raise ConfigError("The registry of agents is too large.", fix)
            told = yaml.safe_load(text)
        except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
            raise ConfigError(f"The registry of agents cannot be read: {error}.", fix) from None
        told = {} if told is None else told
        for entry in _entries(told):
            if isinstance(token := entry.get("token"), str):
                entry["token"] = token = self._resolve(token)
                redact.register(token)
        try:
            return AgentsFile.model_validate(told)
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            place = ".".join(map(str, first["loc"])) or "the file"
            raise ConfigError(f"The registry of agents is not right at {place}: {first['msg']}.", fix) from None


def _entries(told: object) -> list[dict[str, object]]:
    characters = told.get("characters") if isinstance(told, dict) else None
    return [entry for entry in characters.values() if isinstance(entry, dict)] if isinstance(characters, dict) else []
