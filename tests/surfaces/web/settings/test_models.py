"""Choosing models by the API and on the page: servers, keys, failures, roles. L2, L3"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from coterie.app import App, open_store
from coterie.base.errors import ConfigError
from coterie.base.paths import Paths
from coterie.llm import Role, find_local_servers
from coterie.settings import load_settings
from coterie.surfaces.web.server import create_web
from tests.model_server import ModelServer, serving

KEY = "sk-right-0123456789"
HTML = {"accept": "text/html"}


class Instance:
    """A server with real settings, secrets and models, asked through its API."""

    def __init__(self, home: Path) -> None:
        self.paths = Paths.locate({"COTERIE_HOME": str(home)})
        self.servers: dict[str, str] = {}

    def run(self, work: Any) -> Any:
        async def inside() -> Any:
            with open_store(self.paths) as store:
                app = App(self.paths, load_settings(self.paths, {}).settings, store)
                app.model_setup._find_servers = lambda: find_local_servers(self.servers, timeout_s=5)
                transport = httpx.ASGITransport(create_web(app))
                async with httpx.AsyncClient(
                    transport=transport, base_url="http://127.0.0.1:8000", timeout=60
                ) as client:
                    try:
                        return await work(app, client)
                    finally:
                        await app.models.close()

        return asyncio.run(inside())


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    return Instance(tmp_path / "home")


@pytest.fixture
def provider() -> Iterator[ModelServer]:
    with serving(ModelServer()) as server:
        yield server


def any_address(server: ModelServer, **more: object) -> dict[str, object]:
    return {"provider": "openai-compatible", "base_url": server.base_url, **more}


def test_l2_a_key_lists_models_one_is_tested_saved_and_used_at_once(instance: Instance, provider: ModelServer) -> None:
    async def work(app: App, client: httpx.AsyncClient) -> None:
        before = await client.get("/settings/models", headers=HTML)
        assert before.status_code == 200
        assert "Demo model" in before.text
        assert "SmolLM2-135M-Instruct, Apache-2.0" in before.text
        listed = await client.post("/models/list", json=any_address(provider, key=KEY))
        assert [model["name"] for model in listed.json()] == ["large-70b", "small-8b"]
        assert not instance.paths.secrets.exists()  # nothing is saved yet
        chosen = await client.post("/models/choose", json=any_address(provider, key=KEY, model="large-70b"))
        assert chosen.status_code == 200, chosen.text
        assert chosen.json()["text"] == provider.reply
        after = await client.get("/settings/models/current", headers=HTML)
        assert "large-70b" in after.text
        assert "64,000 tokens of context" in after.text
        assert KEY not in after.text
        answer = await app.models.ask(Role.CLASSIFIER, _prompt())
        assert answer.text == provider.reply

    instance.run(work)
    config, secrets = instance.paths.config.read_text(), instance.paths.secrets.read_text()
    assert KEY not in config + secrets
    assert instance.paths.secrets.with_suffix(".key").stat().st_mode & 0o777 == 0o600
    assert json.loads(secrets)["entries"][_secret(provider)]["address"] == provider.address

    async def restarted(app: App, client: httpx.AsyncClient) -> None:
        assert (await app.models.ask(Role.NARRATIVE, _prompt())).text == provider.reply
        assert app.models.context_window(Role.CHANNEL) == 64_000  # L3: told by the provider, kept over a restart

    instance.run(restarted)


def _prompt() -> Any:
    from coterie.llm import Prompt

    return Prompt.of("Hello")


def _secret(server: ModelServer) -> str:
    return f"models.{server.address.removeprefix('http://').replace('.', '-').replace(':', '-')}"


def test_a_saved_key_is_never_sent_to_another_address(instance: Instance, provider: ModelServer) -> None:
    async def work(app: App, client: httpx.AsyncClient) -> None:
        await client.post("/models/choose", json=any_address(provider, key=KEY, model="large-70b"))
        with serving(ModelServer()) as other:
            refused = await client.post("/models/list", json=any_address(other))
            assert refused.status_code == 502
            assert {key for _, _, key in other.requests} == {""}

    instance.run(work)
    name = _secret(provider)
    text = instance.paths.config.read_text().replace(provider.base_url, "https://elsewhere.example/v1")
    instance.paths.config.write_text(text)
    with pytest.raises(ConfigError, match=f"the secret {name}, which was stored for {provider.address} only"):
        load_settings(instance.paths, {})


def _sentence(answer: httpx.Response) -> str:
    body = answer.json()
    return f"{body['error']} {body['fix']}"


def test_each_failure_is_a_sentence_and_changes_nothing(instance: Instance, provider: ModelServer) -> None:
    host = provider.address.removeprefix("http://")

    async def work(app: App, client: httpx.AsyncClient) -> None:
        async def listing(**more: object) -> str:
            return _sentence(await client.post("/models/list", json=any_address(provider, **more)))

        wrong = f"{host} does not accept this key. Check that it is complete and was not revoked, then enter it again."
        assert await listing(key="sk-wrong-9876543210") == wrong
        assert await listing() == f"{host} needs a key. Enter one."
        provider.status = 503
        assert await listing(key=KEY) == f"{host} has a problem at the moment (HTTP 503). Try again later."
        provider.status, provider.models = 0, []
        assert await listing(key=KEY) == f"{host} lists no models. Load one there, then try again."
        provider.models = [{"id": "text-embedding-3"}]
        assert (await listing(key=KEY)).startswith(f"{host} lists no models.")
        unknown = await client.post("/models/choose", json=any_address(provider, key=KEY, model="gone"))
        assert "does not know this model" in _sentence(unknown)
        for bad in ("", "ftp://x", "https://user:secret@host/v1", "not an address", "http://"):
            answer = await client.post("/models/list", json={"provider": "openai-compatible", "base_url": bad})
            assert answer.status_code in (400, 422), bad
        known = await client.post("/models/list", json={"provider": "openai"})
        expected = "OpenAI needs a key. Get one at https://platform.openai.com/api-keys and enter it here."
        assert _sentence(known).removeprefix("key: ") == expected
        assert not instance.paths.secrets.exists()
        assert app.model_setup.overview().default.demo

    instance.run(work)


def test_a_provider_that_is_gone_is_a_sentence(instance: Instance) -> None:
    with serving(ModelServer()) as server:
        pass
    host = server.address.removeprefix("http://")

    async def work(app: App, client: httpx.AsyncClient) -> None:
        answer = await client.post("/models/list", json=any_address(server, key=KEY))
        assert _sentence(answer) == f"{host} does not answer at {server.address}. Start {host} and try again."

    instance.run(work)


def test_a_revoked_key_is_told_on_the_page_and_a_new_one_replaces_it(instance: Instance, provider: ModelServer) -> None:
    host = provider.address.removeprefix("http://")

    async def work(app: App, client: httpx.AsyncClient) -> None:
        await client.post("/models/choose", json=any_address(provider, key=KEY, model="large-70b"))
        assert [one["state"] for one in (await client.get("/models/health")).json()] == ["ok"]
        provider.key = "sk-second-0123456789"
        (health,) = (await client.get("/models/health")).json()
        assert health["what"] == f"{host} no longer accepts the saved key (HTTP 401)."
        body = any_address(provider, key="sk-second-0123456789", model="small-8b")
        assert (await client.post("/models/choose", json=body)).status_code == 200
        assert [one["state"] for one in (await client.get("/models/health")).json()] == ["ok"]
        assert (await app.models.ask(Role.NARRATIVE, _prompt())).model.endswith("/small-8b")

    instance.run(work)


def _ollama(server: ModelServer) -> None:
    server.key = None
    server.models = [{"id": "llama3.2:3b"}]
    server.pages = {
        "/api/tags": {"models": [{"name": "llama3.2:3b", "size": 2_000_000_000}]},
        "/api/ps": {"models": [{"name": "llama3.2:3b", "context_length": 16_384}]},
        "/api/show": {"model_info": {"llama.context_length": 131_072}, "capabilities": ["completion", "tools"]},
    }


def test_l2_ollama_is_found_chosen_without_a_key_free_and_lost(instance: Instance) -> None:
    server = ModelServer()
    _ollama(server)

    async def found(app: App, client: httpx.AsyncClient) -> None:
        (one,) = (await client.get("/models/servers")).json()
        assert (one["provider"], one["label"]) == ("ollama", "Ollama")
        assert one["models"][0]["context"] == 16_384  # what it is loaded with, not what the model could take
        body = {"provider": "ollama", "base_url": one["base_url"], "model": "llama3.2:3b"}
        assert (await client.post("/models/choose", json=body)).status_code == 200
        overview = app.model_setup.overview()
        assert (overview.default.local, overview.default.price, overview.default.missing_key) == (True, "free", False)
        assert overview.default.context == 16_384
        page = (await client.get("/settings/models", headers=HTML)).text
        assert "no key" not in page
        assert not instance.paths.secrets.exists()

    async def lost(app: App, client: httpx.AsyncClient) -> None:
        assert (await client.get("/models/servers")).json() == []
        (health,) = (await client.get("/models/health")).json()
        assert f"{health['what']} {health['fix']}" == (
            f"Ollama does not answer at {server.address}. Start Ollama and try again."
        )
        body = {"provider": "ollama", "base_url": server.base_url, "model": "llama3.2:3b"}
        answer = await client.post("/models/choose", json=body)
        assert answer.status_code == 502

    with serving(server):
        instance.servers = {"ollama": server.base_url}
        instance.run(found)
    instance.run(lost)


def test_a_role_has_its_own_model_and_a_much_weaker_one_is_pointed_out(
    instance: Instance, provider: ModelServer
) -> None:
    async def work(app: App, client: httpx.AsyncClient) -> None:
        await client.post("/models/choose", json=any_address(provider, key=KEY, model="large-70b"))
        name = app.model_setup.overview().default.target.partition("/")[0]
        used = await client.post("/models/use", json={"model": f"{name}/small-8b", "role": "classifier"})
        assert used.status_code == 200
        assert str(app.models.catalogue.chain(Role.CORTEX)[0]) == f"{name}/small-8b"
        weaker = {one.label: one.weaker for one in app.model_setup.overview().roles if one.weaker}
        assert weaker["Background analysis"] == ("small-8b is much weaker than large-70b, which the other roles use.")
        page = (await client.get("/settings/models", headers=HTML)).text
        assert "Some roles use a much weaker model." in page
        assert (await client.delete("/models/roles/classifier")).status_code == 204
        assert not any(one.weaker for one in app.model_setup.overview().roles)
        assert (await client.put("/models/tasks/coding", json={"model": f"{name}/small-8b"})).status_code == 204
        assert str(app.models.catalogue.chain(Role.WORKER, "coding")[0]) == f"{name}/small-8b"
        assert (await client.delete(f"/models/providers/{name}")).status_code == 204
        assert app.model_setup.overview().default.demo
        assert app.models.settings.tasks == {}

    instance.run(work)
    assert _secret(provider) not in json.loads(instance.paths.secrets.read_text())["entries"]


def test_l9_an_embedder_is_tested_before_it_is_saved(instance: Instance, provider: ModelServer) -> None:
    async def work(app: App, client: httpx.AsyncClient) -> None:
        await client.post("/models/choose", json=any_address(provider, key=KEY, model="large-70b"))
        name = app.model_setup.overview().default.target.partition("/")[0]
        missing = await client.put("/models/embedder", json={"embedder": "provider"})
        assert _sentence(missing) == "An embedding model needs a provider and a name. Choose both."
        body = {"embedder": "provider", "provider": name, "model": "embed"}
        failed = await client.put("/models/embedder", json=body)
        assert "failed (HTTP 404)" in _sentence(failed)
        assert app.settings.memory.embedder == "offline"
        provider.pages["/v1/embeddings"] = {"data": [{"index": 0, "embedding": [0.5, 1.0]}]}
        assert (await client.put("/models/embedder", json=body)).status_code == 204
        assert (app.settings.memory.embedder, app.settings.memory.embedder_model) == ("provider", "embed")
        assert (await client.put("/models/embedder", json={"embedder": "offline"})).status_code == 204
        assert app.settings.memory.embedder == "offline"

    instance.run(work)
