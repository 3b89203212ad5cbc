"""C9: from audio to context: segmentation, files and backlog with synthetic audio, then real speech and models."""

from __future__ import annotations

import asyncio
import os
import shutil
import struct
import sys
import threading
import types
import wave
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.base.clock import ManualClock, SystemClock
from coterie.base.errors import MissingExtra
from coterie.modes.crowd import media
from coterie.modes.crowd.audio import (
    AudioSource,
    UtteranceDetector,
    create_recogniser,
    transcribe_stream,
)
from coterie.modes.crowd.audio.source import (
    CHUNK_BYTES,
    CHUNK_S,
    CHUNK_SAMPLES,
    SAMPLE_RATE,
    Samples,
    synthesise,
    synthesise_script,
)
from coterie.modes.crowd.errors import AudioUnavailable
from coterie.modes.crowd.media import find_ffmpeg, has_audio
from coterie.modes.crowd.protocol import MAX_CONTEXT_BYTES
from coterie.modes.crowd.session.stream_context import StreamScript, StreamScriptLine

needs_flite = pytest.mark.skipif(shutil.which("flite") is None, reason="speech is made with flite")
needs_ffmpeg = pytest.mark.skipif(
    find_ffmpeg() is None, reason="other sound is read by ffmpeg: apt install ffmpeg, or pip install imageio-ffmpeg"
)


def loud(piece: bytes) -> float:
    return 1.0 if any(piece) else 0.0


