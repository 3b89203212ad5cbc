"""Rooms, personas and moderation lists as TOML files: the shipped ones and the owner's own, which take precedence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tomlkit
from pydantic import Field, StringConstraints, ValidationError

from coterie.base.config import Section, load_config
from coterie.base.errors import ConfigError
from coterie.base.paths import write_atomic
from coterie.modes.crowd.errors import BadCrowdConfig, NoSuchCrowd
from coterie.modes.crowd.gateway.admission import RoomLimits
from coterie.modes.crowd.moderation import Moderator, read_wordlists
from coterie.modes.crowd.moderation.moderator import ModerationPolicy
from coterie.modes.crowd.personas import Persona, character_id

SHIPPED_CONFIGS = Path(__file__).parent / "configs"


class Tempo(Section):
    tick_s: float = Field(default=1.0, gt=0)
    """Interval at which every persona decides whether to speak."""
    lines_per_minute: float = Field(default=14, gt=0)
    """Rate of the whole room while the stream runs without an event, for any number of personas."""
    rest_s: float = Field(default=12, ge=0)
    """Minimum time between two lines of a persona, except for answers to a person's mention."""
    typing_per_s: float = Field(default=18, gt=0)
    """Characters per second."""
    line_deadline_s: float = Field(default=12, gt=0)
    """A line not written by then is dropped."""
    stand_in: bool = True
    """Use a persona's canned lines when the model is slow or its line is rejected. A person who waits for an answer
    gets one in any case."""
    longest_line: int = Field(default=180, ge=20, le=500)


class Tuning(Section):
    """The factors of a persona's decision to speak."""

    events: dict[str, float] = Field(
        default_factory=lambda: {
            "hype": 7.0,
            "fail": 6.0,
            "clutch": 7.0,
            "chat_question": 5.0,
            "topic_change": 2.0,
            "scene_change": 1.5,
            "raid": 6.0,
        }
    )
    """Factor right after an event of this kind."""
    event_fades_s: float = Field(default=6, gt=0)
    interest: float = Field(default=1.2, ge=0)
    """Added to the factor for each interest that is a current topic."""
    mention: float = Field(default=0.85, ge=0, le=1)
    """Probability per tick that a persona mentioned by a person answers."""
    mention_fades_s: float = Field(default=10, gt=0)
    human: float = Field(default=5.0, ge=0)
    """Factor for answering a person's message."""
    answers: float = Field(default=0.25, ge=0, le=1)
    """Factor for each answer that a message already has."""
    reply: float = Field(default=0.6, ge=0, le=1)
    """Share of ticks without an event at which a persona considers answering another persona."""
    banter: float = Field(default=10.0, ge=0)
    """Factor for such an answer, before damping."""
    called: float = Field(default=6.0, ge=0)
    """Factor for answering a persona's mention, before damping."""
    trend: float = Field(default=1.5, ge=0)
    """Weight of a fast chat for personas with a high meme level, right after an event."""
    depth: float = Field(default=0.4, ge=0, lt=1)
    """Factor for each persona in a row."""
    longest_chain: int = Field(default=4, ge=1)
    """Chain length at which no persona answers any more."""
    bots: float = Field(default=0.6, ge=0, le=1)
    """Damping of answers to personas in a chat of personas only."""
    quiet_after_s: float = Field(default=90, gt=0)
    """Half-life of the activity without a stream and people, in seconds."""


class RoomConfig(Section):
    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=64)]
    title: str
    about: str = ""
    roster: tuple[str, ...] = ()
    """Names of personas; all of them if empty."""
    emotes: tuple[str, ...] = ()
    tempo: Tempo = Tempo()
    tuning: Tuning = Tuning()
    limits: RoomLimits = RoomLimits()
    moderation: ModerationPolicy = ModerationPolicy()


S = TypeVar("S", bound=Section)


