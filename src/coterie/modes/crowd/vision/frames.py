"""Frames of a video file, an address or a screen: a few per second, scaled to one size."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from coterie.base.clock import Clock
from coterie.modes.crowd.media import MediaInput, read_live_media, read_media

WIDTH, HEIGHT = 960, 540
FRAMES_PER_S = 4
_FRAME_BYTES = WIDTH * HEIGHT * 3
_FRAME_S = 1 / FRAMES_PER_S
_MAX_LATE_S = 1.0
"""Frames of a file that are later than this are skipped."""
_SCALED = (
    f"fps={FRAMES_PER_S},scale={WIDTH}:{HEIGHT}:force_original_aspect_ratio=decrease,"
    f"pad={WIDTH}:{HEIGHT}:(ow-iw)/2:(oh-ih)/2"
)
_OUTPUT = ("-an", "-sn", "-threads", "1", "-vf", _SCALED, "-pix_fmt", "bgr24", "-f", "rawvideo", "-")
Pixels = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class VideoFrame:
    pixels: Pixels
    """Rows of blue, green and red."""
    at_ms: int
    """When it was shown, in milliseconds since 1970."""


class VideoSource:
    def __init__(
        self,
        source: str,
        clock: Clock,
        *,
        speed: float = 1.0,
        start_s: float = 0.0,
        paced: bool = True,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """A file is read at `speed` times real time from `start_s` after its beginning on, or as fast as possible if it
        is not `paced`; an address and a screen as they arrive.
        """
        self._source = source
        self._clock = clock
        self._speed = speed
        self._skipped = round(start_s * speed * FRAMES_PER_S)
        self._paced = paced
        self._sleep = sleep

    async def frames(self) -> AsyncGenerator[VideoFrame, None]:
        """Yield frames until the video ends. Those that come while the reader is busy are skipped."""
        media = MediaInput.of(self._source, "video")
        if media.live:
            async with aclosing(self._latest_frames(media)) as frames:
                async for frame in frames:
                    yield frame
            return
        started, started_ms, number = self._clock.monotonic(), self._clock.now_ms(), -self._skipped
        async with aclosing(read_media(media, "video", _OUTPUT, _FRAME_BYTES)) as chunks:
            async for chunk in chunks:
                number += 1
                if number <= 0 or len(chunk) < _FRAME_BYTES:
                    continue
                due_s = number * _FRAME_S / self._speed
                if self._paced:
                    ahead_s = started + due_s - self._clock.monotonic()
                    await self._sleep(max(0.0, ahead_s))
                    if ahead_s < -_MAX_LATE_S:
                        continue
                yield VideoFrame(_pixels(chunk), started_ms + round(due_s * 1_000))

    async def _latest_frames(self, media: MediaInput) -> AsyncGenerator[VideoFrame, None]:
        """A stream does not wait: it is read on while a frame is being looked at, and only the latest one is kept."""
        newest: asyncio.Queue[VideoFrame | None] = asyncio.Queue()

        def replace(frame: VideoFrame | None) -> None:
            while not newest.empty():
                newest.get_nowait()
            newest.put_nowait(frame)

        async def read() -> None:
            chunks = read_live_media(media, "video", _OUTPUT, _FRAME_BYTES, _FRAME_S, self._sleep)
            try:
                async with aclosing(chunks):
                    async for chunk in chunks:
                        if len(chunk) == _FRAME_BYTES:
                            replace(VideoFrame(_pixels(chunk), self._clock.now_ms()))
            finally:
                await newest.put(None)

        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(read())
            try:
                while (frame := await newest.get()) is not None:
                    yield frame
            finally:
                reading.cancel()


def _pixels(chunk: bytes) -> Pixels:
    return np.frombuffer(chunk, dtype=np.uint8).reshape(HEIGHT, WIDTH, 3)
