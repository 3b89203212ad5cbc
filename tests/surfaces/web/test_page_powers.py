"""Whoever reaches the page does not own the machine: what runs, opens or reveals something needs the password.

The attacks are those that worked once. Without a password they are refused with the command to use instead; with one,
a session alone is not enough, and a confirmation is.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from argon2 import PasswordHasher
from pydantic import SecretStr

from coterie.base.errors import ConfirmationNeeded
from coterie.llm.hosted import real_requests
from coterie.settings import load_settings, write_example_config
from coterie.surfaces.web.server import create_web
from tests.llm.fault_server import FaultServer
from tests.surfaces.web.conftest import Web

PASSWORD = "the sea keeps no diary"
QUICK = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash(PASSWORD)
ATTACKS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "a command": ("PATCH", "/settings", {"changes": {"desk.tool_servers.x.command": ["/bin/sh", "-c", "id"]}}),
    "no sandbox": ("PATCH", "/settings", {"changes": {"desk.sandbox": "off"}}),
    "every address": ("PATCH", "/settings", {"changes": {"server.host": "0.0.0.0"}}),
    "trusted proxies": ("PATCH", "/settings", {"changes": {"server.trusted_proxies": ["127.0.0.1"]}}),
    "a recording": ("PATCH", "/settings", {"changes": {"models.record": "/tmp/all.jsonl"}}),
    "an environment variable": ("PATCH", "/settings", {"changes": {"models.api_key": "env:HOME"}}),
    "a variable in a plain setting": ("PATCH", "/settings", {"changes": {"models.narrative_model": "env:HOME"}}),
    "another secret": ("PATCH", "/settings", {"changes": {"models.api_key": "secret:matrix"}}),
    "who is the owner": ("PATCH", "/settings", {"changes": {"matrix.owner": "@mallory:example.org"}}),
    "a file of this machine": ("POST", "/crowd/late-shift/start", {"stream": "/etc/passwd", "speaking": "phrasebook"}),
    "a path out of the folder": ("POST", "/crowd/late-shift/start", {"stream": "../../config.toml"}),
    "an address inside": ("POST", "/crowd/late-shift/start", {"stream": "http://127.0.0.1:9/"}),
    "a folder of this machine": ("POST", "/draft/workspaces", {"name": "x", "folder": "/tmp"}),
    "an import from a folder": ("POST", "/imports", {"folder": "/tmp"}),
    "a look into a folder": ("POST", "/imports/preview", {"folder": "/etc"}),
    "a folder that may exist": ("POST", "/draft/workspaces", {"name": "x", "folder": "/no/such/folder"}),
}


@pytest.fixture
async def session(web: Web) -> AsyncIterator[httpx.AsyncClient]:
    """A browser that has logged in to an instance with a password."""
    write_example_config(web.home)
    transport = httpx.ASGITransport(create_web(web.app, SecretStr(QUICK)))
    async with httpx.AsyncClient(transport=transport, base_url="http://192.168.1.5:8000") as client:
        assert (await client.post("/login", json={"password": PASSWORD})).status_code == 200
        yield client


async def confirm(client: httpx.AsyncClient) -> dict[str, str]:
    answer = await client.post("/confirm", json={"password": PASSWORD})
    assert answer.status_code == 200, answer.text
    return {"Coterie-Confirmation": answer.json()["confirmation"]}


@pytest.mark.parametrize("name", ATTACKS)
async def test_without_a_password_it_is_refused_with_the_way_to_do_it(web: Web, name: str) -> None:
    write_example_config(web.home)
    before = web.home.config.read_bytes()
    method, path, body = ATTACKS[name]
    for headers in ({}, {"Coterie-Confirmation": "invented"}):
        answer = await web.client.request(method, path, json=body, headers=headers)
        assert answer.status_code == 403, answer.text
        assert set(answer.json()) == {"error", "fix"}
        assert "coterie " in answer.json()["fix"]
    assert web.home.config.read_bytes() == before
    assert (await web.get("/crowd/late-shift"))["state"] == "quiet"
    assert await web.get("/draft/workspaces") == []


@pytest.mark.parametrize("name", ATTACKS)
async def test_with_a_session_alone_it_needs_a_confirmation(web: Web, session: httpx.AsyncClient, name: str) -> None:
    before = web.home.config.read_bytes()
    method, path, body = ATTACKS[name]
    answer = await session.request(method, path, json=body)
    assert answer.status_code == 403 and answer.json()["confirm"] is True, answer.text
    wrong = await session.post("/confirm", json={"password": "not it"})
    assert wrong.status_code == 401 and "confirmation" not in wrong.text
    invented = await session.request(method, path, json=body, headers={"Coterie-Confirmation": "x"})
    assert invented.status_code == 403
    assert web.home.config.read_bytes() == before


async def test_with_a_confirmation_the_owner_may_do_it_once(
    web: Web, session: httpx.AsyncClient, tmp_path: Path
) -> None:
    change = {"changes": {"desk.sandbox": "off"}}
    confirmed = await confirm(session)
    assert (await session.patch("/settings", json=change, headers=confirmed)).status_code == 200
    assert load_settings(web.home, {}).settings.desk.sandbox == "off"
    again = await session.patch("/settings", json={"changes": {"desk.sandbox": "on"}}, headers=confirmed)
    assert again.status_code == 403
    folder = tmp_path / "mine"
    folder.mkdir()
    body = {"name": "Mine", "folder": str(folder)}
    assert (await session.post("/draft/workspaces", json=body)).status_code == 403
    opened = await session.post("/draft/workspaces", json=body, headers=await confirm(session))
    assert opened.status_code == 201 and opened.json()["folder"] == str(folder)


async def test_a_confirmation_needs_a_session_and_is_rate_limited(session: httpx.AsyncClient) -> None:
    for _ in range(5):
        assert (await session.post("/confirm", json={"password": "no"})).status_code == 401
    limited = await session.post("/confirm", json={"password": PASSWORD})
    assert limited.status_code == 429 and int(limited.headers["retry-after"]) >= 1
    session.cookies.clear()
    assert (await session.post("/confirm", json={"password": PASSWORD})).status_code == 401


async def test_every_address_without_a_password_is_refused_even_when_confirmed(
    web: Web, session: httpx.AsyncClient
) -> None:
    change = {"changes": {"server.host": "0.0.0.0"}}
    refused = await session.patch("/settings", json=change, headers=await confirm(session))
    assert refused.status_code == 422 and "coterie password" in refused.json()["fix"]
    assert load_settings(web.home, {}).settings.server.host == "127.0.0.1"
    web.home.config.write_text(f'[server]\npassword = "{QUICK}"\n')
    assert (await session.patch("/settings", json=change, headers=await confirm(session))).status_code == 200
    unset = {"changes": {"server.password": None}}
    assert (await session.patch("/settings", json=unset, headers=await confirm(session))).status_code == 422


async def test_no_key_and_no_variable_arrives_at_another_address(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    """The attack: point the provider to one's own server, keep or name a key, and ask for a test of the model."""
    monkeypatch.setenv("A_SECRET_OF_THE_MACHINE", "value-of-the-variable")
    monkeypatch.setenv("MODEL_KEY", "key-given-for-openai")
    write_example_config(web.home)
    web.home.config.write_text('[models]\nprovider = "openai"\napi_key = "env:MODEL_KEY"\n')
    editor = web.app.settings_editor
    editor.change({"models.narrative_model": "gpt"})  # live: the running settings now have the key
    with real_requests(allowed=True):
        async with FaultServer().running() as evil:
            attempts: list[dict[str, Any]] = [
                {"models.base_url": evil.url},
                {"models.base_url": evil.url, "models.api_key": "env:A_SECRET_OF_THE_MACHINE"},
                {"models.provider": "mine", "models.providers.mine.base_url": evil.url},
                {"models.providers.openai.base_url": evil.url},
                {"models.providers.mine.base_url": evil.url},
                {"models.providers.mine.api_key": "env:A_SECRET_OF_THE_MACHINE"},
                {"models.providers.mine.api_key": None},
                {"models.roles.narrative": "mine/env:A_SECRET_OF_THE_MACHINE"},
            ]
            for changes in attempts:
                await web.client.patch("/settings", json={"changes": changes})
                for model in ("narrative", "openai/gpt", "mine/x"):
                    if model != "openai/gpt" or evil.url in str(web.app.models.catalogue.spec("openai").base_url):
                        await web.client.post("/models/test", json={"model": model})
            assert evil.headers, "its own provider is reached, without a key"
            sent = "".join(evil.headers) + str(evil.requests)
    assert "value-of-the-variable" not in sent and "key-given-for-openai" not in sent


