"""What was said: a port of one call, and whoever stands behind it.

Moonshine's tiny English model comes in its wheel and is the default; faster-whisper is for whoever has its weights on
this machine. Neither is allowed to fetch anything.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from coterie.base.clock import Clock, to_micros
from coterie.base.errors import MissingExtra
from coterie.modes.crowd.audio.moonshine import Moonshine
from coterie.modes.crowd.audio.source import CHUNK_S, SAMPLE_RATE, Samples, Utterance, UtteranceDetector
from coterie.modes.crowd.errors import AudioUnavailable
from coterie.modes.crowd.protocol import StreamContext
from coterie.modes.crowd.session.stream_context import INVERTED, RollingContext, detect_event


class Recogniser(Protocol):
    name: str

    def transcribe(self, samples: Samples) -> str:
        """What is said in 16 kHz mono sound. Takes its time: call it beside the event loop."""
        ...


class Whisper:
    """faster-whisper, from a folder with its weights."""

    def __init__(self, weights: Path) -> None:
        try:
            from faster_whisper import WhisperModel
        except ImportError:
            raise MissingExtra("whisper", "faster-whisper") from None
        if not (weights / "model.bin").is_file():
            raise AudioUnavailable(
                f"There are no faster-whisper weights in {weights}.", "Name a folder that holds its model.bin."
            )
        self.name = f"whisper:{weights.name}"
        self._model: Any = WhisperModel(str(weights), compute_type="int8", local_files_only=True)

    def transcribe(self, samples: Samples) -> str:
        found, _ = self._model.transcribe(samples, beam_size=1, condition_on_previous_text=False)
        return " ".join(segment.text.strip() for segment in found).strip()


def create_recogniser(name: str = "moonshine") -> Recogniser:
    """`moonshine`, or `whisper:FOLDER`."""
    kind, _, folder = name.partition(":")
    if kind == "moonshine" and not folder:
        return Moonshine()
    if kind == "whisper" and folder:
        return Whisper(Path(folder).expanduser())
    raise AudioUnavailable(
        f"There is no recogniser {name}.", "Say moonshine, or whisper:FOLDER with its weights in it."
    )


# What a recogniser wrote, as a streamer meant it: in today's spelling, and with the chat called by its name.
#
# Recognisers learn from audio books: they write "to-night" and "any one", now "Ok" and now "okay", and where somebody
# calls the chat they hear Chet or Chad, whom books know better. Only a word that sounds like "chat" is put right, and
# only where somebody is called.


_OLD_HYPHEN = re.compile(r"\b(to)-(day|night|morrow)\b", re.IGNORECASE)
_OLD_SPACE = re.compile(r"\b(any|some|every) (one|body)\b(?! of\b)", re.IGNORECASE)
_OK = re.compile(r"\b(o)k\b", re.IGNORECASE)
_SENTENCES = re.compile(r"(?<=[.?!])\s+")
_CALL_AHEAD = re.compile(r"(?:(?:okay|so|hey|hi|now|well|alright|all right|right|oh),? )*chat[.!]+", re.IGNORECASE)
_CALL_BEHIND = re.compile(r"chat[.?!]+", re.IGNORECASE)

_SOUNDS_LIKE_CHAT = r"(?:ch[aeiou]tt?|chats|chad|chadd|jett?|jatt?)"
"""Sounds like "chat", and is at most a name."""
_WORD_LIKE_CHAT = r"(?:check|chart|chap|chuck|jot)"
"""Sounds like it too, and is a word of its own: more has to speak for the chat."""
_LEAD = (
    r"(?:(?:ok(?:ay)?|so|and|but|now|well|al(?:l )?right|right|oh|hey|hi|hello|yes|no|yeah|thanks|thank you|sorry"
    r"|good evening|good morning|remind me|come on|help me out(?: here)?|tell me)[,.]? )*"
)
_TAKES_A_NAME = (
    r"(?:know|knows|like|likes|see|saw|seen|met|meet|call|called|named|ask|asked|tell|told|hear|heard|trust|beat|fight"
    r"|kill|find|is|was|am|be|a|the|my|your|this|that|and|or|to|of|for|about|with|by|from|at|on|in|than|like)"
)
"""Whoever comes after these is spoken of, not to."""
_ASKS = rf"{_LEAD}(?:{INVERTED}|(?:give|send|tell) me\b|help me\b|any (?:ideas?|suggestions?)\b)"
_ADDRESS_PATTERNS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        # Chet, …   okay Chad should I …   Chut left or right
        rf"^{_LEAD}(?P<word>{_SOUNDS_LIKE_CHAT})(?=, | (?:{INVERTED})| (?:the )?\w+ or (?:the )?\w+[.?!]*$|[.?!]*$)",
        rf"^{_LEAD}(?P<word>{_WORD_LIKE_CHAT})(?=,? (?:{INVERTED}))",
        # North or south Chet.
        rf"^{_LEAD}(?:the )?\w+ or (?:the )?\w+,? (?P<word>{_SOUNDS_LIKE_CHAT})(?=[.?!]*$)",
        # …, Chad.   …, Chad, …   left or right, Chad quickly.
        rf", (?P<word>{_SOUNDS_LIKE_CHAT})(?=,|(?: (?!says?|said|ask)\w+)?[.?!]*$)",
        # Are we sure about this Chet?   What do we do, check?
        rf"^{_ASKS}.* (?!{_TAKES_A_NAME} )\w+ (?P<word>{_SOUNDS_LIKE_CHAT})(?=[.?!]*$)",
        rf"^{_ASKS}.*?, (?P<word>{_WORD_LIKE_CHAT})(?=,|[.?!]*$)",
    )
)


def fix_transcript(text: str) -> str:
    """What was heard, sentence by sentence."""
    return " ".join(fixed_sentences(text))


def fixed_sentences(text: str) -> list[str]:
    found: list[str] = []
    for each in _SENTENCES.split(" ".join(text.split())):
        sentence = _fix_chat_address(_modern_spelling(each))
        # Whoever is called belongs to what they are asked, though a recogniser makes a sentence of each.
        if found and _CALL_AHEAD.fullmatch(found[-1]):
            found[-1] = f"{found[-1].rstrip('.!')}, {sentence}"
        elif found and found[-1].endswith("?") and _CALL_BEHIND.fullmatch(sentence):
            found[-1] = f"{found[-1].rstrip('?')}, chat?"
        elif sentence:
            found.append(sentence)
    return found


def _modern_spelling(sentence: str) -> str:
    return _OK.sub(r"\1kay", _OLD_SPACE.sub(_join_groups, _OLD_HYPHEN.sub(_join_groups, sentence)))


def _join_groups(found: re.Match[str]) -> str:
    return found[1] + found[2]


def _fix_chat_address(sentence: str) -> str:
    for pattern in _ADDRESS_PATTERNS:
        if found := pattern.search(sentence):
            start, end = found.span("word")
            name = "Chat" if start == 0 else "chat"
            sentence = sentence[:start] + name + sentence[end:]
    return sentence


# Listening: sound in, contexts out, each as soon as its words are understood.
#
# Hearing goes on while words are being understood, in a thread of their own. If understanding falls behind, what waits
# is joined and understood at once: late is worse than coarse.


_MAX_JOINED_S = 20.0
_MAX_LINE_CHARS = 500


async def transcribe_stream(
    sound: AsyncIterator[bytes],
    recogniser: Recogniser,
    room: str,
    clock: Clock,
    utterances: UtteranceDetector | None = None,
) -> AsyncIterator[StreamContext]:
    """Contexts of a room from pieces of sound, until it ends. Their windows end when the words did."""
    cutting = utterances or UtteranceDetector()
    heard: asyncio.Queue[tuple[Utterance, int] | None] = asyncio.Queue()

    async def hear() -> None:
        number = 0
        try:
            async for piece in sound:
                number += 1
                if (utterance := cutting.add(piece)) is not None:
                    ago_ms = round((number * CHUNK_S - utterance.end_s) * 1_000)
                    heard.put_nowait((utterance, _now(clock) - ago_ms))
            if (utterance := cutting.finish()) is not None:
                heard.put_nowait((utterance, _now(clock)))
        finally:
            heard.put_nowait(None)

    rolling = RollingContext(room)
    loop = asyncio.get_running_loop()
    hearing = asyncio.create_task(hear())
    try:
        with ThreadPoolExecutor(1, thread_name_prefix="recogniser") as aside:
            while (waiting := await _next(heard)) is not None:
                utterance, ended_ms = waiting
                text = await loop.run_in_executor(aside, recogniser.transcribe, utterance.samples)
                for sentence in fixed_sentences(text):
                    if line := sentence[:_MAX_LINE_CHARS]:
                        kind, confidence = detect_event(line) or (None, 0.0)
                        yield rolling.add(line, ended_ms, kind, confidence)
        await hearing  # what went wrong with the sound is told here
    finally:
        hearing.cancel()
        await asyncio.gather(hearing, return_exceptions=True)


async def _next(heard: asyncio.Queue[tuple[Utterance, int] | None]) -> tuple[Utterance, int] | None:
    """The next utterance, with those behind it if they have to hurry."""
    first = await heard.get()
    while first is not None and not heard.empty():
        second = heard.get_nowait()
        if second is None:
            heard.put_nowait(None)
            break
        first = (_concatenate(first[0], second[0]), second[1])
    return first


def _concatenate(one: Utterance, other: Utterance) -> Utterance:
    pause = np.zeros(round(0.3 * SAMPLE_RATE), dtype=np.float32)
    samples = np.concatenate([one.samples, pause, other.samples])[-round(_MAX_JOINED_S * SAMPLE_RATE) :]
    return Utterance(samples, one.start_s, other.end_s)


def _now(clock: Clock) -> int:
    return to_micros(clock.now()) // 1_000
