"""A stream by what somebody calls it: the sample, a script, subtitles, a text that grows, sound, an address. C9"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from coterie.base.clock import Clock
from coterie.base.errors import MissingExtra
from coterie.base.logging import get_logger
from coterie.modes.crowd.configs import SHIPPED
from coterie.modes.crowd.errors import BadRoster, NoSound
from coterie.modes.crowd.listening.ear import listened
from coterie.modes.crowd.listening.recogniser import recogniser_named
from coterie.modes.crowd.listening.sample import can_speak, spoken_script
from coterie.modes.crowd.listening.sound import Sound, is_sound
from coterie.modes.crowd.protocol import StreamContext
from coterie.modes.crowd.session.feeds import followed, scripted, spoken, subtitles
from coterie.modes.crowd.session.script import Script

SAMPLE = "sample"
_SCRIPT = SHIPPED / "streams" / "left-door.toml"
_log = get_logger(__name__)


def stream_named(
    name: str, room: str, clock: Clock, *, speed: float = 1.0, recogniser: str = "moonshine"
) -> AsyncIterator[StreamContext]:
    """Contexts of a room from a stream. What cannot be one is told at once, not when it begins."""
    if name == SAMPLE:
        return _sample(room, clock, speed, recogniser)
    if is_sound(name):
        return _heard(name, room, clock, speed, recogniser)
    file = Path(name).expanduser()
    if not file.is_file():
        raise BadRoster(
            f"There is no file {file}.", "Name a script, subtitles, a text or sound file, or an address of a stream."
        )
    if file.suffix == ".toml":
        return scripted(Script.read(file), room, clock, speed=speed)
    if file.suffix in (".srt", ".vtt"):
        return scripted(subtitles(file), room, clock, speed=speed)
    return spoken(followed(file), room, clock)


async def _heard(source: str, room: str, clock: Clock, speed: float, recogniser: str) -> AsyncIterator[StreamContext]:
    understanding = await asyncio.to_thread(recogniser_named, recogniser)
    async for context in listened(Sound(source, clock, speed=speed).pieces(), understanding, room, clock):
        yield context


async def _sample(room: str, clock: Clock, speed: float, recogniser: str) -> AsyncIterator[StreamContext]:
    """The sample stream, spoken and listened to; where nothing can speak or listen here, read from its script."""
    script = Script.read(_SCRIPT)
    try:
        if not can_speak():
            raise NoSound("Speech is made with flite, and it is not installed.", "Install it: apt install flite")
        understanding = await asyncio.to_thread(recogniser_named, recogniser)
    except (NoSound, MissingExtra) as error:
        _log.warning("sample_is_read_not_spoken", why=error.what, fix=error.fix)
        async for context in scripted(script, room, clock, speed=speed):
            yield context
        return
    with tempfile.TemporaryDirectory(prefix="coterie-sample-") as folder:
        file = Path(folder) / "sample.wav"
        await asyncio.to_thread(spoken_script, script, file)
        async for context in listened(Sound(str(file), clock, speed=speed).pieces(), understanding, room, clock):
            yield context
