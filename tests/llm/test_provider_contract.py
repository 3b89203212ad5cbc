"""The provider contract for hosted, replayed and recorded models; tests/real has the embedded model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coterie.base.clock import SystemClock
from coterie.llm.hosted import HostedProvider
from coterie.llm.messages import CompletionRequest, Provider
from coterie.llm.recording import RecordedCall, RecordingProvider, ReplayProvider
from coterie.llm.settings import Catalogue
from tests.contracts.provider_contract import ProviderContract
from tests.llm.conftest import settings_for
from tests.llm.fault_server import Connection, FaultServer


async def answers_in_requested_format(connection: Connection) -> None:
    asks_for_json = (
        "response_format" in connection.body or "output_config" in connection.body or "output_format" in connection.body
    )
    await connection.begin()
    for words in ('{"name": "Mara",', ' "age": 7}') if asks_for_json else ("Hello", " there."):
        await connection.send_text(words)
        await asyncio.sleep(0.02)  # otherwise both are read as one chunk
    await connection.end()


def scripted(request: CompletionRequest) -> RecordedCall:
    return RecordedCall(say='{"name": "Mara", "age": 7}' if request.prompt.output_schema else "Hello there.")


@pytest.mark.filterwarnings("ignore:Sampling parameters:UserWarning")
class TestHosted(ProviderContract):
    @pytest.fixture
    async def provider(self, server: FaultServer) -> AsyncIterator[Provider]:
        self.model = "claude-opus-5" if server.anthropic else "first"
        server.on(self.model, answers_in_requested_format)
        hosted = HostedProvider(Catalogue(settings_for(server)).spec("here"))
        yield hosted
        await hosted.close()


class TestReplay(ProviderContract):
    @pytest.fixture
    def provider(self) -> Provider:
        return ReplayProvider("script", default=scripted)


class TestRecording(ProviderContract):
    @pytest.fixture
    def provider(self, tmp_path: Path) -> Provider:
        return RecordingProvider(
            ReplayProvider("script", default=scripted), tmp_path / "recording.jsonl", SystemClock()
        )
