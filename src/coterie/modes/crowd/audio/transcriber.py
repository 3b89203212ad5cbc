"""Transcribes audio into stream contexts.

Moonshine's tiny English model comes in its wheel and is the default; faster-whisper needs weights on this machine.
Neither downloads anything.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from coterie.base.clock import Clock
from coterie.base.errors import MissingExtra
from coterie.base.logging import get_logger
from coterie.modes.crowd.audio.moonshine import Moonshine
from coterie.modes.crowd.audio.source import CHUNK_S, SAMPLE_RATE, Samples, Utterance, UtteranceDetector
from coterie.modes.crowd.errors import AudioUnavailable
from coterie.modes.crowd.protocol import StreamContext
from coterie.modes.crowd.session.stream_context import INVERTED, RollingContext, detect_event

_MAX_JOINED_S = 20.0
_MAX_LINE_CHARS = 500
_MAX_WAITING = 60
"""Utterances that wait for the recogniser."""
_log = get_logger(__name__)


class Recogniser(Protocol):
    name: str
    english: bool
    """Whether the last text is English: its spelling is corrected then."""

    def transcribe(self, samples: Samples) -> str:
        """Return the text of 16 kHz mono audio. Blocks: call it in a thread."""
        ...


class Whisper:
    """faster-whisper with weights from a local folder."""

    def __init__(self, weights: Path, language: str = "") -> None:
        """`language` is a code such as `de`; empty, it is recognised in each utterance."""
        try:
            from faster_whisper import WhisperModel
        except ImportError:
            raise MissingExtra("whisper", "faster-whisper") from None
        if not (weights / "model.bin").is_file():
            raise AudioUnavailable(
                f"There are no faster-whisper weights in {weights}.", "Give a folder that contains model.bin."
            )
        self.name = f"whisper:{weights.name}"
        self.english = True
        self._language = language or None
        self._model: Any = WhisperModel(str(weights), compute_type="int8", local_files_only=True)
        if language and language not in self._model.supported_languages:
            known = ", ".join(self._model.supported_languages)
            raise AudioUnavailable(f"These weights do not know the language {language}.", f"They know: {known}.")

    def transcribe(self, samples: Samples) -> str:
        segments, heard = self._model.transcribe(
            samples, language=self._language, beam_size=1, condition_on_previous_text=False
        )
        self.english = heard.language == "en"
        return " ".join(segment.text.strip() for segment in segments).strip()


def create_recogniser(name: str = "moonshine", language: str = "") -> Recogniser:
    """Create a recogniser by name: `moonshine` (English only) or `whisper:FOLDER`."""
    kind, _, folder = name.partition(":")
    if kind == "moonshine" and not folder:
        return Moonshine()
    if kind == "whisper" and folder:
        return Whisper(Path(folder).expanduser(), language)
    raise AudioUnavailable(
        f"There is no recogniser {name}.", "Use moonshine, or whisper:FOLDER with a folder of weights."
    )


# Recognisers are trained on audio books: they write "to-night" and "any one", and "Chet" or "Chad" where the streamer
# addresses the chat. A word that sounds like "chat" is corrected only where somebody is addressed.
_OLD_HYPHEN = re.compile(r"\b(to)-(day|night|morrow)\b", re.IGNORECASE)
_OLD_SPACE = re.compile(r"\b(any|some|every) (one|body)\b(?! of\b)", re.IGNORECASE)
_OK = re.compile(r"\b(o)k\b", re.IGNORECASE)
_SENTENCES = re.compile(r"(?<=[.?!])\s+")
_CALL_AHEAD = re.compile(r"(?:(?:okay|so|hey|hi|now|well|alright|all right|right|oh),? )*chat[.!]+", re.IGNORECASE)
_CALL_BEHIND = re.compile(r"chat[.?!]+", re.IGNORECASE)

_SOUNDS_LIKE_CHAT = r"(?:ch[aeiou]tt?|chats|chad|chadd|jett?|jatt?)"
"""Names and non-words that sound like "chat"."""
_WORD_LIKE_CHAT = r"(?:check|chart|chap|chuck|jot)"
"""Ordinary words that sound like "chat"; they need a stronger context."""
_LEAD = (
    r"(?:(?:ok(?:ay)?|so|and|but|now|well|al(?:l )?right|right|oh|hey|hi|hello|yes|no|yeah|thanks|thank you|sorry"
    r"|good evening|good morning|remind me|come on|help me out(?: here)?|tell me)[,.]? )*"
)
_TAKES_A_NAME = (
    r"(?:know|knows|like|likes|see|saw|seen|met|meet|call|called|named|ask|asked|tell|told|hear|heard|trust|beat|fight"
    r"|kill|find|is|was|am|be|a|the|my|your|this|that|and|or|to|of|for|about|with|by|from|at|on|in|than|like)"
)
"""A name after one of these is mentioned, not addressed."""
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
    """Correct the spelling of a transcript and how it addresses the chat."""
    return " ".join(fix_sentences(text))


def fix_sentences(text: str) -> list[str]:
    sentences: list[str] = []
    for raw in _SENTENCES.split(" ".join(text.split())):
        sentence = _fix_chat_address(_modern_spelling(raw))
        # Recognisers write an address as its own sentence; join it with the question.
        if sentences and _CALL_AHEAD.fullmatch(sentences[-1]):
            sentences[-1] = f"{sentences[-1].rstrip('.!')}, {sentence}"
        elif sentences and sentences[-1].endswith("?") and _CALL_BEHIND.fullmatch(sentence):
            sentences[-1] = f"{sentences[-1].rstrip('?')}, chat?"
        elif sentence:
            sentences.append(sentence)
    return sentences


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


async def transcribe_stream(
    audio: AsyncIterator[bytes],
    recogniser: Recogniser,
    room: str,
    clock: Clock,
    detector: UtteranceDetector | None = None,
    rolling: RollingContext | None = None,
) -> AsyncIterator[StreamContext]:
    """Yield contexts from audio chunks as soon as each utterance is recognised.

    Recognition runs in a thread. If it falls behind, waiting utterances are joined and recognised at once. `rolling` is
    shared with what else reads the stream.
    """
    utterances = detector or UtteranceDetector()
    queue: asyncio.Queue[tuple[Utterance, int] | None] = asyncio.Queue()

    def put(utterance: Utterance, ended_ms: int) -> None:
        if queue.qsize() >= _MAX_WAITING:
            queue.get_nowait()
            _log.warning("speech is recognised too slowly, some of it is skipped", room=room)
        queue.put_nowait((utterance, ended_ms))

    async def detect_utterances() -> None:
        number = 0
        try:
            async for chunk in audio:
                number += 1
                if (utterance := utterances.add(chunk)) is not None:
                    ago_ms = round((number * CHUNK_S - utterance.end_s) * 1_000)
                    put(utterance, clock.now_ms() - ago_ms)
            if (utterance := utterances.finish()) is not None:
                put(utterance, clock.now_ms())
        finally:
            queue.put_nowait(None)

    rolling = rolling or RollingContext(room)
    loop = asyncio.get_running_loop()
    detection = asyncio.create_task(detect_utterances())
    try:
        with ThreadPoolExecutor(1, thread_name_prefix="recogniser") as executor:
            while (waiting := await _next_utterance(queue)) is not None:
                utterance, ended_ms = waiting
                text = await loop.run_in_executor(executor, recogniser.transcribe, utterance.samples)
                for sentence in fix_sentences(text) if recogniser.english else _SENTENCES.split(text):
                    if line := sentence[:_MAX_LINE_CHARS]:
                        kind, confidence = detect_event(line) or (None, 0.0)
                        yield rolling.add(line, ended_ms, kind, confidence)
        await detection  # raises what went wrong with the audio
    finally:
        detection.cancel()
        await asyncio.gather(detection, return_exceptions=True)


async def _next_utterance(queue: asyncio.Queue[tuple[Utterance, int] | None]) -> tuple[Utterance, int] | None:
    """Return the next utterance, joined with all that are waiting behind it."""
    first = await queue.get()
    while first is not None and not queue.empty():
        second = queue.get_nowait()
        if second is None:
            queue.put_nowait(None)
            break
        first = (_concatenate(first[0], second[0]), second[1])
    return first


def _concatenate(one: Utterance, other: Utterance) -> Utterance:
    pause = np.zeros(round(0.3 * SAMPLE_RATE), dtype=np.float32)
    samples = np.concatenate([one.samples, pause, other.samples])[-round(_MAX_JOINED_S * SAMPLE_RATE) :]
    return Utterance(samples, one.start_s, other.end_s)
