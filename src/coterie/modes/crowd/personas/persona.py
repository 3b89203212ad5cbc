"""A regular of a room, as their file says it: a temper, interests, a way of talking. C5"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints, field_validator

from coterie.base.config import Section

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
