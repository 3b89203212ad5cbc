"""The pictures of a character besides its portrait: expressions, of which one is shown by mood, and a gallery."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from coterie.base.errors import UnsafePath
from coterie.base.folders import Folder
from coterie.characters.cards.import_export import import_card
from coterie.characters.errors import BadPicture, CardError
from coterie.characters.personas import PictureFiles
from coterie.characters.service import OWNER
from coterie.characters.workspace import Workspaces
from coterie.eventstore import Event, NewEvent, Payload, Projection, Rows, Store, on

PictureUse = Literal["expression", "gallery"]
MAX_NAME = 60
MAX_PER_CHARACTER = 1_000
_STREAM_PREFIX = "pictures:"
_CARD_FILES = ("card.charx", "card.png")


class CharacterPictureSaved(Payload, kind="character_picture_saved"):
    """A picture of a character was added, or took the place of another of the same name."""

    character: str
    """The character's id."""
    use: PictureUse
    """`expression` or `gallery`."""
    name: str
    """The expression, such as `joy`; in the gallery a title or the picture's id."""
    picture: str
    """The picture's id."""


class CharacterPictureRemoved(Payload, kind="character_picture_removed"):
    """A picture of a character was removed. An expression of its card stays hidden."""

    character: str
    """The character's id."""
    use: PictureUse
    """`expression` or `gallery`."""
    name: str
    """Its name."""


class CharacterPicturesProjection(Projection):
    name = "character_pictures"
    journaled = False  # its streams are never rewound
    schema = """
        CREATE TABLE character_picture(character TEXT, use TEXT, name TEXT, picture TEXT NOT NULL,
            PRIMARY KEY(character, use, name)) WITHOUT ROWID;
    """

    @on(CharacterPictureSaved)
    def saved(self, rows: Rows, event: Event[CharacterPictureSaved]) -> None:
        one = event.payload
        rows.run(
            "INSERT OR REPLACE INTO character_picture VALUES (?, ?, ?, ?)",
            (one.character, one.use, one.name, one.picture),
        )

    @on(CharacterPictureRemoved)
    def removed(self, rows: Rows, event: Event[CharacterPictureRemoved]) -> None:
        one = event.payload
        rows.run("INSERT OR REPLACE INTO character_picture VALUES (?, ?, ?, '')", (one.character, one.use, one.name))


@dataclass(frozen=True)
class CharacterPicture:
    name: str
    picture: str
    """The picture's id."""


class CharacterPictures:
    def __init__(self, store: Store, files: PictureFiles, workspaces: Workspaces) -> None:
        self._store = store
        self._files = files
        self._workspaces = workspaces

    def all(self, character: str, use: PictureUse) -> list[CharacterPicture]:
        """By name. Expressions in the character's card count, unless one of the same name was saved or removed."""
        rows = self._store.query(
            "SELECT name, picture FROM character_picture WHERE character = ? AND use = ?", (character, use)
        )
        found = self._of_card(character) if use == "expression" else {}
        found.update(rows)
        return [CharacterPicture(name, picture) for name, picture in sorted(found.items()) if picture]

    def for_mood(self, character: str, mood: str) -> CharacterPicture | None:
        """The expression that fits a mood in words, else the neutral one; None if the character has neither."""
        expressions = {one.name: one for one in self.all(character, "expression")}
        return expressions.get(choose_expression(mood, expressions))

    async def save(self, character: str, use: PictureUse, name: str, picture: str) -> CharacterPicture:
        """Add a stored picture; one of the same name is replaced."""
        name = clean_name(name) or picture
        if self._files.read(picture) is None:
            raise BadPicture("There is no such picture.", "Upload it again.")
        if len(self.all(character, use)) >= MAX_PER_CHARACTER:
            raise BadPicture(f"A character can have {MAX_PER_CHARACTER} pictures.", "Remove some first.")
        await self._store.append([picture_event(character, use, name, picture)])
        return CharacterPicture(name, picture)

    async def remove(self, character: str, use: PictureUse, name: str) -> None:
        if any(one.name == name for one in self.all(character, use)):
            removed = CharacterPictureRemoved(character=character, use=use, name=name)
            await self._store.append([NewEvent(_STREAM_PREFIX + character, removed, OWNER)])

    def _of_card(self, character: str) -> dict[str, str]:
        """The expressions in the file of the character's card: name → id of the picture, which is stored."""
        for name in _CARD_FILES:
            file = self._workspaces.folder(character) / name
            try:
                changed = file.stat().st_mtime_ns
            except OSError:
                continue
            found = {}
            for expression, data in _card_expressions(file, changed):
                try:
                    found[expression] = self._files.save(data)
                except BadPicture:
                    continue  # in another format, or too large
            return found
        return {}


