"""Stream contexts from frames: scene changes, on-screen text, announcements such as "GAME OVER", and captions.

Every frame is compared with the one before, which is cheap. Text is read and captions are asked for only when the
picture has changed, because both are expensive.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import numpy as np

from coterie.base.errors import MissingExtra
from coterie.base.logging import get_logger
from coterie.base.supervisor import run_once
from coterie.llm import Caller, Image, ModelError, Models, Prompt, PromptMessage, Role
from coterie.modes.crowd.protocol import StreamContext, Vision
from coterie.modes.crowd.session.stream_context import RollingContext
from coterie.modes.crowd.vision.frames import FRAMES_PER_S, Pixels, VideoFrame
from coterie.modes.crowd.vision.screen_text import ScreenReader, TextLine, bounded_texts, headline, screen_events

Captioner = Callable[[bytes], Awaitable[str]]
"""Returns a sentence about a JPEG picture; empty if it has none."""
_SCENE_CONFIDENCE = 0.8
_MIN_SCENE_S = 1.0
_CUT_THRESHOLD = 24.0
_READ_INTERVAL_S = 2.0
"""Shortest time between two readings of the same scene."""
_REFRESH_S = 10.0
"""Longest time between two readings of a picture that moves."""
_BLOCKS = (48, 27)
_BLOCK_CHANGE = 24
_CHANGED_BLOCKS = 12
"""So many blocks differ when text of the size of an announcement has appeared."""
_EVENT_PAUSE_MS = 8_000
"""An announcement that is read again within this time is the same one."""
_CAPTION_INTERVAL_S = 15.0
_CAPTION_DEADLINE_S = 20.0
_MAX_CAPTION_CHARS = 300
_CAPTION_WIDTH = 640
_CAPTION_PROMPT = "Say in one short sentence what this picture of a live stream shows."
_log = get_logger(__name__)


def check_installed() -> None:
    """Raises `MissingExtra` without `coterie[vision]`. Imports nothing, since that takes a second."""
    if any(find_spec(package) is None for package in ("scenedetect", "rapidocr_onnxruntime")):
        raise MissingExtra("vision", "Watching a stream's picture")


class SceneDetector:
    """Finds cuts with PySceneDetect."""

    def __init__(self) -> None:
        try:
            import cv2
            from scenedetect import FrameTimecode
            from scenedetect.detectors import ContentDetector
        except ImportError:
            raise MissingExtra("vision", "Watching a stream's picture") from None
        self._cv2: Any = cv2
        self._timecode: Any = FrameTimecode
        self._detector: Any = ContentDetector(
            threshold=_CUT_THRESHOLD, min_scene_len=round(_MIN_SCENE_S * FRAMES_PER_S)
        )
        self._number = 0

    def is_cut(self, pixels: Pixels) -> bool:
        """Whether a new scene begins with this frame."""
        small = self._cv2.resize(pixels, (240, 135), interpolation=self._cv2.INTER_AREA)
        at = self._timecode(self._number, float(FRAMES_PER_S))
        self._number += 1
        return bool(self._detector.process_frame(at, small))

    def blocks(self, pixels: Pixels) -> Pixels:
        """The brightness of the picture in coarse blocks."""
        grey = self._cv2.cvtColor(pixels, self._cv2.COLOR_BGR2GRAY)
        blocks: Pixels = self._cv2.resize(grey, _BLOCKS, interpolation=self._cv2.INTER_AREA)
        return blocks

    def jpeg(self, pixels: Pixels) -> bytes:
        height = round(pixels.shape[0] * _CAPTION_WIDTH / pixels.shape[1])
        small = self._cv2.resize(pixels, (_CAPTION_WIDTH, height), interpolation=self._cv2.INTER_AREA)
        _, encoded = self._cv2.imencode(".jpg", small, [self._cv2.IMWRITE_JPEG_QUALITY, 80])
        return bytes(encoded)


@dataclass
class Sighting:
    """What a frame adds to the stream context."""

    vision: Vision
    at_ms: int
    events: list[tuple[str, float, str]] = field(default_factory=list)
    """Kind, confidence and what it is about."""


class VideoWatcher:
    """Decides which frames are read, and what is new in them."""

    def __init__(self, reader: ScreenReader, scenes: SceneDetector | None = None) -> None:
        self._reader = reader
        self._scenes = scenes or SceneDetector()
        self._vision = Vision()
        self._read_blocks: Pixels | None = None
        self._read_ms = -(10**15)
        self._cut_ms: int | None = None
        self._last_event_ms: dict[str, int] = {}
        self._showing: frozenset[str] = frozenset()
        self._caption_due_ms = -(10**15)

    @property
    def vision(self) -> Vision:
        return self._vision

    def look(self, frame: VideoFrame) -> Sighting | None:
        """Return what is new in a frame, if anything. Blocks while text is read."""
        if self._scenes.is_cut(frame.pixels):
            self._cut_ms = frame.at_ms
            self._vision = Vision()
        blocks = self._scenes.blocks(frame.pixels)
        if not self._should_read(blocks, frame.at_ms):
            return None
        cut_ms, self._cut_ms = self._cut_ms, None
        self._read_blocks, self._read_ms = blocks, frame.at_ms
        lines = self._reader.read(frame.pixels)
        events = self._new_events(lines, frame.at_ms)
        texts = bounded_texts(lines)
        changed = texts != self._vision.on_screen_text
        self._vision = self._vision.model_copy(
            update={"on_screen_text": texts, "scene": headline(lines) or self._vision.scene}
        )
        if cut_ms is not None:
            events.insert(0, ("scene_change", _SCENE_CONFIDENCE, headline(lines)))
        return Sighting(self._vision, frame.at_ms, events) if changed or events else None

    def wants_caption(self, at_ms: int, sighting: Sighting) -> bool:
        """Whether the picture should be described: after a scene change, or when the last caption is old."""
        if at_ms < self._caption_due_ms and not any(kind == "scene_change" for kind, _, _ in sighting.events):
            return False
        self._caption_due_ms = at_ms + round(_CAPTION_INTERVAL_S * 1_000)
        return True

    def jpeg(self, frame: VideoFrame) -> bytes:
        return self._scenes.jpeg(frame.pixels)

    def add_caption(self, caption: str, described: Vision) -> bool:
        """Add a caption, unless another scene is shown by now."""
        if described.scene != self._vision.scene:
            return False
        self._vision = self._vision.model_copy(update={"caption": " ".join(caption.split())[:_MAX_CAPTION_CHARS]})
        return True

    def _should_read(self, blocks: Pixels, at_ms: int) -> bool:
        if self._cut_ms is not None or self._read_blocks is None:
            return True
        since_s = (at_ms - self._read_ms) / 1_000
        if since_s < _READ_INTERVAL_S:
            return False
        difference = np.abs(blocks.astype(np.int16) - self._read_blocks.astype(np.int16))
        changed = int(np.count_nonzero(difference > _BLOCK_CHANGE))
        return changed >= _CHANGED_BLOCKS or (changed > 0 and since_s >= _REFRESH_S)

    def _new_events(self, lines: list[TextLine], at_ms: int) -> list[tuple[str, float, str]]:
        """The announcements that were not on the screen before."""
        found = screen_events(lines)
        events = [
            (kind, confidence, text)
            for kind, (text, confidence) in found.items()
            if kind not in self._showing and at_ms - self._last_event_ms.get(kind, -(10**15)) >= _EVENT_PAUSE_MS
        ]
        self._showing = frozenset(found)
        for kind in found:
            self._last_event_ms[kind] = at_ms
        return events


async def watch_video(
    frames: AsyncGenerator[VideoFrame, None],
    watcher: VideoWatcher,
    rolling: RollingContext,
    caption: Captioner | None = None,
) -> AsyncIterator[StreamContext]:
    """Yield a context whenever something new is shown. With `caption`, pictures are described in the background."""
    captions: asyncio.Queue[tuple[str, Vision]] = asyncio.Queue()
    describing: asyncio.Task[None] | None = None

    async def describe(picture: bytes, vision: Vision) -> None:
        if caption is not None and (text := await caption(picture)):
            captions.put_nowait((text, vision))

    loop = asyncio.get_running_loop()
    try:
        with ThreadPoolExecutor(1, thread_name_prefix="vision") as executor:
            async with aclosing(frames):
                async for frame in frames:
                    sighting = await loop.run_in_executor(executor, watcher.look, frame)
                    if sighting is not None:
                        yield rolling.show(sighting.vision, sighting.at_ms, sighting.events)
                        idle = describing is None or describing.done()
                        if caption is not None and idle and watcher.wants_caption(frame.at_ms, sighting):
                            described = describe(watcher.jpeg(frame), sighting.vision)
                            describing = run_once("caption of a stream", described)
                    while not captions.empty():
                        text, vision = captions.get_nowait()
                        if watcher.add_caption(text, vision):
                            yield rolling.show(watcher.vision, frame.at_ms, [])
    finally:
        if describing is not None:
            describing.cancel()
            await asyncio.gather(describing, return_exceptions=True)


def model_captioner(models: Models, room: str) -> Captioner | None:
    """Describe pictures with the model of the role `vision`; None if none is set."""
    if not models.catalogue.is_set(Role.VISION):
        return None

    async def caption(picture: bytes) -> str:
        message = PromptMessage(
            role="user", text=_CAPTION_PROMPT, images=(Image(media_type="image/jpeg", data=base64.b64encode(picture)),)
        )
        prompt = Prompt(messages=(message,), max_tokens=80, temperature=0.2)
        try:
            answer = await models.ask(Role.VISION, prompt, caller=Caller(room=room), deadline_s=_CAPTION_DEADLINE_S)
        except ModelError as error:
            _log.warning("a picture was not described", room=room, error=error.what)
            return ""
        return answer.text

    return caption
