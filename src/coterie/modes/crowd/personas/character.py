"""A persona as a character of the cast: the same person, who can be met elsewhere. C5

Its id is the owner of what it remembers, so a story recalls what the room taught it, and the other way round.
"""

from __future__ import annotations

from coterie.cast.identity import Identity
from coterie.modes.crowd.personas.persona import Persona

_STRONG, _WEAK = 0.65, 0.3
_WORDS = {
    "talkativeness": ("talkative", "quiet"),
    "meme_level": ("goes along with every joke", "above the joke of the day"),
    "helpfulness": ("helpful", "lets others work it out"),
    "contrarian": ("contrary", "agreeable"),
    "warmth": ("warm", "dry"),
}
_SAMPLES = 6


def owner_of(persona: str) -> str:
    """Whose memories they are."""
    return f"agent:{persona}"


def character_of(persona: Persona) -> Identity:
    traits = []
    for name, (much, little) in _WORDS.items():
        value = getattr(persona.traits, name)
        if value >= _STRONG or value <= _WEAK:
            traits.append(much if value >= _STRONG else little)
    said = [line for lines in persona.lines.values() for line in lines if "{" not in line]
    likes = f" Cares about {', '.join(persona.interests)}." if persona.interests else ""
    return Identity(
        id=owner_of(persona.name),
        name=persona.name,
        persona=f"{persona.bio} How they write: {persona.voice}{likes}",
        traits=traits,
        voice_samples=said[:_SAMPLES],
        initial_relationship="Knows you from the chat of a stream.",
    )
