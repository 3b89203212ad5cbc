"""A stream as a script: what is said and what happens, second by second. For demos, simulations and tests. C9

[[line]]
at = 12
say = "okay chat, left door or right door?"
event = "chat_question"
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field, ValidationError

from coterie.base.config import Section
from coterie.modes.crowd.errors import BadCrowdConfig
from coterie.modes.crowd.mind.words import chat_keywords
from coterie.modes.crowd.protocol import StreamContext, StreamEvent
from coterie.modes.crowd.protocol.stream_context import MAX_CONTEXT_BYTES, TimeWindow

_WINDOW_S = 90
_MAX_KEYWORDS = 8
_MAX_TRANSCRIPT_CHARS = 1_500


class ScriptLine(Section):
    at: float = Field(ge=0)
    """Seconds since the beginning."""
    say: str = ""
    event: str | None = None
    confidence: float = Field(default=0.9, ge=0, le=1)


class Script(Section):
    title: str = ""
    line: tuple[ScriptLine, ...] = ()

    @classmethod
    def read(cls, file: Path) -> Script:
        try:
            return cls.model_validate(tomllib.loads(file.read_text(encoding="utf-8")))
        except (OSError, tomllib.TOMLDecodeError, ValidationError) as error:
            raise BadCrowdConfig(
                f"{file} is no script of a stream: {error}.", "See docs/crowd.md for an example."
            ) from None

    @property
    def seconds(self) -> float:
        return self.line[-1].at if self.line else 0.0


@dataclass
class RollingContext:
    """The last ninety seconds of a stream, as a context."""

    room: str
    number: int = 0

    def __post_init__(self) -> None:
        self._said: list[tuple[int, str]] = []
        self._moments: list[StreamEvent] = []

    def add(self, text: str, at_ms: int, event: str | None = None, confidence: float = 0.9) -> StreamContext:
        self.number += 1
        since = at_ms - _WINDOW_S * 1_000
        self._said = [(when, what) for when, what in self._said if when > since]
        if text:
            self._said.append((at_ms, text))
        self._moments = [moment for moment in self._moments if moment.at > at_ms - 20_000]
        if event is not None:
            self._moments.append(StreamEvent(kind=event, confidence=confidence, at=at_ms, about=text[:200]))
        words: dict[str, int] = {}
        for age, (_, what) in enumerate(reversed(self._said)):
            for word in chat_keywords(what):
                words[word] = words.get(word, 0) + (4 if age == 0 else 2 if age < 3 else 1)
        top = sorted(words, key=lambda word: (-words[word], word))[:_MAX_KEYWORDS]
        spoken = " ".join(what for _, what in self._said)
        context = StreamContext(
            room=self.room,
            number=self.number,
            window=TimeWindow(start=max(since, 0), end=at_ms),
            transcript=spoken[-_MAX_TRANSCRIPT_CHARS:],
            summary=text[:300],
            keywords=tuple(top),
            events=tuple(self._moments[-8:]),
            speakers=("streamer",),
        )
        while len(context.to_json().encode()) > MAX_CONTEXT_BYTES and context.transcript:
            context = context.model_copy(update={"transcript": context.transcript[len(context.transcript) // 2 + 1 :]})
        return context


def script_contexts(
    script: Script, room: str, start_ms: int, *, minutes: float | None = None
) -> Iterator[tuple[int, StreamContext]]:
    """When, and what. With `minutes` the script goes round until they are over."""
    rolling = RollingContext(room)
    length = script.seconds + 5
    until = minutes * 60 if minutes is not None else length
    turn = 0.0
    while script.line and turn < until:
        for line in script.line:
            if turn + line.at < until:
                at = start_ms + round((turn + line.at) * 1_000)
                yield at, rolling.add(line.say, at, line.event, line.confidence)
        turn += length
