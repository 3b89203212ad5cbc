"""Fixtures for model tests. Real requests are forbidden, except to the fault server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

# Imported before any test starts: it takes seconds, and some tests have timeouts of a fraction of one.
import pydantic_ai.models.anthropic
import pydantic_ai.models.openai  # noqa: F401
import pytest

from coterie.llm.hosted import real_requests
from coterie.llm.router import Models
from coterie.llm.settings import ModelsSettings, ProviderSettings
from tests.llm.fault_server import FaultServer


@pytest.fixture(autouse=True)
def no_real_requests() -> Iterator[None]:
    with real_requests(allowed=False):
        yield


@pytest.fixture(params=["openai", "anthropic"])
async def server(request: pytest.FixtureRequest) -> AsyncIterator[FaultServer]:
    with real_requests(allowed=True):
        async with FaultServer(anthropic=request.param == "anthropic").running() as running:
            yield running


@pytest.fixture
async def openai_server() -> AsyncIterator[FaultServer]:
    with real_requests(allowed=True):
        async with FaultServer().running() as running:
            yield running


def settings_for(server: FaultServer, chain: tuple[str, ...] = ("first", "second"), **more: object) -> ModelsSettings:
    """Settings whose narrative chain consists of models of the fault server."""
    preset = "anthropic" if server.anthropic else "openai-compatible"
    provider = ProviderSettings.model_validate(
        {"preset": preset, "base_url": server.url, "api_key": "key-for-tests-only", "native_schema": True}
    )
    values: dict[str, object] = {
        "providers": {"here": provider},
        "roles": {"narrative": [f"here/{model}" for model in chain]},
        "first_token_s": 60,
        "idle_s": 60,
        **more,
    }
    return ModelsSettings.model_validate(values)


class SleepRecorder:
    """Replaces `asyncio.sleep` between attempts and records the durations."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


@pytest.fixture
def sleeps() -> SleepRecorder:
    return SleepRecorder()


MakeModels = Callable[..., Models]


@pytest.fixture
async def make_models() -> AsyncIterator[MakeModels]:
    """A factory for `Models`, which are closed after the test."""
    created: list[Models] = []

    def make(settings: ModelsSettings, **options: Any) -> Models:
        created.append(Models(settings, **options))
        return created[-1]

    yield make
    for models in created:
        await models.close()


@pytest.fixture
async def models(server: FaultServer, sleeps: SleepRecorder, make_models: MakeModels) -> Models:
    return make_models(settings_for(server), sleep=sleeps)
