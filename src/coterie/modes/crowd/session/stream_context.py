"""Stream contexts from sentences: questions to the chat, other events, and the rolling window of the last 90 seconds.

Sentences may come from a recogniser that loses punctuation, so word order counts as much as question marks.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field, field_validator

from coterie.base.config import Section, load_config
from coterie.base.errors import ConfigError
from coterie.base.values import MAX_DURATION_S
from coterie.modes.crowd.chat_signals import chat_keywords
from coterie.modes.crowd.errors import BadCrowdConfig
from coterie.modes.crowd.protocol import EVENT_KINDS, MAX_CONTEXT_BYTES, StreamContext, StreamEvent, TimeWindow, Vision

_WINDOW_S = 90
_MAX_KEYWORDS = 8
_MAX_KEYWORD_CHARS = 40
_MAX_TRANSCRIPT_CHARS = 1_500
_MAX_LATEST_CHARS = 300
_EVENTS_KEPT_MS = 20_000
_SUMMARISED_S = 900
_SUMMARY_HALF_LIFE_S = 240
_MAX_SUMMARISED = 200
_MAX_SUMMARY_SENTENCES = 4
_MAX_SUMMARY_CHARS = 320
_ROOM_FOR_NUMBER = 16
"""A context is numbered again when another process goes on with the stream."""

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


class StreamScriptLine(Section):
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


class StreamScript(Section):
    """A scripted stream from a TOML file, for demos, simulations and tests."""

    title: str = ""
    line: tuple[StreamScriptLine, ...] = ()

    @classmethod
    def read(cls, file: Path) -> StreamScript:
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


class RollingSummary:
    """A summary of the last minutes: the sentences that say most of what it is about, in their order.

    A sentence counts by how often its words occur, recent ones more; what another one says already is left out.
    """

    def __init__(self) -> None:
        self._sentences: deque[tuple[int, str, frozenset[str]]] = deque(maxlen=_MAX_SUMMARISED)

    def add(self, text: str, at_ms: int) -> None:
        if words := frozenset(chat_keywords(text)):
            self._sentences.append((at_ms, text[:_MAX_SUMMARY_CHARS], words))

    def text(self, at_ms: int) -> str:
        while self._sentences and self._sentences[0][0] < at_ms - _SUMMARISED_S * 1_000:
            self._sentences.popleft()
        weights = [0.5 ** ((at_ms - at) / 1_000 / _SUMMARY_HALF_LIFE_S) for at, _, _ in self._sentences]
        counts: dict[str, float] = {}
        for weight, (_, _, words) in zip(weights, self._sentences, strict=True):
            for word in words:
                counts[word] = counts.get(word, 0.0) + weight
        chosen: list[int] = []
        covered: set[str] = set()
        left = _MAX_SUMMARY_CHARS
        while True:
            best, best_gain = -1, 0.0
            for place, (_, text, words) in enumerate(self._sentences):
                if place in chosen or len(text) >= left:
                    continue
                gain = weights[place] * sum(counts[word] for word in words - covered) / (4 + len(words))
                if gain > best_gain:
                    best, best_gain = place, gain
            if best < 0 or len(chosen) == _MAX_SUMMARY_SENTENCES:
                return " ".join(self._sentences[place][1] for place in sorted(chosen))
            chosen.append(best)
            covered |= self._sentences[best][2]
            left -= len(self._sentences[best][1]) + 1


@dataclass
class RollingContext:
    """Builds contexts from the last 90 seconds of a stream: what is said, and what is shown."""

    room: str
    number: int = 0

    def __post_init__(self) -> None:
        self._sentences: list[tuple[int, str]] = []
        self._events: list[StreamEvent] = []
        self._summary = RollingSummary()
        self._vision: Vision | None = None

    def add(self, text: str, at_ms: int, event: str | None = None, confidence: float = 0.9) -> StreamContext:
        """Something was said."""
        if text:
            self._sentences.append((at_ms, text))
            self._summary.add(text, at_ms)
        if event is not None:
            self._events.append(StreamEvent(kind=event, confidence=confidence, at=at_ms, about=text[:200]))
        return self._context(text, at_ms)

    def show(self, vision: Vision, at_ms: int, events: Iterable[tuple[str, float, str]]) -> StreamContext:
        """Something was shown; each event has a kind, a confidence and what it is about."""
        self._vision = vision
        for kind, confidence, about in events:
            self._events.append(StreamEvent(kind=kind, confidence=confidence, at=at_ms, about=about[:200]))
        return self._context("", at_ms)

    def _context(self, said: str, at_ms: int) -> StreamContext:
        self.number += 1
        since = at_ms - _WINDOW_S * 1_000
        self._sentences = [(at, sentence) for at, sentence in self._sentences if at > since]
        self._events = [each for each in self._events if each.at > at_ms - _EVENTS_KEPT_MS]
        words: dict[str, int] = {}
        for age, (_, sentence) in enumerate(reversed(self._sentences)):
            for word in chat_keywords(sentence):
                words[word] = words.get(word, 0) + (4 if age == 0 else 2 if age < 3 else 1)
        if self._vision is not None:
            for word in chat_keywords(" ".join([*self._vision.on_screen_text, self._vision.caption])):
                words[word] = words.get(word, 0) + 2
        top = sorted(words, key=lambda word: (-words[word], word))[:_MAX_KEYWORDS]
        transcript = " ".join(sentence for _, sentence in self._sentences)
        return _fit(
            StreamContext(
                room=self.room,
                number=self.number,
                window=TimeWindow(start=max(since, 0), end=at_ms),
                transcript=transcript[-_MAX_TRANSCRIPT_CHARS:],
                latest=said[:_MAX_LATEST_CHARS],
                summary=self._summary.text(at_ms),
                keywords=tuple(word[:_MAX_KEYWORD_CHARS] for word in top),
                events=tuple(self._events[-8:]),
                speakers=("streamer",),
                vision=self._vision,
            )
        )


def _fit(context: StreamContext) -> StreamContext:
    """Shorten a context to the limit: the transcript first, then the summary, then what is on the screen."""
    while len(context.to_json().encode()) > MAX_CONTEXT_BYTES - _ROOM_FOR_NUMBER:
        vision, changes = context.vision, dict[str, object]()
        if context.transcript:
            changes["transcript"] = context.transcript[len(context.transcript) // 2 + 1 :]
        elif context.summary:
            changes["summary"] = context.summary[: len(context.summary) // 2]
        elif vision is not None and vision.on_screen_text:
            changes["vision"] = vision.model_copy(update={"on_screen_text": vision.on_screen_text[:-1]})
        elif any(event.about for event in context.events):
            events = [
                event.model_copy(update={"about": event.about[: len(event.about) // 2]}) for event in context.events
            ]
            changes["events"] = tuple(events)
        elif vision is not None:
            changes["vision"] = None
        else:
            changes.update(keywords=context.keywords[:-1], latest=(context.latest or "")[:100])
        context = context.model_copy(update=changes)
    return context


def script_contexts(
    script: StreamScript, room: str, start_ms: int, *, minutes: float | None = None
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
