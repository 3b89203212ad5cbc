"""Stream contexts from sentences: questions to the chat, other events, and the rolling window of the last 90 seconds.

Sentences may come from a recogniser that loses punctuation, so word order counts as much as question marks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field, field_validator

from coterie.base.config import Section, load_config
from coterie.base.errors import ConfigError
from coterie.base.values import MAX_DURATION_S
from coterie.modes.crowd.chat_signals import chat_keywords
from coterie.modes.crowd.errors import BadCrowdConfig
from coterie.modes.crowd.protocol import EVENT_KINDS, MAX_CONTEXT_BYTES, StreamContext, StreamEvent, TimeWindow

_WINDOW_S = 90
_MAX_KEYWORDS = 8
_MAX_TRANSCRIPT_CHARS = 1_500

_LEAD = (
    r"^(?:(?:ok(?:ay)?|so|and|but|now|well|al(?:l )?right|right|oh|um|uh|hey|hm+|wait|yes|no|yeah|remind me|tell me"
    r"|quick question|quick vote)[,.]? )*"
)
CHAT = r"(?:chat|guys|folks|everyone|everybody|friends|you all|y'all)"
_AUXILIARY = r"(?:should|shall|do|does|did|would|could|can|will|is|are|am|was|were|have|has|don't|didn't|isn't|aren't)"
_SUBJECT = r"(?:i|we|you|he|she|it|they|this|that|these|those|there|any(?:one|body)|some(?:one|body)|any of)\b"
_WH = r"(?:what|which|who|whose|where|when|how)"
INVERTED = rf"(?:{_AUXILIARY} {_SUBJECT}|{_WH}(?: \w+){{0,3}}? {_AUXILIARY} {_SUBJECT}|(?:what|who|where|how)'s)"
"""An auxiliary before its subject: the word order of a question."""
_CHOICE = r"(?:the )?\w+ or (?:the )?\w+"
_NOUN = r"(?:the|my|our|his|her|people|one of|some of)\b(?! (?:best|worst|reason|only|first|whole|same)\b)"
_ORDER = (
    rf"(?:{INVERTED}|{_AUXILIARY} {_NOUN}|(?:does|is|are|did|was|were|has|can|will) your\b|who (?:among|of) you\b"
    rf"|(?:{_WH}|why)(?: (?!(?:i|we|you|he|she|it|they|the)\b)\w+){{0,2}} {_AUXILIARY}\b)"
)
"""The same with any subject. It may also begin an incomplete sentence, so it needs further evidence."""
_NOT_MENTIONED = "".join(rf"(?<!\b{word} )" for word in ("the", "my", "this", "of", "to", "for", "with", "and", "in"))

_ADDRESSES_CHAT = re.compile(
    rf"^(?:\w+,? ){{0,2}}{CHAT},|,\s*{CHAT}\b[\s,.!?]*(?:\w+[.!?]?)?$|, {CHAT},|\bin chat\b"
    rf"|{_LEAD}{CHAT},? (?:{_ORDER}|{_CHOICE}[.?!]*$)|{_LEAD}{_CHOICE},? {CHAT}\b|, {CHAT} (?:{_ORDER}|{_WH}\b)"
    rf"|{_LEAD}{_ORDER}.* {_NOT_MENTIONED}chat[.?!]*$"
)
"""The chat is addressed, not mentioned."""
_FOR_VIEWERS = re.compile(
    r"\b(?:you|your|you're|y'all|anyone|anybody|any of|somebody|who (?:here|else|wants|thinks)|any \w+s)\b"
    r"|\b(?:should|shall|do|are|can|could) (?:i|we)\b|\bhave we\b|\bam i\b|\bis it just me\b|\b(?:did|have) i already\b"
    r"|\bwho should\b|\bwould be a good\b"
    rf"|{_LEAD}(?:(?:is|do|does) my|(?:should|shall) (?:the|my|it|he|she|they))\b"
)
"""A viewer could answer the question."""
_STARTS_LIKE_QUESTION = re.compile(
    rf"(?:{_LEAD}|\b{CHAT},? )(?:(?:should|shall|does|did|what|what's|which|who|who's|where|when|why|how|would|could"
    rf"|can|is|are|am|was|were|any)\b|{_ORDER})"
)
_QUESTION_ORDER = re.compile(rf"{_LEAD}(?:{CHAT},? )?{_ORDER}")
_ASKS_VIEWERS = re.compile(
    rf"{_LEAD}(?:{CHAT},? )?(?:"
    r"(?:do|did|have|would|could|can|are|will|don't|didn't) (?:you|any(?:one|body)|some(?:one|body)|any of)\b"
    r"|(?:does|is|has|was) any(?:one|body)\b|is it just me\b"
    r"|(?:should|shall|do|can|could|are) (?:i|we)\b(?! look like)|did i already|have i already"
    rf"|{_WH}(?: \w+){{0,3}}? (?:do|did|would|should|shall|are|have|can|could|will) (?:you|we)\b"
    rf"|{_WH}(?: \w+){{0,3}}? should i\b|(?:what|who)(?:'s| is| are| was) your\b|how many of you\b|which of\b.*\byou\b"
    r"|who (?:here|else|wants|thinks|remembers|knows|has|votes)\b|what time is it\b.*\byou\b"
    r"|any(?:one|body)(?! (?:can|could|who|with|that|will|would|should|may|might|is|was|else (?:would|could|can)))\b"
    r"|any (?:\w+ )?(?:ideas?|thoughts?|suggestions?|questions?|recommendations?|tips?|advice|guesses|takers|of you)\b"
    r"|any \w+ (?:for|on|about|before)\b|(?:does|did|has|can|could|would|is) (?:\w+ )?any(?:one|body)\b|are there any\b"
    r")"
)
"""Questions to viewers, also without commas and question marks."""
_TAIL = re.compile(
    r"[,.;] (?:(?:so )?what do you (?:all |guys )?(?:say|think|reckon)|do(?:n't)? you (?:think|agree)|wouldn't you"
    r"|yes or no|any (?:ideas?|thoughts|suggestions|takers)|(?:do|does|did|has) any(?:one|body)\b.*)[.?!]*$"
    r"|\bdoes any(?:one|body) (?:know|remember)[.?!]*$"
)
_REQUEST = re.compile(
    r"\b(?:let me know|tell me (?:in chat|what|which|where|if|whether|how|your)|(?:type|say|write|press) [\w ]+? if you"
    r"|vote (?:now|in|for)|(?:give|send) me (?:a|some|your)\b.*\bchat|help me out)\b"
    r"|\b(?:write|type|put|post|drop|leave) .*\bin (?:the )?chat\b"
    rf"|{_LEAD}(?:guess|give me|send me|pick|choose)\b.*,? {CHAT}[.?!]*$"
)
_RHETORICAL = re.compile(
    rf"{_LEAD}(?:why\b|how (?:did i|is that|hard|lovely)|what (?:was|is) that|what do we have here"
    r"|who (?:put|needs|would)|what (?:a|an|if)\b|really\b|are you (?:kidding|serious|joking|sure, )|do i look like"
    r"|do you mind|can i just|(?:do )?you know what\b|(?:would|can|could) you (?:look at|believe)|come on\b"
    r")|\boh come on\b|(?:^|, )(?:who|what) are you(?: (?:doing(?: here| there)?|two|looking at))?[.?!]*$"
)
_QUOTED = re.compile(
    r"[,?] (?:says?|said|asks?|asked|reads) |\b(?:hello|hey|hi)(?: there)?,? (?:little|old|mister|you)\b"
)
_REPORTED = re.compile(r"\b(?:(?<=\w )says?|said|asks?|asked|reads|wants to know|the riddle is|the sign|wonders?),? ")


def is_question(text: str) -> bool:
    """Whether it is a question, to anybody."""
    return "?" in text or _STARTS_LIKE_QUESTION.search(_normalise(text)) is not None


def asks_chat(text: str) -> bool:
    """Whether it asks the chat something that viewers could answer."""
    text = _normalise(text)
    if _RHETORICAL.search(text):
        return False
    addressed = _ADDRESSES_CHAT.search(text) is not None
    asks_viewers = _ASKS_VIEWERS.search(text) is not None
    quoted = _QUOTED.search(text) or (_REPORTED.search(text) and not asks_viewers)
    if quoted and not addressed:
        return False
    if _REQUEST.search(text):
        return True
    if addressed:
        return is_question(text) or re.search(_CHOICE, text) is not None
    if asks_viewers or _TAIL.search(text):
        return True
    return ("?" in text or _QUESTION_ORDER.search(text) is not None) and _FOR_VIEWERS.search(text) is not None


def _normalise(text: str) -> str:
    return " ".join(text.casefold().replace("’", "'").replace('"', " ").split())


_HYPE = re.compile(
    r"(?i)\b(?:yes+|let'?s go+|we did it|first try|i did it|got (?:it|him|her|them)|no way|oh my god|finally|woo+|huge"
    r"|unbelievable|insane|victory)\b|(?:!{2,})"
)
_FAIL = re.compile(
    r"(?i)\b(?:oh no|no no|nooo*|i (?:died|fell|missed|lost|messed|dropped)|i'?m dead|we lost|game over|ouch|oops"
    r"|whoops|wrong (?:one|button|lever|door)|everything is on fire)\b"
)
_CLUTCH = re.compile(
    r"(?i)\b(?:one (?:hit|second|life|hp) left|barely|just in time|by a (?:hair|pixel)|cannot believe i made)\b"
)


def detect_event(text: str) -> tuple[str, float] | None:
    """Return the kind of event and a confidence; None for an ordinary sentence."""
    if _FAIL.search(text):
        return "fail", 0.75
    if _CLUTCH.search(text) and _HYPE.search(text):
        return "clutch", 0.7
    if asks_chat(text):
        return "chat_question", 0.9 if "?" in text else 0.7
    if _HYPE.search(text) and not is_question(text):
        return "hype", 0.8 if "!" in text or text.isupper() else 0.65
    return None


_SCRIPT_FIX = "See docs/crowd.md for an example."
_EVENT_NAME = re.compile(r"[a-z][a-z_]{0,39}")


class ScriptLine(Section):
    at: float = Field(ge=0, le=MAX_DURATION_S, allow_inf_nan=False)
    """Seconds since the start."""
    say: str = Field(default="", max_length=2_000)
    event: str | None = None
    confidence: float = Field(default=0.9, ge=0, le=1, allow_inf_nan=False)

    @field_validator("event")
    @classmethod
    def _event_kind(cls, event: str | None) -> str | None:
        if event is not None and not _EVENT_NAME.fullmatch(event):
            known = ", ".join(EVENT_KINDS)
            raise ValueError(f"use {known}, or a name of your own in small letters and underscores")
        return event


class Script(Section):
    """A scripted stream from a TOML file, for demos, simulations and tests."""

    title: str = ""
    line: tuple[ScriptLine, ...] = ()

    @classmethod
    def read(cls, file: Path) -> Script:
        """Read and check a file. An error names the file, the line, the field and the allowed values."""
        try:
            script = load_config(cls, file=file).settings
        except ConfigError as error:
            raise BadCrowdConfig(f"{file.name} is not a valid stream script: {error.what}", _SCRIPT_FIX) from None
        if not script.line:
            raise BadCrowdConfig(f"There are no lines in the stream script {file.name}.", _SCRIPT_FIX)
        return script

    @property
    def seconds(self) -> float:
        return self.line[-1].at if self.line else 0.0


@dataclass
class RollingContext:
    """Builds contexts from the last 90 seconds of a stream."""

    room: str
    number: int = 0

    def __post_init__(self) -> None:
        self._sentences: list[tuple[int, str]] = []
        self._events: list[StreamEvent] = []

    def add(self, text: str, at_ms: int, event: str | None = None, confidence: float = 0.9) -> StreamContext:
        self.number += 1
        since = at_ms - _WINDOW_S * 1_000
        self._sentences = [(at, sentence) for at, sentence in self._sentences if at > since]
        if text:
            self._sentences.append((at_ms, text))
        self._events = [each for each in self._events if each.at > at_ms - 20_000]
        if event is not None:
            self._events.append(StreamEvent(kind=event, confidence=confidence, at=at_ms, about=text[:200]))
        words: dict[str, int] = {}
        for age, (_, sentence) in enumerate(reversed(self._sentences)):
            for word in chat_keywords(sentence):
                words[word] = words.get(word, 0) + (4 if age == 0 else 2 if age < 3 else 1)
        top = sorted(words, key=lambda word: (-words[word], word))[:_MAX_KEYWORDS]
        transcript = " ".join(sentence for _, sentence in self._sentences)
        context = StreamContext(
            room=self.room,
            number=self.number,
            window=TimeWindow(start=max(since, 0), end=at_ms),
            transcript=transcript[-_MAX_TRANSCRIPT_CHARS:],
            summary=text[:300],
            keywords=tuple(top),
            events=tuple(self._events[-8:]),
            speakers=("streamer",),
        )
        while len(context.to_json().encode()) > MAX_CONTEXT_BYTES and context.transcript:
            context = context.model_copy(update={"transcript": context.transcript[len(context.transcript) // 2 + 1 :]})
        return context


def script_contexts(
    script: Script, room: str, start_ms: int, *, minutes: float | None = None
) -> Iterator[tuple[int, StreamContext]]:
    """Yield times and contexts. With `minutes` the script repeats for that long."""
    rolling = RollingContext(room)
    length = script.seconds + 5
    until = minutes * 60 if minutes is not None else length
    start = 0.0
    while script.line and start < until:
        for line in script.line:
            if start + line.at < until:
                at = start_ms + round((start + line.at) * 1_000)
                yield at, rolling.add(line.say, at, line.event, line.confidence)
        start += length
