"""Sound and pictures of files, addresses, microphones and screens, decoded by ffmpeg in a child process.

ffmpeg's protocols are restricted: a file cannot make it open an address, nor an address a file. Its memory is bounded,
and it is killed when nobody reads any more.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from coterie.base.logging import get_logger
from coterie.modes.crowd.errors import AudioUnavailable, CrowdError, VideoUnavailable

MediaKind = Literal["audio", "video"]
_URL_SCHEMES = frozenset(["http", "https", "rtmp", "rtmps", "rtsp", "srt"])
_VIDEO_SUFFIXES = frozenset([".webm", ".mp4", ".mkv", ".mov", ".ts", ".avi"])
_AUDIO_SUFFIXES = frozenset([".wav", ".mp3", ".flac", ".ogg", ".opus", ".m4a", ".aac"])
_NETWORK_PROTOCOLS = "http,https,httpproxy,tcp,tls,crypto,rtmp,rtmps,rtsp,rtp,udp,srt"
_FILE_PROTOCOLS = "file,crypto,data"
_MICROPHONE, _SCREEN = "microphone", "screen"
_MAX_ALLOCATION = 256 << 20
"""The largest block of memory that ffmpeg may ask for, in bytes."""
_MAX_MEMORY = 4 << 30
"""The address space of ffmpeg, in bytes, where the system can limit it."""
_MAX_STDERR_CHARS = 300
_MAX_HEAD_BYTES = 65_536
_SILENCE_S = 30
"""An address that sends nothing for so long has broken off."""
_RECONNECT_S = (0.5, 1, 2, 4, 8, 15, 30, 60)
"""Pauses before a stream that broke off is opened again. If it breaks off after the last one, it has ended."""
_LENGTH = re.compile(rb"\bDuration: (?!00:00:00\.00)\d")
"""What ffmpeg says of an input with a length. A live stream has none (`N/A`), or one of zero."""
_REPORTED = re.compile(r"^(?:\[[^\]]*\] )?\[(error|fatal)\] (.*)")
_STABLE_S = 10
"""After this much of the stream the pauses begin anew."""
_ERRORS: dict[MediaKind, type[CrowdError]] = {"audio": AudioUnavailable, "video": VideoUnavailable}
_log = get_logger(__name__)


def is_stream_address(source: str) -> bool:
    """Whether this is the URL of a stream."""
    try:
        return urlsplit(source).scheme in _URL_SCHEMES
    except ValueError:
        return False


def is_capture(source: str) -> bool:
    """Whether this is `microphone` or `screen`, with or without `:DEVICE`, or both joined by `+`."""
    return all(part.partition(":")[0] in (_MICROPHONE, _SCREEN) for part in source.split("+"))


def has_audio(source: str) -> bool:
    """Whether this may have sound: an address, a microphone, or a file with an audio or video suffix."""
    if is_capture(source):
        return capture_of(source, "audio") is not None
    return urlsplit(source).scheme in _URL_SCHEMES or Path(source).suffix.lower() in _AUDIO_SUFFIXES | _VIDEO_SUFFIXES


def has_video(source: str) -> bool:
    """Whether this may have pictures: an address, a screen, or a file with a video suffix."""
    if is_capture(source):
        return capture_of(source, "video") is not None
    return urlsplit(source).scheme in _URL_SCHEMES or Path(source).suffix.lower() in _VIDEO_SUFFIXES


def capture_of(source: str, kind: MediaKind) -> str | None:
    """The part of a capture that gives sound or pictures; None if it has none."""
    wanted = _MICROPHONE if kind == "audio" else _SCREEN
    return next((part for part in source.split("+") if part.partition(":")[0] == wanted), None)


@dataclass(frozen=True)
class MediaInput:
    """What ffmpeg is to read."""

    source: str
    arguments: tuple[str, ...]
    live: bool
    """Whether it arrives in real time and may break off."""

    @classmethod
    def of(cls, source: str, kind: MediaKind) -> MediaInput:
        """Raises `AudioUnavailable` or `VideoUnavailable` if there is no such file or device."""
        if is_capture(source):
            part = capture_of(source, kind)
            if part is None:
                raise _ERRORS[kind](f"There is no {kind} in {source}.", "Use screen+microphone for both.")
            return cls(source, _capture_arguments(kind, part.partition(":")[2]), live=True)
        if is_stream_address(source):
            return cls(source, ("-protocol_whitelist", _NETWORK_PROTOCOLS, "-i", source), live=True)
        if not Path(source).is_file():
            raise _ERRORS[kind](
                f"There is no file {source}.", f"Give {kind} in a file, or a URL that begins with https://."
            )
        return cls(source, ("-protocol_whitelist", _FILE_PROTOCOLS, "-i", f"file:{source}"), live=False)


def _capture_arguments(kind: MediaKind, device: str) -> tuple[str, ...]:
    if sys.platform == "darwin":
        default = ":default" if kind == "audio" else "Capture screen 0:none"
        return ("-f", "avfoundation", "-i", device or default)
    if sys.platform == "win32":
        if kind == "video":
            return ("-f", "gdigrab", "-framerate", "10", "-i", device or "desktop")
        if not device:
            raise AudioUnavailable(
                "The microphone needs a name here.",
                "Give it as microphone:NAME; `ffmpeg -list_devices true -f dshow -i dummy` lists the names.",
            )
        return ("-f", "dshow", "-i", f"audio={device}")
    if kind == "audio":
        return ("-f", "alsa" if device.startswith(("hw:", "plughw:")) else "pulse", "-i", device or "default")
    display = device or os.environ.get("DISPLAY", "")
    if not display:
        raise VideoUnavailable(
            "There is no X display to capture.", "Set DISPLAY, or give the display as screen:NAME, such as screen::0."
        )
    return ("-f", "x11grab", "-framerate", "10", "-i", display)


def find_ffmpeg() -> str | None:
    """The installed ffmpeg, or the one that comes with `coterie[vision]`."""
    if (installed := shutil.which("ffmpeg")) is not None:
        return installed
    try:
        from imageio_ffmpeg import get_ffmpeg_exe

        return str(get_ffmpeg_exe())
    except (ImportError, RuntimeError):
        return None


class _Ffmpeg:
    """A running ffmpeg: what it writes, and what it says about its input."""

    def __init__(self, process: asyncio.subprocess.Process, media: MediaInput, kind: MediaKind) -> None:
        if process.stdout is None or process.stderr is None:
            raise RuntimeError("ffmpeg was started without its pipes.")
        self._process = process
        self._stdout = process.stdout
        self._media = media
        self._kind = kind
        self._head = b""
        self._tail = b""
        self._reading = asyncio.create_task(self._read_messages(process.stderr))

    async def chunks(self, chunk_bytes: int) -> AsyncGenerator[bytes, None]:
        """Yield what ffmpeg writes; the last chunk may be shorter. Raises if nothing comes, or if it breaks off.

        ffmpeg exits without an error when a connection is lost. An input without a length is a live stream: however it
        ends, it has broken off.
        """
        received = False
        while chunk := await self._read_chunk(chunk_bytes):
            received = True
            yield chunk
        failed = await self._process.wait() != 0
        await self._reading
        endless = self._media.live and b"Duration: " in self._head and _LENGTH.search(self._head) is None
        if failed or endless or not received:
            raise self._broken_off(received)

    async def close(self) -> None:
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)

    def _broken_off(self, received: bool) -> CrowdError:
        kind, source = self._kind, self._media.source
        what = f"The {kind} of {source} broke off" if received else f"There is no {kind} in {source}"
        return _ERRORS[kind](f"{what}.", f"ffmpeg reports: {self._errors() or 'nothing'}. Check the address.")

    def _errors(self) -> str:
        """The last messages that are errors; all of them from an ffmpeg that does not say which are."""
        lines = self._tail.decode("utf-8", "replace").strip().splitlines()
        errors = [found[2] for line in lines if (found := _REPORTED.match(line))]
        unknown = [line for line in lines if not line.startswith("[") and "[info]" not in line]
        return "\n".join(errors or unknown).strip()[-_MAX_STDERR_CHARS:]

    async def _read_chunk(self, chunk_bytes: int) -> bytes:
        try:
            async with asyncio.timeout(_SILENCE_S if self._media.live else None):
                return await self._stdout.readexactly(chunk_bytes)
        except asyncio.IncompleteReadError as end:
            return end.partial
        except TimeoutError:
            with suppress(ProcessLookupError):
                self._process.kill()
            return b""

    async def _read_messages(self, stderr: asyncio.StreamReader) -> None:
        """Read to the end and keep only the ends, since a broken stream may report errors without end."""
        while part := await stderr.read(65_536):
            if len(self._head) < _MAX_HEAD_BYTES:
                self._head += part
            self._tail = (self._tail + part)[-8 * _MAX_STDERR_CHARS :]


async def read_media(
    media: MediaInput, kind: MediaKind, output: Sequence[str], chunk_bytes: int
) -> AsyncGenerator[bytes, None]:
    """Yield what ffmpeg writes with these arguments, in chunks; the last one may be shorter."""
    program = find_ffmpeg()
    if program is None:
        raise _ERRORS[kind](
            f"Reading this {kind} needs ffmpeg, which is not installed.",
            'Install it (apt install ffmpeg, brew install ffmpeg), or its wheel: pip install "coterie[vision]"',
        )
    process = await asyncio.create_subprocess_exec(
        *(program, "-nostdin", "-hide_banner", "-nostats", "-loglevel", "level+info"),
        *("-max_alloc", str(_MAX_ALLOCATION)),
        *media.arguments,
        *output,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=max(65_536, chunk_bytes),
    )
    _limit_memory(process.pid)
    ffmpeg = _Ffmpeg(process, media, kind)
    try:
        async with aclosing(ffmpeg.chunks(chunk_bytes)) as chunks:
            async for chunk in chunks:
                yield chunk
    finally:
        await ffmpeg.close()


async def read_live_media(
    media: MediaInput,
    kind: MediaKind,
    output: Sequence[str],
    chunk_bytes: int,
    chunk_s: float,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> AsyncGenerator[bytes, None]:
    """Like `read_media`. If it breaks off, it is opened again, with longer and longer pauses while nothing comes."""
    pauses = iter(_RECONNECT_S)
    received = False
    while True:
        chunks = 0
        try:
            async with aclosing(read_media(media, kind, output, chunk_bytes)) as reader:
                async for chunk in reader:
                    received, chunks = True, chunks + 1
                    yield chunk
            return
        except _ERRORS[kind] as error:
            if chunks * chunk_s >= _STABLE_S:
                pauses = iter(_RECONNECT_S)
            pause = next(pauses, None) if received else None
            if pause is None:
                raise
            _log.warning("stream broke off, opening it again", kind=kind, error=str(error), retry_in_s=pause)
            await sleep(pause)


def _limit_memory(pid: int) -> None:
    if sys.platform == "linux":
        import resource

        with suppress(OSError, ValueError):
            resource.prlimit(pid, resource.RLIMIT_AS, (_MAX_MEMORY, _MAX_MEMORY))
