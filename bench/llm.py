"""What our model layer costs on top of the bare `openai` client: CPU per streamed token, and time to the first one.

Both talk to the same local server in another process, in turns, in one run. Ours is the whole way: router, watch,
ledger (events in a real log), pydantic-ai, client. The server sends one event per token and yields between them, so
that a client cannot read many at once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from bench._report import arguments, finish, median, percentile, progress, say
from coterie.kernel import Store
from coterie.llm.messages import Prompt, TextDelta
from coterie.llm.roles import Role
from coterie.llm.router import Models
from coterie.llm.settings import ModelsSettings
from coterie.llm.usage import Usage

QUESTION = "Tell me what the fox did."
Client = Callable[[int], Awaitable[tuple[int, float]]]
"""Streams that many tokens; gives back how many came and when, in seconds, the first one did."""


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(_serve())
        return
    rounds, tokens = (12, 400) if options.quick else (40, 800)
    server = subprocess.Popen([sys.executable, "-m", "bench.llm", "--serve"], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        url = f"http://127.0.0.1:{server.stdout.readline().strip()}/v1"
        say(f"{rounds} rounds of {tokens} tokens each, ours and the bare client in turns, against {url}")
        finish(asyncio.run(_compare(url, rounds, tokens)))
    finally:
        server.terminate()
        server.wait()


async def _compare(url: str, rounds: int, tokens: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(Path(folder) / "bench.db", views=[Usage()])
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
        await client(10)  # Imports, connections and caches are not what is measured.
    cpu: dict[str, list[float]] = {name: [] for name in clients}
    call: dict[str, list[float]] = {name: [] for name in clients}
    first: dict[str, list[float]] = {name: [] for name in clients}
    for n in range(rounds):
        for name, client in list(clients.items()) if n % 2 else list(clients.items())[::-1]:
            began = time.process_time()
            got, _ = await client(tokens)
            spent = time.process_time() - began
            assert got == tokens, (name, got)
            began = time.process_time()
            got, to_first = await client(1)
            call[name].append(time.process_time() - began)
            first[name].append(to_first)
            cpu[name].append((spent - call[name][-1]) / (tokens - 1))
        progress(n + 1, rounds, "rounds")
    for name in clients:
        say(
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
    async def stream(tokens: int) -> tuple[int, float]:
        began, first, count = time.perf_counter(), 0.0, 0
        async for chunk in models.stream(Role.NARRATIVE, Prompt.of(QUESTION, max_tokens=tokens)):
            if isinstance(chunk, TextDelta):
                first = first or time.perf_counter() - began
                count += 1
        return count, first

    return stream


def _bare(url: str) -> tuple[Client, Callable[[], Awaitable[None]]]:
    from openai import AsyncOpenAI

    client = AsyncOpenAI(base_url=url, api_key="bench-key-bench-key", max_retries=0)

    async def stream(tokens: int) -> tuple[int, float]:
        began, first, count = time.perf_counter(), 0.0, 0
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
                count += 1
        return count, first

    return stream, client.close


async def _serve() -> None:
    server = await asyncio.start_server(_answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = next(int(line.split(":")[1]) for line in head.splitlines() if line.startswith("content-length"))
            asked = json.loads(await reader.readexactly(length))
            tokens = asked.get("max_tokens") or asked["max_completion_tokens"]
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
            for n in range(tokens):
                await _send(writer, {"delta": {"role": "assistant", "content": f" word{n}"}, "finish_reason": None})
            await _send(writer, {"delta": {}, "finish_reason": "stop"})
            await _send(writer, None, tokens)
            writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def _send(writer: asyncio.StreamWriter, choice: dict[str, object] | None, tokens: int = 0) -> None:
    chunk: dict[str, object] = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "bench"}
    chunk["choices"] = [{"index": 0, **choice}] if choice else []
    if choice is None:
        chunk["usage"] = {"prompt_tokens": 9, "completion_tokens": tokens, "total_tokens": 9 + tokens}
    data = b"data: %s\n\n" % json.dumps(chunk).encode()
    writer.write(b"%x\r\n%s\r\n" % (len(data), data))
    await writer.drain()
    await asyncio.sleep(0)


if __name__ == "__main__":
    main()
