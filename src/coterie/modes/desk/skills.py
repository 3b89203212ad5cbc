"""Skills: folders with instructions that a character may read when it needs them. D22

`skills/NAME/SKILL.md` in a character's workspace says in its front matter what it is for; only that and its name stand
in prompts. It is read from disk each time, so an edit counts from the next context on. Whether one is switched off is
in the log, and can be changed from any surface.
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from coterie.base.redaction import redact
from coterie.characters.workspace import Workspaces
from coterie.eventstore import NewEvent, Store
from coterie.modes.desk.errors import NoSuchSkill
from coterie.modes.desk.events import SkillSwitched
from coterie.modes.desk.sandbox.files import WorkspaceFiles

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_FRONT = re.compile(r"\A---\s*\n(.*?)\n---\s*\n?", re.DOTALL)
_LONGEST = 64_000
_LONGEST_DESCRIPTION = 300
_MOST_FILES = 200


@dataclass(frozen=True)
class Skill:
    name: str
    """That of its folder."""
    description: str
    on: bool


class Skills:
    def __init__(self, store: Store, workspaces: Workspaces) -> None:
        self._store = store
        self._workspaces = workspaces

    def all(self, character: str) -> list[Skill]:
        folder = self._folder(character)
        if not folder.is_dir():  # as for most characters, and every prompt asks
            return []
        off = {
            name for (name,) in self._store.query("SELECT skill FROM desk_skill_off WHERE character = ?", (character,))
        }
        with suppress(OSError):
            names = sorted(each.name for each in os.scandir(folder) if _NAME.fullmatch(each.name) and _plain(each))
            found = [(name, _description(folder / name / "SKILL.md")) for name in names]
            return [Skill(name, told, name not in off) for name, told in found if told is not None]
        return []

    async def switch(self, character: str, skill: str, *, on: bool, actor: str = "system") -> None:
        if skill not in {each.name for each in self.all(character)}:
            raise NoSuchSkill(f"There is no skill {skill!r}.", f"Put one into {self._folder(character)}.")
        payload = SkillSwitched(character=character, skill=skill, on=on)
        await self._store.append([NewEvent(f"cast:{character}", payload, actor)])

    def prompt_text(self, character: str) -> str:
        """For prompts: names and what they are for, nothing else."""
        lines = [f"- {skill.name}: {skill.description}" for skill in self.all(character) if skill.on]
        return "Skills you can read with `read_skill` when you need them:\n" + "\n".join(lines) if lines else ""

    def read(self, character: str, skill: str, file: str = "SKILL.md") -> str:
        """One of its files; with the instructions come its settings and the names of its other files."""
        folder = self._usable(character, skill)
        names = _files(folder)
        if file not in names:
            raise NoSuchSkill(f"The skill {skill} has no file {file!r}.", f"It has: {', '.join(names)}.")
        text = _text(folder / file)
        if file != "SKILL.md":
            return redact(text)
        settings = self._workspaces.folder(character) / "config" / f"{skill}.json"
        told = [_FRONT.sub("", text).strip()]
        if settings.is_file() and not settings.is_symlink():
            told.append(f"Settings:\n{_text(settings)}")
        if others := [name for name in names if name != "SKILL.md"]:
            told.append(f"Other files: {', '.join(others)}")
        return redact("\n\n".join(told))

    def copy_to_workspace(self, character: str, skill: str, workspace: Path) -> str:
        """Put a copy of it where commands can use it."""
        folder = self._usable(character, skill)
        files = WorkspaceFiles(workspace)
        for name in _files(folder):
            files.write(f"skills/{skill}/{name}", _text(folder / name))
        return f"skills/{skill}"

    def _usable(self, character: str, skill: str) -> Path:
        if skill not in {each.name for each in self.all(character) if each.on}:
            raise NoSuchSkill(f"There is no skill {skill!r}, or it is switched off.", "Use one of those listed.")
        return self._folder(character) / skill

    def _folder(self, character: str) -> Path:
        return self._workspaces.folder(character) / "skills"


def _plain(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False)


def _files(folder: Path) -> list[str]:
    """Its own files only: a link could lead anywhere."""
    found = (path for path in sorted(folder.rglob("*")) if stat.S_ISREG(path.lstat().st_mode))
    names = [str(path.relative_to(folder)) for path in found]
    return [name for name in names if not any((folder / part).is_symlink() for part in Path(name).parents)][
        :_MOST_FILES
    ]


def _text(path: Path) -> str:
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.read(_LONGEST)


def _description(path: Path) -> str | None:
    """From the front matter, in one line; None where there is no skill."""
    if path.is_symlink() or not path.is_file():
        return None
    front = _FRONT.match(_text(path))
    told = re.search(r"^description:\s*(.+)$", front[1], re.MULTILINE) if front else None
    said = " ".join(told[1].strip().strip("\"'").split()) if told else "(it does not say what it is for)"
    return redact(said[:_LONGEST_DESCRIPTION])