def pieces(pattern: str) -> list[bytes]:
    """A tenth of a second for each letter: `x` is speech, anything else is silence."""
    sound = np.concatenate([np.full(SAMPLE_RATE // 10, 1_000 if each == "x" else 0, dtype="<i2") for each in pattern])
    return [piece.tobytes() for piece in np.pad(sound, (0, -len(sound) % CHUNK_SAMPLES)).reshape(-1, CHUNK_SAMPLES)]


def write(file: Path, pattern: str, rate: int = SAMPLE_RATE, channels: int = 1) -> None:
    with wave.open(str(file), "wb") as written:
        written.setnchannels(channels)
        written.setsampwidth(2)
        written.setframerate(rate)
        for each in pattern:
            written.writeframes(
                np.full(rate // 10 * channels, 1_000 if each == "x" else 0, dtype="<i2").tobytes(),
            )


def test_c9_a_pause_ends_an_utterance_and_a_click_is_none() -> None:
    cutting = UtteranceDetector(loud)
    found = [each for piece in pieces("....xxxxxx.....x.....xxxx..") if (each := cutting.add(piece)) is not None]
    if (last := cutting.finish()) is not None:
        found.append(last)
    assert [(round(each.start_s, 1), round(each.end_s, 1)) for each in found] == [(0.2, 1.0), (2.0, 2.5)]
    assert found[0].samples.dtype == np.float32
    # A little from before the first sound and of the pause, no more.
    assert 0.8 * SAMPLE_RATE <= len(found[0].samples) <= 1.0 * SAMPLE_RATE


@given(st.text("x.", min_size=1, max_size=300))
def test_c9_utterances_are_short_ordered_and_do_not_overlap(pattern: str) -> None:
    cutting = UtteranceDetector(loud)
    found = [each for piece in pieces(pattern) if (each := cutting.add(piece)) is not None]
    if (last := cutting.finish()) is not None:
        found.append(last)
    assert all(len(each.samples) <= 9.1 * SAMPLE_RATE for each in found)
    ends = [each.end_s for each in found]
    assert ends == sorted(set(ends))
    assert all(end <= len(pattern) / 10 + CHUNK_S for end in ends)
    assert sum(np.count_nonzero(each.samples) for each in found) <= pattern.count("x") * SAMPLE_RATE // 10


async def test_c9_a_file_is_read_in_real_time(tmp_path: Path) -> None:
    write(tmp_path / "a.wav", "x" * 20)
    clock = ManualClock()
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock.advance(seconds)

    chunks = [chunk async for chunk in AudioSource(str(tmp_path / "a.wav"), clock, sleep=sleep).chunks()]
    assert {len(chunk) for chunk in chunks} == {CHUNK_BYTES}
    assert sum(slept) == pytest.approx(2.0, abs=CHUNK_S)
    slept.clear()
    [_ async for _ in AudioSource(str(tmp_path / "a.wav"), clock, speed=4, sleep=sleep).chunks()]
    assert sum(slept) == pytest.approx(0.5, abs=CHUNK_S)


@needs_ffmpeg
async def test_c9_ffmpeg_reads_other_formats(tmp_path: Path) -> None:
    write(tmp_path / "-stereo.wav", "x" * 10, rate=44_100, channels=2)
    chunks = [chunk async for chunk in AudioSource(str(tmp_path / "-stereo.wav"), SystemClock(), speed=100).chunks()]
    assert len(chunks) == pytest.approx(1 / CHUNK_S, abs=2)


@needs_ffmpeg
async def test_c9_a_file_cannot_open_a_url(tmp_path: Path) -> None:
    asked = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readline())
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        playlist = tmp_path / "list.mp4"
        playlist.write_text(f"#EXTM3U\n#EXTINF:5,\nhttp://127.0.0.1:{port}/secret.ts\n#EXT-X-ENDLIST\n")
        with pytest.raises(AudioUnavailable, match="no audio"):
            [_ async for _ in AudioSource(str(playlist), SystemClock(), speed=100).chunks()]
    assert asked == []


@needs_ffmpeg
async def test_c9_a_url_is_read_through_ffmpeg(tmp_path: Path) -> None:
    write(tmp_path / "a.wav", "x" * 10, rate=22_050)
    sound = (tmp_path / "a.wav").read_bytes()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = (
            f"HTTP/1.1 200 OK\r\nContent-Type: audio/wav\r\nContent-Length: {len(sound)}\r\nConnection: close\r\n\r\n"
        )
        writer.write(head.encode() + sound)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/live"
        chunks = [chunk async for chunk in AudioSource(address, SystemClock()).chunks()]
    assert len(chunks) == pytest.approx(1 / CHUNK_S, abs=2)


@pytest.mark.parametrize(
    ("source", "sound"),
    [("talk.wav", True), ("https://example.org/live.m3u8", True), ("rtmp://host/app", True), ("talk.srt", False)],
)
def test_c9_audio_sources_are_recognised(source: str, sound: bool) -> None:
    assert has_audio(source) == sound


async def test_c9_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(AudioUnavailable, match="no file"):
        [_ async for _ in AudioSource(str(tmp_path / "none.wav"), SystemClock()).chunks()]


def test_c9_unknown_recognisers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AudioUnavailable, match="no recogniser"):
        create_recogniser("sphinx")
    with pytest.raises((MissingExtra, AudioUnavailable)):
        create_recogniser(f"whisper:{tmp_path}")
    monkeypatch.setitem(__import__("sys").modules, "moonshine_voice", None)
    with pytest.raises(MissingExtra, match="Understanding"):
        create_recogniser()


class FakeWhisper(types.ModuleType):
    """The interface of faster-whisper that is used."""

    def __init__(self) -> None:
        super().__init__("faster_whisper")
        self.asked: list[object] = []
        self.WhisperModel = lambda *_, **__: self
        self.supported_languages = ["de", "en"]

    def transcribe(self, samples: Samples, language: str | None, **_: object) -> tuple[object, object]:
        self.asked.append(language)
        text = "Chet, links oder rechts? Das ist Jett." if language != "en" else "okay Chet, left or right?"
        return iter([types.SimpleNamespace(text=f" {text} ")]), types.SimpleNamespace(language=language or "de")


@pytest.mark.parametrize(
    ("language", "heard"),
    [
        ("", ["Chet, links oder rechts?", "Das ist Jett."]),
        ("de", ["Chet, links oder rechts?", "Das ist Jett."]),
        ("en", ["okay chat, left or right?"]),
    ],
)
async def test_c9_whisper_hears_other_languages_and_only_english_is_corrected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, language: str, heard: list[str]
) -> None:
    module = FakeWhisper()
    monkeypatch.setitem(sys.modules, "faster_whisper", module)
    (tmp_path / "model.bin").touch()

    async def sound() -> AsyncIterator[bytes]:
        for piece in pieces("..xxxx....."):
            yield piece

    contexts = transcribe_stream(
        sound(), create_recogniser(f"whisper:{tmp_path}", language), "den", SystemClock(), UtteranceDetector(loud)
    )
    assert [context.latest async for context in contexts] == heard
    assert module.asked == [language or None]
    with pytest.raises(AudioUnavailable, match="do not know the language xx"):
        create_recogniser(f"whisper:{tmp_path}", "xx")


class Slow:
    """Returns the first utterance only once it is released."""

    name = "slow"
    english = True

    def __init__(self) -> None:
        self.go = threading.Event()
        self.durations: list[float] = []

    def transcribe(self, samples: Samples) -> str:
        assert self.go.wait(60)
        self.durations.append(len(samples) / SAMPLE_RATE)
        return f"utterance {len(self.durations)}"


async def test_c9_waiting_utterances_are_transcribed_together() -> None:
    recogniser = Slow()

    async def sound() -> AsyncIterator[bytes]:
        for piece in pieces("..xxxx....." * 4):
            await asyncio.sleep(0)
            yield piece
        recogniser.go.set()

    contexts = transcribe_stream(sound(), recogniser, "den", SystemClock(), UtteranceDetector(loud))
    assert [context.latest async for context in contexts] == ["utterance 1", "utterance 2"]
    assert recogniser.durations[1] > 2 * recogniser.durations[0]


@needs_flite
async def test_c9_speech_becomes_a_question_to_the_chat(tmp_path: Path) -> None:
    script = StreamScript(
        line=(
            StreamScriptLine(at=0.3, say="okay chat, should I open the left door or the right door?"),
            StreamScriptLine(at=6, say="oh no, I fell into the pit again"),
        )
    )
    ends = synthesise_script(script, tmp_path / "talk.wav")
    assert len(ends) == 2
    sound = AudioSource(str(tmp_path / "talk.wav"), SystemClock(), speed=4)
    found = [context async for context in transcribe_stream(sound.chunks(), create_recogniser(), "den", SystemClock())]
    spoken = " ".join(context.latest or "" for context in found).casefold()
    assert "open the left door or the right door" in spoken
    assert "pit" in spoken
    kinds = {event.kind for context in found for event in context.events}
    assert {"chat_question", "fail"} <= kinds
    assert all(len(context.to_json().encode()) <= MAX_CONTEXT_BYTES for context in found)


@needs_flite
def test_c9_text_for_flite_is_data() -> None:
    assert len(synthesise("-o /tmp/evil.wav; rm -rf /")) > SAMPLE_RATE
    with pytest.raises(AudioUnavailable, match="16 kHz"):
        synthesise("hello", voice="kal")


def install_ffmpeg(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A program named ffmpeg that behaves as written."""
    program = folder / "ffmpeg"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


async def test_c9_a_stream_that_breaks_off_is_opened_again_and_at_last_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_ffmpeg(tmp_path, monkeypatch, "head -c 4096 /dev/zero; echo 'connection reset' >&2; exit 1")
    chunks: list[bytes] = []
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    with pytest.raises(AudioUnavailable, match="broke off") as caught:
        async for chunk in AudioSource("https://stream.example/live", SystemClock(), sleep=pause).chunks():
            chunks.append(chunk)  # noqa: PERF401 - it ends with an error
    assert pauses == sorted(pauses)
    assert len(pauses) > 5
    assert (len(chunks), "connection reset" in caught.value.fix) == (4 * (len(pauses) + 1), True)


@pytest.mark.parametrize("end", ["exit 1", "echo '  Duration: 00:00:00.00, start: 0' >&2; exit 0"])
async def test_c9_a_stream_that_comes_back_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    mark = tmp_path / "second"
    script = f"head -c 4096 /dev/zero; test -e {mark} && exit 0; touch {mark}; {end}"
    install_ffmpeg(tmp_path, monkeypatch, script)

    async def pause(seconds: float) -> None:
        pass

    source = AudioSource("https://stream.example/live", SystemClock(), sleep=pause)
    assert len([chunk async for chunk in source.chunks()]) == 8


def _endless_wav(samples: int) -> bytes:
    """The beginning of a live stream: a header that says no length, and some sound."""
    form = struct.pack("<IHHIIHH", 16, 1, 1, 16_000, 32_000, 2, 16)
    most = struct.pack("<I", 0xFFFFFFFF)
    return b"RIFF" + most + b"WAVEfmt " + form + b"data" + most + b"\1\2" * samples


@needs_ffmpeg
@pytest.mark.parametrize("drop", ["closed", "silent"])
async def test_c9_a_live_stream_whose_connection_is_lost_is_opened_again(
    drop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A real ffmpeg: it exits without an error when a connection is lost.
    monkeypatch.setattr(media, "_SILENCE_S", 5)
    opened, release = 0, asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal opened
        opened += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: audio/wav\r\nConnection: close\r\n\r\n" + _endless_wav(400_000))
        await writer.drain()
        if drop == "silent":
            await release.wait()
        writer.close()

    async def pause(seconds: float) -> None:
        pass

    heard = 0
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/live"
        async with aclosing(AudioSource(address, SystemClock(), sleep=pause).chunks()) as chunks:  # type: ignore[type-var]
            async for _ in chunks:
                heard += 1
                if opened == 2:
                    break
        release.set()
    assert heard * CHUNK_S > 20, "what the first connection sent was heard"


async def test_c9_a_flood_of_errors_of_ffmpeg_is_kept_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_ffmpeg(tmp_path, monkeypatch, "head -c 5000000 /dev/zero | tr '\\0' 'e' >&2; echo ' the end' >&2; exit 1")
    with pytest.raises(AudioUnavailable, match="no audio") as caught:
        async for _ in AudioSource("https://stream.example/live", SystemClock()).chunks():
            pass
    assert len(caught.value.fix) < 400
    assert "the end" in caught.value.fix