class CrowdConfigs:
    """Reads and writes configuration files; an edited file is read again.

    `folders` may hold `personas/`, `rooms/` and `moderation/`; a later folder's file replaces an earlier one's.
    """

    def __init__(self, folders: Sequence[Path] = ()) -> None:
        self._folders = (SHIPPED_CONFIGS, *folders)
        self._cache: dict[Path, tuple[int, Section]] = {}

    def rooms(self) -> dict[str, RoomConfig]:
        return {file.stem: self._load(RoomConfig, file) for file in self._files("rooms")}

    def room(self, name: str) -> RoomConfig:
        rooms = self.rooms()
        if name not in rooms:
            raise NoSuchCrowd(f"There is no room {name}.", f"Rooms there are: {', '.join(rooms)}.")
        return rooms[name]

    def write_room(self, name: str, changes: Mapping[str, Mapping[str, Any]]) -> RoomConfig:
        """Write a room with changed rules to the owner's folder. Nothing is written if the rules are invalid."""
        values = self.room(name).model_dump(mode="json")
        for section, changed in changes.items():
            values[section] = {**values[section], **changed}
        try:
            room = RoomConfig.model_validate(values)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise BadCrowdConfig(f"{where}: {first['msg']}.", "Correct it; nothing was changed.") from None
        self._write("rooms", name, room)
        return room

    def add_member(self, name: str, persona: Persona) -> Persona:
        """Add a persona to a room. An existing file of the persona is kept as it is."""
        room, known = self.room(name), self.personas().get(persona.name)
        if known is not None and character_id(known) != character_id(persona):
            raise BadCrowdConfig(f"There is already another persona named {persona.name}.", "Rename one of them.")
        if known is None:
            self._write("personas", persona.name, persona)
        if room.roster and persona.name not in room.roster:
            self._write("rooms", name, room.model_copy(update={"roster": (*room.roster, persona.name)}))
        return known or persona

    def _write(self, kind: str, name: str, config: Section) -> None:
        if self._folders[-1] == SHIPPED_CONFIGS:
            raise BadCrowdConfig(f"There is no folder for {kind} of your own.", "Pass a folder to CrowdConfigs.")
        file = self._folders[-1] / kind / f"{name}.toml"
        file.parent.mkdir(parents=True, exist_ok=True)
        text = tomlkit.dumps(config.model_dump(mode="json", exclude_none=True))
        write_atomic(file, text.encode(), durable=False)

    def personas(self) -> dict[str, Persona]:
        """Return all personas by name, as their files are now."""
        return {file.stem: self._load(Persona, file) for file in self._files("personas")}

    def persona(self, name: str) -> Persona:
        persona = self.personas().get(name)
        if persona is None:
            raise NoSuchCrowd(f"There is no persona {name}.", "`coterie crowd rooms` lists all personas.")
        return persona

    def personas_in(self, room: RoomConfig) -> list[Persona]:
        """Return the personas of a room, ordered by name."""
        personas = self.personas()
        missing = [name for name in room.roster if name not in personas]
        if missing:
            raise BadCrowdConfig(
                f"The room {room.name} lists {missing[0]}, but there is no such persona.",
                "Create personas/NAME.toml, or remove the name from the room's file.",
            )
        return [personas[name] for name in sorted(room.roster or personas)]

    def moderator(self, room: RoomConfig) -> Moderator:
        folders = [folder / "moderation" for folder in self._folders]
        return Moderator(read_wordlists(folder for folder in folders if folder.is_dir()), room.moderation)

    def _files(self, kind: str) -> list[Path]:
        files = {file.name: file for folder in self._folders for file in (folder / kind).glob("*.toml")}
        return [file for _, file in sorted(files.items())]

    def _load(self, kind: type[S], file: Path) -> S:
        modified = file.stat().st_mtime_ns
        cached = self._cache.get(file)
        if cached is not None and cached[0] == modified and isinstance(cached[1], kind):
            return cached[1]
        try:
            value = load_config(kind, file=file).settings
        except ConfigError as error:
            raise BadCrowdConfig(f"{file.parent.name}/{file.name}: {error.what}", error.fix) from None
        if getattr(value, "name", file.stem) != file.stem:
            raise BadCrowdConfig(
                f"{file.name} is about {getattr(value, 'name', '')}.", "Give the file the name in its `name` field."
            )
        self._cache[file] = (modified, value)
        return value