async def test_a_key_is_not_sent_to_an_address_whose_name_is_that_of_its_provider(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attack: an address from which the name of an existing provider is made takes over the key of that one."""
    monkeypatch.setenv("MODEL_KEY", "key-given-for-another")
    write_example_config(web.home)
    with real_requests(allowed=True):
        async with FaultServer().running() as evil:
            name = evil.url.partition("://")[2].partition("/")[0].replace(".", "-").replace(":", "-")
            table = f"models.providers.{name}"
            other = {f"{table}.base_url": "https://other.example/v1", f"{table}.api_key": "env:MODEL_KEY"}
            web.app.settings_editor.change(other, confirmed=True)
            body = {"provider": "openai-compatible", "base_url": evil.url, "model": "x"}
            chosen = await web.client.post("/models/choose", json=body)
            assert chosen.status_code == 200, chosen.text
            settings = load_settings(web.home).settings
            assert settings.models.providers[name].base_url == "https://other.example/v1" and settings.models.default
            await web.client.post("/models/use", json={"model": str(settings.models.default[0])})
            await web.client.patch("/settings", json={"changes": {"models.default": f"{name}/x"}})
            # The same without knowledge of what another process, or an editor, has written to the file.
            web.app.settings.models.providers.clear()
            refused = await web.client.post("/models/choose", json={**body, "model": "y"})
            assert refused.status_code == 403, refused.text
            entered = await web.client.post("/models/choose", json={**body, "key": "a-key-of-its-own"})
            assert entered.status_code == 200, "the other key is then replaced"
            assert evil.headers, "it is reached, without the key"
            sent = "".join(evil.headers) + str(evil.requests)
    assert "key-given-for-another" not in sent


VARIABLE = "A_SECRET_OF_THE_MACHINE"
REFERENCES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "a model of a task": ("PUT", "/models/tasks/coding", {"model": f"env:{VARIABLE}"}),
    "a model in use": ("POST", "/models/use", {"model": f"env:{VARIABLE}"}),
    "an imported preset": ("POST", "/models/samplers/import?name=x", {"temp": 1, "stop": ["x", f"env:{VARIABLE}"]}),
    "a preset of texts": ("POST", "/models/samplers/import?name=x", {"stop": json.dumps([f"secret:{VARIABLE}"])}),
    "an embedding model": (
        *("PUT", "/models/embedder"),
        {"embedder": "fastembed", "provider": "", "model": f"env:{VARIABLE}"},
    ),
}
"""Requests whose values Coterie itself writes to the configuration file, where a reference would be resolved."""


@pytest.mark.parametrize("name", REFERENCES)
async def test_no_request_writes_a_reference(web: Web, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(VARIABLE, "value-of-the-variable")
    monkeypatch.setattr(web.app.model_setup, "_build_embedder", lambda _: None)  # as if it had answered
    write_example_config(web.home)
    before = web.home.config.read_text()
    method, path, body = REFERENCES[name]
    answer = await web.client.request(method, path, json=body)
    assert 400 <= answer.status_code < 500, answer.text
    assert set(answer.json()) == {"error", "fix"} and "value-of-the-variable" not in answer.text
    assert web.home.config.read_text() == before
    assert "value-of-the-variable" not in (await web.client.get("/settings")).text


async def test_a_homeserver_cannot_name_a_variable_as_the_account(
    web: Web, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The account's name is what the homeserver answers, and it is written to the configuration file."""
    monkeypatch.setenv(VARIABLE, "value-of-the-variable")
    monkeypatch.setenv("COTERIE_PASSPHRASE", "open sesame")
    with pytest.raises(ConfirmationNeeded):
        values = {"homeserver": "http://127.0.0.1:9", "user": f"env:{VARIABLE}"}
        await web.app._save_settings("matrix", values, {"password": "entered"})
    assert load_settings(web.home).settings.matrix.user == ""


async def test_a_stream_of_the_own_folder_and_an_allowed_address_are_watched(web: Web) -> None:
    crowd = web.app.crowd
    folder = web.home.root / "configs" / "streams"
    folder.mkdir(parents=True)
    (folder / "mine.txt").write_text("Good evening.\n")
    assert crowd.allowed_stream("mine.txt") == str(folder / "mine.txt")
    assert crowd.allowed_stream("left-door.toml").endswith("left-door.toml")
    web.app.settings_editor.change({"crowd.stream_addresses": ["https://live.example"]}, confirmed=True)
    assert crowd.allowed_stream("https://live.example/one.m3u8")
    for name in (
        "https://live.example@evil.example/",
        "https://live.example.evil.example/",
        "http://live.example/",
        "https://live.example:8443/",
        "https://live.example\\@evil.example/",
        "https://evil.example/?https://live.example",
        "file:///etc/passwd",
        "https://[::1/",
        "streams/mine.txt",
        "./mine.txt",
        "mine.txt/",
        "~/x",
        "-",
    ):
        answer = await web.client.post("/crowd/late-shift/start", json={"stream": name})
        assert answer.status_code == 403, name
    page = (await web.client.get("/crowd/late-shift", headers={"Accept": "text/html"})).text
    assert '<option value="mine.txt">' in page


async def test_a_folder_inside_the_own_one_needs_no_confirmation_and_a_link_out_of_it_does(
    web: Web, tmp_path: Path
) -> None:
    made = await web.post("/draft/workspaces", {"name": "Mine"}, status=201)
    again = await web.post("/draft/workspaces", {"name": "Mine", "folder": made["folder"]}, status=201)
    assert again["id"] == made["id"]
    outside = tmp_path / "outside"
    outside.mkdir()
    link = web.home.root / "drafts" / "link"
    os.symlink(outside, link)
    for folder in (str(link), f"{made['folder']}/../../..", str(outside), f"{made['folder']}\0", "~"):
        answer = await web.client.post("/draft/workspaces", json={"name": "x", "folder": folder})
        assert answer.status_code == 403, folder
    assert list(outside.iterdir()) == []


HOST_FIELDS = {
    ("FolderRequest", "folder"),
    ("StartImportRequest", "folder"),
    ("StartSessionRequest", "stream"),
    ("WorkspaceRequest", "folder"),
    ("ConnectionRequest", "base_url"),
    ("ChooseRequest", "base_url"),
}
"""Fields of requests that name a file, folder or address of this machine. Each is tested above; for the address of a
provider, tests/surfaces/web/settings checks that a key stays with the address it was entered for."""
SUSPICIOUS = ("path", "folder", "file", "dir", "url", "address", "host", "command", "stream", "exec", "script")


async def test_every_field_that_could_name_a_place_on_this_machine_was_reviewed(web: Web) -> None:
    schemas = (await web.get("/openapi.json"))["components"]["schemas"]
    found = {
        (name, field)
        for name, schema in schemas.items()
        if name.endswith("Request")
        for field in schema.get("properties", {})
        if any(part in field.split("_") for part in SUSPICIOUS)
    }
    assert found == HOST_FIELDS
