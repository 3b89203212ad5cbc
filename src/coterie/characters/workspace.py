"""A character's folder: who it is in words that its owner may edit, and the card file it came from. D11

The log holds a card's text; pictures and other files of a card are too large for it and are kept here, unchanged.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import get_args

from coterie.base.errors import ReadOnly
from coterie.base.files import write_atomic
from coterie.base.redaction import redact
from coterie.characters.cards.card import Card, CardFormat
from coterie.characters.cards.import_export import import_card
from coterie.characters.errors import CardError
from coterie.characters.service import Character, OwnerProfile

# Portraits: the picture that a character's card came with, for whoever shows the character.
#
# Only what begins like a picture is one, of the type it begins as: a card may carry anything.


_KINDS = ("png", "charx")


@dataclass(frozen=True)
class Portrait:
    data: bytes
    media_type: str
    version: int
    """Another picture has another."""


def read_portrait(workspace: Path) -> Portrait | None:
    """The picture in the card that a character's workspace holds."""
    for kind in _KINDS:
        file = workspace / f"card.{kind}"
        try:
            changed = file.stat().st_mtime_ns
        except OSError:
            continue
        if (found := _picture(file, changed)) is not None:
            return found
    return None


@lru_cache(maxsize=32)
def _picture(file: Path, changed: int) -> Portrait | None:
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


_MOST = 32_000
"""Characters of a file that are told: a prompt has to hold it."""


@dataclass(frozen=True)
class WorkspaceTexts:
    """What a person wrote for a character in files; empty where the form's words are enough."""

    soul: str = ""
    identity: str = ""
    user: str = ""


class Workspaces:
    def __init__(
        self, root: Path, shared: Path | None = None, folder_name: Callable[[str], str] = lambda bot_id: ""
    ) -> None:
        """`shared` holds files for every character that has none of its own; `named` tells of folders that are called
        otherwise than by a character's id."""
        self._root = root
        self._shared = shared
        self._named = folder_name

    def folder(self, bot_id: str) -> Path:
        return self._root / (self._named(bot_id) or bot_id)

    def prepare(self, bot: Character, you: OwnerProfile) -> Path:
        """The folder with its templates. Files that are there already are left alone."""
        folder = self.folder(bot.id)
        user = " ".join(part for part in (you.name, f"({you.pronouns})" if you.pronouns else "", you.persona) if part)
        persona = bot.identity.persona or f"Write here what there is to know about {bot.name}."
        templates = {
            "SOUL.md": _SOUL.format_map({"name": bot.name}),
            "IDENTITY.md": _IDENTITY.format_map({"name": bot.name, "persona": persona}),
            "USER.md": _USER.format_map({"name": bot.name, "user": user}),
        }
        for name, text in templates.items():
            if not (folder / name).exists():
                self._write(folder / name, f"{_UNTOUCHED}\n{text}".encode())
        return folder

    def texts(self, bot_id: str) -> WorkspaceTexts:
        """D11: from the character's folder, else from the shared one; a template that nobody touched says nothing."""
        soul, identity, user = map(functools.partial(self._read_text, bot_id), ("SOUL.md", "IDENTITY.md", "USER.md"))
        return WorkspaceTexts(soul, identity, user)

    def _read_text(self, bot_id: str, name: str) -> str:
        for folder in (self.folder(bot_id), self._shared):
            try:
                text = (folder / name).read_text(encoding="utf-8", errors="replace") if folder else ""
            except OSError:
                continue
            if text.strip() and not text.startswith(_UNTOUCHED):
                return redact(text[:_MOST].strip())  # it goes into the log with the prompt
        return ""

    def save_card(self, bot_id: str, data: bytes, kind: CardFormat) -> None:
        """The file that a card came in; one that was kept before makes room."""
        for other in get_args(CardFormat):
            (self.folder(bot_id) / f"card.{other}").unlink(missing_ok=True)
        self._write(self.folder(bot_id) / f"card.{kind}", data)

    def card_with_files(self, bot: Character) -> Card:
        """The character as a card, with the pictures and files it came with."""
        card = bot.identity.to_card(bot.card)
        for kind in ("png", "charx"):
            file = self.folder(bot.id) / f"card.{kind}"
            try:
                kept = import_card(file.read_bytes(), file.name).card
            except (OSError, CardError):
                continue  # never kept, or changed by hand: the card itself is in the log
            return Card.read(card.document, kept.files, kept.picture)
        return card

    def _write(self, path: Path, data: bytes) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_atomic(path, data, durable=False)
        except OSError as error:
            raise ReadOnly(
                f"{path} cannot be written ({error.strerror}).", "Give yourself write access to that folder."
            ) from error
