"""Telemetry of libraries is switched off."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def written_files(home: Path, code: str) -> list[str]:
    """The files that some code writes to an empty home, in an empty environment (CI=true would disable telemetry)."""
    clean = {"HOME": str(home), "PATH": os.environ["PATH"]}
    subprocess.run([sys.executable, "-c", code], env=clean, check=True, timeout=120)
    return [str(file.relative_to(home)) for file in home.rglob("*") if file.is_file()]


def test_the_speech_recogniser_writes_no_telemetry(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    code = "from coterie.modes.crowd.audio.transcriber import create_recogniser; create_recogniser()"
    assert written_files(tmp_path, code) == []


def test_without_the_variable_the_library_writes_telemetry(tmp_path: Path) -> None:
    """If this fails, the library has changed and the variable may not be needed any more."""
    pytest.importorskip("onnxruntime", minversion="1.31")
    assert any("onnxruntime" in file for file in written_files(tmp_path, "import onnxruntime"))
