"""Reading what a person wrote: speech, action, and notes to the player that no character may see. S11

`*walks over* "Hey." ((player note))` is three segments. Marked-up text is read here, without a model; only where
marks are absent or ambiguous may a classifier be asked, and what it says must fit the text it was given.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, Field

from coterie.conversation.events import Segment
from coterie.conversation.turns import Turn
from coterie.llm.messages import Prompt
from coterie.llm.router import Caller, Models
from coterie.llm.structured import classify

OOC_MARKER = "(("
_CLOSERS = {"((": "))", "//": "\n", "[[": "]]", "{{": "}}", "<<": ">>", "(": ")", "[": "]"}
_QUOTES = {'"': '"', "“": "”", "«": "»", "„": "“", "‹": "›"}

SegmentKind = Literal["dialogue", "action", "ooc"]


def parse_segments(text: str, ooc_marker: str = OOC_MARKER) -> list[Segment]:
    """The segments of a text, in order. Everything that was written is in exactly one of them, marks aside."""
    found: list[Segment] = []
    plain = ""
    at = 0
    while at < len(text):
        marked = _marked(text, at, ooc_marker)
        if marked is None:
            plain += text[at]
            at += 1
            continue
        _add(found, "dialogue", plain, bare=True)
        plain = ""
        kind, inside, at = marked
        _add(found, kind, inside)
    _add(found, "dialogue", plain, bare=True)
    return _with_narration(found)


def unmarked_segment(segments: Sequence[Segment], words: int) -> Segment | None:
    """The stretch of which only a reader could tell what is speech and what action: no marks, and not short."""
    shown = [segment for segment in segments if segment.kind != "ooc"]
    if not words or len(shown) != 1 or shown[0].kind != "dialogue" or shown[0].text[0] in _QUOTES:
        return None
    return shown[0] if len(shown[0].text.split()) >= words else None


def visible_text(segments: Sequence[Segment]) -> str:
    """What a character may see of it: everything but notes to the player."""
    parts = []
    for segment in segments:
        if segment.kind == "action":
            parts.append(f"*{segment.text}*")
        elif segment.kind == "dialogue":
            parts.append(segment.text)
    return " ".join(parts).strip()


def turn_text(turn: Turn) -> str:
    """A turn as characters may hear it."""
    return visible_text(turn.segments) if turn.by_person else turn.text.strip()


def _marked(text: str, at: int, ooc_marker: str) -> tuple[SegmentKind, str, int] | None:
    """The marked stretch that begins here, if one does: its kind, what it holds, and where it ends."""
    if ooc_marker and text.startswith(ooc_marker, at):
        closer = _CLOSERS.get(ooc_marker, ooc_marker[::-1])
        end = text.find(closer, at + len(ooc_marker))
        # A note that is never closed is still a note: better lost to the character than told to it.
        stop = len(text) if end < 0 else end
        return "ooc", text[at + len(ooc_marker) : stop], min(len(text), stop + len(closer))
    if text[at] == "*":
        run = re.match(r"\*{1,3}", text[at:])
        marks = run[0] if run else "*"
        end = text.find(marks, at + len(marks))
        if end > at + len(marks) and not text[at + len(marks)].isspace():
            return "action", text[at + len(marks) : end], end + len(marks)
    if text[at] in _QUOTES:
        end = text.find(_QUOTES[text[at]], at + 1)
        if end > at:
            return "dialogue", text[at : end + 1], end + 1
    return None


def _add(found: list[Segment], kind: SegmentKind, text: str, *, bare: bool = False) -> None:
    text = text.strip()
    if not text:
        return
    if bare and found and found[-1].kind == "dialogue" and not text.strip(".,;:!?…-–— "):
        found[-1] = Segment(kind="dialogue", text=found[-1].text + text)  # the full stop after a quotation
        return
    found.append(Segment(kind=kind, text=text))


def _with_narration(found: list[Segment]) -> list[Segment]:
    """Where speech is quoted, what stands outside the quotation marks is narration."""
    quoted = any(segment.kind == "dialogue" and segment.text[0] in _QUOTES for segment in found)
    if not quoted:
        return found
    return [
        Segment(kind="action", text=segment.text)
        if segment.kind == "dialogue" and segment.text[0] not in _QUOTES
        else segment
        for segment in found
    ]


# Asking a model what is speech and what action, where a person used no marks. S11
#
# Only for messages long enough to be worth it, only with what characters may see of them, and only believed if the
# parts it gives are the text it was given.


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
