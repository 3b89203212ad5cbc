"""D18, S29: a seeded key is searched for in logs, events, errors and recordings, in several encodings."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
import structlog

from coterie.base.clock import ManualClock
from coterie.base.config import load_config
from coterie.base.logging import LogSettings, get_logger, setup_logging
from coterie.base.redaction import redact
from coterie.eventstore import Store
from coterie.llm import errors
from coterie.llm.messages import (
    Chunk,
    Finished,
    Image,
    Prompt,
    PromptMessage,
    TextDelta,
    ThinkingDelta,
    Tokens,
    ToolCall,
    ToolSpec,
)
from coterie.llm.provider_health import ProbeForm
from coterie.llm.recording import RecordedCall, RecordedError, RecordingProvider, ReplayProvider
from coterie.llm.router import Caller, Models
from coterie.llm.settings import ModelDetails, ModelsSettings, Role
from coterie.llm.structured import classify
from coterie.llm.usage import UsageProjection
from tests.llm.fault_server import Behaviour, Connection, FaultServer, fails, resets_after, says

KEY = "k3y+of/the=server&7f3a91c2d4e5"
ENCODINGS = {
    "plain": KEY,
    "base64": base64.b64encode(KEY.encode()).decode(),
    "hex": KEY.encode().hex(),
    "url": quote(KEY, safe=""),
}


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    setup_logging(LogSettings(level="debug", format="json"), stream=stream)
    yield stream
    structlog.reset_defaults()


def quotes_the_key(code: int) -> Behaviour:
    """An error response that quotes the key in every encoding."""
    return fails(code, message=f"Bad key {' '.join(ENCODINGS.values())}", kind="authentication_error")


async def echoes_the_key(connection: Connection) -> None:
    await connection.begin()
    await connection.send_text("Your key is ", KEY[:10], KEY[10:], ".")
    await connection.end()


async def test_d18_a_seeded_key_appears_in_no_output(server: FaultServer, tmp_path: Path, log: io.StringIO) -> None:
    clock, recording_file = ManualClock(), tmp_path / "recording.jsonl"
    preset = 'preset = "anthropic"\n' if server.anthropic else ""
    config = tmp_path / "config.toml"
    config.write_text(
        f'[models.providers.here]\n{preset}base_url = "{server.url}"\napi_key = "env:SERVER_KEY"\n'
        '[models.roles]\nnarrative = ["here/first", "here/second"]\nclassifier = "here/third"\n'
    )
    from pydantic import BaseModel

    class Root(BaseModel):
        models: ModelsSettings = ModelsSettings()

    settings = load_config(Root, file=config, environ={"SERVER_KEY": KEY}).settings.models

    async def no_wait(seconds: float) -> None:
        pass

    store = Store.open(tmp_path / "c.db", projections=[UsageProjection()], clock=clock)
    models = Models(
        settings,
        clock=clock,
        store=store,
        sleep=no_wait,
        wrap=lambda provider: RecordingProvider(provider, recording_file, clock),
    )
    caller = Caller(room="room:1", character="mara")
    messages: list[str] = []
    for behaviour in (
        quotes_the_key(401),
        quotes_the_key(400),
        quotes_the_key(429),
        quotes_the_key(503),
        resets_after("Half"),
        echoes_the_key,
        says("Hi"),
    ):
        server.on("first", behaviour)
        server.on("second", quotes_the_key(503))
        try:
            await models.stream(Role.NARRATIVE, Prompt.of("Who are you?"), caller=caller).finish()
        except errors.ModelError as error:
            messages += [str(error), repr(error), *map(str, getattr(error, "failures", ()))]
            get_logger("test").exception("failed", error=error, settings=repr(settings))
    server.on("third", says(f"My key is {KEY}, not JSON."))
    found = await classify(models, ProbeForm, Prompt.of("Fill in the form."), caller=caller)
    assert found.failure is not None
    assert "[secret]" in found.failure.raw
    events = [event.payload.model_dump_json() for event in await store.read("instance")]
    await models.close()
    store.close()
    outputs = {
        "log": log.getvalue(),
        "errors": "\n".join(messages),
        "events": "\n".join(events),
        "recording": recording_file.read_text(),
        "database": (tmp_path / "c.db").read_bytes().decode("latin-1"),
    }
    assert all(outputs.values())
    assert len(messages) >= 4
    assert any(KEY in head for head in server.headers)  # the provider did receive it
    leaks = [
        (output, encoding) for output, text in outputs.items() for encoding, value in ENCODINGS.items() if value in text
    ]
    assert leaks == []


async def test_no_prompt_with_a_secret_reaches_a_provider_in_any_part_of_it() -> None:
    redact.register(KEY)
    secret = " ".join([*ENCODINGS.values(), "sk-proj-abcdefghij0123456789"])
    arguments = json.dumps({"text": f"-----BEGIN PRIVATE KEY-----\n{secret}", "n": 1})
    call = ToolCall(id="1", name="send", arguments=arguments)
    prompt = Prompt(
        messages=(
            PromptMessage(role="system", text=f"Never say {secret}."),
            PromptMessage(role="user", text=secret, images=(Image(media_type="image/png", data=b"cGl4ZWxz"),)),
            PromptMessage(role="assistant", text=secret, calls=(call,)),
            PromptMessage(role="tool", text=secret, answers=call),
        ),
        tools=(ToolSpec(name="send", description=secret, parameters={"properties": {"to": {"description": secret}}}),),
    )
    for role in (Role.NARRATIVE, Role.CLASSIFIER):
        provider = ReplayProvider("embedded", [RecordedCall(say="Done."), RecordedCall(say="Done.")])
        sees = ModelsSettings(details={"embedded/smollm2": ModelDetails(vision=True)})
        models = Models(sees, providers={"embedded": provider})
        await models.ask(role, prompt)
        await models.stream(role, prompt).finish()
        assert len(provider.requests) == 2
        for request in provider.requests:
            sent = request.model_dump_json()
            assert [name for name, form in ENCODINGS.items() if form in sent] == []
            assert "sk-proj" not in sent and "BEGIN PRIVATE KEY" not in sent
            assert json.loads(request.prompt.messages[2].calls[0].arguments) == {"text": "[secret]", "n": 1}
            assert request.prompt.messages[1].images == prompt.messages[1].images


@pytest.mark.parametrize("size", [1, 3, 7, 100])
async def test_a_secret_that_a_model_streams_in_parts_is_never_shown(size: int) -> None:
    redact.register(KEY)
    for form in (*ENCODINGS.values(), "sk-proj-abcdefghij0123456789"):
        text = f"Your key is {form} and that is all."
        parts = [text[start : start + size] for start in range(0, len(text), size)]
        end = Finished(reason="stop", tokens=Tokens(output=1), model="script")
        chunks: list[Chunk] = [ThinkingDelta(thinking=part) for part in parts]
        chunks += [*(TextDelta(text=part) for part in parts), end]
        provider = ReplayProvider("embedded", [RecordedCall(chunks=tuple((0, chunk) for chunk in chunks))])
        models = Models(ModelsSettings(), providers={"embedded": provider})
        reply = models.stream(Role.NARRATIVE, Prompt.of("Which key?"))
        shown = "".join([chunk.text async for chunk in reply if isinstance(chunk, TextDelta)])
        assert shown == "Your key is [secret] and that is all."
        assert reply.answer.text == reply.answer.thinking == shown


async def test_text_that_was_held_back_is_kept_when_the_stream_breaks() -> None:
    redact.register(KEY)
    broken = RecordedCall(say=f"It begins with {KEY[:4]}", error=RecordedError(kind="ServerFault"))
    models = Models(ModelsSettings(), providers={"embedded": ReplayProvider("embedded", [broken])})
    reply = models.stream(Role.NARRATIVE, Prompt.of("How does it begin?"))
    with pytest.raises(errors.ModelError):
        await reply.finish()
    assert reply.text == f"It begins with {KEY[:4]}"
