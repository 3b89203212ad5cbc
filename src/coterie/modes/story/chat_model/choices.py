"""What was chosen for the model of a chat and of a character: a sampler preset, single values, an author's note.

What a chat sets goes before what its character sets, and that before the preset of the model.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from coterie.base.errors import ConfigError
from coterie.characters import OWNER, Card, Characters
from coterie.eventstore import Event, NewEvent, Payload, Projection, Rows, Store, on
from coterie.llm import Catalogue, Sampler, resolve_sampler

MAX_NOTE = 20_000
MAX_NOTE_DEPTH = 1_000


class AuthorNote(BaseModel):
    """A text that is put between the last messages of every prompt."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    text: Annotated[str, Field(max_length=MAX_NOTE)] = ""
    """Empty for no note."""
    depth: Annotated[int, Field(ge=0, le=MAX_NOTE_DEPTH)] = 4
    """How many messages stand after it."""
    role: Literal["system", "user", "assistant"] = "system"
    """As whose message it is sent."""


class ModelChoice(BaseModel):
    """What was chosen; what is not set is left to the next one in order."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    preset: Annotated[str, Field(max_length=100)] = ""
    """The name of a sampler preset; empty for none."""
    values: dict[str, JsonValue] = Field(default_factory=dict)
    """Single values, which go before those of the preset."""
    note: AuthorNote = AuthorNote()
    """The author's note."""

    @property
    def sampler(self) -> Sampler:
        """The single values. Those that are no longer known or in range are left out."""
        known = {name: value for name, value in self.values.items() if name in Sampler.model_fields}
        try:
            return Sampler.model_validate(known)
        except ValidationError:
            return Sampler()


class ChatModelSet(Payload, kind="story_chat_model_set"):
    """The model of a chat was set up: sampler preset, values and author's note."""

    choice: ModelChoice
    """Replaces the former choice."""


class CharacterModelSet(Payload, kind="story_character_model_set"):
    """The model of a character was set up, for all its chats."""

    character: str
    """The character's id."""
    choice: ModelChoice
    """Replaces the former choice."""


class ChatModelProjection(Projection):
    name = "story_chat_models"
    stream_column = "room"
    schema = "CREATE TABLE chat_model(room TEXT PRIMARY KEY, choice TEXT NOT NULL) WITHOUT ROWID;"

    @on(ChatModelSet)
    def chosen(self, rows: Rows, event: Event[ChatModelSet]) -> None:
        params = (event.stream, event.payload.choice.model_dump_json())
        rows.run("INSERT OR REPLACE INTO chat_model VALUES (?, ?)", params)


class CharacterModelProjection(Projection):
    name = "story_character_models"
    schema = "CREATE TABLE character_model(character TEXT PRIMARY KEY, choice TEXT NOT NULL) WITHOUT ROWID;"

    @on(CharacterModelSet)
    def chosen(self, rows: Rows, event: Event[CharacterModelSet]) -> None:
        params = (event.payload.character, event.payload.choice.model_dump_json())
        rows.run("INSERT OR REPLACE INTO character_model VALUES (?, ?)", params)


class ModelChoices:
    def __init__(self, store: Store, characters: Characters) -> None:
        self._store = store
        self._characters = characters

    def for_chat(self, room: str) -> ModelChoice:
        rows = self._store.query("SELECT choice FROM chat_model WHERE room = ?", (room,))
        return ModelChoice.model_validate_json(rows[0][0]) if rows else ModelChoice()

    def for_character(self, character: str) -> ModelChoice:
        """What was chosen for a character; at first, the note of its card."""
        rows = self._store.query("SELECT choice FROM character_model WHERE character = ?", (character,))
        if rows:
            return ModelChoice.model_validate_json(rows[0][0])
        return ModelChoice(note=card_note(self._characters.get(character).card))

    def sampler(self, catalogue: Catalogue, room: str, character: str) -> Sampler:
        """The values that the chat and the character set."""
        chat, own = self.for_chat(room), self.for_character(character)
        return resolve_sampler(catalogue.settings.samplers, own.preset, own.sampler, chat.preset, chat.sampler)

    def notes(self, room: str, character: str) -> list[tuple[str, AuthorNote]]:
        """The notes for the prompts of a character, with their names; empty ones are left out."""
        found = [
            ("character's note", self.for_character(character).note),
            ("author's note", self.for_chat(room).note),
        ]
        return [(name, note) for name, note in found if note.text.strip()]

    async def set_for_chat(self, room: str, choice: ModelChoice) -> None:
        if choice != self.for_chat(room):
            _check(choice)
            await self._store.append([NewEvent(room, ChatModelSet(choice=choice), OWNER)])

    async def set_for_character(self, character: str, choice: ModelChoice) -> None:
        self._characters.get(character)
        if choice != self.for_character(character):
            _check(choice)
            payload = CharacterModelSet(character=character, choice=choice)
            await self._store.append([NewEvent(f"cast:{character}", payload, OWNER)])


def _check(choice: ModelChoice) -> None:
    try:
        Sampler.model_validate(choice.values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ConfigError(f"values.{where}: {first['msg']}.", "Correct it; nothing was saved.") from None


def card_note(card: Card | None) -> AuthorNote:
    """The note at a depth that SillyTavern keeps in a card."""
    prompt = card.extensions.get("depth_prompt") if card is not None else None
    prompt = prompt if isinstance(prompt, dict) else {}
    text, depth, role = prompt.get("prompt"), prompt.get("depth"), prompt.get("role")
    try:
        return AuthorNote(
            text=text if isinstance(text, str) else "",
            depth=depth if isinstance(depth, int) else 4,
            role=role if role in ("system", "user", "assistant") else "system",
        )
    except ValidationError:
        return AuthorNote()
