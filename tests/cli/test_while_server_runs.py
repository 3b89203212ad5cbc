"""Commands that change something while a server has the database: they go through it."""

from __future__ import annotations

import json
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.e2e.server_process import ROOT, Server, coterie, environ

PASSWORD = "correct horse battery"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With a password, so that the commands need the key of this machine."""
    home = tmp_path_factory.mktemp("while-running") / "home"
    server = Server(home, settings={"COTERIE_SERVER__PASSWORD": PASSWORD})
    yield server
    server.close()


def run(server: Server, *arguments: str) -> str:
    done = coterie(server.home, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_p3_people_are_managed_through_the_server(server: Server) -> None:
    run(server, "characters", "new", "--ready", "maren")
    assert "!link" in run(server, "people", "invite", "Bea")
    assert re.search(r"[A-Z2-9]{5}-[A-Z2-9]{5}", run(server, "people", "code", "bea"))
    run(server, "people", "allow", "bea", "maren")
    token = run(server, "people", "key", "bea", "--for", "a test").splitlines()[0]
    listed = run(server, "people", "list")
    assert "Bea: may talk with" in listed and "nobody" not in listed.partition("Bea")[2]
    key = run(server, "people", "keys").split()[0]
    answer = httpx.get(f"{server.address}/v1/models", headers={"Authorization": f"Bearer {token}"}, trust_env=False)
    assert answer.status_code == 200
    run(server, "people", "revoke-key", key)
    assert run(server, "people", "keys").strip() == ""
    wrong = coterie(server.home, "people", "unlink", "matrix", "@nobody:here")
    assert wrong.returncode != 0 and "belongs to no person" in wrong.stderr
    unknown = coterie(server.home, "people", "approve", "AAAAA-BBBBB")
    assert unknown.returncode != 0 and "no request with this code" in unknown.stderr


def test_d11_characters_are_created_exported_and_deleted_through_the_server(server: Server, tmp_path: Path) -> None:
    made = run(server, "characters", "new", "Ines", "--persona", "Keeps the lighthouse.")
    assert "Created Ines" in made and (server.home / "workspaces").exists()
    card = tmp_path / "ines.json"
    run(server, "characters", "export", "ines", str(card))
    assert "lighthouse" in card.read_text()
    assert "Created Ines" in run(server, "characters", "new", "--card", str(card))
    refused = coterie(server.home, "characters", "delete", "maren", "--confirm", "wrong")
    assert refused.returncode != 0 and "has to be typed exactly" in refused.stderr
    name = json.loads(card.read_text())["data"]["name"]
    ids = [line.split()[0] for line in run(server, "characters", "list").splitlines() if name in line]
    assert len(ids) == 2
    run(server, "characters", "delete", ids[0], "--confirm", name)
    assert ids[0] not in run(server, "characters", "list")


def test_p11_matrix_is_reset_through_the_server(server: Server) -> None:
    assert "would be" in run(server, "matrix", "reset", "--mode", "local-only", "--dry-run")
    assert "by hand" in run(server, "matrix", "reset", "--mode", "local-only")


def test_a_messenger_is_connected_through_the_server(server: Server) -> None:
    command = [sys.executable, "-m", "coterie", "telegram", "connect", "--no-qr"]
    done = subprocess.run(command, env=environ(server.home), input="\n", capture_output=True, text=True, cwd=ROOT)
    assert done.returncode != 0 and "The token is missing" in done.stderr


def test_the_key_of_this_machine_is_private_and_ends_with_the_server(server: Server) -> None:
    file = server.home / "server.json"
    known = json.loads(file.read_text())
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with httpx.Client(base_url=known["url"], trust_env=False) as client:
        assert client.get("/people", headers={"Coterie-Local-Key": known["key"]}).status_code == 200
        for key in ("", "wrong", known["key"][:-1], f"{known['key']}x", known["run"]):
            assert client.get("/people", headers={"Coterie-Local-Key": key}).status_code == 401
    file.write_text(json.dumps({**known, "run": "of another server"}))
    try:
        refused = coterie(server.home, "people", "invite", "Bo")
        assert refused.returncode != 0 and "is using" in refused.stderr, "it is not given the key"
    finally:
        file.write_text(json.dumps(known))
