"""Invalid input and broken environments: an error with a fix, its exit code, no traceback, nothing changed."""

from __future__ import annotations

import os
import random
import socket
import string
from pathlib import Path

import pytest

from bench.lib.sample_events import sample_projections
from coterie.base.paths import Paths
from coterie.eventstore import Store
from tests.cli.conftest import Answer, Call, everything_in


def check(answer: Answer, code: int, *parts: str) -> None:
    assert answer.code == code, answer.err
    for part in parts:
        assert part in answer.err
    assert "→" in answer.err
    assert "Traceback" not in answer.err


def change(home: Paths, statement: str) -> None:
    store = Store.open(home.database, projections=sample_projections())
    store.transact(lambda rows: rows.run(statement))
    store.close()


def test_two_processes_on_one_file(sample_home: Paths, process: Call) -> None:
    store = Store.open(sample_home.database, projections=sample_projections())
    check(process("serve", "--port", "0"), 4, f"Another Coterie (process {os.getpid()}) is using", "COTERIE_HOME")
    store.close()
    assert process("verify").code == 0


@pytest.mark.parametrize("command", [["serve", "--port", "0"], ["purge", "room:b", "--yes"]])
def test_a_read_only_folder(sample_home: Paths, process: Call, call: Call, command: list[str]) -> None:
    before = everything_in(sample_home.root)
    sample_home.root.chmod(0o500)
    try:
        check(process(*command, limited=True), 5, str(sample_home.root), "cannot be written", "COTERIE_HOME")
    finally:
        sample_home.root.chmod(0o700)
    assert everything_in(sample_home.root) == before
    assert call("verify").code == 0


def test_a_folder_that_cannot_be_created(tmp_path: Path, process: Call) -> None:
    shut = tmp_path / "shut"
    shut.mkdir(mode=0o500)
    answer = process("serve", "--port", "0", limited=True, environ={"COTERIE_HOME": str(shut / "home")})
    check(answer, 5, str(shut / "home"), "cannot be created (Permission denied)")


def test_a_database_without_read_permission(sample_home: Paths, process: Call) -> None:
    sample_home.database.chmod(0)
    try:
        check(process("verify", limited=True), 5, str(sample_home.database), "cannot be opened", "may read and write")
    finally:
        sample_home.database.chmod(0o600)


def test_a_typo_in_the_config(sample_home: Paths, process: Call) -> None:
    sample_home.config.write_text("[server]\nhost = '127.0.0.1'\nprot = 8000\n")
    before = everything_in(sample_home.root)
    check(process("serve"), 2, 'server.prot (config.toml line 3) is not a setting; did you mean "port"?')
    assert everything_in(sample_home.root) == before


@pytest.mark.parametrize(
    ("config", "part"),
    [
        ("[server\n", "is not valid TOML"),
        ("[server]\nport = 'http'\n", "server.port (config.toml line 2) should be a valid integer"),
        ("[storage]\nbackup_at = 'at night'\n", "storage.backup_at (config.toml line 2) should be a cron expression"),
        ("[server]\nhost = '0.0.0.0'\n", "other machines can reach"),
        ("[log]\nlevel = 'env:NOT_SET_ANYWHERE'\n", "environment variable NOT_SET_ANYWHERE, which is not set"),
    ],
)
def test_an_invalid_config(home: Paths, call: Call, config: str, part: str) -> None:
    home.config.write_text(config)
    check(call("serve", "--port", "0"), 2, part)
    assert not home.database.exists()


