"""No test of this room reaches a real provider; those that speak to the fault server say so by using it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

# Imported before any test's clock runs: it takes seconds, and some tests allow a fraction of one.
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
    """Settings whose narrative chain is made of models at the fault server."""
    preset = "anthropic" if server.anthropic else "openai-compatible"
    given = ProviderSettings.model_validate(
        {"preset": preset, "base_url": server.url, "api_key": "key-for-tests-only", "native_schema": True}
    )
    values: dict[str, object] = {
        "providers": {"here": given},
        "roles": {"narrative": [f"here/{model}" for model in chain]},
        "first_token_s": 60,
        "idle_s": 60,
        **more,
    }
    return ModelsSettings.model_validate(values)


class Naps:
    """Stands in for `asyncio.sleep` between tries: notes how long it would have been."""

    def __init__(self) -> None:
        self.taken: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.taken.append(seconds)


@pytest.fixture
def naps() -> Naps:
    return Naps()


Opened = Callable[..., Models]


@pytest.fixture
async def opened() -> AsyncIterator[Opened]:
    """Makes `Models`, and closes them at the end, however the test ends."""
    made: list[Models] = []

    def make(settings: ModelsSettings, **options: Any) -> Models:
        made.append(Models(settings, **options))
        return made[-1]

    yield make
    for models in made:
        await models.close()


@pytest.fixture
async def models(server: FaultServer, naps: Naps, opened: Opened) -> Models:
    return opened(settings_for(server), sleep=naps)
