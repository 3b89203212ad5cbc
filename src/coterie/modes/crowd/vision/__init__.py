"""What a stream shows: scene changes, on-screen text and captions. Frames stay in the process that reads them."""

from coterie.modes.crowd.vision.frames import VideoFrame, VideoSource
from coterie.modes.crowd.vision.screen_text import ScreenReader, TextLine, create_screen_reader, screen_events
from coterie.modes.crowd.vision.watcher import Captioner, VideoWatcher, check_installed, model_captioner, watch_video

__all__ = [
    "Captioner",
    "ScreenReader",
    "TextLine",
    "VideoFrame",
    "VideoSource",
    "VideoWatcher",
    "check_installed",
    "create_screen_reader",
    "model_captioner",
    "screen_events",
    "watch_video",
]
