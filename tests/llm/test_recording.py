"""Recording and replay of model calls, with timings and failures, and hand-written scripts."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.base.clock import ManualClock
from coterie.base.errors import ConfigError
from coterie.llm import errors
from coterie.llm.messages import (
    Chunk,
    CompletionRequest,
    Finished,
    Prompt,
    Provider,
    TextDelta,
    ThinkingDelta,
    Tokens,
    ToolCall,
    ToolCallRequested,
)
from coterie.llm.recording import RecordedCall, RecordedError, RecordingProvider, ReplayProvider, read_recording
from coterie.llm.router import Models
from coterie.llm.settings import ModelsSettings, Role
from tests.llm.conftest import MakeModels, settings_for
from tests.llm.fault_server import FaultServer, fails, hangs_after, says

END = Finished(reason="stop", tokens=Tokens(input=3, output=2), model="m")
REQUEST = CompletionRequest(model="m", prompt=Prompt.of("Hi."))

chunks = st.one_of(
    st.builds(TextDelta, text=st.text(min_size=1)),
    st.builds(ThinkingDelta, thinking=st.text(min_size=1)),
    st.builds(ToolCallRequested, call=st.builds(ToolCall, id=st.text(), name=st.text(), arguments=st.text())),
)


async def read_all(
    provider: Provider, request: CompletionRequest = REQUEST
) -> tuple[list[Chunk], errors.ModelError | None]:
    received: list[Chunk] = []
    try:
        async for chunk in provider.stream(request):
            received += [chunk]
    except errors.ModelError as error:
        return received, error
    return received, None


@given(
    st.lists(st.tuples(st.integers(0, 10**7), chunks), max_size=8),
    st.one_of(st.none(), st.builds(RecordedError, kind=st.just("RateLimited"), retry_after=st.floats(0, 100))),
)
async def test_law_recording_a_replay_gives_the_same_file_byte_for_byte(
    tmp_path_factory: pytest.TempPathFactory, sent: list[tuple[int, Chunk]], error: RecordedError | None
) -> None:
    sent.sort(key=lambda pair: pair[0])
    last = sent[-1][0] if sent else 0
    ended = sent if error else [*sent, (last, END)]
    error = error and error.model_copy(update={"at_us": last})
    folder = tmp_path_factory.mktemp("recordings")
    original = RecordedCall(provider="p", request=REQUEST, chunks=tuple(ended), error=error)
    once = await record_replay([original], folder / "once.jsonl")
    twice = await record_replay(read_recording(folder / "once.jsonl"), folder / "twice.jsonl")
    assert once == twice
    assert read_recording(folder / "twice.jsonl") == [original]


async def record_replay(entries: list[RecordedCall], path: Path) -> bytes:
    clock = ManualClock()

    async def sleep(seconds: float) -> None:
        clock.advance(seconds)

    await read_all(RecordingProvider(ReplayProvider("p", entries, speed=1.0, sleep=sleep), path, clock))
    return path.read_bytes()


async def test_a_real_run_is_replayed_without_the_provider(
    make_models: MakeModels, server: FaultServer, tmp_path: Path
) -> None:
    recording_file = tmp_path / "recording.jsonl"
    server.on("first", fails(503), says("I am ", "Mara."))

    async def run(models: Models) -> list[object]:
        reply = models.stream(Role.NARRATIVE, Prompt.of("Who are you?", system="You are Mara."))
        received: list[object] = [chunk async for chunk in reply]
        received.append((reply.answer.text, reply.answer.tokens, reply.answer.model))
        return received

    async def no_wait(seconds: float) -> None:
        pass

    settings = settings_for(server)
    recording = make_models(
        settings, sleep=no_wait, wrap=lambda provider: RecordingProvider(provider, recording_file, ManualClock())
    )
    live = await run(recording)
    requests = server.count("first")
    replayed = await run(
        Models(settings, sleep=no_wait, providers={"here": ReplayProvider("here", read_recording(recording_file))})
    )
    assert replayed == live
    assert server.count("first") == requests == 2


async def test_the_recorded_timing_can_be_kept() -> None:
    sleeps: list[float] = []

    async def record_sleep(seconds: float) -> None:
        sleeps.append(round(seconds, 6))

    entry = RecordedCall(chunks=((250_000, TextDelta(text="a")), (400_000, END)))
    await read_all(ReplayProvider("p", [entry], speed=2.0, sleep=record_sleep))
    assert sleeps == [0.5, 0.3]


async def test_a_stopped_reply_is_recorded_as_stopped(
    make_models: MakeModels, server: FaultServer, tmp_path: Path
) -> None:
    recording_file = tmp_path / "recording.jsonl"
    server.on("first", hangs_after("One", " two"))
    models = make_models(
        settings_for(server), wrap=lambda provider: RecordingProvider(provider, recording_file, ManualClock())
    )
    async with models.stream(Role.NARRATIVE, Prompt.of("Count.")) as reply:
        async for _ in reply:
            if reply.text == "One two":
                break
    (entry,) = read_recording(recording_file)
    assert entry.stopped_us == 0
    assert "".join(chunk.text for _, chunk in entry.chunks if isinstance(chunk, TextDelta)) == "One two"


async def test_a_script_answers_in_order_by_matching_text_until_it_is_exhausted() -> None:
    replay = ReplayProvider(
        "p",
        [
            RecordedCall(say="Mara.", when="name"),
            RecordedCall(say="One two"),
            RecordedCall(error=RecordedError(kind="Overloaded")),
        ],
    )
    assert [chunk.text for chunk in (await read_all(replay))[0] if isinstance(chunk, TextDelta)] == ["One ", "two"]
    named = CompletionRequest(model="m", prompt=Prompt.of("What is your name?"))
    assert (await read_all(replay, named))[0][0] == TextDelta(text="Mara.")
    assert isinstance((await read_all(replay))[1], errors.Overloaded)
    assert isinstance((await read_all(replay))[1], errors.NothingRecorded)
    assert len(replay.requests) == 4


def test_a_script_is_a_file_of_lines(tmp_path: Path) -> None:
    file = tmp_path / "script.jsonl"
    file.write_text('{"say": "Hello."}\n\n{"error": {"kind": "RateLimited", "retry_after": 5}}\n')
    hello, limited = read_recording(file)
    assert hello.say == "Hello."
    assert limited.error is not None
    assert isinstance(limited.error.to_error(), errors.RateLimited)
    file.write_text('{"say": "Hello."}\n{"sya": 1}\n')
    with pytest.raises(ConfigError, match="Line 2"):
        read_recording(file)
    with pytest.raises(ConfigError, match="unknown error"):
        RecordedError(kind="Nonsense").to_error()


async def test_entries_of_other_providers_are_not_used() -> None:
    received, error = await read_all(ReplayProvider("p", [RecordedCall(provider="q", say="Not for you.")]))
    assert received == []
    assert isinstance(error, errors.NothingRecorded)


class _TwoHalves:
    name = "p"

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk, None]:
        for text in ("My key is sk-abcdefgh", "ijklmnopqrstuv", ", keep it."):
            yield TextDelta(text=text)
        yield END

    async def close(self) -> None:
        pass


async def test_d18_a_secret_split_over_two_chunks_is_masked_in_the_recording(tmp_path: Path) -> None:
    recording_file = tmp_path / "recording.jsonl"
    await read_all(RecordingProvider(_TwoHalves(), recording_file, ManualClock()))
    text = recording_file.read_text()
    assert "abcdefgh" not in text
    assert "ijklmnop" not in text
    assert "My key is [secret], keep it." in text


async def test_real_requests_are_forbidden_in_tests(make_models: MakeModels) -> None:
    settings = ModelsSettings.model_validate(
        {"providers": {"x": {"base_url": "http://127.0.0.1:1/v1"}}, "roles": {"narrative": "x/y"}}
    )
    for given_settings in (settings, ModelsSettings()):
        models = make_models(given_settings)
        with pytest.raises(errors.RequestsForbidden, match="switched off"):
            await models.ask(Role.NARRATIVE, Prompt.of("Hi."))
