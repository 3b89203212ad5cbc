"""The overhead of the model layer over the plain `openai` client: CPU per streamed token, and time to the first token.

Both use the same local server in another process, alternately, in one run. Ours includes routing, time limits, usage
events in a real log, and pydantic-ai. The server sends one event per token. Both must receive all tokens.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from bench.lib.model_server import model, word
from bench.lib.report import arguments, finish, log, median, percentile, progress
from coterie.eventstore import Store
from coterie.llm.messages import Prompt, TextDelta
from coterie.llm.router import Models
from coterie.llm.settings import ModelsSettings, Role
from coterie.llm.usage import UsageProjection

QUESTION = "Tell me what the fox did."
Client = Callable[[int], Awaitable[tuple[str, float]]]
"""Streams that many tokens; returns the text and the seconds until the first token."""


def main() -> None:
    options = arguments(__doc__).parse_args()
    rounds, tokens = (12, 400) if options.quick else (40, 800)
    with model() as url:
        log(f"{rounds} rounds of {tokens} tokens each, ours and the plain client alternately, against {url}")
        finish(asyncio.run(_compare(url, rounds, tokens)))


async def _compare(url: str, rounds: int, tokens: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(Path(folder) / "bench.db", projections=[UsageProjection()])
        models = _models(url, store)
        bare, close_bare = _bare(url)
        try:
            return await _measure({"bare": bare, "ours": _ours(models)}, rounds, tokens)
        finally:
            await models.close()
            await close_bare()
            store.close()


async def _measure(clients: dict[str, Client], rounds: int, tokens: int) -> dict[str, float]:
    for client in clients.values():
        await client(10)  # imports, connections and caches are not measured
    cpu: dict[str, list[float]] = {name: [] for name in clients}
    call: dict[str, list[float]] = {name: [] for name in clients}
    first: dict[str, list[float]] = {name: [] for name in clients}
    for n in range(rounds):
        for name, client in list(clients.items()) if n % 2 else list(clients.items())[::-1]:
            began = time.process_time()
            received, _ = await client(tokens)
            spent = time.process_time() - began
            assert received == "".join(map(word, range(tokens))), (name, received)
            began = time.process_time()
            _, to_first = await client(1)
            call[name].append(time.process_time() - began)
            first[name].append(to_first)
            cpu[name].append((spent - call[name][-1]) / (tokens - 1))
        progress(n + 1, rounds, "rounds")
    for name in clients:
        log(
            f"{name}: {median(cpu[name]) * 1e6:.0f} µs CPU per token, {median(call[name]) * 1e3:.2f} ms CPU per call, "
            f"first token after {median(first[name]) * 1e3:.2f} ms (p95 {percentile(first[name], 0.95) * 1e3:.2f} ms)"
        )
    return {
        "cpu_overhead_ratio": round(median(cpu["ours"]) / median(cpu["bare"]), 3),
        "ttft_overhead_ms": round((median(first["ours"]) - median(first["bare"])) * 1e3, 3),
        "cpu_us_per_token": round(median(cpu["ours"]) * 1e6, 1),
        "bare_cpu_us_per_token": round(median(cpu["bare"]) * 1e6, 1),
        "cpu_ms_per_call": round(median(call["ours"]) * 1e3, 3),
        "bare_cpu_ms_per_call": round(median(call["bare"]) * 1e3, 3),
        "rounds": rounds,
    }


def _models(url: str, store: Store) -> Models:
    here = {"base_url": url, "api_key": "bench-key-bench-key", "flat_rate": True}
    settings = {"providers": {"here": here}, "roles": {"narrative": "here/bench"}}
    return Models(ModelsSettings.model_validate(settings), store=store)


def _ours(models: Models) -> Client:
    async def stream(tokens: int) -> tuple[str, float]:
        began, first, text = time.perf_counter(), 0.0, ""
        async for chunk in models.stream(Role.NARRATIVE, Prompt.of(QUESTION, max_tokens=tokens)):
            if isinstance(chunk, TextDelta):
                first = first or time.perf_counter() - began
                text += chunk.text
        return text, first

    return stream


def _bare(url: str) -> tuple[Client, Callable[[], Awaitable[None]]]:
    from openai import AsyncOpenAI

    client = AsyncOpenAI(base_url=url, api_key="bench-key-bench-key", max_retries=0)

    async def stream(tokens: int) -> tuple[str, float]:
        began, first, text = time.perf_counter(), 0.0, ""
        chunks = await client.chat.completions.create(
            model="bench",
            messages=[{"role": "user", "content": QUESTION}],
            max_tokens=tokens,
            stream=True,
            stream_options={"include_usage": True},
        )
        async for chunk in chunks:
            if chunk.choices and chunk.choices[0].delta.content:
                first = first or time.perf_counter() - began
                text += chunk.choices[0].delta.content
        return text, first

    return stream, client.close


if __name__ == "__main__":
    main()
