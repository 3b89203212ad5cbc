"""A character's folder: texts that its owner may edit, and the card file it was imported from.

The log has the card's text; its pictures and other files are too large for the log and are kept here unchanged.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import get_args

from coterie.base.errors import ReadOnly, UnsafePath
from coterie.base.folders import Folder
from coterie.base.redaction import redact
from coterie.characters.cards.card import Card, CardFormat
from coterie.characters.cards.import_export import export_card, import_card, strip_cards
from coterie.characters.errors import BadPicture, CardError
from coterie.characters.prompt_texts import PromptTexts
from coterie.characters.service import OWNER, Character, OwnerProfile
from coterie.characters.starter_characters import portrait_for

OWNER_FILES, PEOPLE_FILES = "files", "people"
_PICTURE_FORMATS: tuple[CardFormat, ...] = ("png", "charx")
_PERSON_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_SHARED_TEXTS = ("SOUL.md", "IDENTITY.md")


def people_folder(people: Iterable[str]) -> str:
    """The folder, in a character's workspace, of the files that belong to exactly these people.

    It follows the rule for memories: what one set of people has is not disclosed to another. The owner alone has the
    folder that every file was in before there were folders per person.
    """
    names = sorted(set(people))
    if names == [OWNER]:
        return OWNER_FILES
    if len(names) == 1 and _PERSON_ID.fullmatch(names[0]):
        return f"{PEOPLE_FILES}/{names[0]}"
    digest = hashlib.sha256("\n".join(names).encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return f"{PEOPLE_FILES}/group.{digest}"  # no id of a person contains a dot


_DRAWN_PORTRAIT = "portrait.svg"
SVG = "image/svg+xml"


@dataclass(frozen=True)
class Portrait:
    data: bytes
    media_type: str
    version: int
    """Changes with the picture."""

    @property
    def is_drawing(self) -> bool:
        """Whether it is SVG, which messengers do not show."""
        return self.media_type == SVG


def read_portrait(workspace: Path) -> Portrait | None:
    """The picture of the card in a character's folder, or the drawn one of a ready-made character."""
    for file, changed in _card_files(workspace):
        if (portrait := _load_portrait(file, changed)) is not None:
            return portrait
    try:
        changed = (workspace / _DRAWN_PORTRAIT).stat().st_mtime_ns
        return Portrait(_read(workspace, _DRAWN_PORTRAIT), SVG, changed)
    except (OSError, UnsafePath):
        return None


def portrait_version(workspace: Path) -> int | None:
    """The version of `read_portrait`, without reading the pictures of all characters again for each page."""
    for file, changed in _card_files(workspace):
        if _has_portrait(file, changed):
            return changed
    try:
        return (workspace / _DRAWN_PORTRAIT).stat().st_mtime_ns
    except OSError:
        return None


def _card_files(workspace: Path) -> Iterator[tuple[Path, int]]:
    for kind in _PICTURE_FORMATS:
        file = workspace / f"card.{kind}"
        with suppress(OSError):
            yield file, file.stat().st_mtime_ns


@lru_cache(maxsize=10_000)
def _has_portrait(file: Path, changed: int) -> bool:
    return _load_portrait(file, changed) is not None


@lru_cache(maxsize=32)
def _load_portrait(file: Path, changed: int) -> Portrait | None:
    try:
        card = import_card(_read(file.parent, file.name), file.name).card
    except (OSError, UnsafePath, CardError):
        return None
    for data in (card.picture, card.main_icon):
        if data is not None and (kind := media_type(data)) and not has_too_many_pixels(data):
            return Portrait(data, kind, changed)
    return None


