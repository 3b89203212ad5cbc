"""What ships ready-made: personas, rooms and moderation lists. A person's own files of the same name win."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tomlkit
from pydantic import Field, StringConstraints, ValidationError

from coterie.base.config import Section, load_config
from coterie.base.errors import ConfigError
from coterie.base.files import write_atomic
from coterie.modes.crowd.errors import BadCrowdConfig, NoSuchCrowd
from coterie.modes.crowd.gateway.admission import RoomLimits
from coterie.modes.crowd.moderation import Moderator, read_wordlists
from coterie.modes.crowd.moderation.moderator import ModerationPolicy
from coterie.modes.crowd.personas import Persona, character_id

SHIPPED_CONFIGS = Path(__file__).parent / "configs"


# A room, as its file says it: who is there, how fast it goes, what is allowed, and the numbers behind decisions.


class Tempo(Section):
    tick_s: float = Field(default=1.0, gt=0)
    """How often everybody asks themselves whether to speak."""
    lines_per_minute: float = Field(default=14, gt=0)
    """Of the whole room while the stream runs and nothing special happens, however many personas there are."""
    rest_s: float = Field(default=12, ge=0)
    """The least time between two lines of one persona, mentions by people aside."""
    typing_per_s: float = Field(default=18, gt=0)
    """Characters."""
    line_deadline_s: float = Field(default=12, gt=0)
    """What is not written by then is dropped, not posted late."""
    stand_in: bool = True
    """Whether a persona's phrasebook speaks for it, in time, when a model is slow or forgets its manners. A person who
    waits for an answer gets one in any case."""
    longest_line: int = Field(default=180, ge=20, le=500)


class Tuning(Section):
    """The numbers of C6 and C8."""

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
    """How many times likelier to speak right after such an event."""
    event_fades_s: float = Field(default=6, gt=0)
    interest: float = Field(default=1.2, ge=0)
    """For each interest that is being talked about."""
    mention: float = Field(default=0.85, ge=0, le=1)
    """The chance, each tick, that somebody whom a person mentions begins to answer."""
    mention_fades_s: float = Field(default=10, gt=0)
    human: float = Field(default=5.0, ge=0)
    """How much likelier a person's message is to be answered than a persona's."""
    answers: float = Field(default=0.25, ge=0, le=1)
    """Each answer that a message already has makes another so much less likely."""
    reply: float = Field(default=0.6, ge=0, le=1)
    """How often, while nothing happens, one looks for another persona's line to answer …"""
    banter: float = Field(default=10.0, ge=0)
    """… and how many times likelier one then speaks, before damping."""
    called: float = Field(default=6.0, ge=0)
    """How many times likelier one answers a persona that mentions one, before damping."""
    trend: float = Field(default=1.5, ge=0)
    """How strongly a quick chat pulls those who like to join, while something has just happened."""
    depth: float = Field(default=0.4, ge=0, lt=1)
    """Each persona in a row makes an answer so much less likely."""
    longest_chain: int = Field(default=4, ge=1)
    """No persona answers a chain of so many."""
    bots: float = Field(default=0.6, ge=0, le=1)
    """How much a chat that is all personas dampens answers to personas."""
    quiet_after_s: float = Field(default=90, gt=0)
    """With no stream and no people, the wish to talk halves in so many seconds."""


class RoomConfig(Section):
    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=64)]
    title: str
    about: str = ""
    roster: tuple[str, ...] = ()
    """Personas by name; all there are, if it is empty."""
    emotes: tuple[str, ...] = ()
    tempo: Tempo = Tempo()
    tuning: Tuning = Tuning()
    limits: RoomLimits = RoomLimits()
    moderation: ModerationPolicy = ModerationPolicy()


# Reads personas and rooms from folders of TOML, the shipped ones and a person's own; sees when a file was edited.


S = TypeVar("S", bound=Section)


class CrowdConfigs:
    """`folders` may hold `personas/`, `rooms/` and `moderation/`; a later folder's file replaces an earlier one's."""

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
        """A room with some of its rules changed, as a file of the person's own. Nothing is written that cannot be."""
        told = self.room(name).model_dump(mode="json")
        for section, values in changes.items():
            told[section] = {**told[section], **values}
        try:
            room = RoomConfig.model_validate(told)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise BadCrowdConfig(f"{where}: {first['msg']}.", "Correct it; nothing was changed.") from None
        self._write("rooms", name, room)
        return room

    def add_member(self, name: str, persona: Persona) -> Persona:
        """A regular more in a room. One whose file is there already, perhaps edited by hand, is left as they are."""
        room, known = self.room(name), self.personas().get(persona.name)
        if known is not None and character_id(known) != character_id(persona):
            raise BadCrowdConfig(f"There is a {persona.name} already, who is somebody else.", "Rename one of them.")
        if known is None:
            self._write("personas", persona.name, persona)
        if room.roster and persona.name not in room.roster:
            self._write("rooms", name, room.model_copy(update={"roster": (*room.roster, persona.name)}))
        return known or persona

    def _write(self, kind: str, name: str, told: Section) -> None:
        if self._folders[-1] == SHIPPED_CONFIGS:
            raise BadCrowdConfig(f"There is no folder for {kind} of your own.", "Give the roster one.")
        file = self._folders[-1] / kind / f"{name}.toml"
        file.parent.mkdir(parents=True, exist_ok=True)
        text = tomlkit.dumps(told.model_dump(mode="json", exclude_none=True))
        write_atomic(file, text.encode(), durable=False)

    def personas(self) -> dict[str, Persona]:
        """All there are, as they are written now: an edit shows at the next call."""
        return {file.stem: self._load(Persona, file) for file in self._files("personas")}

    def persona(self, name: str) -> Persona:
        found = self.personas().get(name)
        if found is None:
            raise NoSuchCrowd(f"There is no persona {name}.", "`coterie crowd rooms` names everybody.")
        return found

    def personas_in(self, room: RoomConfig) -> list[Persona]:
        """Who is in a room, by name."""
        everybody = self.personas()
        missing = [name for name in room.roster if name not in everybody]
        if missing:
            raise BadCrowdConfig(
                f"The room {room.name} names {missing[0]}, and there is no such persona.",
                "Write personas/NAME.toml, or take the name out of the room's file.",
            )
        return [everybody[name] for name in sorted(room.roster or everybody)]

    def moderator(self, room: RoomConfig) -> Moderator:
        folders = [folder / "moderation" for folder in self._folders]
        return Moderator(read_wordlists(folder for folder in folders if folder.is_dir()), room.moderation)

    def _files(self, kind: str) -> list[Path]:
        found = {file.name: file for folder in self._folders for file in (folder / kind).glob("*.toml")}
        return [file for _, file in sorted(found.items())]

    def _load(self, kind: type[S], file: Path) -> S:
        changed = file.stat().st_mtime_ns
        known = self._cache.get(file)
        if known is not None and known[0] == changed and isinstance(known[1], kind):
            return known[1]
        try:
            value = load_config(kind, file=file).settings
        except ConfigError as error:
            raise BadCrowdConfig(f"{file.parent.name}/{file.name}: {error.what}", error.fix) from None
        if getattr(value, "name", file.stem) != file.stem:
            raise BadCrowdConfig(
                f"{file.name} is about {getattr(value, 'name', '')}.", "Name the file as what it is about."
            )
        self._cache[file] = (changed, value)
        return value
