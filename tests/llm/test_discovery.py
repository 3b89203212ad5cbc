"""Lists of models from servers that never stop sending."""

from __future__ import annotations

import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import pytest

from coterie.llm import find_local_servers
from coterie.llm.discovery import list_models
from coterie.llm.errors import BadAnswer, Unreachable
from coterie.llm.settings import Catalogue, ModelsSettings
from tests.model_server import running_server

_PART = b'{"data": [' + b" " * 65_000


class Endless(BaseHTTPRequestHandler):
    pause_s = 0.0

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.end_headers()
        try:
            while True:
                self.wfile.write(_PART if not self.pause_s else b" ")
                if self.pause_s:
                    time.sleep(self.pause_s)
        except OSError:
            return  # the client went away

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Log nothing."""


class Dripping(Endless):
    pause_s = 0.05


@pytest.fixture(params=[Endless, Dripping])
def address(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr("coterie.llm.discovery._MAX_LIST_BYTES", 1_000_000)
    with running_server(request.param) as address:
        yield address


async def test_a_list_without_an_end_is_given_up(address: str) -> None:
    providers = {"mine": {"preset": "openai-compatible", "base_url": f"{address}/v1"}}
    spec = Catalogue(ModelsSettings.model_validate({"providers": providers})).spec("mine")
    with pytest.raises((BadAnswer, Unreachable)):
        await list_models(spec, "Mine", timeout_s=0.3)
    assert await find_local_servers({"ollama": f"{address}/v1", "vllm": f"{address}/v1"}, timeout_s=0.3) == []