def picture_event(character: str, use: PictureUse, name: str, picture: str) -> NewEvent:
    """The event of `CharacterPictures.save`, for a transaction with other events."""
    saved = CharacterPictureSaved(character=character, use=use, name=clean_name(name) or picture, picture=picture)
    return NewEvent(_STREAM_PREFIX + character, saved, OWNER)


def clean_name(name: str) -> str:
    return " ".join(re.sub(r"[^\w .,()+-]", " ", name.casefold()).split())[:MAX_NAME].strip(" .")


@lru_cache(maxsize=32)
def _card_expressions(file: Path, changed: int) -> tuple[tuple[str, bytes], ...]:
    try:
        with Folder.open(file.parent) as folder:
            card = import_card(folder.read(file.name), file.name).card
    except (OSError, UnsafePath, CardError):
        return ()
    emotions = [asset for asset in card.assets if asset.type == "emotion"]
    pairs = [(clean_name(asset.name), card.asset_bytes(asset)) for asset in emotions[:MAX_PER_CHARACTER]]
    return tuple((name, data) for name, data in pairs if name and data)


_NEUTRAL = "neutral"
_WORDS = {
    "admiration": "admir impress awe respect",
    "amusement": "amus giggl laugh entertain playful teas wry",
    "anger": "anger angry furious rage mad livid wrath seeth",
    "annoyance": "annoy irritat vexed grumpy impatient frustrat exasperat",
    "approval": "approv satisf content agree",
    "caring": "caring tender gentle concern compassion protective warm kind",
    "confusion": "confus puzzl bewilder perplex unsure uncertain lost",
    "curiosity": "curio intrigu interest wonder inquisit",
    "desire": "desir long lust yearn want flirt crav",
    "disappointment": "disappoint let down dejected",
    "disapproval": "disapprov stern reproach critical",
    "disgust": "disgust revolt repuls sicken nause",
    "embarrassment": "embarrass blush flustered asham sheepish shy",
    "excitement": "excit thrill eager enthusias elat",
    "fear": "fear afraid scared terrif fright panic horrif dread",
    "gratitude": "grat thank apprecia",
    "grief": "grief griev mourn devastat heartbroken bereave",
    "joy": "joy happy happi cheer glad delight merry smil laugh",
    "love": "love loving affection ador fond smitten",
    "nervousness": "nervous anxi tense uneas worr restless fidget",
    "optimism": "optimis hope confident",
    "pride": "pride proud triumph smug",
    "realization": "reali understand dawn",
    "relief": "relie calm relax ease",
    "remorse": "remors guilt sorry regret apolog contrite",
    "sadness": "sad sorrow melanchol gloom tear cry weep unhappy lonely wistful blue",
    "surprise": "surpris startl shock astonish amaz stun taken aback",
    _NEUTRAL: "neutral calm compos indifferent blank",
}
"""Names that sets of expressions usually have, and beginnings of words that describe such a mood."""
EXPRESSION_NAMES = tuple(_WORDS)
_NEGATIONS = frozenset("not no never hardly without isn't".split())  # noqa: SIM905 - easier to read than quoted words


def choose_expression(mood: str, available: Iterable[str]) -> str:
    """The name of the expression whose words occur first in a mood; `neutral` if none does; empty without either."""
    names = sorted(available)
    words = re.findall(r"[^\W_]+(?:['’][^\W_]+)?", mood.casefold())
    for position, word in enumerate(words):
        if position and words[position - 1].replace("’", "'") in _NEGATIONS:
            continue
        for fits in (_is_named, _is_described):
            if name := next((one for one in names if fits(one, word)), ""):
                return name
    return next((one for one in names if one.split("-")[0].strip() == _NEUTRAL), "")


def _is_named(name: str, word: str) -> bool:
    return word in re.findall(r"[^\W\d_]+", name)


def _is_described(name: str, word: str) -> bool:
    beginnings = [one for part in re.findall(r"[^\W\d_]+", name) for one in _WORDS.get(part, part).split()]
    return any(len(one) > 2 and word.startswith(one) for one in beginnings)
