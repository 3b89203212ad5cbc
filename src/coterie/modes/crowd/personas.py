"""Personas: traits, interests and lines from a file, and the conversion from and to characters."""

from __future__ import annotations

import re
import textwrap
from functools import partial
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, field_validator

from coterie.base.config import Section
from coterie.characters import Identity

Situation = Literal["hype", "fail", "question", "topic", "mention", "reply", "greeting", "tease", "idle"]
Trait = Annotated[float, Field(ge=0, le=1)]
PersonaName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_]*$", max_length=25)]


class Traits(Section):
    talkativeness: Trait = 0.5
    meme_level: Trait = 0.5
    """Tendency to join in with what many others say."""
    helpfulness: Trait = 0.5
    contrarian: Trait = 0.2
    warmth: Trait = 0.5


class Persona(Section):
    name: PersonaName
    character: str = ""
    """The id of the character it belongs to, with whom it shares memory; empty for a persona of the crowd only."""
    bio: str = Field(min_length=20, max_length=600)
    voice: str = Field(min_length=10, max_length=400)
    """Writing style, as an instruction for the model."""
    traits: Traits = Traits()
    interests: tuple[str, ...] = ()
    """Single words, matched against the keywords of the stream and the chat."""
    dislikes: tuple[str, ...] = ()
    emotes: tuple[str, ...] = ()
    badges: tuple[str, ...] = ()
    colour: Annotated[str, StringConstraints(pattern=r"^#[0-9a-f]{6}$")] = "#8a8a8a"
    sleep: Annotated[str, StringConstraints(pattern=r"^\d\d-\d\d$")] | None = None
    """Hours (UTC) of absence, such as `01-09`."""
    tendencies: tuple[str, ...] = ()
    """How it changed since it was written, for its prompt; set by drift."""
    lines: dict[Situation, tuple[str, ...]] = Field(default_factory=dict)
    """Example lines for the model, also used without one. `{topic}`, `{name}` and `{emote}` are filled in."""

    @field_validator("interests", "dislikes")
    @classmethod
    def _single_words(cls, words: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(word.casefold() for word in words)

    def complete_lines(self, *situations: Situation) -> list[str]:
        """Return the lines without placeholders for these situations, or for all."""
        return [line for each in situations or self.lines for line in self.lines.get(each, ()) if "{" not in line]

    def is_asleep(self, at_ms: int) -> bool:
        if self.sleep is None:
            return False
        start, end = (int(part) for part in self.sleep.split("-"))
        hour = at_ms // 3_600_000 % 24
        return start <= hour < end if start <= end else hour >= start or hour < end


_HIGH, _LOW = 0.65, 0.3
_TRAIT_WORDS = {
    "talkativeness": ("talkative", "quiet"),
    "meme_level": ("goes along with every joke", "above the joke of the day"),
    "helpfulness": ("helpful", "lets others work it out"),
    "contrarian": ("contrary", "agreeable"),
    "warmth": ("warm", "dry"),
}
_SAMPLES = 6
_shorten = partial(textwrap.shorten, placeholder=" …")
_MAX_NAME, _MAX_BIO, _MAX_VOICE = 25, 500, 380
_MIN_BIO, _MIN_VOICE = 20, 10


def memory_owner(persona: str) -> str:
    """Return the memory owner of a persona without a character."""
    return f"agent:{persona}"


def character_id(persona: Persona) -> str:
    """Return the id under which a persona's memories are stored: its character's, or its own."""
    return persona.character or memory_owner(persona.name)


def persona_from_character(character: Identity) -> Persona:
    """Create a persona from a character, with default traits to be edited by hand."""
    name = re.sub(r"[^a-z0-9]+", "_", character.name.casefold()).strip("_")[:_MAX_NAME] or "somebody"
    bio = f"{_shorten(character.name, 60)}. {_shorten(character.persona, _MAX_BIO)}".strip()
    voice = f"As in: {_shorten(' / '.join(character.voice_samples), _MAX_VOICE)}".strip()
    return Persona(
        name=name,
        character=character.id,
        bio=bio if len(bio) >= _MIN_BIO else f"{bio} Is there for the company.",
        voice=voice if len(voice) >= _MIN_VOICE else f"{voice} few words, and their own.",
    )


def character_from_persona(persona: Persona) -> Identity:
    """Create a character from a persona; both share memory."""
    traits = []
    for name, (high, low) in _TRAIT_WORDS.items():
        value = getattr(persona.traits, name)
        if value >= _HIGH or value <= _LOW:
            traits.append(high if value >= _HIGH else low)
    likes = f" Cares about {', '.join(persona.interests)}." if persona.interests else ""
    return Identity(
        id=character_id(persona),
        name=persona.name,
        persona=f"{persona.bio} How they write: {persona.voice}{likes}",
        traits=traits,
        voice_samples=persona.complete_lines()[:_SAMPLES],
        initial_relationship="Knows you from the chat of a stream.",
    )