def media_type(data: bytes) -> str:
    """The type of a picture; empty if it is none that a page shows."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    return "image/webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else ""


MAX_PIXELS = 100_000_000
"""A browser unpacks a picture to four bytes per pixel, whatever its file takes."""
_MAX_JPEG_SEGMENTS = 10_000


def has_too_many_pixels(data: bytes) -> bool:
    width, height = _dimensions(data)
    return width * height > MAX_PIXELS


def check_pixels(data: bytes) -> None:
    if has_too_many_pixels(data):
        raise BadPicture(f"The picture has more than {MAX_PIXELS // 1_000_000} million pixels.", "Make it smaller.")


def _dimensions(data: bytes) -> tuple[int, int]:
    """The width and height that a PNG, JPEG or WebP picture claims; zeros where it claims none."""
    if media_type(data) == "image/png":
        return int.from_bytes(data[16:20]), int.from_bytes(data[20:24])
    if media_type(data) == "image/webp":
        return _webp_dimensions(data)
    position = 2
    for _ in range(_MAX_JPEG_SEGMENTS):
        if data[position : position + 1] != b"\xff":
            return 0, 0
        marker, size = data[position + 1 : position + 2], int.from_bytes(data[position + 2 : position + 4])
        if marker and 0xC0 <= marker[0] <= 0xCF and marker[0] not in (0xC4, 0xC8, 0xCC):
            return int.from_bytes(data[position + 7 : position + 9]), int.from_bytes(data[position + 5 : position + 7])
        position += 1 if marker == b"\xff" else 2 + max(size, 2)
    return MAX_PIXELS, 2  # no program writes that many


def _webp_dimensions(data: bytes) -> tuple[int, int]:
    kind, bits = data[12:16], int.from_bytes(data[21:25], "little")
    if kind == b"VP8X":
        return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
    if kind == b"VP8L":
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    return int.from_bytes(data[26:28], "little") & 0x3FFF, int.from_bytes(data[28:30], "little") & 0x3FFF


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

    def prompts(self, character_id: str = "") -> PromptTexts:
        """The instructions to models: of a character, or the shared ones."""
        return PromptTexts(self.folder(character_id) if character_id else None, self._shared)

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
        drawn = portrait_for(character.identity.kickoff)
        if drawn is not None and not (folder / _DRAWN_PORTRAIT).exists():
            self._write(folder / _DRAWN_PORTRAIT, drawn)
        return folder

    def people_folder(self, character_id: str, people: Iterable[str]) -> Path:
        """The folder of the files that a character has from, and for, exactly these people; created if necessary."""
        folder = self.folder(character_id)
        relative = people_folder(people)
        with Folder.open(folder, create=True) as opened:
            opened.subfolder(relative, create=True, mode=0o700).close()
        return folder / relative

    def shared_texts(self, character_id: str) -> dict[str, Path]:
        """The texts about the character that everybody's workers may read, by name."""
        folder = self.folder(character_id)
        paths = {name: folder / name for name in _SHARED_TEXTS}
        return {name: path for name, path in paths.items() if path.is_file() and not path.is_symlink()}

    def texts(self, character_id: str) -> WorkspaceTexts:
        """The texts from the character's folder, else from the shared one; unchanged templates count as empty."""
        soul, identity, user = map(
            functools.partial(self._read_text, character_id), ("SOUL.md", "IDENTITY.md", "USER.md")
        )
        return WorkspaceTexts(soul, identity, user)

    def _read_text(self, character_id: str, name: str) -> str:
        for folder in (self.folder(character_id), self._shared):
            try:
                text = _read(folder, name).decode(errors="replace") if folder else ""
            except (OSError, UnsafePath):
                continue
            if text.strip() and not text.startswith(_UNTOUCHED):
                return redact(text[:_MAX_CHARS].strip())  # it is logged with the prompt
        return ""

    def save_card(self, character_id: str, data: bytes, kind: CardFormat) -> None:
        """Store the file of a card in place of the previous one."""
        for other in get_args(CardFormat):
            (self.folder(character_id) / f"card.{other}").unlink(missing_ok=True)
        self._write(self.folder(character_id) / f"card.{kind}", data)

    def set_portrait(self, character: Character, data: bytes) -> None:
        """Make a PNG the picture of the character's card; its other files stay."""
        picture = strip_cards(data) if media_type(data) == "image/png" else None
        if picture is None:
            raise BadPicture("This is not an intact PNG picture.", "Save it as PNG, and upload that.")
        check_pixels(picture)
        card = self.card_with_files(character)
        kind: CardFormat = "charx" if card.files else "png"
        changed = Card.read(card.document, card.files, picture)
        self.save_card(character.id, export_card(changed, kind).data, kind)

    def card_with_files(self, character: Character) -> Card:
        """The character as a card, with its pictures and files."""
        card = character.identity.to_card(character.card)
        for kind in _PICTURE_FORMATS:
            file = self.folder(character.id) / f"card.{kind}"
            try:
                stored = import_card(_read(file.parent, file.name), file.name).card
            except (OSError, UnsafePath, CardError):
                continue  # missing or changed by hand; the card itself is in the log
            return Card.read(card.document, stored.files, stored.picture)
        return card

    def _write(self, path: Path, data: bytes) -> None:
        try:
            with Folder.open(path.parent, create=True) as folder:
                folder.write(path.name, data)
        except OSError as error:
            raise ReadOnly(
                f"{path} cannot be written ({error.strerror}).", "Give yourself write access to that folder."
            ) from error


def _read(folder: Path, name: str) -> bytes:
    with Folder.open(folder) as opened:
        return opened.read(name)
