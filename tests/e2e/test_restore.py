"""S28: a backup is restored from the page, by a real `coterie serve` that restarts."""

from __future__ import annotations

import signal
from pathlib import Path

from playwright.sync_api import Browser, expect

from tests.e2e.axe import check
from tests.e2e.conftest import TIMEOUT_MS, Watched
from tests.e2e.server_process import Server, Start, coterie


def names(server: Server) -> list[str]:
    return [character["name"] for character in server.client.get("/characters").json()]


def start_with_backup(start: Start) -> tuple[Server, str]:
    """A server with one character from before the backup and one from after it."""
    server = start()
    server.client.put("/you", json={"name": "Ana"})
    server.client.post("/characters/ready/maren").raise_for_status()
    backup: str = server.client.post("/backups").json()["file"]
    server.client.post("/characters/ready/io").raise_for_status()
    assert len(names(server)) == 2
    return server, backup


def replaced_databases(home: Path) -> list[Path]:
    return [path for path in home.glob("coterie.db.before-restore-*") if not path.name.endswith(("-wal", "-shm"))]


def check_damaged_backup_is_refused(server: Server) -> None:
    """A damaged or missing backup is refused and nothing changes."""
    before = server.client.get("/health").headers["coterie-run"]
    damaged: str = server.client.post("/backups").json()["file"]
    (server.home / "backups" / damaged).write_bytes(b"no database")
    answer = server.client.post(f"/backups/{damaged}/restore")
    assert answer.status_code == 422
    assert "is damaged" in answer.json()["error"]
    assert server.client.post("/backups/..%2Fcoterie.db/restore").status_code == 404
    assert server.client.get("/health").headers["coterie-run"] == before
    assert len(names(server)) == 2
    assert replaced_databases(server.home) == []


def test_s28_a_backup_is_restored_from_the_page_and_a_damaged_one_is_refused(start: Start, browser: Browser) -> None:
    server, backup = start_with_backup(start)
    check_damaged_backup_is_refused(server)
    context = browser.new_context(base_url=server.address, viewport={"width": 1280, "height": 800})
    context.set_default_timeout(TIMEOUT_MS)
    watched = Watched(context)
    page = context.new_page()
    page.goto("/settings#backups")
    page.get_by_role("button", name=f"Restore {backup}…").click()
    question = page.get_by_role("dialog", name="Restore this backup?")
    expect(question.get_by_text(backup)).to_be_visible()
    check(page)
    question.get_by_role("button", name="Cancel").click()
    expect(question).to_be_hidden()
    page.get_by_role("button", name=f"Restore {backup}…").click()
    question.get_by_role("button", name="Restore").click()
    expect(page.get_by_text(f"{backup} was restored.")).to_be_in_viewport()
    (replaced,) = replaced_databases(server.home)
    expect(page.get_by_text(f"The previous database is kept as {replaced}.")).to_be_visible()
    check(page)
    context.close()
    assert watched.errors == []
    assert names(server) == ["Maren Oke"]
    assert server.process.poll() is None
    assert server.stop(signal.SIGTERM) == 0
    assert coterie(server.home, "verify").returncode == 0


def test_s28_a_stop_signal_during_a_restore_stops_the_server(start: Start) -> None:
    server, backup = start_with_backup(start)
    assert server.client.post(f"/backups/{backup}/restore").status_code == 202
    assert server.stop(signal.SIGTERM) in (0, -signal.SIGTERM)
    assert coterie(server.home, "verify").returncode == 0
