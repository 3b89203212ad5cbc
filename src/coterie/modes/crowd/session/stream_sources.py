"""Opens streams by name: the sample, scripts, subtitles, growing text files, audio, video, URLs and captures."""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from coterie.base.clock import Clock
from coterie.base.errors import CoterieError, MissingExtra
from coterie.base.logging import get_logger
from coterie.base.untrusted import one_line
from coterie.modes.crowd.audio.source import AudioSource, can_synthesise, synthesise_script
from coterie.modes.crowd.audio.transcriber import Recogniser, create_recogniser, transcribe_stream
from coterie.modes.crowd.errors import AudioUnavailable, BadCrowdConfig, VideoUnavailable
from coterie.modes.crowd.media import has_audio, has_video, is_capture
from coterie.modes.crowd.protocol import StreamContext
from coterie.modes.crowd.session.stream_context import RollingContext, StreamScript, StreamScriptLine, detect_event
from coterie.modes.crowd.settings import SHIPPED_CONFIGS
from coterie.modes.crowd.vision import (
    Captioner,
    VideoSource,
    VideoWatcher,
    check_installed,
    create_screen_reader,
    watch_video,
)

SAMPLE = "sample"
_SAMPLE_SCRIPT = SHIPPED_CONFIGS / "streams" / "left-door.toml"
_log = get_logger(__name__)
_TIMES = re.compile(r"(?:(\d{1,4}):)?(\d{1,2}):(\d{2})[.,](\d{1,3})\s+-->")
_TAGS = re.compile(r"<[^>]*>|\{\\[^}]*\}")
_READ_CHARS = 65_536
_FIX = "Give a script, subtitles, a text, audio or video file, the URL of a stream, microphone, or screen."


