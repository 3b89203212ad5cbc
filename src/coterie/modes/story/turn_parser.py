"""Parses a message into speech, action and out-of-character notes, which no character may see.

`*walks over* "Hey." ((note))` is three segments. Text with marks is parsed without a model; a classifier is used only
for long messages without them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, Field

from coterie.base.untrusted import join_lines
from coterie.conversation import Segment, Turn, TurnPicture
from coterie.llm import Caller, Models, Prompt, classify

OOC_MARKER = "(("
_CLOSERS = {"((": "))", "//": "\n", "[[": "]]", "{{": "}}", "<<": ">>", "(": ")", "[": "]"}
_STARS = re.compile(r"\*{1,3}")
_QUOTES = {'"': '"', "“": "”", "«": "»", "„": "“", "‹": "›"}

_MAX_SEGMENTS = 5_000
"""After so many, only notes are still separated: they must not reach a character."""

SegmentKind = Literal["dialogue", "action", "ooc"]


def parse_segments(text: str, ooc_marker: str = OOC_MARKER) -> list[Segment]:
    """The segments of a text, in order. Every character except marks is in exactly one of them."""
    segments: list[Segment] = []
    marks = _MarkParser(text, ooc_marker)
    start = position = 0
    while (position := marks.next_position(position)) < len(text):
        marked = marks.parse(position)
        if marked is None or (len(segments) >= _MAX_SEGMENTS and marked[0] != "ooc"):
            position += 1
            continue
        _add_unmarked(segments, text[start:position])
        kind, content, position = marked
        start = position
        if content.strip():
            segments.append(Segment(kind=kind, text=content.strip()))
    _add_unmarked(segments, text[start:])
    return _with_narration(segments)


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
    """What characters may see of a turn; pictures in words."""
    text = visible_text(turn.segments) if turn.by_person else turn.text.strip()
    return " ".join([text, *(_picture_text(picture) for picture in turn.pictures)]).strip()


def _picture_text(picture: TurnPicture) -> str:
    about = join_lines(picture.description).replace("*", "")
    return f"*shows a picture: {about}*" if about else "*shows a picture*"


class _MarkParser:
    """Parses marked text at given positions, in ascending order.

    An end mark that was not found once is not searched again, so that a text of unclosed marks takes linear time.
    """

    def __init__(self, text: str, ooc_marker: str) -> None:
        self._text = text
        self._ooc_marker = ooc_marker
        self._begins = re.compile("|".join([*([re.escape(ooc_marker)] if ooc_marker else []), r"\*", *_QUOTES]))
        self._absent: set[str] = set()

    def next_position(self, position: int) -> int:
        """Where the next mark may begin; the end of the text if there is none."""
        match = self._begins.search(self._text, position)
        return match.start() if match else len(self._text)

    def parse(self, position: int) -> tuple[SegmentKind, str, int] | None:
        """The marked text that begins at a position: its kind, its content, and the position after it."""
        text = self._text
        if self._ooc_marker and text.startswith(self._ooc_marker, position):
            closer = _CLOSERS.get(self._ooc_marker, self._ooc_marker[::-1])
            end = text.find(closer, position + len(self._ooc_marker))
            # An unclosed note extends to the end: no part of it may reach a character.
            stop = len(text) if end < 0 else end
            return "ooc", text[position + len(self._ooc_marker) : stop], min(len(text), stop + len(closer))
        if run := _STARS.match(text, position):
            end = self._find(run[0], run.end())
            if end > run.end() and not text[run.end()].isspace():
                return "action", text[run.end() : end], end + len(run[0])
        elif text[position] in _QUOTES:
            end = self._find(_QUOTES[text[position]], position + 1)
            if end > position:
                return "dialogue", text[position : end + 1], end + 1
        return None

    def _find(self, mark: str, start: int) -> int:
        if mark in self._absent:
            return -1
        found = self._text.find(mark, start)
        if found < 0:
            self._absent.add(mark)
        return found


def _add_unmarked(segments: list[Segment], text: str) -> None:
    text = text.strip()
    if text and segments and segments[-1].kind == "dialogue" and not text.strip(".,;:!?…-–— "):
        segments[-1] = Segment(kind="dialogue", text=segments[-1].text + text)  # punctuation after a quotation
    elif text:
        segments.append(Segment(kind="dialogue", text=text))


def _with_narration(segments: list[Segment]) -> list[Segment]:
    """If speech is quoted, what is outside the quotation marks becomes action."""
    quoted = any(segment.kind == "dialogue" and segment.text[0] in _QUOTES for segment in segments)
    if not quoted:
        return segments
    return [
        Segment(kind="action", text=segment.text)
        if segment.kind == "dialogue" and segment.text[0] not in _QUOTES
        else segment
        for segment in segments
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
    unmarked = unmarked_segment(segments, words)
    if unmarked is None or not models.catalogue.supports_analysis():
        return None
    prompt = Prompt.of(
        unmarked.text,
        system="Split this text from a roleplay, in order and word for word, into segments of dialogue (what is said "
        "aloud) and action (what is done or narrated). Change nothing and leave nothing out.",
    )
    result = await classify(models, ClassifiedSegments, prompt, caller=caller)
    split = [Segment(kind=part.kind, text=part.text.strip()) for part in result.value.segments if part.text.strip()]
    if not result.ok or _without_spaces("".join(part.text for part in split)) != _without_spaces(unmarked.text):
        return None
    index = list(segments).index(unmarked)
    return (*segments[:index], *split, *segments[index + 1 :])


def _without_spaces(text: str) -> str:
    return "".join(text.split())
