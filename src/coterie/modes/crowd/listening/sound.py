"""Sound as it comes: 32 ms pieces of 16 kHz mono, from a file at the pace of life or from an address through ffmpeg.

Plain WAV files of that shape are read directly, so that a sample needs no other program. ffmpeg reads everything else,
and may only follow what it was given: a file leads to no address, and an address to no file.
"""

from __future__ import annotations

import asyncio
import shutil
import wave
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from urllib.parse import urlsplit

from coterie.base.clock import Clock
from coterie.modes.crowd.errors import AudioUnavailable

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
