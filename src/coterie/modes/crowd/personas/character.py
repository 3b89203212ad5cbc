"""A persona as a character of the cast: the same person, who can be met elsewhere. C5

Its id is the owner of what it remembers, so a story recalls what the room taught it, and the other way round.
"""

from __future__ import annotations

import re
import textwrap
from functools import partial

from coterie.cast.identity import Identity
from coterie.modes.crowd.personas.persona import Persona

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
