"""D18, S29: a seeded key is searched for in logs, events, errors and recordings, in several encodings."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
import structlog

from coterie.base.clock import ManualClock
from coterie.base.config import load_config
from coterie.base.logging import LogSettings, get_logger, setup_logging
from coterie.eventstore import Store
from coterie.llm import errors
from coterie.llm.messages import Prompt
from coterie.llm.provider_health import ProbeForm
from coterie.llm.recording import RecordingProvider
from coterie.llm.router import Caller, Models
from coterie.llm.settings import ModelsSettings, Role
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
