"""Asking a model what is speech and what action, where a person used no marks. S11

Only for messages long enough to be worth it, only with what characters may see of them, and only believed if the
parts it gives are the text it was given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, Field

from coterie.engine.events import Segment
from coterie.llm.messages import Prompt
from coterie.llm.router import Caller, Models
from coterie.llm.structured import classify
from coterie.modes.story.segments import unmarked_segment


class Stretch(BaseModel):
    kind: Literal["dialogue", "action"] = "dialogue"
    text: str = ""


class Stretches(BaseModel):
    stretches: list[Stretch] = Field(default_factory=list)


async def classify_unmarked(
    models: Models, segments: Sequence[Segment], *, words: int, caller: Caller
) -> tuple[Segment, ...] | None:
    """The segments as a reader sees them; None where there was nothing to ask, or its answer cannot be used."""
    unclear = unmarked_segment(segments, words)
    if unclear is None:
        return None
    prompt = Prompt.of(
        unclear.text,
        system="Split this text from a roleplay, in order and word for word, into stretches of dialogue (what is said "
        "aloud) and action (what is done or told). Change nothing and leave nothing out.",
    )
    found = await classify(models, Stretches, prompt, caller=caller)
    read = [one for one in found.value.stretches if one.text.strip()]
    if not found.ok or _letters("".join(one.text for one in read)) != _letters(unclear.text):
        return None
    at = list(segments).index(unclear)
    clear = [Segment(kind=one.kind, text=one.text.strip()) for one in read]
    return (*segments[:at], *clear, *segments[at + 1 :])


def _letters(text: str) -> str:
    return "".join(text.split())
