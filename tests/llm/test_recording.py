"""Record and replay: byte for byte, timings and failures included; scripts are the same thing by hand."""

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
from tests.llm.conftest import Opened, settings_for
from tests.llm.fault_server import FaultServer, fails, says, stops_dead_after

END = Finished(reason="stop", tokens=Tokens(input=3, output=2), model="m")
ASKED = CompletionRequest(model="m", prompt=Prompt.of("Hi."))

chunks = st.one_of(
    st.builds(TextDelta, text=st.text(min_size=1)),
    st.builds(ThinkingDelta, thinking=st.text(min_size=1)),
    st.builds(ToolCallRequested, call=st.builds(ToolCall, id=st.text(), name=st.text(), arguments=st.text())),
)


async def listen(
    provider: Provider, request: CompletionRequest = ASKED
) -> tuple[list[Chunk], errors.ModelError | None]:
    heard: list[Chunk] = []
    try:
        async for chunk in provider.stream(request):
            heard += [chunk]
    except errors.ModelError as error:
        return heard, error
    return heard, None


@given(
    st.lists(st.tuples(st.integers(0, 10**7), chunks), max_size=8),
    st.one_of(st.none(), st.builds(RecordedError, kind=st.just("RateLimited"), retry_after=st.floats(0, 100))),
)
async def test_law_recording_a_replay_gives_the_same_file_byte_for_byte(
    tmp_path_factory: pytest.TempPathFactory, said: list[tuple[int, Chunk]], fault: RecordedError | None
) -> None:
    said.sort(key=lambda pair: pair[0])
    last = said[-1][0] if said else 0
    ended = said if fault else [*said, (last, END)]
    fault = fault and fault.model_copy(update={"at_us": last})
    folder = tmp_path_factory.mktemp("tapes")
    original = RecordedCall(provider="p", request=ASKED, chunks=tuple(ended), error=fault)
    once = await record_replay([original], folder / "once.jsonl")
    twice = await record_replay(read_recording(folder / "once.jsonl"), folder / "twice.jsonl")
    assert once == twice
    assert read_recording(folder / "twice.jsonl") == [original]


async def record_replay(entries: list[RecordedCall], path: Path) -> bytes:
    clock = ManualClock()

    async def sleep(seconds: float) -> None:
        clock.advance(seconds)

    await listen(RecordingProvider(ReplayProvider("p", entries, speed=1.0, sleep=sleep), path, clock))
    return path.read_bytes()


async def test_a_real_run_is_replayed_without_the_provider(opened: Opened, server: FaultServer, tmp_path: Path) -> None:
    tape = tmp_path / "tape.jsonl"
    server.on("first", fails(503), says("I am ", "Mara."))

    async def run(models: Models) -> list[object]:
        reply = models.stream(Role.NARRATIVE, Prompt.of("Who are you?", system="You are Mara."))
        heard: list[object] = [chunk async for chunk in reply]
        heard.append((reply.answer.text, reply.answer.tokens, reply.answer.model))
        return heard

    async def no_wait(seconds: float) -> None:
        pass

    settings = settings_for(server)
    recording = opened(settings, sleep=no_wait, wrap=lambda provider: RecordingProvider(provider, tape, ManualClock()))
    live = await run(recording)
    asked = server.count("first")
    replayed = await run(
        Models(settings, sleep=no_wait, providers={"here": ReplayProvider("here", read_recording(tape))})
    )
    assert replayed == live
    assert server.count("first") == asked == 2


async def test_the_recorded_pace_can_be_kept() -> None:
    naps: list[float] = []

    async def nap(seconds: float) -> None:
        naps.append(round(seconds, 6))

    entry = RecordedCall(chunks=((250_000, TextDelta(text="a")), (400_000, END)))
    await listen(ReplayProvider("p", [entry], speed=2.0, sleep=nap))
    assert naps == [0.5, 0.3]


async def test_a_reply_that_was_stopped_is_recorded_as_such(
    opened: Opened, server: FaultServer, tmp_path: Path
) -> None:
    tape = tmp_path / "tape.jsonl"
    server.on("first", stops_dead_after("One", " two"))
    models = opened(settings_for(server), wrap=lambda provider: RecordingProvider(provider, tape, ManualClock()))
    async with models.stream(Role.NARRATIVE, Prompt.of("Count.")) as reply:
        async for _ in reply:
            if reply.text == "One two":
                break
    (entry,) = read_recording(tape)
    assert entry.stopped_us == 0
    assert "".join(chunk.text for _, chunk in entry.chunks if isinstance(chunk, TextDelta)) == "One two"


async def test_a_script_answers_in_order_by_what_is_said_and_then_says_that_it_ran_out() -> None:
    player = ReplayProvider(
        "p",
        [
            RecordedCall(say="Mara.", when="name"),
            RecordedCall(say="One two"),
            RecordedCall(error=RecordedError(kind="Overloaded")),
        ],
    )
    assert [chunk.text for chunk in (await listen(player))[0] if isinstance(chunk, TextDelta)] == ["One ", "two"]
    named = CompletionRequest(model="m", prompt=Prompt.of("What is your name?"))
    assert (await listen(player, named))[0][0] == TextDelta(text="Mara.")
    assert isinstance((await listen(player))[1], errors.Overloaded)
    assert isinstance((await listen(player))[1], errors.NothingRecorded)
    assert len(player.requests) == 4


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


async def test_another_providers_lines_are_left_alone() -> None:
    heard, error = await listen(ReplayProvider("p", [RecordedCall(provider="q", say="Not for you.")]))
    assert heard == []
    assert isinstance(error, errors.NothingRecorded)


class _TwoHalves:
    name = "p"

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk, None]:
        for text in ("My key is sk-abcdefgh", "ijklmnopqrstuv", ", keep it."):
            yield TextDelta(text=text)
        yield END

    async def close(self) -> None:
        pass


async def test_d18_a_secret_streamed_in_two_halves_is_not_in_the_recording(tmp_path: Path) -> None:
    tape = tmp_path / "tape.jsonl"
    await listen(RecordingProvider(_TwoHalves(), tape, ManualClock()))
    text = tape.read_text()
    assert "abcdefgh" not in text
    assert "ijklmnop" not in text
    assert "My key is [secret], keep it." in text


async def test_models_without_a_script_are_forbidden_in_tests(opened: Opened) -> None:
    settings = ModelsSettings.model_validate(
        {"providers": {"x": {"base_url": "http://127.0.0.1:1/v1"}}, "roles": {"narrative": "x/y"}}
    )
    for given_settings in (settings, ModelsSettings()):
        models = opened(given_settings)
        with pytest.raises(errors.RequestsForbidden, match="switched off"):
            await models.ask(Role.NARRATIVE, Prompt.of("Hi."))
