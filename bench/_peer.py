"""Environments for the things we compare ourselves with, made on demand and never the product's own."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parent.parent
_HOME = _ROOT / ".bench"


class PeerMissing(Exception):
    """A peer could not be installed; the reason is its text."""


def peer_python(name: str, requirements: Sequence[str], no_deps: Sequence[str] = ()) -> Path:
    """The Python of an environment that has these packages. Raises `PeerMissing` if they cannot be had."""
    told = hashlib.sha256(json.dumps([list(requirements), list(no_deps)]).encode()).hexdigest()[:8]
    folder = _HOME / f"{name}-{told}"
    python = folder / "bin" / "python"
    done = folder / ".done"
    if not done.exists():
        uv = Path(sys.executable).parent / "uv"
        _run([str(uv), "venv", "--quiet", "--clear", "--python", sys.executable, str(folder)])
        install = [str(uv), "pip", "install", "--quiet", "--python", str(python)]
        if requirements:
            _run([*install, *requirements])
        if no_deps:
            _run([*install, "--no-deps", *no_deps])
        done.touch()
    return python


def run_peer(python: Path, script: str, *arguments: str, timeout_s: float = 1_800) -> Any:
    """Run a script in a peer's environment; what it prints last is its JSON answer."""
    done = subprocess.run(
        [str(python), "-c", script, *arguments], capture_output=True, text=True, timeout=timeout_s, check=False
    )
    if done.returncode:
        raise PeerMissing(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "it failed without a word")
    return json.loads(done.stdout.strip().splitlines()[-1])


def _run(command: Sequence[str]) -> None:
    _HOME.mkdir(exist_ok=True)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PeerMissing(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "it could not be installed")
