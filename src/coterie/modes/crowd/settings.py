"""Rooms, personas and moderation lists as TOML files: the shipped ones and the owner's own, which take precedence.

A file is checked when it is read. The limits of values apply to files only, not to the rules and personas that recorded
sessions hold, so that these can always be replayed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from string import Formatter
from typing import Annotated, Any, Literal, TypeVar

import tomlkit
from pydantic import Field, StringConstraints, ValidationError

from coterie.base.config import PageSetting, ProtectedSetting, Section, load_config
from coterie.base.errors import ConfigError
from coterie.base.paths import write_atomic
from coterie.modes.crowd.errors import BadCrowdConfig, NoSuchCrowd
from coterie.modes.crowd.gateway.admission import RoomLimits
from coterie.modes.crowd.moderation import Moderator, read_wordlists
from coterie.modes.crowd.moderation.moderator import ModerationPolicy
from coterie.modes.crowd.personas import Persona, character_id

SHIPPED_CONFIGS = Path(__file__).parent / "configs"


class CrowdSettings(Section):
    """Crowd: the streams that sessions may watch, and the broker of a crowd of several processes."""

    stream_addresses: ProtectedSetting[tuple[str, ...]] = ()
    """Addresses whose streams may be watched from the page, such as `https://live.example` or `rtmp://127.0.0.1`; also
    `microphone` and `screen` of the server's machine."""
    bus: ProtectedSetting[str] = Field(default="", pattern=r"^(?:(?:nats|tls)://\S+)?$")
    """A NATS server with JetStream, such as nats://127.0.0.1:4222, for a crowd of several processes. Empty: one."""
    run_personas: PageSetting[bool] = True
    """With `bus`: whether the server itself runs personas, or leaves them to `coterie crowd personas`."""
    recogniser: ProtectedSetting[str] = Field(default="moonshine", pattern=r"^(?:moonshine|whisper:.+)$")
    """What transcribes speech: `moonshine` (English), or `whisper:FOLDER` for faster-whisper with weights in a folder
    (any of its languages)."""
    speech_language: PageSetting[str] = Field(default="", pattern=r"^[a-z]{0,3}$")
    """The language that faster-whisper expects, as a code such as `de`. Empty: it is recognised in each utterance."""
    memory: ProtectedSetting[Literal["builtin", "mem0"]] = "builtin"
    """Where personas keep what they remember of the chat: `builtin`, which stories and desks share, or `mem0` in the
    folder `mem0` of the data folder (coterie[mem0]). Applies from the next start on."""
    extraction: PageSetting[Literal["model", "patterns"]] = "model"
    """What finds things to remember in messages: the model of the role `classifier`, if it is strong enough, or
    patterns such as "my favourite" only."""
    watch: PageSetting[bool] = False
    """Whether the pictures of videos and addresses are watched too: scene changes and on-screen text, and captions if
    the role `vision` has a model. Needs coterie[vision] and about a fifth of a processor core."""


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
    reflect_every: int = Field(default=200, ge=1)
    """After so many messages, and at most every five minutes, the drift and the relationships of personas are stored,
    as at the end of a session."""


