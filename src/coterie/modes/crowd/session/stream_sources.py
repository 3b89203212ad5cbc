"""Opens streams by name: the sample, scripts, subtitles, growing text files, audio files and URLs."""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

from coterie.base.clock import Clock
from coterie.base.errors import MissingExtra
from coterie.base.logging import get_logger
from coterie.base.untrusted import one_line
from coterie.modes.crowd.audio.source import AudioSource, can_synthesise, is_audio_source, synthesise_script
from coterie.modes.crowd.audio.transcriber import create_recogniser, transcribe_stream
from coterie.modes.crowd.errors import AudioUnavailable, BadCrowdConfig
from coterie.modes.crowd.protocol import StreamContext
from coterie.modes.crowd.session.stream_context import RollingContext, Script, ScriptLine, detect_event
from coterie.modes.crowd.settings import SHIPPED_CONFIGS

SAMPLE = "sample"
_SAMPLE_SCRIPT = SHIPPED_CONFIGS / "streams" / "left-door.toml"
_log = get_logger(__name__)
_TIMES = re.compile(r"(?:(\d{1,4}):)?(\d{1,2}):(\d{2})[.,](\d{1,3})\s+-->")
_TAGS = re.compile(r"<[^>]*>|\{\\[^}]*\}")
_READ_CHARS = 65_536
_FIX = "Give a script, subtitles, a text or audio file, or the URL of a stream."


async def contexts_from_script(
    script: Script,
    room: str,
    clock: Clock,
    *,
    speed: float = 1.0,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> AsyncIterator[StreamContext]:
    """Yield the script's lines at their times, `speed` times as fast."""
    rolling = RollingContext(room)
    started = clock.monotonic()
    for line in script.line:
        await sleep(max(0.0, line.at / speed - (clock.monotonic() - started)))
        yield rolling.add(line.say, clock.now_ms(), line.event, line.confidence)


async def contexts_from_lines(lines: AsyncIterator[str], room: str, clock: Clock) -> AsyncIterator[StreamContext]:
    """Yield a context per line of text, with detected events."""
    rolling = RollingContext(room)
    async for line in lines:
        if text := line.strip():
            kind, confidence = detect_event(text) or (None, 0.0)
            yield rolling.add(text[:500], clock.now_ms(), kind, confidence)


async def follow_file(file: Path, *, every_s: float = 0.25) -> AsyncIterator[str]:
    """Yield the lines of a file and those appended to it, forever."""
    with file.open(encoding="utf-8", errors="replace") as feed:
        rest = ""
        while True:
            read = feed.read(_READ_CHARS)
            *whole, rest = (rest + read).split("\n")
            for line in whole:
                yield line
            if len(rest) > _READ_CHARS:  # a line without an end
                yield rest
                rest = ""
            if not read:
                await asyncio.sleep(every_s)


def read_subtitles(file: Path) -> Script:
    """Read an .srt or .vtt file as a script, with detected events."""
    lines = tuple(_cues(file.read_text(encoding="utf-8-sig", errors="replace")))
    if not lines:
        raise BadCrowdConfig(f"There are no subtitles in {file.name}.", "Give an .srt or .vtt file with times in it.")
    return Script(title=file.stem, line=lines)


def _cues(subtitles: str) -> Iterator[ScriptLine]:
    for block in re.split(r"\n\s*\n", subtitles.replace("\r\n", "\n")):
        rows = block.strip().split("\n")
        timed = ((at, found) for at, row in enumerate(rows) if (found := _TIMES.match(row.strip())))
        at, times = next(timed, (0, None))
        if times is None:
            continue
        hours, minutes, seconds, part = times.groups()
        text = _TAGS.sub("", " ".join(rows[at + 1 :])).strip()
        if text:
            kind, confidence = detect_event(text) or (None, 0.9)
            start = int(hours or 0) * 3_600 + int(minutes) * 60 + int(seconds) + int(part.ljust(3, "0")) / 1_000
            yield ScriptLine(at=start, say=text[:500], event=kind, confidence=confidence)


def open_stream(
    name: str, room: str, clock: Clock, *, speed: float = 1.0, recogniser: str = "moonshine"
) -> AsyncIterator[StreamContext]:
    """Return the contexts of a stream. Raises at once if there is no such stream, or if its file is not valid."""
    if name == SAMPLE:
        return _sample_contexts(room, clock, speed, recogniser)
    try:
        if is_audio_source(name):
            return _audio_contexts(name, room, clock, speed, recogniser)
        return _file_contexts(Path(name).expanduser(), room, clock, speed)
    except (OSError, ValueError, RuntimeError) as error:  # not a path, not a URL, no such home folder, not readable
        raise BadCrowdConfig(f"The stream {one_line(name, 200)} cannot be opened: {error}.", _FIX) from None


def _file_contexts(file: Path, room: str, clock: Clock, speed: float) -> AsyncIterator[StreamContext]:
    if not file.is_file():
        raise BadCrowdConfig(f"There is no file {one_line(str(file), 200)}.", _FIX)
    if file.suffix == ".toml":
        return contexts_from_script(Script.read(file), room, clock, speed=speed)
    if file.suffix in (".srt", ".vtt"):
        return contexts_from_script(read_subtitles(file), room, clock, speed=speed)
    with file.open(encoding="utf-8", errors="replace"):  # raises now if it cannot be read
        return contexts_from_lines(follow_file(file), room, clock)


async def _audio_contexts(
    source: str, room: str, clock: Clock, speed: float, recogniser_name: str
) -> AsyncIterator[StreamContext]:
    recogniser = await asyncio.to_thread(create_recogniser, recogniser_name)
    async for context in transcribe_stream(AudioSource(source, clock, speed=speed).chunks(), recogniser, room, clock):
        yield context


async def _sample_contexts(room: str, clock: Clock, speed: float, recogniser_name: str) -> AsyncIterator[StreamContext]:
    """The sample stream, synthesised and transcribed; without speech software, read from its script."""
    script = Script.read(_SAMPLE_SCRIPT)
    try:
        if not can_synthesise():
            raise AudioUnavailable(
                "Speech synthesis needs flite, which is not installed.", "Install it: apt install flite"
            )
        recogniser = await asyncio.to_thread(create_recogniser, recogniser_name)
    except (AudioUnavailable, MissingExtra) as error:
        _log.warning("sample_read_from_script", why=error.what, fix=error.fix)
        async for context in contexts_from_script(script, room, clock, speed=speed):
            yield context
        return
    with tempfile.TemporaryDirectory(prefix="coterie-sample-") as folder:
        file = Path(folder) / "sample.wav"
        await asyncio.to_thread(synthesise_script, script, file)
        async for context in transcribe_stream(
            AudioSource(str(file), clock, speed=speed).chunks(), recogniser, room, clock
        ):
            yield context
