"""Detection of model servers on this machine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from coterie.llm.provider_health import LocalServer, find_local_servers

CLOSED_PORT = "http://127.0.0.1:9"


@asynccontextmanager
async def serving(pages: dict[str, object]) -> AsyncIterator[str]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        body = json.dumps(pages.get(path, {})).encode()
        status = b"200 OK" if path in pages else b"404 Not Found"
        writer.write(b"HTTP/1.1 %s\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%s" % (status, len(body), body))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


async def test_each_kind_of_server_is_found_with_its_models() -> None:
    async with (
        serving({"/api/tags": {"models": [{"name": "llama3:8b"}, {"name": "qwen"}]}}) as ollama,
        serving({"/api/v0/models": {"data": [{"id": "hermes"}]}}) as lmstudio,
        serving({"/props": {"default_generation_settings": {}}, "/v1/models": {"data": [{"id": "x.gguf"}]}}) as llama,
    ):
        addresses = {"ollama": f"{ollama}/v1", "lmstudio": f"{lmstudio}/v1", "llamacpp": f"{llama}/v1"}
        found = await find_local_servers(addresses, timeout_s=5)
    assert found == [
        LocalServer("ollama", addresses["ollama"], ("llama3:8b", "qwen")),
        LocalServer("lmstudio", addresses["lmstudio"], ("hermes",)),
        LocalServer("llamacpp", addresses["llamacpp"], ("x.gguf",)),
    ]


async def test_closed_ports_and_other_servers_are_not_reported() -> None:
    async with serving({"/": "hello", "/api/tags": {"tags": []}, "/props": [], "/v1/models": {}}) as other:
        addresses = {"ollama": other, "lmstudio": CLOSED_PORT, "llamacpp": other}
        assert await find_local_servers(addresses, timeout_s=5) == []
