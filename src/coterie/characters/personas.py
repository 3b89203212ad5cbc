"""The owner's personas: as whom they speak in a chat, besides their profile; and the pictures of personas.

A persona that was deleted stays readable for the chats it was used in. Pictures are files named by their content, so an
event that refers to one always means the same picture.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coterie.base.errors import ReadOnly, UnsafePath
from coterie.base.folders import Folder
from coterie.base.ids import new_id
from coterie.characters.errors import BadPicture, NoSuchPersona
from coterie.characters.service import OWNER, OwnerProfile
from coterie.characters.workspace import Portrait, check_pixels, media_type
from coterie.eventstore import Event, LogReader, NewEvent, Payload, Projection, Rows, Store, on

_STREAM = "you"
MAX_PICTURE_BYTES = 10_000_000
_PICTURE_ID = re.compile(r"[0-9a-f]{32}")


class PersonaSaved(Payload, kind="persona_saved"):
    """A persona of the owner was created or changed."""

    persona: str
    """The persona's id."""
    name: str
    """The name that characters use."""
    pronouns: str = ""
    """Such as `she/her`; may be empty."""
    about: str = ""
    """What characters know about it; may be empty."""
    picture: str = ""
    """The id of its picture; empty if it has none."""


class PersonaDeleted(Payload, kind="persona_deleted"):
    """A persona was deleted, or brought back."""

    persona: str
    """The persona's id."""
    deleted: bool = True
    """False if the deletion was undone."""


class DefaultPersonaChosen(Payload, kind="default_persona_chosen"):
    """The persona of new chats was chosen."""

    persona: str
    """The persona's id; empty for the owner's profile."""


@dataclass(frozen=True)
class UserPersona:
    id: str
    name: str
    pronouns: str
    about: str
    picture: str
    deleted: bool = False
    is_default: bool = False

    @property
    def profile(self) -> OwnerProfile:
        return OwnerProfile(self.name, self.pronouns, self.about)


class PersonasProjection(Projection):
    name = "personas"
    journaled = False  # its events are in the stream of the owner, which is never rewound
    schema = """
        CREATE TABLE persona(id TEXT PRIMARY KEY, name TEXT NOT NULL, pronouns TEXT NOT NULL, about TEXT NOT NULL,
            picture TEXT NOT NULL, deleted INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;
        CREATE TABLE default_persona(id INTEGER PRIMARY KEY, persona TEXT NOT NULL);
    """

    @on(PersonaSaved)
    def saved(self, rows: Rows, event: Event[PersonaSaved]) -> None:
        one = event.payload
        rows.run(
            "INSERT OR REPLACE INTO persona VALUES (?, ?, ?, ?, ?, 0)",
            (one.persona, one.name, one.pronouns, one.about, one.picture),
        )

    @on(PersonaDeleted)
    def deleted(self, rows: Rows, event: Event[PersonaDeleted]) -> None:
        rows.run("UPDATE persona SET deleted = ? WHERE id = ?", (event.payload.deleted, event.payload.persona))

    @on(DefaultPersonaChosen)
    def default_chosen(self, rows: Rows, event: Event[DefaultPersonaChosen]) -> None:
        rows.run("INSERT OR REPLACE INTO default_persona VALUES (1, ?)", (event.payload.persona,))


class PersonaQueries:
    def __init__(self, store: Store | LogReader) -> None:
        self._log = store

    def all(self) -> list[UserPersona]:
        """By name, without those that were deleted."""
        return [_persona(row) for row in self._log.query(f"{_SELECT} WHERE NOT p.deleted ORDER BY p.name, p.id")]

    def get(self, persona: str) -> UserPersona:
        """Also one that was deleted."""
        rows = self._log.query(f"{_SELECT} WHERE p.id = ?", (persona,))
        if not rows:
            raise NoSuchPersona("There is no such persona.", "Choose one from the list of your personas.")
        return _persona(rows[0])

    def default(self) -> str:
        """The persona of new chats; empty for the owner's profile."""
        return next((one.id for one in self.all() if one.is_default), "")


class Personas(PersonaQueries):
    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._store = store

    async def create(self, name: str, *, pronouns: str = "", about: str = "", picture: str = "") -> UserPersona:
        """`picture` is the id of a picture that was stored."""
        return await self.save(UserPersona(new_id(), name, pronouns, about, picture))

    async def save(self, persona: UserPersona) -> UserPersona:
        """Create or change a persona; one that was deleted comes back."""
        await self._store.append([self.save_event(persona)])
        return self.get(persona.id)

    def save_event(self, persona: UserPersona) -> NewEvent:
        """The event of `save`, for a transaction with other events."""
        saved = PersonaSaved(
            persona=persona.id,
            name=persona.name,
            pronouns=persona.pronouns,
            about=persona.about,
            picture=persona.picture,
        )
        return NewEvent(_STREAM, saved, OWNER)

    async def delete(self, persona: str) -> None:
        await self._append(PersonaDeleted(persona=self.get(persona).id))

    async def restore(self, persona: str) -> UserPersona:
        """Undo a deletion."""
        await self._append(PersonaDeleted(persona=self.get(persona).id, deleted=False))
        return self.get(persona)

    async def choose_default(self, persona: str) -> None:
        """Choose the persona of new chats; empty for the owner's profile."""
        await self._append(DefaultPersonaChosen(persona=self.get(persona).id if persona else ""))

    async def _append(self, payload: Payload) -> None:
        await self._store.append([NewEvent(_STREAM, payload, OWNER)])


class PictureFiles:
    """Pictures in a folder, each named by a hash of its content."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def save(self, data: bytes) -> str:
        """Store a PNG, JPEG or WebP picture; returns its id."""
        if len(data) > MAX_PICTURE_BYTES:
            raise BadPicture("The picture is larger than 10 MB.", "Make it smaller.")
        if not media_type(data):
            raise BadPicture("This is not a PNG, JPEG or WebP picture.", "Save it as one of these, and upload that.")
        check_pixels(data)
        picture = hashlib.sha256(data).hexdigest()[:32]
        try:
            with Folder.open(self._folder, create=True) as folder:
                folder.write(picture, data)
        except OSError as error:
            raise ReadOnly(
                f"{self._folder} cannot be written ({error.strerror}).", "Give yourself write access to that folder."
            ) from error
        return picture

    def read(self, picture: str) -> Portrait | None:
        """The picture; None if its file is missing."""
        if not _PICTURE_ID.fullmatch(picture):
            return None
        try:
            with Folder.open(self._folder) as folder:
                data = folder.read(picture)
        except (OSError, UnsafePath):
            return None
        return Portrait(data, media_type(data), 0)


_SELECT = (
    "SELECT p.id, p.name, p.pronouns, p.about, p.picture, p.deleted, d.persona IS NOT NULL FROM persona p"
    " LEFT JOIN default_persona d ON d.persona = p.id"
)


def _persona(row: tuple[Any, ...]) -> UserPersona:
    persona, name, pronouns, about, picture, deleted, is_default = row
    return UserPersona(persona, name, pronouns, about, picture, bool(deleted), bool(is_default))
