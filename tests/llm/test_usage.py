"""D10: every call is recorded as an event, and daily caps apply across restarts until local midnight."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from coterie.base.clock import ManualClock
from coterie.eventstore import Store
from coterie.llm import errors
from coterie.llm.messages import Chunk, CompletionRequest, Finished, Prompt, TextDelta, Tokens
from coterie.llm.recording import RecordedCall, RecordedError, ReplayProvider
from coterie.llm.router import Caller, Models
from coterie.llm.settings import Catalogue, ModelsSettings, Role, Target
from coterie.llm.usage import ModelCalled, Prices, UsageProjection, UsageTotal

NEW_YORK = ZoneInfo("America/New_York")
PROMPT = Prompt.of("Hi.", max_tokens=100)


def answers(request: CompletionRequest) -> RecordedCall:
    end: Chunk = Finished(reason="stop", tokens=Tokens(input=1_000, output=100), model="m")
    return RecordedCall(chunks=((0, TextDelta(text="Hello.")), (0, end)))


def settings(**caps: float) -> ModelsSettings:
    return ModelsSettings.model_validate(
        {
            "providers": {"paid": {"base_url": "http://127.0.0.1:1/v1"}},
            "roles": {"narrative": "paid/m", "classifier": "embedded/smollm2"},
            "details": {"paid/m": {"usd_per_million_in": 100, "usd_per_million_out": 1000}},
            "caps": caps,
        }
    )


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(datetime(2026, 3, 10, 23, 30, tzinfo=UTC))  # 19:30 in New York


@pytest.fixture
def stores(tmp_path: Path, clock: ManualClock) -> Iterator[list[Store]]:
    """The open store; `open_models` closes it and opens the file again, as after a restart."""
    make_models: list[Store] = []
    yield make_models
    for store in make_models:
        store.close()


def open_models(path: Path, clock: ManualClock, stores: list[Store], **caps: float) -> Models:
    while stores:
        stores.pop().close()
    stores.append(Store.open(path / "c.db", projections=[UsageProjection()], clock=clock))
    replays = {name: ReplayProvider(name, default=answers) for name in ("paid", "embedded")}
    return Models(settings(**caps), clock=clock, store=stores[-1], zone=NEW_YORK, providers=replays)


async def test_d10_every_call_is_recorded_with_its_room_and_character(
    tmp_path: Path, clock: ManualClock, stores: list[Store]
) -> None:
    models = open_models(tmp_path, clock, stores)
    await models.ask(Role.NARRATIVE, PROMPT, caller=Caller(room="room:1", character="mara"))
    (event,) = await stores[0].read("instance")
    called = event.payload
    assert isinstance(called, ModelCalled)
    assert (called.day, called.role, called.provider, called.model) == ("2026-03-10", "narrative", "paid", "m")
    assert (called.room, called.character, called.outcome) == ("room:1", "mara", "answered")
    assert (called.tokens_in, called.tokens_out, called.estimated) == (1_000, 100, False)
    assert (called.usd_micros, called.priced) == (200_000, "known")
    assert stores[0].query("SELECT room, character, calls, usd_micros FROM llm_usage") == [
        ("room:1", "mara", 1, 200_000)
    ]


async def test_d10_the_cap_stops_calls_with_a_clear_error(
    tmp_path: Path, clock: ManualClock, stores: list[Store]
) -> None:
    models = open_models(tmp_path, clock, stores, usd_per_day=0.55)
    await models.ask(Role.NARRATIVE, PROMPT)
    await models.ask(Role.NARRATIVE, PROMPT)
    with pytest.raises(errors.CapReached) as caught:
        await models.ask(Role.NARRATIVE, PROMPT.model_copy(update={"max_tokens": 200}))
    assert caught.value.what.startswith("Today's cap of $0.55 does not allow this call: $0.40 is spent or reserved")
    assert "local midnight, in 4 h 30 min" in caught.value.fix
    assert "usd_per_day" in caught.value.fix
    provider = models.provider(Target("paid", "any"))
    assert isinstance(provider, ReplayProvider)
    assert len(provider.requests) == 2


async def test_d10_the_cap_survives_a_restart_and_resets_at_local_midnight(
    tmp_path: Path, clock: ManualClock, stores: list[Store]
) -> None:
    models = open_models(tmp_path, clock, stores, calls_per_day=1)
    await models.ask(Role.NARRATIVE, PROMPT)
    models = open_models(tmp_path, clock, stores, calls_per_day=1)
    with pytest.raises(errors.CapReached, match="cap of 1 calls is used up"):
        await models.ask(Role.NARRATIVE, PROMPT)
    clock.advance(45 * 60)  # past midnight in UTC, but not in New York
    assert clock.now().day == 11
    with pytest.raises(errors.CapReached):
        await models.ask(Role.NARRATIVE, PROMPT)
    clock.advance(3.75 * 3600 - 1)
    with pytest.raises(errors.CapReached):
        await models.ask(Role.NARRATIVE, PROMPT)
    clock.advance(2)
    assert (await models.ask(Role.NARRATIVE, PROMPT)).text == "Hello."
    with pytest.raises(errors.CapReached):
        await models.ask(Role.NARRATIVE, PROMPT)


async def test_d10_a_cap_on_tokens(tmp_path: Path, clock: ManualClock, stores: list[Store]) -> None:
    models = open_models(tmp_path, clock, stores, tokens_per_day=1_200)
    await models.ask(Role.NARRATIVE, PROMPT)
    with pytest.raises(errors.CapReached, match=r"cap of 1,200 tokens .* 1,100 are used"):
        await models.ask(Role.NARRATIVE, PROMPT)


async def test_d10_free_models_are_not_capped(tmp_path: Path, clock: ManualClock, stores: list[Store]) -> None:
    models = open_models(tmp_path, clock, stores, usd_per_day=0, calls_per_day=0, tokens_per_day=0)
    with pytest.raises(errors.CapReached):
        await models.ask(Role.NARRATIVE, PROMPT)
    assert (await models.ask(Role.CLASSIFIER, PROMPT)).text == "Hello."
    assert models.ledger.total() == UsageTotal()


async def test_d10_concurrent_calls_cannot_exceed_the_cap_together(
    tmp_path: Path, clock: ManualClock, stores: list[Store]
) -> None:
    models = open_models(tmp_path, clock, stores, calls_per_day=3)
    results = await asyncio.gather(*(models.ask(Role.NARRATIVE, PROMPT) for _ in range(10)), return_exceptions=True)
    assert sum(isinstance(result, errors.CapReached) for result in results) == 7
    assert models.ledger.total().calls == 3


async def test_failed_and_stopped_calls_are_recorded_too(
    tmp_path: Path, clock: ManualClock, stores: list[Store]
) -> None:
    models = open_models(tmp_path, clock, stores)
    provider = models.provider(Target("paid", "any"))
    assert isinstance(provider, ReplayProvider)
    provider._entries = [RecordedCall(error=RecordedError(kind="KeyRejected"))]
    with pytest.raises(errors.KeyRejected):
        await models.ask(Role.NARRATIVE, PROMPT)
    async with models.stream(Role.NARRATIVE, PROMPT) as reply:
        async for _ in reply:
            break
    failed, stopped = [event.payload for event in await stores[0].read("instance")]
    assert isinstance(failed, ModelCalled)
    assert (failed.outcome, failed.error, failed.usd_micros) == ("failed", "KeyRejected", 0)
    assert isinstance(stopped, ModelCalled)
    assert (stopped.outcome, stopped.estimated) == ("stopped", True)
    assert stopped.tokens_in > 0
    assert stopped.usd_micros > 0


async def test_without_a_store_the_cap_applies_to_this_process() -> None:
    models = Models(settings(calls_per_day=1), providers={"paid": ReplayProvider("paid", default=answers)})
    await models.ask(Role.NARRATIVE, PROMPT)
    with pytest.raises(errors.CapReached):
        await models.ask(Role.NARRATIVE, PROMPT)


def test_prices_come_from_the_settings_then_the_list_then_an_assumption() -> None:
    made = settings().model_copy(update={"provider": "featherless"})
    prices = Prices(Catalogue(made))
    million = Tokens(input=1_000_000, output=0)
    assert prices.price(Target.parse("paid/m"), million).usd_micros == 100_000_000
    assert prices.price(Target.parse("openai/gpt-4o"), million).basis == "known"
    assert prices.price(Target.parse("openai/gpt-4o"), million).usd_micros > 0
    unknown = prices.price(Target.parse("paid/unlisted"), million)
    assert (unknown.basis, unknown.usd_micros) == ("assumed", 10_000_000)
    assert prices.price(Target.parse("featherless/any"), million).basis == "flat"
    assert prices.price(Target.parse("ollama/any"), million).basis == "free"


async def test_rewinding_a_chat_does_not_change_its_cost(
    tmp_path: Path, clock: ManualClock, stores: list[Store]
) -> None:
    models = open_models(tmp_path, clock, stores)
    await models.ask(Role.NARRATIVE, PROMPT, caller=Caller(room="room:1"))
    assert await stores[0].head("room:1") == 0
    assert models.ledger.total().calls == 1
