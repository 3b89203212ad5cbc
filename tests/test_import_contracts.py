"""Every import contract is kept, and fails when it is broken on purpose."""

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

BREAKS = [
    ("Higher layers import lower ones, never the reverse", "base/ids.py", "import coterie.eventstore"),
    ("Higher layers import lower ones, never the reverse", "conversation/other.py", "import coterie.messaging"),
    ("Surfaces do not import each other", "surfaces/other.py", "import coterie.surfaces.web"),
    ("Modes do not import each other", "modes/draft/other.py", "import coterie.modes.story"),
    ("SQL drivers are imported in the event store only", "ops/metrics.py", "import apsw"),
    ("SQL drivers are imported in the event store only", "llm/other.py", "import sqlite3"),
    ("Web frameworks are imported in the surfaces only", "ops/metrics.py", "import fastapi"),
    ("Web frameworks are imported in the surfaces only", "modes/other.py", "import starlette"),
]
"""A contract, a file of ours and the import in it that breaks the contract."""

EXPORTS = [contract for contract in CONTRACTS if contract["type"] == "protected"]
"""One contract per package: other packages import what its `__init__` exports, nothing deeper."""


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


def test_every_contract_has_a_breaking_import() -> None:
    others = [contract for contract in CONTRACTS if contract not in EXPORTS]
    assert {contract["name"] for contract in others} == {name for name, _, _ in BREAKS}


def test_every_package_is_imported_through_its_exports() -> None:
    source = ROOT / "src" / "coterie"
    layers = set(source.iterdir()) - {source / "modes", source / "surfaces", source / "base", source / "cli"}
    packages = [*layers, *(source / "modes").iterdir(), *(source / "surfaces").iterdir()]
    expected = {folder for folder in packages if (folder / "__init__.py").exists()}
    assert {
        source / contract["allowed_importers"][0].removeprefix("coterie.").replace(".", "/") for contract in EXPORTS
    } == expected


def test_every_contract_is_kept(copy: Path) -> None:
    done = lint(copy)
    assert done.returncode == 0, done.stdout
    assert f"{len(CONTRACTS)} kept, 0 broken" in done.stdout


def broken_by(copy: Path, file: str, statements: list[str]) -> list[str]:
    """The names of the contracts that fail when the statements are appended to the file."""
    path = copy / "src" / "coterie" / file
    before = path.read_text() if path.exists() else None
    path.write_text("\n".join([before or "", *statements, ""]))
    try:
        done = lint(copy)
    finally:
        if before is None:
            path.unlink()
        else:
            path.write_text(before)
    assert done.returncode == 1, done.stdout + done.stderr
    return [line.removesuffix(" BROKEN") for line in done.stdout.splitlines() if line.endswith(" BROKEN")]


@pytest.mark.parametrize(("name", "file", "statement"), BREAKS)
def test_a_broken_contract_is_named(copy: Path, name: str, file: str, statement: str) -> None:
    assert broken_by(copy, file, [statement]) == [name]


def test_a_deep_import_breaks_the_contract_of_its_package(copy: Path) -> None:
    statements = []
    for contract in EXPORTS:
        package = contract["allowed_importers"][0]
        folder = copy / "src" / package.replace(".", "/")
        module = min(path.stem for path in folder.glob("*.py") if path.stem != "__init__")
        statements.append(f"import {package}.{module}")
    assert broken_by(copy, "cli/other.py", statements) == [contract["name"] for contract in EXPORTS]
