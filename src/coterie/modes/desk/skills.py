"""Skills: folders with instructions that a character reads when it needs them.

Prompts contain the name and the description of a skill, from the front matter of `skills/NAME/SKILL.md` in the
character's workspace. Files are read from disk each time, so edits take effect at once. Switching a skill on or off is
an event.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from coterie.base.errors import UnsafePath
from coterie.base.folders import Folder
from coterie.base.redaction import redact
from coterie.base.untrusted import join_lines
from coterie.characters import Workspaces
from coterie.eventstore import NewEvent, Store
from coterie.modes.desk.errors import NoSuchSkill
from coterie.modes.desk.events import SkillSwitched
from coterie.modes.desk.sandbox.files import WorkspaceFiles

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_FRONT_MATTER = re.compile(r"\A---\s*\n(.*?)\n---\s*\n?", re.DOTALL)
_MAX_FILE = 64_000
_MAX_DESCRIPTION = 300
_MAX_FILES = 200


@dataclass(frozen=True)
class Skill:
    name: str
    """The name of its folder."""
    description: str
    on: bool


class Skills:
    def __init__(self, store: Store, workspaces: Workspaces) -> None:
        self._store = store
        self._workspaces = workspaces

    def all(self, character: str) -> list[Skill]:
        folder = self._folder(character)
        if not folder.is_dir():  # most characters have none, and every prompt asks
            return []
        disabled = {
            name for (name,) in self._store.query("SELECT skill FROM desk_skill_off WHERE character = ?", (character,))
        }
        with suppress(OSError, UnsafePath), Folder.open(folder) as opened:
            names = [entry.name for entry in opened.entries() if _NAME.fullmatch(entry.name) and entry.is_folder]
            described = [(name, _read_description(opened, name)) for name in names]
            return [Skill(name, text, name not in disabled) for name, text in described if text is not None]
        return []

    def shared(self, character: str) -> dict[str, Path]:
        """The folders of enabled skills, by their path below `/shared`."""
        folder = self._folder(character)
        return {f"skills/{skill.name}": folder / skill.name for skill in self.all(character) if skill.on}

    async def switch(self, character: str, skill: str, *, on: bool, actor: str = "system") -> None:
        if skill not in {each.name for each in self.all(character)}:
            raise NoSuchSkill(f"There is no skill {skill!r}.", f"Put one into {self._folder(character)}.")
        payload = SkillSwitched(character=character, skill=skill, on=on)
        await self._store.append([NewEvent(f"cast:{character}", payload, actor)])

    def prompt_text(self, character: str) -> str:
        """Names and descriptions of enabled skills."""
        lines = [
            f"- {join_lines(skill.name)}: {join_lines(skill.description)}" for skill in self.all(character) if skill.on
        ]
        return "Skills you can read with `read_skill` when you need them:\n" + "\n".join(lines) if lines else ""

    def read(self, character: str, skill: str, file: str = "SKILL.md") -> str:
        """A file of a skill; `SKILL.md` comes with its settings and the names of the other files."""
        folder = self._enabled_folder(character, skill)
        names = _list_files(folder)
        if file not in names:
            raise NoSuchSkill(f"The skill {skill} has no file {file!r}.", f"It has: {', '.join(names)}.")
        text = _read_text(folder, file)
        if file != "SKILL.md":
            return redact(text)
        parts = [_FRONT_MATTER.sub("", text).strip()]
        with suppress(OSError, UnsafePath):
            settings = _read_text(self._workspaces.folder(character) / "config", f"{skill}.json")
            parts.append(f"Settings:\n{settings}")
        if others := [name for name in names if name != "SKILL.md"]:
            parts.append(f"Other files: {', '.join(others)}")
        return redact("\n\n".join(parts))

    def copy_to_workspace(self, character: str, skill: str, files: WorkspaceFiles) -> str:
        """Copy a skill to where commands can change it; returns the path in the workspace."""
        folder = self._enabled_folder(character, skill)
        for name in _list_files(folder):
            files.write(f"skills/{skill}/{name}", _read_text(folder, name))
        return f"skills/{skill}"

    def _enabled_folder(self, character: str, skill: str) -> Path:
        if skill not in {each.name for each in self.all(character) if each.on}:
            raise NoSuchSkill(f"There is no skill {skill!r}, or it is switched off.", "Use one of those listed.")
        return self._folder(character) / skill

    def _folder(self, character: str) -> Path:
        return self._workspaces.folder(character) / "skills"


def _list_files(folder: Path) -> list[str]:
    """Names of regular files, without symbolic links."""
    with Folder.open(folder) as opened:
        return list(islice((entry.path for entry in opened.walk(by_name=True) if entry.is_file), _MAX_FILES))


def _read_text(folder: Path, name: str) -> str:
    with Folder.open(folder) as opened:
        return opened.read(name, _MAX_FILE).decode(errors="replace")


def _read_description(skills: Folder, name: str) -> str | None:
    """The description of the front matter in one line; None if there is no skill."""
    try:
        front = _FRONT_MATTER.match(skills.read(f"{name}/SKILL.md", _MAX_FILE).decode(errors="replace"))
    except (OSError, UnsafePath):
        return None
    match = re.search(r"^description:\s*(.+)$", front[1], re.MULTILINE) if front else None
    text = " ".join(match[1].strip().strip("\"'").split()) if match else "(no description)"
    return redact(text[:_MAX_DESCRIPTION])
