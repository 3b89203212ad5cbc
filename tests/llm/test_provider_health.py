"""Detection of local model servers, and checks of providers, on real sockets."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from pydantic import SecretStr

from coterie.llm.discovery import LocalServer, find_local_servers
from coterie.llm.provider_health import ProviderHealth, check_providers
from coterie.llm.settings import Catalogue, ModelsSettings, ProviderSettings

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
        health = await find_local_servers(addresses, timeout_s=5)
    assert health == [
        LocalServer("ollama", addresses["ollama"], ("llama3:8b", "qwen")),
        LocalServer("lmstudio", addresses["lmstudio"], ("hermes",)),
        LocalServer("llamacpp", addresses["llamacpp"], ("x.gguf",)),
    ]


async def test_closed_ports_and_other_servers_are_not_reported() -> None:
    async with serving({"/": "hello", "/api/tags": {"tags": []}, "/props": [], "/v1/models": {}}) as other:
        addresses = {"ollama": other, "lmstudio": CLOSED_PORT, "llamacpp": other}
        assert await find_local_servers(addresses, timeout_s=5) == []


class Provider(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        keys = (self.headers.get("authorization"), self.headers.get("x-api-key"))
        status = (
            503 if self.path.startswith("/failing") else 200 if keys[0] == "Bearer good" or keys[1] == "good" else 401
        )
        if not self.path.partition("?")[0].endswith("/models"):
            status = 404
        self.send_response(status)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Log nothing."""


@pytest.fixture
def address() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Provider) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


async def check(preset: str, url: str, key: str | None) -> ProviderHealth:
    provider = ProviderSettings(preset=preset, base_url=url, api_key=SecretStr(key) if key else None)
    settings = ModelsSettings(providers={"cloud": provider}, roles={"narrative": ("cloud/big",)})
    (health,) = await check_providers(Catalogue(settings))
    assert health.provider == "cloud"
    return health


@pytest.mark.parametrize("preset", ["openai-compatible", "anthropic"])
async def test_valid_and_invalid_keys(address: str, preset: str) -> None:
    assert (await check(preset, address, "good")).state == "ok"
    refused = await check(preset, address, "wrong")
    assert refused.state == "bad"
    assert refused.what.endswith(" no longer accepts the saved key (HTTP 401).")
    assert refused.fix == "Enter a new one in Settings → Models."
    assert "wrong" not in refused.what + refused.fix


async def test_server_errors_and_unreachable_providers_are_noted(address: str) -> None:
    failing = await check("openai-compatible", f"{address}/failing", "good")
    assert failing.what.endswith(" has a problem at the moment (HTTP 503).")
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    unreachable = await check("openai-compatible", f"http://127.0.0.1:{port}", "good")
    assert unreachable.state == "note"
    assert unreachable.what == f"127.0.0.1:{port} does not answer at http://127.0.0.1:{port}."


async def test_the_embedded_model_is_not_checked() -> None:
    assert await check_providers(Catalogue(ModelsSettings())) == []
