"""A regular of a room, as their file says it: a temper, interests, a way of talking. C5"""

from __future__ import annotations

import re
import textwrap
from functools import partial
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, field_validator

from coterie.base.config import Section
from coterie.characters.identity import Identity

Situation = Literal["hype", "fail", "question", "topic", "mention", "reply", "idle"]
Trait = Annotated[float, Field(ge=0, le=1)]
PersonaName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_]*$", max_length=25)]


class Traits(Section):
    talkativeness: Trait = 0.5
    meme_level: Trait = 0.5
    """How gladly one joins a pile-on."""
    helpfulness: Trait = 0.5
    contrarian: Trait = 0.2
    warmth: Trait = 0.5


class Persona(Section):
    name: PersonaName
    character: str = ""
    """Who of the cast this is, by id: the same memory here and there. Empty for one who comes from the crowd."""
    bio: str = Field(min_length=20, max_length=600)
    voice: str = Field(min_length=10, max_length=400)
    """How they write, in words for a model."""
    traits: Traits = Traits()
    interests: tuple[str, ...] = ()
    """Single words, matched against what the stream and the chat are about."""
    dislikes: tuple[str, ...] = ()
    emotes: tuple[str, ...] = ()
    badges: tuple[str, ...] = ()
    colour: Annotated[str, StringConstraints(pattern=r"^#[0-9a-f]{6}$")] = "#8a8a8a"
    sleep: Annotated[str, StringConstraints(pattern=r"^\d\d-\d\d$")] | None = None
    """Hours (UTC) in which they are not there: `01-09`."""
    lines: dict[Situation, tuple[str, ...]] = Field(default_factory=dict)
    """Things they have said: examples for a model, and what they say where there is none. `{topic}`, `{name}` and
    `{emote}` are filled in."""

    @field_validator("interests", "dislikes")
    @classmethod
    def _single_words(cls, words: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(word.casefold() for word in words)

    def complete_lines(self, *situations: Situation) -> list[str]:
        """Lines as they were said, with nothing left to fill in: in these situations, or in all."""
        return [line for each in situations or self.lines for line in self.lines.get(each, ()) if "{" not in line]

    def is_asleep(self, at_ms: int) -> bool:
        if self.sleep is None:
            return False
        start, end = (int(part) for part in self.sleep.split("-"))
        hour = at_ms // 3_600_000 % 24
        return start <= hour < end if start <= end else hour >= start or hour < end


# A persona as a character of the cast: the same person, who can be met elsewhere. C5
#
# Its id is the owner of what it remembers, so a story recalls what the room taught it, and the other way round.


_STRONG, _WEAK = 0.65, 0.3
_TRAIT_WORDS = {
    "talkativeness": ("talkative", "quiet"),
    "meme_level": ("goes along with every joke", "above the joke of the day"),
    "helpfulness": ("helpful", "lets others work it out"),
    "contrarian": ("contrary", "agreeable"),
    "warmth": ("warm", "dry"),
}
_SAMPLES = 6
_shortened = partial(textwrap.shorten, placeholder=" …")
_LONGEST_NAME, _LONGEST_BIO, _LONGEST_VOICE = 25, 500, 380


def memory_owner(persona: str) -> str:
    """Whose memories they are, if they come from the crowd."""
    return f"agent:{persona}"


def character_id(persona: Persona) -> str:
    """Whose memories they are."""
    return persona.character or memory_owner(persona.name)


def persona_from_character(character: Identity) -> Persona:
    """Somebody of the cast as a regular: their own words about them, and a temper to be written by hand."""
    name = re.sub(r"[^a-z0-9]+", "_", character.name.casefold()).strip("_")[:_LONGEST_NAME] or "somebody"
    bio = _shortened(character.persona, _LONGEST_BIO) or "Is there for the company."
    voice = _shortened(" / ".join(character.voice_samples), _LONGEST_VOICE) or "few words, and their own."
    return Persona(
        name=name, character=character.id, bio=f"{_shortened(character.name, 60)}. {bio}", voice=f"As in: {voice}"
    )


def character_from_persona(persona: Persona) -> Identity:
    traits = []
    for name, (much, little) in _TRAIT_WORDS.items():
        value = getattr(persona.traits, name)
        if value >= _STRONG or value <= _WEAK:
            traits.append(much if value >= _STRONG else little)
    likes = f" Cares about {', '.join(persona.interests)}." if persona.interests else ""
    return Identity(
        id=character_id(persona),
        name=persona.name,
        persona=f"{persona.bio} How they write: {persona.voice}{likes}",
        traits=traits,
        voice_samples=persona.complete_lines()[:_SAMPLES],
        initial_relationship="Knows you from the chat of a stream.",
    )
