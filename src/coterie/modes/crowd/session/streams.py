"""A stream by what somebody calls it: the sample, a script, subtitles, a text that grows, sound, an address. C9"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from coterie.base.clock import Clock
from coterie.base.errors import MissingExtra
from coterie.base.logging import get_logger
from coterie.modes.crowd.configs import SHIPPED_CONFIGS
from coterie.modes.crowd.errors import AudioUnavailable, BadCrowdConfig
from coterie.modes.crowd.listening.ear import transcribe_stream
from coterie.modes.crowd.listening.recogniser import create_recogniser
from coterie.modes.crowd.listening.sample import can_synthesise, synthesise_script
from coterie.modes.crowd.listening.sound import AudioSource, is_audio_source
from coterie.modes.crowd.protocol import StreamContext
from coterie.modes.crowd.session.feeds import contexts_from_lines, contexts_from_script, follow_file, read_subtitles
from coterie.modes.crowd.session.script import Script

SAMPLE = "sample"
_SCRIPT = SHIPPED_CONFIGS / "streams" / "left-door.toml"
_log = get_logger(__name__)


def open_stream(
    name: str, room: str, clock: Clock, *, speed: float = 1.0, recogniser: str = "moonshine"
) -> AsyncIterator[StreamContext]:
    """Contexts of a room from a stream. What cannot be one is told at once, not when it begins."""
    if name == SAMPLE:
        return _sample_contexts(room, clock, speed, recogniser)
    if is_audio_source(name):
        return _audio_contexts(name, room, clock, speed, recogniser)
    file = Path(name).expanduser()
    if not file.is_file():
        raise BadCrowdConfig(
            f"There is no file {file}.", "Name a script, subtitles, a text or sound file, or an address of a stream."
        )
    if file.suffix == ".toml":
        return contexts_from_script(Script.read(file), room, clock, speed=speed)
    if file.suffix in (".srt", ".vtt"):
        return contexts_from_script(read_subtitles(file), room, clock, speed=speed)
    return contexts_from_lines(follow_file(file), room, clock)


async def _audio_contexts(
    source: str, room: str, clock: Clock, speed: float, recogniser: str
) -> AsyncIterator[StreamContext]:
    understanding = await asyncio.to_thread(create_recogniser, recogniser)
    async for context in transcribe_stream(
        AudioSource(source, clock, speed=speed).chunks(), understanding, room, clock
    ):
        yield context


async def _sample_contexts(room: str, clock: Clock, speed: float, recogniser: str) -> AsyncIterator[StreamContext]:
    """The sample stream, spoken and listened to; where nothing can speak or listen here, read from its script."""
    script = Script.read(_SCRIPT)
    try:
        if not can_synthesise():
            raise AudioUnavailable(
                "Speech is made with flite, and it is not installed.", "Install it: apt install flite"
            )
        understanding = await asyncio.to_thread(create_recogniser, recogniser)
    except (AudioUnavailable, MissingExtra) as error:
        _log.warning("sample_is_read_not_spoken", why=error.what, fix=error.fix)
        async for context in contexts_from_script(script, room, clock, speed=speed):
            yield context
        return
    with tempfile.TemporaryDirectory(prefix="coterie-sample-") as folder:
        file = Path(folder) / "sample.wav"
        await asyncio.to_thread(synthesise_script, script, file)
        async for context in transcribe_stream(
            AudioSource(str(file), clock, speed=speed).chunks(), understanding, room, clock
        ):
            yield context
