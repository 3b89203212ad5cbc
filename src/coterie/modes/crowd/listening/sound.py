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
from coterie.modes.crowd.errors import NoSound

RATE = 16_000
PIECE = 512
"""Samples: what voice activity detection looks at at a time."""
PIECE_BYTES = 2 * PIECE
PIECE_S = PIECE / RATE
_ADDRESSES = frozenset(["http", "https", "rtmp", "rtmps", "rtsp", "srt"])
_FILES = frozenset([".wav", ".mp3", ".flac", ".ogg", ".opus", ".m4a", ".aac", ".webm", ".mp4", ".mkv", ".mov", ".ts"])
_REACH = "http,https,httpproxy,tcp,tls,crypto,rtmp,rtmps,rtsp,rtp,udp,srt"
_LAST_WORDS = 300


def is_sound(source: str) -> bool:
    """Whether this names sound: an address of a stream, or a file that holds sound by its name."""
    return urlsplit(source).scheme in _ADDRESSES or Path(source).suffix.lower() in _FILES


class Sound:
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

    async def pieces(self) -> AsyncIterator[bytes]:
        """The sound, a piece at a time. The last one is filled up with silence."""
        if urlsplit(self._source).scheme in _ADDRESSES:
            async for piece in self._decoded(self._source, _REACH):
                yield piece
            return
        file = self._file()
        plain = _plain(file)
        began, number = self._clock.monotonic(), 0
        async for piece in _read(plain) if plain is not None else self._decoded(f"file:{file}", "file,crypto,data"):
            number += 1
            due = began + number * PIECE_S / self._speed
            # Where we are late, others still get their turn.
            await self._sleep(max(0.0, due - self._clock.monotonic()))
            yield piece

    def _file(self) -> Path:
        file = Path(self._source)
        if not file.is_file():
            raise NoSound(f"There is no file {file}.", "Name a sound file, or an address that begins with https://.")
        return file

    async def _decoded(self, source: str, reach: str) -> AsyncIterator[bytes]:
        ffmpeg = shutil.which("ffmpeg")
        if ffmpeg is None:
            raise NoSound(
                "This sound needs ffmpeg to be read, and it is not installed.",
                "Install it (apt install ffmpeg, brew install ffmpeg), or give a 16 kHz mono WAV file.",
            )
        process = await asyncio.create_subprocess_exec(
            *(ffmpeg, "-nostdin", "-hide_banner", "-loglevel", "error", "-protocol_whitelist", reach, "-i", source),
            *("-vn", "-f", "s16le", "-ac", "1", "-ar", str(RATE), "-"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        if process.stdout is None or process.stderr is None:
            raise RuntimeError("ffmpeg was started without its pipes.")
        complaints = asyncio.create_task(process.stderr.read())
        heard = False
        try:
            while piece := await _whole(process.stdout):
                heard = True
                yield piece
            await process.wait()
            if not heard:
                said = (await complaints).decode("utf-8", "replace").strip()[-_LAST_WORDS:]
                raise NoSound(
                    f"There is no sound in {self._source}.", f"ffmpeg says: {said or 'nothing'}. Check the address."
                )
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
            complaints.cancel()
            await asyncio.gather(complaints, return_exceptions=True)


async def _whole(stream: asyncio.StreamReader) -> bytes:
    try:
        return await stream.readexactly(PIECE_BYTES)
    except asyncio.IncompleteReadError as end:
        return end.partial.ljust(PIECE_BYTES, b"\0") if end.partial else b""


async def _read(file: wave.Wave_read) -> AsyncIterator[bytes]:
    with file:
        while piece := file.readframes(PIECE):
            yield piece.ljust(PIECE_BYTES, b"\0")


def _plain(file: Path) -> wave.Wave_read | None:
    """The file, if it can be read as it is."""
    try:
        opened = wave.open(str(file), "rb")  # noqa: SIM115 - whoever reads it closes it
    except (wave.Error, EOFError, OSError):
        return None
    if (opened.getframerate(), opened.getnchannels(), opened.getsampwidth()) == (RATE, 1, 2):
        return opened
    opened.close()
    return None
