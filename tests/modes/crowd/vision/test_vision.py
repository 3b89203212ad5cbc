"""C9: what a stream shows: announcements, scene changes, captions, bounds, captures, and a missing extra."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as Picture
from PIL import ImageDraw, ImageFont

from coterie.base.clock import ManualClock, SystemClock
from coterie.base.errors import MissingExtra
from coterie.eventstore import Store
from coterie.llm import Models, ModelsSettings, UsageProjection
from coterie.llm.messages import CompletionRequest
from coterie.llm.recording import RecordedCall, ReplayProvider
from coterie.modes.crowd.errors import BadCrowdConfig, VideoUnavailable
from coterie.modes.crowd.media import MediaInput, find_ffmpeg, has_audio, has_video, is_capture
from coterie.modes.crowd.prompts import LineRequest, build_messages
from coterie.modes.crowd.protocol import MAX_CONTEXT_BYTES, StreamContext, Vision
from coterie.modes.crowd.session.stream_context import RollingContext
from coterie.modes.crowd.session.stream_sources import _merge, open_stream
from coterie.modes.crowd.settings import CrowdConfigs
from coterie.modes.crowd.vision import (
    TextLine,
    VideoFrame,
    VideoSource,
    VideoWatcher,
    create_screen_reader,
    model_captioner,
    screen_events,
    watch_video,
)
from coterie.modes.crowd.vision.frames import FRAMES_PER_S, HEIGHT, WIDTH, Pixels
from coterie.modes.crowd.vision.watcher import Sighting
from tests.modes.crowd.conftest import START, Play

needs_ffmpeg = pytest.mark.skipif(
    find_ffmpeg() is None, reason="video is read by ffmpeg: apt install ffmpeg, or pip install imageio-ffmpeg"
)
LARGE, SMALL = 0.12, 0.03


@pytest.mark.parametrize(
    ("text", "height", "kind"),
    [
        ("VICTORY!", LARGE, "win"),
        ("YOU WIN", LARGE, "win"),
        ("Level 3 complete", LARGE, None),
        ("LEVEL COMPLETE", LARGE, "win"),
        ("GAME OVER", LARGE, "fail"),
        ("G0D", LARGE, None),
        ("GAME 0VER", LARGE, "fail"),
        ("MISSIONFAILED", LARGE, "fail"),
        ("You died", LARGE, "fail"),
        ("THE ROAD TO VICTORY", LARGE, None),
        ("game over", SMALL, None),
        ("bob: game over for me", LARGE, None),
        ("VICTORY POINTS 12", LARGE, None),
    ],
)
def test_c9_only_announcements_are_events(text: str, height: float, kind: str | None) -> None:
    assert list(screen_events([TextLine(text, height, 0.5)])) == ([kind] if kind else [])


def test_c9_an_announcement_may_be_in_two_lines() -> None:
    lines = [TextLine("SCORE 12", SMALL, 0.0), TextLine("GAME", LARGE, 0.4), TextLine("OVER", LARGE, 0.6)]
    assert list(screen_events(lines)) == ["fail"]


class Texts:
    """A reader that is told what the picture says."""

    def __init__(self) -> None:
        self.lines: list[TextLine] = []
        self.readings = 0

    def read(self, pixels: Pixels) -> list[TextLine]:
        self.readings += 1
        return self.lines


def plain(colour: tuple[int, int, int], at_ms: int, block: bool = False) -> VideoFrame:
    pixels = np.full((HEIGHT, WIDTH, 3), colour, dtype=np.uint8)
    if block:
        pixels[200:340, 200:760] = 250
    return VideoFrame(pixels, at_ms)


def test_c9_text_is_read_when_the_picture_changes_and_an_announcement_counts_once() -> None:
    reader = Texts()
    watcher = VideoWatcher(reader)
    seen: list[Sighting | None] = []

    def show(colour: tuple[int, int, int], seconds: float, block: bool = False) -> None:
        for _ in range(round(seconds * FRAMES_PER_S)):
            seen.append(watcher.look(plain(colour, START + len(seen) * 1_000 // FRAMES_PER_S, block)))

    show((20, 60, 20), 10)
    assert reader.readings == 1  # a picture that stands still
    reader.lines = [TextLine("VICTORY", LARGE, 0.5)]
    show((20, 60, 20), 6, block=True)
    reader.lines = []
    show((200, 30, 200), 4)
    kinds = [event[0] for sighting in seen if sighting is not None for event in sighting.events]
    assert kinds == ["win", "scene_change"]
    assert reader.readings <= 4


async def frames_of(*frames: VideoFrame) -> AsyncGenerator[VideoFrame, None]:
    for frame in frames:
        await asyncio.sleep(0)
        yield frame


async def test_c9_captions_describe_the_scene_that_is_still_shown() -> None:
    reader, pictures, asked = Texts(), [], asyncio.Event()
    reader.lines = [TextLine("SALT MINES", LARGE, 0.5)]

    async def caption(picture: bytes) -> str:
        pictures.append(picture)
        asked.set()
        return "a dark cave  with\nlamps"

    async def slow_frames() -> AsyncGenerator[VideoFrame, None]:
        yield plain((10, 10, 40), START)
        await asked.wait()
        for number in range(1, 4):
            await asyncio.sleep(0)
            yield plain((10, 10, 40), START + number * 250)

    contexts = [
        context async for context in watch_video(slow_frames(), VideoWatcher(reader), RollingContext("attic"), caption)
    ]
    assert pictures[0].startswith(b"\xff\xd8")  # a JPEG, and nothing of it is in a context
    assert contexts[-1].vision == Vision(
        caption="a dark cave with lamps", on_screen_text=("SALT MINES",), scene="SALT MINES"
    )
    assert all(len(context.to_json().encode()) <= MAX_CONTEXT_BYTES for context in contexts)


def test_c9_captions_need_a_model_for_the_role(tmp_path: Path) -> None:
    assert model_captioner(Models(ModelsSettings()), "attic") is None
    chosen = ModelsSettings.model_validate({"roles": {"vision": "ollama/llava"}})
    assert model_captioner(Models(chosen), "attic") is not None


async def test_c9_a_picture_is_sent_to_the_model_of_the_role_only_and_is_in_no_event(tmp_path: Path) -> None:
    asked: list[CompletionRequest] = []

    def answer(request: CompletionRequest) -> RecordedCall:
        asked.append(request)
        return RecordedCall(say="A castle at night.")

    store = Store.open(tmp_path / "coterie.db", projections=[UsageProjection()])
    settings = ModelsSettings.model_validate({"roles": {"vision": "embedded/eyes"}})
    models = Models(settings, store=store, providers={"embedded": ReplayProvider("embedded", default=answer)})
    caption = model_captioner(models, "attic")
    assert caption is not None
    picture = bytes(range(256)) * 20
    assert await caption(picture) == "A castle at night."
    await models.close()
    (request,) = asked
    assert request.model == "eyes"
    assert [image.data for image in request.prompt.messages[-1].images] == [picture]
    events = store.reader.read("instance", limit=100)
    assert events, "the call is counted"
    stored = "".join(event.payload.model_dump_json() for event in events)
    store.close()
    encoded = base64.b64encode(picture)[:40].decode()
    assert encoded not in stored
    files = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    assert not any(picture[:64] in data or encoded.encode() in data for data in files)


@given(
    st.lists(st.text(max_size=80), max_size=20),
    st.text(max_size=500),
    st.lists(st.text(min_size=1, max_size=500), max_size=8),
)
def test_c9_a_context_is_bounded_whatever_is_said_and_shown(texts: list[str], caption: str, said: list[str]) -> None:
    rolling = RollingContext("attic")
    for number, sentence in enumerate(said):
        rolling.add(sentence, START + number, "hype")
    vision = Vision(caption=caption, on_screen_text=tuple(texts))
    context = rolling.show(vision, START + 100, [("win", 0.9, each) for each in texts[:5]])
    assert len(context.to_json().encode()) <= MAX_CONTEXT_BYTES
    assert StreamContext.from_json(context.to_json()) == context


def test_c9_the_summary_covers_minutes_and_not_only_the_last_sentence() -> None:
    rolling = RollingContext("attic")
    said = [
        "today we build the copper boiler for the greenhouse",
        "hm",
        "the boiler needs a valve from the salvage yard",
        "one moment",
        "now the valve leaks again",
    ]
    for number, sentence in enumerate(said):
        context = rolling.add(sentence, START + number * 60_000)
    assert context.latest == said[-1]
    assert "copper boiler" in context.summary
    assert "valve" in context.summary
    assert "hm" not in context.summary.split()


def test_c6_personas_speak_about_what_is_shown(play: Play, configs: CrowdConfigs) -> None:
    rolling = RollingContext("late-shift")
    vision = Vision(on_screen_text=("VICTORY", 'SCORE "900"'))
    context = rolling.show(vision, START + 20_000, [("win", 0.9, "VICTORY")])
    request = LineRequest(
        configs.personas()["salt_lamp"], 1, "event", 3, event="win", on_screen=("VICTORY", 'SCORE "900"')
    )
    assert request.situation == "hype"
    prompt = build_messages(request)[-1].text
    assert "VICTORY" in prompt
    assert "\"SCORE '900'\"" in prompt  # data, in quotation marks of its own
    simulation = play(0.3, stream=False)
    quiet = sum(message.author.kind == "persona" for message in simulation.messages)
    simulation.run(0.5, [(START + 20_000, context)])
    reactions = [m for m in simulation.messages if m.trace is not None and m.trace.because == "event"]
    assert quiet == 0
    assert len(reactions) >= 3


@needs_ffmpeg
async def test_c9_a_video_without_sound_is_watched(tmp_path: Path) -> None:
    pytest.importorskip("rapidocr_onnxruntime")
    file = tmp_path / "card.mp4"
    picture = Picture.new("RGB", (640, 360), (10, 10, 20))
    ImageDraw.Draw(picture).text((320, 180), "GAME OVER", font=ImageFont.load_default(60), fill="white", anchor="mm")
    picture.save(tmp_path / "card.png")
    ffmpeg = find_ffmpeg()
    assert ffmpeg is not None
    command = (ffmpeg, "-loglevel", "error", "-loop", "1", "-t", "2", "-i", str(tmp_path / "card.png"), str(file))
    assert await (await asyncio.create_subprocess_exec(*command)).wait() == 0
    frames = VideoSource(str(file), SystemClock(), paced=False).frames()
    watcher = VideoWatcher(create_screen_reader())
    (context,) = [context async for context in watch_video(frames, watcher, RollingContext("attic"))]
    assert [event.kind for event in context.events] == ["fail"]
    assert context.vision is not None
    assert context.vision.on_screen_text == ("GAME OVER",)
    assert set(json.loads(context.to_json())["vision"]) == {"caption", "on_screen_text", "scene"}


@needs_ffmpeg
async def test_c9_a_video_file_cannot_open_an_address(tmp_path: Path) -> None:
    asked = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readline())
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        (tmp_path / "list.mp4").write_text(f"#EXTM3U\n#EXTINF:5,\nhttp://127.0.0.1:{port}/secret.ts\n#EXT-X-ENDLIST\n")
        with pytest.raises(VideoUnavailable, match="no video"):
            [_ async for _ in VideoSource(str(tmp_path / "list.mp4"), ManualClock(), paced=False).frames()]
    assert asked == []


async def test_c9_one_part_of_a_stream_may_fail() -> None:
    async def fails() -> AsyncIterator[StreamContext]:
        if has_video("clip.mp4"):
            raise VideoUnavailable("There is no video in it.", "Give one.")
        yield RollingContext("attic").add("never", START)

    async def works() -> AsyncIterator[StreamContext]:
        yield RollingContext("attic").add("hello", START)

    assert [context.latest async for context in _merge([fails(), works()])] == ["hello"]
    with pytest.raises(VideoUnavailable):
        [_ async for _ in _merge([fails(), fails()])]


@pytest.mark.parametrize(
    ("source", "sound", "picture"),
    [
        ("microphone", True, False),
        ("screen", False, True),
        ("screen+microphone:hw:1", True, True),
        ("clip.mp4", True, True),
        ("clip.wav", True, False),
        ("screenplay.srt", False, False),
    ],
)
def test_c9_sources_of_sound_and_pictures(source: str, sound: bool, picture: bool) -> None:
    assert (has_audio(source), has_video(source)) == (sound, picture)


@pytest.mark.skipif(sys.platform != "linux", reason="devices have other names elsewhere")
def test_c9_devices_are_given_to_ffmpeg(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISPLAY", ":7")
    assert MediaInput.of("screen", "video").arguments[-2:] == ("-i", ":7")
    assert MediaInput.of("microphone", "audio").arguments == ("-f", "pulse", "-i", "default")
    assert MediaInput.of("screen+microphone:hw:1", "audio").arguments == ("-f", "alsa", "-i", "hw:1")
    monkeypatch.delenv("DISPLAY")
    with pytest.raises(VideoUnavailable, match="no X display"):
        MediaInput.of("screen", "video")
    assert not is_capture("screens")


def test_c9_a_missing_extra_and_a_missing_ffmpeg_name_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coterie.modes.crowd.vision.watcher.find_spec", lambda _: None)
    with pytest.raises(MissingExtra) as caught:
        open_stream("screen", "attic", SystemClock())
    assert 'pip install "coterie[vision]"' in caught.value.fix
    with pytest.raises(MissingExtra):
        open_stream("https://live.example/a.m3u8", "attic", SystemClock(), watch=True)
    open_stream("https://live.example/a.m3u8", "attic", SystemClock())
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    assert find_ffmpeg() is None
    with pytest.raises(BadCrowdConfig):
        open_stream("nothing-there", "attic", SystemClock())
