"""The provider contract for hosted, replayed and recorded models; tests/real has the embedded model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coterie.base.clock import SystemClock
from coterie.llm.hosted import HostedProvider
from coterie.llm.messages import CompletionRequest, Image, Prompt, PromptMessage, Provider, ToolCall, ToolSpec
from coterie.llm.openai_client import PlainMessagesClient
from coterie.llm.recording import RecordedCall, RecordingProvider, ReplayProvider
from coterie.llm.settings import Catalogue
from tests.contracts.provider_contract import ProviderContract
from tests.llm.conftest import settings_for
from tests.llm.fault_server import Connection, FaultServer, says


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


@pytest.mark.parametrize(("idle_s", "connections"), [(0.0, 1), (0.3, 2)])
async def test_a_connection_is_not_used_again_after_it_was_idle(
    openai_server: FaultServer, monkeypatch: pytest.MonkeyPatch, idle_s: float, connections: int
) -> None:
    """A server may close it at that moment, and then the request fails without an answer."""
    monkeypatch.setattr("coterie.llm.hosted._KEEP_ALIVE_S", 0.2)
    ports = set()

    async def note_port(connection: Connection) -> None:
        ports.add(connection.port)
        await says("Hello.")(connection)

    openai_server.on("first", note_port)
    hosted = HostedProvider(Catalogue(settings_for(openai_server)).spec("here"))
    for _ in range(2):
        request = CompletionRequest(model="first", prompt=Prompt.of("Hello?"))
        assert [chunk async for chunk in hosted.stream(request)]
        await asyncio.sleep(idle_s)
    await hosted.close()
    assert len(ports) == connections


async def test_messages_are_sent_as_the_library_would_send_them_but_without_its_conversion(
    openai_server: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    import openai
    from openai.resources.chat.completions import completions

    openai_server.on("first", says("Hello."))
    picture = Image(media_type="image/png", data=b"cGljdHVyZQ==")
    call = ToolCall(id="1", name="look", arguments='{"at": "the lamp"}')
    prompt = Prompt(
        messages=(
            PromptMessage(role="system", text="You are Mara."),
            PromptMessage(role="user", text="Who is that? “Ana” \u2028 🙂", images=(picture,)),
            PromptMessage(role="assistant", text="", calls=(call,)),
            PromptMessage(role="tool", text="It is dark.", answers=call),
            PromptMessage(role="user", text=""),
        ),
        tools=(ToolSpec(name="look", description="Looks.", parameters={"type": "object", "properties": {}}),),
        stop=("\nAna:",),
        extra_body={"top_k": 40, "nested": {"a": [1, None]}},
    )
    converted: list[object] = []
    convert = vars(completions)["async_maybe_transform"]

    async def noted(data: dict[str, object], expected: object) -> object:
        converted.append(data["messages"])
        return await convert(data, expected)

    monkeypatch.setattr(completions, "async_maybe_transform", noted)
    for client in (PlainMessagesClient, openai.AsyncOpenAI):
        monkeypatch.setattr("coterie.llm.openai_client.PlainMessagesClient", client)
        hosted = HostedProvider(Catalogue(settings_for(openai_server)).spec("here"))
        assert [chunk async for chunk in hosted.stream(CompletionRequest(model="first", prompt=prompt))]
        await hosted.close()
    ours, theirs = openai_server.requests["first"]
    assert json.dumps(ours) == json.dumps(theirs)  # with the same order of fields
    assert converted == [[], theirs["messages"]]
