"""S28, F1: an instance with all modes is backed up while it runs and restored elsewhere; a lost database is noticed."""

from __future__ import annotations

import asyncio
import hashlib
import signal
from collections.abc import Callable
from pathlib import Path

import pygit2
import pytest

from coterie.app import App, all_projections, open_store
from coterie.base.paths import Paths
from coterie.base.secrets import SecretsStore
from coterie.characters import OWNER
from coterie.characters.identity import Identity
from coterie.eventstore import KeyStore, NewEvent, Store
from coterie.modes.crowd.events import CrowdClosed
from coterie.modes.draft import Contributor
from coterie.modes.story import Opening
from coterie.settings import Settings
from tests.e2e.server_process import Server, Start, coterie

TEXT = "# Plan\n\nThe boat leaves at nine.\n"


def fill(paths: Paths, clone: Path) -> dict[str, str]:
    """All modes, with files and keys. Returns the workspaces: one of Coterie's own, and one that was adopted."""
    paths.prepare()
    person = Contributor("owner", "Ana")

    async def run() -> dict[str, str]:
        with open_store(paths) as store:
            app = App(paths, Settings(), store)
            mara = (await app.characters.save(Identity(name="Mara", persona="A sailor."))).id
            await app.story.begin(mara, Opening(title="At the harbour", relationship="Old friends."))
            await app.desk.open(mara, OWNER)
            await store.append([NewEvent("crowd:harbour", CrowdClosed(at_ms=1))])
            own = await app.draft.workspaces.create("Plans")
            await app.draft.documents.create(own, "plan.md", TEXT, person)
            adopted = await app.draft.workspaces.adopt(str(clone), "Adopted", confirmed=True)
            await app.draft.documents.create(adopted, "notes.md", TEXT, person)
            files = app.workspaces.folder(mara) / "files" / "room"
            files.mkdir(parents=True)
            (files / "chart.bin").write_bytes(bytes(range(256)) * 100)
            await app.models.close()
            return {"own": own, "adopted": adopted}

    found = asyncio.run(run())
    (paths.root / "configs").mkdir()
    (paths.root / "configs" / "harbour.toml").write_text("")
    (paths.root / "crowd.key").write_bytes(b"k" * 32)
    keys = KeyStore(paths.root / "matrix" / "keys.db")
    keys.put({("olm", "account"): "pickled"})
    keys.close()
    (paths.root / "matrix" / "identity.json").write_text('{"master": "key"}')
    SecretsStore(paths.secrets, lambda: "open sesame").set("provider", "sk-very-secret")
    paths.config.write_text('[models]\napi_key = "sk-literal-in-the-file"\n\n[story]\nretrieval_k = 5\n')
    return found


def adopted_clone(folder: Path) -> Path:
    repository = pygit2.init_repository(str(folder), initial_head="main")
    author = pygit2.Signature("Ana", "ana@example.org")
    tree = repository.TreeBuilder().write()
    repository.create_commit("refs/heads/main", author, author, "Begin", tree, [])
    repository.create_commit("refs/heads/side", author, author, "Side", tree, [])
    return folder


def hashes(folder: Path) -> dict[str, tuple[int, str]]:
    """Path → time of change and hash."""
    return {
        path.relative_to(folder).as_posix(): (
            path.lstat().st_mtime_ns,
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
        )
        for path in sorted(folder.rglob("*"))
        if not path.name.endswith(".lock")
    }


def files(folder: Path, *names: str) -> dict[str, str]:
    """Path → hash, of the files below some entries of a folder."""
    return {path: digest for path, (_, digest) in hashes(folder).items() if digest and path.startswith(names)}


def projections(home: Path) -> dict[str, str]:
    store = Store.open(home / "coterie.db", projections=all_projections())
    found = store.hashes()
    store.close()
    return found


def document(server: Server, workspace: str, name: str) -> str:
    answer = server.client.get(f"/draft/workspaces/{workspace}/documents/{name}")
    assert answer.status_code == 200, answer.text
    return str(answer.json()["text"])


