"""The composition root: start and stop, health, and the example configuration."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
import structlog

from coterie import __version__
from coterie.app import App, Started, open_store
from coterie.base.config import load_config
from coterie.base.errors import ReadOnly, StorageError
from coterie.base.paths import Paths
from coterie.eventstore import Store
from coterie.settings import Settings, load_settings, write_example_config


@pytest.fixture
def home(tmp_path: Path) -> Paths:
    return Paths.locate({"COTERIE_HOME": str(tmp_path / "home")})


async def test_start_and_stop_are_logged(home: Paths) -> None:
    with open_store(home) as store:
        app = App(home, Settings(), store)
        with structlog.testing.capture_logs() as logs:
            async with app.running():
                assert app.health().status == "ok"
                assert b"coterie_events_total 2.0" in app.metrics()  # the start, and where notices begin
                assert dict(app.summary())["Events"] == "2"
        assert [line["event"] for line in logs] == ["started", "stopping"]
        (event,) = store.reader.read("instance")
        assert event.payload == Started(coterie=__version__)
        ((schedule, _, _),) = await store.schedules.all()
        assert (schedule.name, schedule.cron) == ("nightly backup", "0 3 * * *")


async def test_it_leaves_no_thread_behind(home: Paths) -> None:
    """Such as the import of libraries that begins a while after the start: it would run in what comes next."""
    before = set(threading.enumerate())
    with open_store(home) as store:
        async with App(home, Settings(), store).running():
            await asyncio.sleep(0.1)
            assert set(threading.enumerate()) > before
    left = {thread for thread in threading.enumerate() if not thread.name.startswith("asyncio_")} - before
    assert left == set()


async def test_it_is_degraded_while_a_background_task_fails(home: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    async def die(*_: object) -> None:
        raise RuntimeError("the snapshots are haunted")

    monkeypatch.setattr("coterie.ops.backups.SnapshotTaker.run", die)
    with open_store(home) as store:
        app = App(home, Settings(), store)
        with structlog.testing.capture_logs() as logs:
            async with app.running():
                await asyncio.sleep(0)
                (problem,) = app.health().problems
                assert (problem.name, problem.status) == ("snapshots", "retrying")
                assert app.health().status == "degraded"
                assert b'coterie_task_failures_total{task="snapshots"} 1.0' in app.metrics()
        failed = [line for line in logs if line["event"] == "background task failed"]
        assert [(line["task"], line["error"]) for line in failed] == [
            ("snapshots", "RuntimeError: the snapshots are haunted")
        ]


async def test_a_part_that_cannot_be_closed_does_not_keep_the_others_from_it(
    home: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails() -> None:
        raise RuntimeError("fault")

    with open_store(home) as store:
        app = App(home, Settings(), store)
        monkeypatch.setattr(app.crowd, "close", fails)
        with structlog.testing.capture_logs() as logs:
            async with app.running():
                pass
        assert app.supervisor.states() == []
        assert [line["part"] for line in logs if line["event"] == "a part was not closed"] == ["CrowdService"]


async def test_it_is_unhealthy_when_the_database_cannot_be_read(home: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise StorageError("The disk is gone.", "Plug it in.")

    with open_store(home) as store:
        app = App(home, Settings(), store)
        assert app.health().status == "ok"
        monkeypatch.setattr(Store, "check_file", refuse)
        health = app.health()
        assert (health.status, health.problems[0].name, health.problems[0].error) == (
            "failing",
            "database",
            "The disk is gone.",
        )


def test_every_job_kind_has_a_handler(home: Paths) -> None:
    with open_store(home) as store:
        assert "backup" in App(home, Settings(), store).handlers()


def test_the_store_is_closed_after_an_error(home: Paths) -> None:
    with pytest.raises(RuntimeError), open_store(home):
        raise RuntimeError
    with open_store(home):
        pass  # the lock is free again


def test_an_example_config_is_written_unless_there_is_one(home: Paths) -> None:
    write_example_config(home)
    assert load_settings(home, {}).settings == Settings()
    home.config.write_text("[server]\nport = 1\n")
    write_example_config(home)
    assert load_config(Settings, file=home.config).settings.server.port == 1


def test_a_config_file_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    environ = {"COTERIE_HOME": str(tmp_path), "COTERIE_CONFIG": str(tmp_path / "file" / "config.toml")}
    with pytest.raises(ReadOnly, match="cannot be written"):
        write_example_config(Paths.locate(environ))