async def contexts_from_script(
    script: StreamScript,
    room: str,
    clock: Clock,
    *,
    speed: float = 1.0,
    start_s: float = 0.0,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> AsyncIterator[StreamContext]:
    """Yield the script's lines at their times, `speed` times as fast, from `start_s` after its beginning on."""
    rolling = RollingContext(room)
    started = clock.monotonic() - start_s
    for line in script.line:
        if line.at / speed < start_s:
            continue
        await sleep(max(0.0, line.at / speed - (clock.monotonic() - started)))
        yield rolling.add(line.say, clock.now_ms(), line.event, line.confidence)


async def contexts_from_lines(lines: AsyncIterator[str], room: str, clock: Clock) -> AsyncIterator[StreamContext]:
    """Yield a context per line of text, with detected events."""
    rolling = RollingContext(room)
    async for line in lines:
        if text := line.strip():
            kind, confidence = detect_event(text) or (None, 0.0)
            yield rolling.add(text[:500], clock.now_ms(), kind, confidence)


async def follow_file(file: Path, *, every_s: float = 0.25, only_new: bool = False) -> AsyncIterator[str]:
    """Yield the lines of a file, unless `only_new`, and those appended to it, forever."""
    with file.open(encoding="utf-8", errors="replace") as feed:
        if only_new:
            feed.seek(0, os.SEEK_END)
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


def read_subtitles(file: Path) -> StreamScript:
    """Read an .srt or .vtt file as a script, with detected events."""
    lines = tuple(_cues(file.read_text(encoding="utf-8-sig", errors="replace")))
    if not lines:
        raise BadCrowdConfig(f"There are no subtitles in {file.name}.", "Give an .srt or .vtt file with times in it.")
    return StreamScript(title=file.stem, line=lines)


def _cues(subtitles: str) -> Iterator[StreamScriptLine]:
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
            yield StreamScriptLine(at=start, say=text[:500], event=kind, confidence=confidence)


def open_stream(
    name: str,
    room: str,
    clock: Clock,
    *,
    speed: float = 1.0,
    recogniser: str = "moonshine",
    language: str = "",
    start_s: float = 0.0,
    watch: bool = False,
    caption: Captioner | None = None,
) -> AsyncIterator[StreamContext]:
    """Return the contexts of a stream. Raises at once if there is no such stream, or if its file is not valid.

    `start_s` is for a stream that was read before: a recording goes on at this time after its beginning. `watch` is
    whether the picture of a video is read too, and `caption` describes it; a screen is watched in any case. `language`
    is a code such as `de`, for a recogniser that knows several.
    """
    if name == SAMPLE:
        return _sample_contexts(room, clock, speed, recogniser, start_s)
    try:
        hears, watches = has_audio(name), has_video(name)
        if hears or watches:
            watches = watches and (watch or is_capture(name))
            if not hears or watches:
                check_installed()
            spoken = partial(create_recogniser, recogniser, language) if hears else None
            return _media_contexts(name, room, clock, speed, start_s, spoken, watches, caption)
        return _file_contexts(Path(name).expanduser(), room, clock, speed, start_s)
    except (OSError, ValueError, RuntimeError) as error:  # not a path, not a URL, no such home folder, not readable
        raise BadCrowdConfig(f"The stream {one_line(name, 200)} cannot be opened: {error}.", _FIX) from None


def _file_contexts(file: Path, room: str, clock: Clock, speed: float, start_s: float) -> AsyncIterator[StreamContext]:
    if not file.is_file():
        raise BadCrowdConfig(f"There is no file {one_line(str(file), 200)}.", _FIX)
    if file.suffix == ".toml":
        return contexts_from_script(StreamScript.read(file), room, clock, speed=speed, start_s=start_s)
    if file.suffix in (".srt", ".vtt"):
        return contexts_from_script(read_subtitles(file), room, clock, speed=speed, start_s=start_s)
    with file.open(encoding="utf-8", errors="replace"):  # raises now if it cannot be read
        return contexts_from_lines(follow_file(file, only_new=start_s > 0), room, clock)


async def _media_contexts(
    source: str,
    room: str,
    clock: Clock,
    speed: float,
    start_s: float,
    create: Callable[[], Recogniser] | None,
    watches: bool,
    caption: Captioner | None,
) -> AsyncIterator[StreamContext]:
    """What is said, if a recogniser can be created, and what is shown, in one sequence of contexts.

    One of the two may fail, such as in a video without sound; the other one goes on.
    """
    rolling = RollingContext(room)

    async def hear(create: Callable[[], Recogniser]) -> AsyncIterator[StreamContext]:
        ready = await asyncio.to_thread(create)
        sound = AudioSource(source, clock, speed=speed, start_s=start_s)
        async for context in transcribe_stream(sound.chunks(), ready, room, clock, rolling=rolling):
            yield context

    async def see() -> AsyncIterator[StreamContext]:
        reader = await asyncio.to_thread(create_screen_reader)
        frames = VideoSource(source, clock, speed=speed, start_s=start_s).frames()
        async for context in watch_video(frames, VideoWatcher(reader), rolling, caption):
            yield context

    parts = [*([hear(create)] if create is not None else []), *([see()] if watches else [])]
    async for context in parts[0] if len(parts) == 1 else _merge(parts):
        yield context


async def _merge(parts: Sequence[AsyncIterator[StreamContext]]) -> AsyncIterator[StreamContext]:
    """Yield what comes from any part until all have ended. Raises if all of them failed."""
    merged: asyncio.Queue[StreamContext | None] = asyncio.Queue()
    failures: list[CoterieError] = []

    async def forward(part: AsyncIterator[StreamContext]) -> None:
        try:
            async for context in part:
                merged.put_nowait(context)
        except (AudioUnavailable, VideoUnavailable, MissingExtra) as error:
            _log.warning("a part of the stream is not read", error=error.what, fix=error.fix)
            failures.append(error)
        finally:
            merged.put_nowait(None)

    async with asyncio.TaskGroup() as tasks:
        reading = [tasks.create_task(forward(part)) for part in parts]
        try:
            left = len(parts)
            while left:
                if (context := await merged.get()) is None:
                    left -= 1
                else:
                    yield context
        finally:
            for task in reading:
                task.cancel()
    if len(failures) == len(parts):
        raise failures[0]


async def _sample_contexts(
    room: str, clock: Clock, speed: float, recogniser_name: str, start_s: float
) -> AsyncIterator[StreamContext]:
    """The sample stream, synthesised and transcribed; without speech software, read from its script."""
    script = StreamScript.read(_SAMPLE_SCRIPT)
    try:
        if not can_synthesise():
            raise AudioUnavailable(
                "Speech synthesis needs flite, which is not installed.", "Install it: apt install flite"
            )
        recogniser = await asyncio.to_thread(create_recogniser, recogniser_name)
    except (AudioUnavailable, MissingExtra) as error:
        _log.warning("sample_read_from_script", why=error.what, fix=error.fix)
        async for context in contexts_from_script(script, room, clock, speed=speed, start_s=start_s):
            yield context
        return
    with tempfile.TemporaryDirectory(prefix="coterie-sample-") as folder:
        file = Path(folder) / "sample.wav"
        await asyncio.to_thread(synthesise_script, script, file)
        async for context in transcribe_stream(
            AudioSource(str(file), clock, speed=speed, start_s=start_s).chunks(), recogniser, room, clock
        ):
            yield context
