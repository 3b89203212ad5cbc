"""No cloud means none: libraries that report to their makers are kept from it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def left_behind(home: Path, code: str) -> list[str]:
    """The files that some code leaves in an empty home, with an empty environment: where CI=true, nothing is told."""
    clean = {"HOME": str(home), "PATH": os.environ["PATH"]}
    subprocess.run([sys.executable, "-c", code], env=clean, check=True, timeout=120)
    return [str(file.relative_to(home)) for file in home.rglob("*") if file.is_file()]


def test_the_recognisers_library_keeps_no_record_of_its_use(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    heard = "from coterie.modes.crowd.audio import recogniser_named; recogniser_named()"
    assert left_behind(tmp_path, heard) == []


def test_by_itself_it_would(tmp_path: Path) -> None:
    """If this fails, the library has changed its manners, and the switch may be needless."""
    pytest.importorskip("onnxruntime", minversion="1.31")
    assert any("onnxruntime" in file for file in left_behind(tmp_path, "import onnxruntime"))