def test_s28_f1_a_whole_instance_is_restored_in_another_folder(start: Start, tmp_path: Path) -> None:
    clone = adopted_clone(tmp_path / "clone")
    paths = Paths.locate({"COTERIE_HOME": str(tmp_path / "original")})
    workspaces = fill(paths, clone)
    first = Server(paths.root, settings={"COTERIE_MODELS__API_KEY": "env-key"})
    try:
        taken = first.client.post("/backups").json()["file"]
        expected = document(first, workspaces["own"], "plan.md")
    finally:
        assert first.stop(signal.SIGTERM) in (0, -signal.SIGTERM)
        first.close()
    backup = paths.backups / taken
    assert b"sk-" not in backup.read_bytes()
    before = hashes(paths.root), hashes(clone)
    home = tmp_path / "restored"
    answer = coterie(home, "restore", str(backup))
    assert answer.returncode == 0, answer.stderr
    assert "models.api_key" in answer.stderr
    kept = ("drafts", "workspaces", "configs", "crowd.key", "secrets.json", "matrix/identity.json")
    original, restored = files(paths.root, *kept), files(home, *kept)
    assert original and original == {name: restored[name] for name in original}
    keys = KeyStore(home / "matrix" / "keys.db")
    assert keys.get("olm", "account") == "pickled"
    keys.close()
    text = (home / "config.toml").read_text()
    assert "retrieval_k = 5" in text and "sk-literal" not in text
    second = Server(home)
    try:
        assert second.client.get("/health").json()["status"] == "ok"
        assert document(second, workspaces["own"], "plan.md") == expected == TEXT
        assert document(second, workspaces["adopted"], "notes.md") == TEXT
        where = {one["id"]: one["folder"] for one in second.client.get("/draft/workspaces").json()}
        assert all(Path(folder).is_relative_to(home) for folder in where.values())
        body = {"text": "# New\n", "base": ""}
        for workspace in (workspaces["own"], workspaces["adopted"]):
            made = second.client.put(f"/draft/workspaces/{workspace}/documents/new.md", json=body)
            assert made.status_code < 300, made.text
    finally:
        assert second.stop(signal.SIGTERM) in (0, -signal.SIGTERM)
        second.close()
    assert (hashes(paths.root), hashes(clone)) == before
    bare = pygit2.Repository(where[workspaces["adopted"]])
    assert sorted(bare.branches.local) == ["main", "side"]
    assert not list(bare.remotes)
    moved = {"draft_threads"}
    now, then = projections(home), projections(paths.root)
    assert {name for name in then if now[name] != then[name]} <= moved
    assert coterie(home, "verify").returncode == 0


def test_f1_a_missing_workspace_is_reported_and_not_made_anew(start: Start, tmp_path: Path) -> None:
    clone = adopted_clone(tmp_path / "clone")
    paths = Paths.locate({"COTERIE_HOME": str(tmp_path / "home")})
    workspaces = fill(paths, clone)
    (drafts,) = (paths.root / "drafts").iterdir()
    aside = tmp_path / "aside"
    drafts.rename(aside)
    server = Server(paths.root)
    try:
        answer = server.client.get(f"/draft/workspaces/{workspaces['own']}/documents/plan.md")
        assert answer.status_code == 409
        assert f"coterie draft move {workspaces['own']}" in answer.json()["fix"]
        assert not drafts.exists()
        listed = {one["id"]: one["branch"] for one in server.client.get("/draft/workspaces").json()}
        assert listed == {workspaces["own"]: "", workspaces["adopted"]: "main"}
        page = server.client.get("/draft", headers={"Accept": "text/html"})
        assert page.status_code == 200 and "missing" in page.text
    finally:
        server.stop(signal.SIGTERM)
        server.close()
    moved = coterie(paths.root, "draft", "move", workspaces["own"], str(aside))
    assert moved.returncode == 0, moved.stderr
    server = Server(paths.root)
    try:
        assert document(server, workspaces["own"], "plan.md") == TEXT
    finally:
        server.stop(signal.SIGTERM)
        server.close()


def unlink(path: Path) -> None:
    path.unlink()


def replace(path: Path) -> None:
    path.unlink()
    path.touch()


def truncate(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(0)


def unlink_journal(path: Path) -> None:
    path.with_name(path.name + "-wal").unlink()


@pytest.mark.parametrize("harm", [unlink, replace, truncate, unlink_journal])
def test_a_lost_database_stops_writes_and_is_shown(start: Start, harm: Callable[[Path], None]) -> None:
    server = start()
    server.client.put("/you", json={"name": "Ana"}).raise_for_status()
    server.client.post("/characters/ready/maren").raise_for_status()
    server.client.post("/backups").raise_for_status()
    assert server.client.get("/health").json()["status"] == "ok"
    harm(server.home / "coterie.db")
    answer = server.client.put("/you", json={"name": "Ben"})
    assert answer.status_code == 503
    assert {"error", "fix"} <= answer.json().keys() and "coterie restore" in answer.json()["fix"]
    health = server.client.get("/health")
    assert (health.status_code, health.json()["status"]) == (503, "failing")
    assert health.json()["parts"][0]["name"] == "database"
    doctor = coterie(server.home, "doctor")
    assert doctor.returncode == 1
    server.process.kill()
    server.process.wait()
    rescued = sorted(server.home.glob("rescued-*.db"))
    if harm is truncate:
        return
    assert rescued
    again = coterie(server.home, "restore", str(rescued[0]), "--yes")
    assert again.returncode == 0, again.stderr
    repaired = Server(server.home)
    try:
        assert repaired.client.get("/you").json()["name"] == "Ana"
        assert [one["name"] for one in repaired.client.get("/characters").json()] == ["Maren Oke"]
    finally:
        repaired.close()


def test_an_instance_that_lost_its_database_does_not_start_empty(start: Start) -> None:
    server = start()
    server.client.post("/characters/ready/maren").raise_for_status()
    backup = server.client.post("/backups").json()["file"]
    server.stop(signal.SIGTERM)
    for file in server.home.glob("coterie.db*"):
        file.unlink()
    refused = coterie(server.home, "serve", "--port", "0")
    assert refused.returncode == 5
    assert f"coterie restore {server.home / 'backups' / backup}" in refused.stderr
    assert "coterie serve --new" in refused.stderr
    assert not (server.home / "coterie.db").exists()
