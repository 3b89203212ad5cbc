"""Whether a provider would take a call, on real sockets: reached, refused, in trouble, away."""

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
        status = 503 if self.path.startswith("/sick") else 200 if keys[0] == "Bearer good" or keys[1] == "good" else 401
        if not self.path.endswith("/models"):
            status = 404
        self.send_response(status)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Quiet."""


@pytest.fixture
def address() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Provider) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


async def look(preset: str, url: str, key: str | None) -> ProviderHealth:
    given = ProviderSettings(preset=preset, base_url=url, api_key=SecretStr(key) if key else None)
    settings = ModelsSettings(providers={"cloud": given}, roles={"narrative": ("cloud/big",)})
    (found,) = await check_providers(Catalogue(settings))
    assert found.provider == "cloud"
    return found


@pytest.mark.parametrize("preset", ["openai-compatible", "anthropic"])
async def test_a_key_that_is_right_or_wrong(address: str, preset: str) -> None:
    assert (await look(preset, address, "good")).state == "ok"
    refused = await look(preset, address, "wrong")
    assert (refused.state, refused.what) == ("bad", "the key was refused (HTTP 401)")
    assert "coterie secrets set cloud" in refused.fix
    assert "wrong" not in refused.what + refused.fix


async def test_a_provider_in_trouble_or_away_is_noted(address: str) -> None:
    assert (await look("openai-compatible", f"{address}/sick", "good")).what == "server error (HTTP 503)"
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    away = await look("openai-compatible", f"http://127.0.0.1:{port}", "good")
    assert (away.state, away.what) == ("note", "not reached (ConnectError)")


async def test_the_embedded_model_needs_nobody() -> None:
    assert await check_providers(Catalogue(ModelsSettings())) == []