class Tuning(Section):
    """The factors of a persona's decision to speak."""

    events: dict[str, float] = Field(
        default_factory=lambda: {
            "hype": 7.0,
            "win": 7.0,
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


class RoomTwitch(Section):
    """The `[twitch]` section of a room's file."""

    channel: Annotated[str, StringConstraints(pattern=r"^\w{0,25}$")] = ""
    """The channel whose chat is shown in the room; empty for none. Reading needs no account."""
    send: Literal["nothing", "answers", "all"] = "nothing"
    """Which lines of personas are sent to the channel, through the account in the settings: none, answers to viewers
    of the channel, or all."""


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
    twitch: RoomTwitch = RoomTwitch()


S = TypeVar("S", bound=Section)
FileStamp = tuple[int, int]
"""When a file was modified, and its size."""

_RANGES: dict[str, tuple[float, float]] = {
    "tempo.tick_s": (0.01, 3_600),
    "tempo.lines_per_minute": (0.001, 100_000),
    "tempo.rest_s": (0, 86_400),
    "tempo.typing_per_s": (0.1, 100_000),
    "tempo.line_deadline_s": (0.1, 3_600),
    "tuning.event_fades_s": (0.1, 86_400),
    "tuning.interest": (0, 1_000),
    "tuning.mention": (0, 1),
    "tuning.mention_fades_s": (0.1, 86_400),
    "tuning.human": (0, 1_000),
    "tuning.banter": (0, 1_000),
    "tuning.called": (0, 1_000),
    "tuning.trend": (0, 1_000),
    "tuning.longest_chain": (1, 1_000),
    "tuning.quiet_after_s": (0.1, 86_400),
    "limits.burst": (1, 1_000_000),
    "limits.per_minute": (0.001, 10_000_000),
    "limits.slow_mode_s": (0, 86_400),
}
"""Values that a room's file may set."""
_EVENT_FACTORS = (0.0, 1_000.0)
_PLACEHOLDERS = ("topic", "name", "emote")
_LAST_HOUR = 24


def room_problems(room: RoomConfig) -> Iterator[str]:
    """What is wrong with the values of a room's file: each with the field and the allowed values."""
    for key, allowed in _RANGES.items():
        section, field = key.split(".")
        yield from _range_problem(key, getattr(getattr(room, section), field), allowed)
    for kind, factor in room.tuning.events.items():
        yield from _range_problem(f"tuning.events.{kind}", factor, _EVENT_FACTORS)


def persona_problems(persona: Persona) -> Iterator[str]:
    """What is wrong with the values of a persona's file."""
    if persona.sleep is not None and any(int(hour) > _LAST_HOUR for hour in persona.sleep.split("-")):
        yield f"sleep should be two hours from 00 to 24, such as 01-09, not {persona.sleep!r}."
    for situation, lines in persona.lines.items():
        for number, line in enumerate(lines):
            if problem := _placeholder_problem(line):
                yield f"lines.{situation}.{number} {problem}, not {line!r}."


def _range_problem(key: str, value: float, allowed: tuple[float, float]) -> Iterator[str]:
    low, high = allowed
    if not (math.isfinite(value) and low <= value <= high):
        yield f"{key} should be from {low:g} to {high:,g}, not {value:g}."


def _placeholder_problem(line: str) -> str:
    try:
        fields = [(field, spec, conversion) for _, field, spec, conversion in Formatter().parse(line)]
    except ValueError:
        return "has a brace without its counterpart; write {{ for a brace"
    used = [field for field, _, _ in fields if field is not None]
    if any(field not in _PLACEHOLDERS for field in used) or any(spec or conversion for _, spec, conversion in fields):
        return "may only use the placeholders {topic}, {name} and {emote}"
    return ""


class CrowdConfigs:
    """Reads and writes configuration files; an edited file is read again.

    `folders` may hold `personas/`, `rooms/`, `moderation/` and `streams/`; a later folder's file replaces an earlier
    one's. An edit that is not valid changes nothing: the file's last valid version stays in use, and `problems` names
    the file.
    """

    def __init__(self, folders: Sequence[Path] = ()) -> None:
        self._folders = (SHIPPED_CONFIGS, *folders)
        self._cache: dict[Path, tuple[FileStamp, Section | None, BadCrowdConfig | None]] = {}

    def rooms(self) -> dict[str, RoomConfig]:
        """Return all rooms by name. Files that were never valid are left out."""
        return self._load_all(RoomConfig, "rooms")

    def room(self, name: str) -> RoomConfig:
        rooms = self.rooms()
        if name not in rooms:
            self._raise_problem("rooms", name)
            raise NoSuchCrowd(f"There is no room {name}.", f"Rooms there are: {', '.join(rooms)}.")
        return rooms[name]

    def problems(self) -> dict[str, BadCrowdConfig]:
        """What is wrong with files of rooms and personas as they are now, by `rooms/NAME` or `personas/NAME`."""
        found = {
            f"{folder}/{file.stem}": self._read(kind, file)[1]
            for kind, folder in ((RoomConfig, "rooms"), (Persona, "personas"))
            for file in self._files(folder)
        }
        return {name: problem for name, problem in found.items() if problem is not None}

    def stamps(self) -> dict[Path, FileStamp]:
        """All files with what changes when they are edited."""
        files = [*self._files("rooms"), *self._files("personas"), *self._files("moderation", "*.txt")]
        return {file: stamp for file in files if (stamp := _stamp(file)) is not None}

    def write_room(self, name: str, changes: Mapping[str, Mapping[str, Any]]) -> RoomConfig:
        """Write a room with changed rules to the owner's folder. Nothing is written if the rules are invalid."""
        self._raise_problem("rooms", name)
        values = self.room(name).model_dump(mode="json")
        for section, changed in changes.items():
            values[section] = {**values[section], **changed}
        try:
            room = RoomConfig.model_validate(values)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise BadCrowdConfig(f"{where}: {first['msg']}.", "Correct it; nothing was changed.") from None
        if problem := next(room_problems(room), ""):
            raise BadCrowdConfig(problem, "Correct it; nothing was changed.")
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

    def streams(self) -> dict[str, Path]:
        """Return the files in `streams/` by name: scripts, subtitles, texts and sound."""
        return {file.name: file for file in self._files("streams", "*") if file.is_file()}

    def personas(self) -> dict[str, Persona]:
        """Return all personas by name, as their files are now. Files that were never valid are left out."""
        return self._load_all(Persona, "personas")

    def persona(self, name: str) -> Persona:
        persona = self.personas().get(name)
        if persona is None:
            self._raise_problem("personas", name)
            raise NoSuchCrowd(f"There is no persona {name}.", "`coterie crowd rooms` lists all personas.")
        return persona

    def personas_in(self, room: RoomConfig) -> list[Persona]:
        """Return the personas of a room, ordered by name."""
        personas = self.personas()
        missing = [name for name in room.roster if name not in personas]
        if missing:
            self._raise_problem("personas", missing[0])
            raise BadCrowdConfig(
                f"The room {room.name} lists {missing[0]}, but there is no such persona.",
                "Create personas/NAME.toml, or remove the name from the room's file.",
            )
        return [personas[name] for name in sorted(set(room.roster) or personas)]

    def moderator(self, room: RoomConfig) -> Moderator:
        folders = [folder / "moderation" for folder in self._folders]
        try:
            return Moderator(read_wordlists(folder for folder in folders if folder.is_dir()), room.moderation)
        except (OSError, UnicodeDecodeError) as error:
            raise BadCrowdConfig(
                f"A moderation list cannot be read: {error}.", "Check its permissions and that it is UTF-8 text."
            ) from None

    def _files(self, kind: str, pattern: str = "*.toml") -> list[Path]:
        files = {file.name: file for folder in self._folders for file in (folder / kind).glob(pattern)}
        return [file for _, file in sorted(files.items())]

    def _load_all(self, kind: type[S], folder: str) -> dict[str, S]:
        loaded = ((file.stem, self._read(kind, file)[0]) for file in self._files(folder))
        return {name: value for name, value in loaded if value is not None}

    def _raise_problem(self, folder: str, name: str) -> None:
        """Raise what is wrong with the file of this room or persona, if anything."""
        kind = RoomConfig if folder == "rooms" else Persona
        for file in self._files(folder):
            if file.stem == name and (problem := self._read(kind, file)[1]) is not None:
                raise problem

    def _read(self, kind: type[S], file: Path) -> tuple[S | None, BadCrowdConfig | None]:
        """Return the last valid version of a file, if there was one, and what is wrong with it now."""
        stamp = _stamp(file)
        cached = self._cache.get(file)
        last = cached[1] if cached is not None and isinstance(cached[1], kind) else None
        if stamp is None:  # deleted since it was listed
            return None, None
        if cached is not None and cached[0] == stamp:
            return last, cached[2]
        problem = None
        try:
            last = _parse(kind, file)
        except BadCrowdConfig as error:
            problem = error
        self._cache[file] = (stamp, last, problem)
        return last, problem


def _stamp(file: Path) -> FileStamp | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def read_persona(file: Path) -> Persona:
    """Read and check the file of a persona, wherever it is."""
    return _check(load_config(Persona, file=file).settings, file.name)


def _parse(kind: type[S], file: Path) -> S:
    where = f"{file.parent.name}/{file.name}"
    try:
        value = load_config(kind, file=file).settings
    except ConfigError as error:
        raise BadCrowdConfig(f"{where}: {error.what}", error.fix) from None
    name = getattr(value, "name", file.stem)
    if name != file.stem:
        raise BadCrowdConfig(f"{where} is about {name}.", "Give the file the name in its `name` field.")
    return _check(value, where)


def _check(value: S, where: str) -> S:
    problems: Iterable[str] = room_problems(value) if isinstance(value, RoomConfig) else ()
    if isinstance(value, Persona):
        problems = persona_problems(value)
    if problem := " ".join(problems):
        raise BadCrowdConfig(f"{where}: {problem}", "Correct the file; it is read again automatically.")
    return value
