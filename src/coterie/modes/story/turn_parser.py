"""Parses a message into speech, action and out-of-character notes, which no character may see.

`*walks over* "Hey." ((note))` is three segments. Text with marks is parsed without a model; a classifier is used only
for long messages without them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, Field

from coterie.conversation import Segment, Turn
from coterie.llm import Caller, Models, Prompt, classify

OOC_MARKER = "(("
_CLOSERS = {"((": "))", "//": "\n", "[[": "]]", "{{": "}}", "<<": ">>", "(": ")", "[": "]"}
_QUOTES = {'"': '"', "“": "”", "«": "»", "„": "“", "‹": "›"}

SegmentKind = Literal["dialogue", "action", "ooc"]


def parse_segments(text: str, ooc_marker: str = OOC_MARKER) -> list[Segment]:
    """The segments of a text, in order. Every character except marks is in exactly one of them."""
    found: list[Segment] = []
    unmarked = ""
    at = 0
    while at < len(text):
        marked = _marked(text, at, ooc_marker)
        if marked is None:
            unmarked += text[at]
            at += 1
            continue
        _add_unmarked(found, unmarked)
        unmarked = ""
        kind, inside, at = marked
        if inside.strip():
            found.append(Segment(kind=kind, text=inside.strip()))
    _add_unmarked(found, unmarked)
    return _with_narration(found)


def unmarked_segment(segments: Sequence[Segment], words: int) -> Segment | None:
    """The segment that a classifier has to split: the only visible one, without marks, of at least `words` words."""
    shown = [segment for segment in segments if segment.kind != "ooc"]
    if not words or len(shown) != 1 or shown[0].kind != "dialogue" or shown[0].text[0] in _QUOTES:
        return None
    return shown[0] if len(shown[0].text.split()) >= words else None


def visible_text(segments: Sequence[Segment]) -> str:
    """What characters may see: everything except out-of-character notes."""
    parts = []
    for segment in segments:
        if segment.kind == "action":
            parts.append(f"*{segment.text}*")
        elif segment.kind == "dialogue":
            parts.append(segment.text)
    return " ".join(parts).strip()


def turn_text(turn: Turn) -> str:
    """What characters may see of a turn."""
    return visible_text(turn.segments) if turn.by_person else turn.text.strip()


def _marked(text: str, at: int, ooc_marker: str) -> tuple[SegmentKind, str, int] | None:
    """The marked text that begins at a position: its kind, its content, and the position after it."""
    if ooc_marker and text.startswith(ooc_marker, at):
        closer = _CLOSERS.get(ooc_marker, ooc_marker[::-1])
        end = text.find(closer, at + len(ooc_marker))
        # An unclosed note extends to the end: no part of it may reach a character.
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


def _add_unmarked(found: list[Segment], text: str) -> None:
    text = text.strip()
    if text and found and found[-1].kind == "dialogue" and not text.strip(".,;:!?…-–— "):
        found[-1] = Segment(kind="dialogue", text=found[-1].text + text)  # punctuation after a quotation
    elif text:
        found.append(Segment(kind="dialogue", text=text))


def _with_narration(found: list[Segment]) -> list[Segment]:
    """If speech is quoted, what is outside the quotation marks becomes action."""
    quoted = any(segment.kind == "dialogue" and segment.text[0] in _QUOTES for segment in found)
    if not quoted:
        return found
    return [
        Segment(kind="action", text=segment.text)
        if segment.kind == "dialogue" and segment.text[0] not in _QUOTES
        else segment
        for segment in found
    ]


class ClassifiedSegment(BaseModel):
    kind: Literal["dialogue", "action"] = "dialogue"
    text: str = ""


class ClassifiedSegments(BaseModel):
    segments: list[ClassifiedSegment] = Field(default_factory=list)


async def classify_unmarked(
    models: Models, segments: Sequence[Segment], *, words: int, caller: Caller
) -> tuple[Segment, ...] | None:
    """Split the unmarked segment by a classifier. None if there is none, or if the result is not the given text."""
    unclear = unmarked_segment(segments, words)
    if unclear is None:
        return None
    prompt = Prompt.of(
        unclear.text,
        system="Split this text from a roleplay, in order and word for word, into segments of dialogue (what is said "
        "aloud) and action (what is done or narrated). Change nothing and leave nothing out.",
    )
    found = await classify(models, ClassifiedSegments, prompt, caller=caller)
    split = [Segment(kind=one.kind, text=one.text.strip()) for one in found.value.segments if one.text.strip()]
    if not found.ok or _without_spaces("".join(one.text for one in split)) != _without_spaces(unclear.text):
        return None
    at = list(segments).index(unclear)
    return (*segments[:at], *split, *segments[at + 1 :])


def _without_spaces(text: str) -> str:
    return "".join(text.split())
