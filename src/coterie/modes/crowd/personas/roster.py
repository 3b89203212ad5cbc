"""Reads personas and rooms from folders of TOML, the shipped ones and a person's own; sees when a file was edited."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import tomlkit
from pydantic import ValidationError

from coterie.base.config import Section, load_config
from coterie.base.errors import ConfigError
from coterie.base.files import write_atomic
from coterie.modes.crowd.configs import SHIPPED_CONFIGS
from coterie.modes.crowd.errors import BadCrowdConfig, NoSuchCrowd
from coterie.modes.crowd.moderation import Moderator, read_wordlists
from coterie.modes.crowd.personas.character import character_id
from coterie.modes.crowd.personas.persona import Persona
from coterie.modes.crowd.personas.room_file import RoomConfig

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
