"""A data folder with a sample database, and two ways to call a command on it: in this process, or in a new one."""

from __future__ import annotations

import ctypes
import logging
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import structlog

from bench.lib.sample_events import SampleTurn, sample_event, sample_projections
from coterie.base.paths import Paths
from coterie.cli import main
from coterie.eventstore import NewEvent, Store

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str


Call = Callable[..., Answer]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    """An empty data folder that commands in this process use."""
    monkeypatch.setenv("COTERIE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("coterie.app.all_projections", sample_projections)
    paths = Paths.locate()
    paths.prepare()
    return paths


@pytest.fixture
def sample_home(home: Paths) -> Paths:
    """A data folder with sixty sample events in room:a, and two with private text in room:b."""
    chance = random.Random(7)
    store = Store.open(home.database, projections=sample_projections())
    store.append_blocking([sample_event(chance, "room:a", number) for number in range(60)])
    private = [SampleTurn(turn=f"p{number}", speaker="you", text=f"the xylophone is at {number}") for number in (1, 2)]
    store.append_blocking([NewEvent("room:b", said, actor="person:you") for said in private])
    store.close()
    return home


@pytest.fixture
def call(home: Paths, capsys: pytest.CaptureFixture[str]) -> Iterator[Call]:
    """Calls a command in this process."""

    def run(*arguments: str) -> Answer:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        captured = capsys.readouterr()
        code = ended.value.code
        return Answer(code if isinstance(code, int) else int(code is not None), captured.out, captured.err)

    handlers, level = list(logging.getLogger().handlers), logging.getLogger().level
    yield run
    logging.getLogger().handlers[:] = handlers
    logging.getLogger().setLevel(level)
    structlog.reset_defaults()


@pytest.fixture
def process(home: Paths) -> Call:
    """Calls a command in a new process and checks that it prints no traceback."""

    def run(
        *arguments: str, samples: bool = True, limited: bool = False, environ: dict[str, str] | None = None
    ) -> Answer:
        module = "tests.cli.with_samples" if samples else "coterie"
        done = subprocess.run(
            [sys.executable, "-m", module, *arguments],
            cwd=ROOT,
            env={**os.environ, "COTERIE_HOME": str(home.root), **(environ or {})},
            preexec_fn=_obey_permissions if limited else None,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return Answer(done.returncode, done.stdout, done.stderr)

    return run


def _obey_permissions() -> None:
    """Drop the capabilities that let root ignore file permissions."""
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
            if libc.prctl(24, capability, 0, 0, 0) != 0:  # PR_CAPBSET_DROP
                raise OSError(ctypes.get_errno(), "cannot drop the capability")


def everything_in(folder: Path) -> dict[str, bytes]:
    """Contents of all files, except locks, empty journals and SQLite's shared memory."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.endswith((".lock", "-shm")) and path.stat().st_size
    }
