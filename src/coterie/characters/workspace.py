"""A character's folder: texts that its owner may edit, and the card file it was imported from.

The log has the card's text; its pictures and other files are too large for the log and are kept here unchanged.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import get_args

from coterie.base.errors import ReadOnly
from coterie.base.paths import write_atomic
from coterie.base.redaction import redact
from coterie.characters.cards.card import Card, CardFormat
from coterie.characters.cards.import_export import import_card
from coterie.characters.errors import CardError
from coterie.characters.service import Character, OwnerProfile

_PICTURE_FORMATS: tuple[CardFormat, ...] = ("png", "charx")


@dataclass(frozen=True)
class Portrait:
    data: bytes
    media_type: str
    version: int
    """Changes with the picture."""


def read_portrait(workspace: Path) -> Portrait | None:
    """The picture of the card in a character's folder."""
    for kind in _PICTURE_FORMATS:
        file = workspace / f"card.{kind}"
        try:
            changed = file.stat().st_mtime_ns
        except OSError:
            continue
        if (portrait := _load_portrait(file, changed)) is not None:
            return portrait
    return None


@lru_cache(maxsize=32)
def _load_portrait(file: Path, changed: int) -> Portrait | None:
    try:
        card = import_card(file.read_bytes(), file.name).card
    except (OSError, CardError):
        return None
    for data in (card.picture, card.main_icon):
        if data is not None and (kind := _media_type(data)):
            return Portrait(data, kind, changed)
    return None


def _media_type(data: bytes) -> str:
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    return "image/webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else ""


_UNTOUCHED = "<!-- Delete this line, and what stands below is told to the character. -->"
_SOUL = """# {name}

How {name} speaks and behaves, in your own words.

"""
_IDENTITY = """# Who {name} is

{persona}
"""
_USER = """# Who {name} is with

{user}
"""


_MAX_CHARS = 32_000
"""Characters of a file that go into a prompt."""


@dataclass(frozen=True)
class WorkspaceTexts:
    """The texts of a character's folder; empty if there is no file or it is an unchanged template."""

    soul: str = ""
    identity: str = ""
    user: str = ""


class Workspaces:
    def __init__(
        self, root: Path, shared: Path | None = None, folder_name: Callable[[str], str] = lambda character_id: ""
    ) -> None:
        """`shared` is for characters without files of their own; `folder_name` gives other folder names than the id."""
        self._root = root
        self._shared = shared
        self._folder_name = folder_name

    def folder(self, character_id: str) -> Path:
        return self._root / (self._folder_name(character_id) or character_id)

    def prepare(self, character: Character, owner: OwnerProfile) -> Path:
        """Create the folder with its templates. Existing files are kept."""
        folder = self.folder(character.id)
        user = " ".join(
            part for part in (owner.name, f"({owner.pronouns})" if owner.pronouns else "", owner.persona) if part
        )
        persona = character.identity.persona or f"Write here what there is to know about {character.name}."
        templates = {
            "SOUL.md": _SOUL.format_map({"name": character.name}),
            "IDENTITY.md": _IDENTITY.format_map({"name": character.name, "persona": persona}),
            "USER.md": _USER.format_map({"name": character.name, "user": user}),
        }
        for name, text in templates.items():
            if not (folder / name).exists():
                self._write(folder / name, f"{_UNTOUCHED}\n{text}".encode())
        return folder

    def texts(self, character_id: str) -> WorkspaceTexts:
        """The texts from the character's folder, else from the shared one; unchanged templates count as empty."""
        soul, identity, user = map(
            functools.partial(self._read_text, character_id), ("SOUL.md", "IDENTITY.md", "USER.md")
        )
        return WorkspaceTexts(soul, identity, user)

    def _read_text(self, character_id: str, name: str) -> str:
        for folder in (self.folder(character_id), self._shared):
            try:
                text = (folder / name).read_text(encoding="utf-8", errors="replace") if folder else ""
            except OSError:
                continue
            if text.strip() and not text.startswith(_UNTOUCHED):
                return redact(text[:_MAX_CHARS].strip())  # it is logged with the prompt
        return ""

    def save_card(self, character_id: str, data: bytes, kind: CardFormat) -> None:
        """Store the file of a card in place of the previous one."""
        for other in get_args(CardFormat):
            (self.folder(character_id) / f"card.{other}").unlink(missing_ok=True)
        self._write(self.folder(character_id) / f"card.{kind}", data)

    def card_with_files(self, character: Character) -> Card:
        """The character as a card, with its pictures and files."""
        card = character.identity.to_card(character.card)
        for kind in _PICTURE_FORMATS:
            file = self.folder(character.id) / f"card.{kind}"
            try:
                stored = import_card(file.read_bytes(), file.name).card
            except (OSError, CardError):
                continue  # missing or changed by hand; the card itself is in the log
            return Card.read(card.document, stored.files, stored.picture)
        return card

    def _write(self, path: Path, data: bytes) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_atomic(path, data, durable=False)
        except OSError as error:
            raise ReadOnly(
                f"{path} cannot be written ({error.strerror}).", "Give yourself write access to that folder."
            ) from error
