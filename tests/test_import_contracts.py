"""Each import contract is worth something only if it fails when broken: so each is broken here, once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
CONTRACTS: list[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
    "contracts"
]

BREAKS = {
    "High rooms may import low ones, never the reverse": ("base/ids.py", "import coterie.eventstore.log"),
    "Surfaces do not know each other": ("surfaces/other.py", "import coterie.surfaces.web.server"),
    "Modes do not know each other": ("modes/draft/merging.py", "import coterie.modes.story.service"),
    "Only the kernel speaks to SQLite": ("ops/metrics.py", "import apsw"),
    "Web frameworks stay in the surfaces": ("ops/metrics.py", "import fastapi"),
}
"""Contract → the file of ours, and the import in it, that break it."""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("contracts")
    shutil.copy(ROOT / "pyproject.toml", folder)
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-logo", "--no-cache"]
    environ = {**os.environ, "PYTHONPATH": str(folder / "src")}
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=120)


def test_there_is_a_way_to_break_each_contract() -> None:
    assert {contract["name"] for contract in CONTRACTS} == set(BREAKS)


def test_the_tree_as_it_is_keeps_them_all(copy: Path) -> None:
    done = lint(copy)
    assert done.returncode == 0, done.stdout
    assert f"{len(CONTRACTS)} kept, 0 broken" in done.stdout


@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_contract_is_named(copy: Path, name: str) -> None:
    file, statement = BREAKS[name]
    path = copy / "src" / "coterie" / file
    before = path.read_text() if path.exists() else None
    path.write_text(f"{before or ''}\n{statement}\n")
    try:
        done = lint(copy)
    finally:
        if before is None:
            path.unlink()
        else:
            path.write_text(before)
    assert done.returncode == 1, done.stdout + done.stderr
    broken = [line.removesuffix(" BROKEN") for line in done.stdout.splitlines() if line.endswith(" BROKEN")]
    assert broken == [name]
