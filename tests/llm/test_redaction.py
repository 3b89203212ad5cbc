"""Seeded keys never get out: logs, events, errors and recordings are searched for them in every encoding (D18, S29)."""

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
from tests.llm.fault_server import Behaviour, FaultServer, Wire, fails, resets_after, says

KEY = "k3y+of/the=house&7f3a91c2d4e5"
FORMS = {
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


def shouts(code: int) -> Behaviour:
    """A provider that quotes the key in its error, in every encoding: it happens."""
    return fails(code, message=f"Bad key {' '.join(FORMS.values())}", kind="authentication_error")


async def echoes_the_key(wire: Wire) -> None:
    await wire.begin()
    await wire.words("Your key is ", KEY[:10], KEY[10:], ".")
    await wire.end()


async def test_d18_a_seeded_key_is_nowhere(server: FaultServer, tmp_path: Path, log: io.StringIO) -> None:
    clock, tape = ManualClock(), tmp_path / "tape.jsonl"
    preset = 'preset = "anthropic"\n' if server.anthropic else ""
    config = tmp_path / "config.toml"
    config.write_text(
        f'[models.providers.here]\n{preset}base_url = "{server.url}"\napi_key = "env:HOUSE_KEY"\n'
        '[models.roles]\nnarrative = ["here/first", "here/second"]\nclassifier = "here/third"\n'
    )
    from pydantic import BaseModel

    class Root(BaseModel):
        models: ModelsSettings = ModelsSettings()

    settings = load_config(Root, file=config, environ={"HOUSE_KEY": KEY}).settings.models

    async def no_wait(seconds: float) -> None:
        pass

    store = Store.open(tmp_path / "c.db", projections=[UsageProjection()], clock=clock)
    models = Models(
        settings,
        clock=clock,
        store=store,
        sleep=no_wait,
        wrap=lambda provider: RecordingProvider(provider, tape, clock),
    )
    caller = Caller(room="room:1", character="mara")
    told: list[str] = []
    for behaviour in (
        shouts(401),
        shouts(400),
        shouts(429),
        shouts(503),
        resets_after("Half"),
        echoes_the_key,
        says("Hi"),
    ):
        server.on("first", behaviour)
        server.on("second", shouts(503))
        try:
            await models.stream(Role.NARRATIVE, Prompt.of("Who are you?"), caller=caller).finish()
        except errors.ModelError as error:
            told += [str(error), repr(error), *map(str, getattr(error, "failures", ()))]
            get_logger("test").exception("failed", error=error, settings=repr(settings))
    server.on("third", says(f"My key is {KEY}, not JSON."))
    found = await classify(models, ProbeForm, Prompt.of("Fill in the form."), caller=caller)
    assert found.failure is not None
    assert "[secret]" in found.failure.raw
    events = [event.payload.model_dump_json() for event in await store.read("instance")]
    await models.close()
    store.close()
    places = {
        "log": log.getvalue(),
        "errors": "\n".join(told),
        "events": "\n".join(events),
        "recording": tape.read_text(),
        "database": (tmp_path / "c.db").read_bytes().decode("latin-1"),
    }
    assert all(places.values())
    assert len(told) >= 4
    assert any(KEY in head for head in server.headers)  # It did reach the provider: that is what it is for.
    leaks = [(place, form) for place, text in places.items() for form, value in FORMS.items() if value in text]
    assert leaks == []
