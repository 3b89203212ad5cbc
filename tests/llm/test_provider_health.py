"""Checks of providers on real sockets: reachable, key refused, server error, unreachable."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from pydantic import SecretStr

from coterie.llm.provider_health import ProviderHealth, check_providers
from coterie.llm.settings import Catalogue, ModelsSettings, ProviderSettings


class Provider(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        keys = (self.headers.get("authorization"), self.headers.get("x-api-key"))
        status = (
            503 if self.path.startswith("/failing") else 200 if keys[0] == "Bearer good" or keys[1] == "good" else 401
        )
        if not self.path.endswith("/models"):
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
    given = ProviderSettings(preset=preset, base_url=url, api_key=SecretStr(key) if key else None)
    settings = ModelsSettings(providers={"cloud": given}, roles={"narrative": ("cloud/big",)})
    (found,) = await check_providers(Catalogue(settings))
    assert found.provider == "cloud"
    return found


@pytest.mark.parametrize("preset", ["openai-compatible", "anthropic"])
async def test_valid_and_invalid_keys(address: str, preset: str) -> None:
    assert (await check(preset, address, "good")).state == "ok"
    refused = await check(preset, address, "wrong")
    assert (refused.state, refused.what) == ("bad", "the key was refused (HTTP 401)")
    assert "coterie secrets set cloud" in refused.fix
    assert "wrong" not in refused.what + refused.fix


async def test_server_errors_and_unreachable_providers_are_noted(address: str) -> None:
    assert (await check("openai-compatible", f"{address}/failing", "good")).what == "server error (HTTP 503)"
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    unreachable = await check("openai-compatible", f"http://127.0.0.1:{port}", "good")
    assert (unreachable.state, unreachable.what) == ("note", "not reached (ConnectError)")


async def test_the_embedded_model_is_not_checked() -> None:
    assert await check_providers(Catalogue(ModelsSettings())) == []
