"""A video of a game with known events, drawn frame by frame: title cards, a display of the score, announcements, cuts.

It also has what must not be taken for an event: titles and chat lines with the same words, counters, flashes, motion.
"""

from __future__ import annotations

import math
import random
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from coterie.modes.crowd.media import find_ffmpeg

_SIZE = (1280, 720)
_FPS = 10
_PALETTES = (
    ((24, 60, 30), (70, 140, 60), (200, 190, 90)),
    ((20, 24, 70), (60, 80, 170), (220, 220, 240)),
    ((80, 30, 20), (170, 80, 40), (250, 200, 120)),
    ((60, 60, 66), (120, 120, 130), (230, 230, 230)),
)
_TITLES = ("CHAPTER TWO", "THE ROAD TO VICTORY", "SALT MINES", "BEFORE THE GAME IS OVER", "THE LAST LEVEL")
_WINS = ("VICTORY", "YOU WIN", "LEVEL COMPLETE", "STAGE CLEAR", "ENEMY FELLED")
_FAILS = ("GAME OVER", "YOU DIED", "MISSION FAILED", "DEFEAT", "TIME UP")
_CHAT = ("bob: game over for me lol", "ana: victory is near", "zed: you died again?", "kim: nice score")


@dataclass(frozen=True)
class ShownEvent:
    kind: str
    at_s: float
    text: str = ""


@dataclass
class _Scene:
    kind: str
    seconds: float
    palette: int = 0
    text: str = ""
    score: int = 0
    chat: str = ""
    flash: bool = False
    shapes: list[tuple[float, float, float, float]] = field(default_factory=list)


def make_video(file: Path, seconds: float, seed: int = 7) -> list[ShownEvent]:
    """Write a video of at least this length; returns its events."""
    ffmpeg = find_ffmpeg()
    if ffmpeg is None:
        raise RuntimeError("ffmpeg is missing: apt install ffmpeg, or pip install imageio-ffmpeg")
    scenes, events = _plan(seconds, random.Random(seed))
    command = [
        *(ffmpeg, "-y", "-loglevel", "error", "-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{_SIZE[0]}x{_SIZE[1]}"),
        *("-r", str(_FPS), "-i", "-", "-c:v", "mpeg4", "-q:v", "4", str(file)),
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        if process.stdin is None:
            raise RuntimeError("ffmpeg was started without its input.")
        for picture in _frames(scenes):
            process.stdin.write(picture.tobytes())
        process.stdin.close()
        if process.wait():
            raise RuntimeError("ffmpeg could not write the video.")
    return events


def _plan(seconds: float, chance: random.Random) -> tuple[list[_Scene], list[ShownEvent]]:
    scenes: list[_Scene] = []
    events: list[ShownEvent] = []
    at, score, palette, number = 0.0, 0, 0, 0
    while at < seconds:
        if scenes:
            events.append(ShownEvent("scene_change", at))
        if number % 4 == 0:
            scenes.append(_Scene("title", 4.0, text=_TITLES[number // 4 % len(_TITLES)]))
            at += 4.0
        else:
            palette = (palette + chance.randint(1, len(_PALETTES) - 1)) % len(_PALETTES)
            length = float(chance.randint(8, 13))
            shapes = [
                (chance.random(), chance.random(), 0.03 + 0.08 * chance.random(), chance.random() * math.tau)
                for _ in range(14)
            ]
            score += chance.randint(5, 60) * 10
            playing = _Scene("play", length, palette, score=score, chat=chance.choice(_CHAT), shapes=shapes)
            playing.flash = number % 3 == 0
            scenes.append(playing)
            at += length
            outcome = chance.choice(("win", "fail", ""))
            if outcome:  # over the same picture, so it is no scene change
                text = chance.choice(_WINS if outcome == "win" else _FAILS)
                events.append(ShownEvent(outcome, at, text))
                scenes.append(_Scene("end", 4.0, palette, text, score, playing.chat, shapes=shapes))
                at += 4.0
        number += 1
    return scenes, events


def _frames(scenes: list[_Scene]) -> Iterator[Image.Image]:
    clock = 0.0
    for scene in scenes:
        for number in range(round(scene.seconds * _FPS)):
            yield _draw(scene, number / _FPS, clock)
            clock += 1 / _FPS


def _draw(scene: _Scene, since_s: float, clock: float) -> Image.Image:
    width, height = _SIZE
    if scene.kind == "title":
        picture = Image.new("RGB", _SIZE, (8, 8, 12))
        draw = ImageDraw.Draw(picture)
        draw.text((width / 2, height / 2), scene.text, font=_font(84), fill=(235, 235, 235), anchor="mm")
        return picture
    dark, middle, light = _PALETTES[scene.palette]
    picture = Image.new("RGB", _SIZE, dark)
    draw = ImageDraw.Draw(picture)
    for x, y, size, angle in scene.shapes:
        speed = 0.03 if scene.kind == "play" else 0.005
        left = ((x + math.cos(angle) * speed * clock) % 1) * width
        top = ((y + math.sin(angle) * speed * clock) % 1) * height
        draw.ellipse((left, top, left + size * width, top + size * width), fill=middle)
    if scene.flash and 3.0 <= since_s < 3.1:
        draw.rectangle((0, 0, width, height), fill=light)
    score = scene.score + (int(since_s) * 10 if scene.kind == "play" else 0)
    draw.text((24, 20), f"SCORE {score:06}", font=_font(32), fill=light)
    draw.text((width - 200, 20), "LIVES 3", font=_font(32), fill=light)
    draw.text((24, height - 50), scene.chat, font=_font(24), fill=light)
    if scene.kind == "end":
        draw.rectangle((width * 0.2, height * 0.36, width * 0.8, height * 0.64), fill=(10, 10, 10))
        draw.text((width / 2, height / 2), scene.text, font=_font(96), fill=(250, 220, 90), anchor="mm")
    return picture


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)