def test_an_unknown_environment_variable(home: Paths, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COTERIE_SERVER__PRT", "80")
    check(call("serve"), 2, 'environment variable COTERIE_SERVER__PRT) is not a setting; did you mean "port"?')


@pytest.mark.parametrize("size", [0.5, 0.9])
def test_a_truncated_database(sample_home: Paths, call: Call, size: float) -> None:
    os.truncate(sample_home.database, int(sample_home.database.stat().st_size * size))
    before = everything_in(sample_home.root)
    for command in (["serve", "--port", "0"], ["verify"], ["events"], ["purge", "room:b", "--yes"]):
        check(call(*command), 7, "is cut short", "coterie restore")
        sample_home.config.unlink(missing_ok=True)
    check(call("backup"), 7, "is cut short")
    assert everything_in(sample_home.root) == before


def test_a_truncated_database_as_a_process(sample_home: Paths, process: Call) -> None:
    os.truncate(sample_home.database, 50)
    check(process("serve", "--port", "0"), 7, "is not a Coterie database")


def test_a_newer_schema(sample_home: Paths, process: Call, call: Call) -> None:
    change(sample_home, "INSERT INTO migration VALUES ('m999_telepathy', 0)")
    before = everything_in(sample_home.root)
    check(process("serve", "--port", "0"), 8, "written by a newer Coterie (it has m999_telepathy)", "Upgrade")
    check(call("purge", "room:b", "--yes"), 8, "m999_telepathy")
    sample_home.config.unlink()
    assert everything_in(sample_home.root) == before


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("INSERT INTO event_kind VALUES (99, 'telepathy', 1)", "telepathy (version 1)"),
        ("INSERT INTO event_kind VALUES (99, 'sample_said', 9)", "sample_said (version 9)"),
    ],
)
def test_an_unknown_event(sample_home: Paths, call: Call, statement: str, named: str) -> None:
    change(sample_home, f"{statement}; UPDATE log SET kind = 99 WHERE id = 62")
    before = everything_in(sample_home.root)
    for command in (["serve", "--port", "0"], ["events"], ["purge", "room:b", "--yes"]):
        check(call(*command), 11, "events that this Coterie does not know", named, "upgrade Coterie")
    check(call("verify"), 7, named)
    sample_home.config.unlink()
    assert everything_in(sample_home.root) == before


def test_unknown_kinds_as_a_process_without_the_samples(sample_home: Paths, process: Call) -> None:
    check(process("serve", "--port", "0", samples=False), 11, "sample_said (version 1)")


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.0.1", "example.org"])
def test_a_host_that_others_can_reach(home: Paths, call: Call, host: str) -> None:
    check(call("serve", "--host", host), 2, f"server.host is {host}, which other machines can reach", "127.0.0.1")
    assert not home.database.exists()


def test_a_port_that_is_taken(sample_home: Paths, process: Call) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        check(process("serve", "--port", port), 4, f"Port {port} on 127.0.0.1 cannot be used", "--port 8001")
    assert process("verify").code == 0


@pytest.mark.parametrize("port", ["70000", "-1", "http"])
def test_an_invalid_port(home: Paths, call: Call, port: str) -> None:
    answer = call("serve", f"--port={port}")
    assert answer.code == 2
    assert "--port" in answer.err


def test_a_full_disk_at_the_first_start(home: Paths, process: Call) -> None:
    answer = process("serve", "--port", "0", environ={"SAMPLE_MAX_PAGES": "8"})
    check(answer, 6, "There is no room left on the disk", "Free some space")


def test_a_full_disk_while_purging_changes_nothing(sample_home: Paths, process: Call, call: Call) -> None:
    pages = sample_home.database.stat().st_size // 4096
    reason = "".join(random.Random(1).choices(string.ascii_letters, k=100_000))  # is stored compressed
    answer = process("purge", "room:b", "--yes", "--reason", reason, environ={"SAMPLE_MAX_PAGES": str(pages)})
    check(answer, 6, "There is no room left on the disk")
    assert call("verify").code == 0
    assert "xylophone" in call("events", "--stream", "room:b").out


def test_a_full_disk_during_a_backup_leaves_no_file(sample_home: Paths, process: Call) -> None:
    pages = sample_home.database.stat().st_size // 4096
    answer = process("backup", environ={"SAMPLE_MAX_PAGES": str(pages // 2)})
    check(answer, 9, "The backup could not be taken", "no room left")
    assert list(sample_home.backups.iterdir()) == []
