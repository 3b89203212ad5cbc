"""F16: `coterie draft` as a process of its own, with the embedded model and a plain file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("embedded")]

TEXT = """# Keeping the light

The lamp burns every night, and every night it burns. It was lit in 1871 and has gone out twice.

Nobody knows who lights it. Nobody asks.
"""


def draft(folder: Path, *words: str, typed: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "coterie", "draft", *words]
    environment = {**os.environ, "COTERIE_HOME": str(folder / "home")}
    return subprocess.run(
        command, cwd=folder, env=environment, input=typed, capture_output=True, text=True, timeout=300, check=False
    )


def test_f16_ask_and_review_with_the_embedded_model(tmp_path: Path) -> None:
    (tmp_path / "light.md").write_text(TEXT)
    result = draft(tmp_path, "ask", "light.md", "Make the first sentence shorter.")
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()
    assert (tmp_path / "light.md").read_text() == TEXT, "nothing changes before somebody accepts it"
    reviewed = draft(tmp_path, "review", "light.md", typed="d\n" * 20)
    assert reviewed.returncode == 0, reviewed.stderr
    assert (tmp_path / "light.md").read_text() == TEXT, "and what is declined does not either"
