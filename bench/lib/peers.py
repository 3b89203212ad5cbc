"""Separate Python environments for the software that benches compare with, created on demand."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]
_HOME = _ROOT / ".bench"


class PeerMissing(Exception):
    """A peer could not be installed; the reason is its text."""


def peer_python(name: str, requirements: Sequence[str], no_deps: Sequence[str] = ()) -> Path:
    """The interpreter of an environment with these packages. Raises `PeerMissing` if they cannot be installed."""
    digest = hashlib.sha256(json.dumps([list(requirements), list(no_deps)]).encode()).hexdigest()[:8]
    folder = _HOME / f"{name}-{digest}"
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
    """Run a script in a peer's environment; its last line of output is the result as JSON."""
    done = subprocess.run(
        [str(python), "-c", script, *arguments], capture_output=True, text=True, timeout=timeout_s, check=False
    )
    if done.returncode:
        raise PeerMissing(
            done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "it failed without an error message"
        )
    return json.loads(done.stdout.strip().splitlines()[-1])


def _run(command: Sequence[str]) -> None:
    _HOME.mkdir(exist_ok=True)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PeerMissing(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "it could not be installed")


def mem0_python() -> Path:
    """The environment of mem0. `MEM0` uses a local qdrant, `infer=False`, and precomputed vectors."""
    return peer_python("mem0", ["mem0ai==2.2.1", "numpy"])


MEM0 = """
import json, os, sys, time
folder, k, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
os.environ.update(MEM0_TELEMETRY="False", MEM0_DIR=os.path.join(folder, "mem0"), OPENAI_API_KEY="none", HOME=folder)
import numpy
from mem0 import Memory
vectors = numpy.load(os.path.join(folder, "vectors.npy"))
texts = json.load(open(os.path.join(folder, "texts.json")))
plan = json.load(open(os.path.join(folder, "plan.json")))
known = {text: vector.tolist() for text, vector in zip(texts, vectors)}

class LookedUp:
    def embed(self, text, action=None):
        return known.get(text) or known.get(text.strip()) or [0.0] * vectors.shape[1]
    def embed_batch(self, texts, action=None):
        return [self.embed(text) for text in texts]

memory = Memory.from_config({
    "vector_store": {"provider": "qdrant", "config": {
        "path": os.path.join(folder, "qdrant"), "on_disk": True, "collection_name": "m",
        "embedding_model_dims": int(vectors.shape[1])}},
    "history_db_path": os.path.join(folder, "history.db"),
})
memory.embedding_model = LookedUp()
started = time.perf_counter()
added = 0
for text, owner, turn in plan["memories"]:
    memory.add(text or " ", user_id=owner, infer=False, metadata={"turn": turn})
    added += 1
    if seconds and time.perf_counter() - started > seconds:
        break
add_s = time.perf_counter() - started
found, took = [], []
limit = time.perf_counter() + (seconds or 1e9)
for text, owner in plan["questions"]:
    started = time.perf_counter()
    answer = memory.search(text, filters={"user_id": owner}, top_k=k)
    took.append((time.perf_counter() - started) * 1000)
    found.append([row["metadata"]["turn"] for row in answer["results"]])
    if time.perf_counter() > limit:
        break
size = sum(os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(folder) for name in names
           if name not in ("vectors.npy", "texts.json", "plan.json"))
import resource
print(json.dumps({"added": added, "add_per_s": added / add_s, "search_ms": took, "found": found,
                  "disk_mb": size / 1e6, "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))
"""
