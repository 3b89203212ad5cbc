"""Databases of earlier versions after they were opened by this one: the same prompts in the inspector, in less space.

For each commit, the server of that commit writes a chat with a scripted model, and every reply's prompt is read from
its API. Then this version opens the data folder; `differences` counts the prompts that it shows otherwise, and `verify`
has to find the database clean. It needs the project's Git history.
"""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from bench.lib.model_server import model
from bench.lib.report import arguments, finish, log, progress, scratch_folder

_COMMITS = {"first version": "744ad24e", "prompts as differences": "cf621d02"}
_ROOT = Path(__file__).parents[1]
_CONFIG = """
[models.roles]
narrative = "local/script"
classifier = "local/script"
compactor = "local/script"

[models.providers.local]
base_url = "{address}"
flat_rate = true
native_schema = true
"""
_FIELDS = ("name", "tier", "role", "tokens", "text")
"""The fields of a part that every version has."""


@contextmanager
def served(source: Path, home: Path) -> Iterator[httpx.Client]:
    """Run `coterie serve` from a source folder; gives a client of it."""
    command = [sys.executable, "-u", "-m", "coterie", "serve", "--port", "0"]
    log_file = home.with_suffix(".log")
    with log_file.open("a") as errors:
        process = subprocess.Popen(
            command, env=_environment(source, home), stdout=subprocess.PIPE, stderr=errors, text=True, cwd=source
        )
        try:
            assert process.stdout is not None
            found = next((re.search(r"http://127\.0\.0\.1:\d+", line) for line in process.stdout), None)
            if found is None:
                raise SystemExit(f"The server did not start:\n{log_file.read_text()}")
            with httpx.Client(base_url=found[0], timeout=300) as client:
                yield client
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(120)
            if process.stdout is not None:
                process.stdout.close()


def _environment(source: Path, home: Path) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("COTERIE_")}
    return {**inherited, "COTERIE_HOME": str(home.absolute()), "PYTHONPATH": str((source / "src").absolute())}


def write_chat(client: httpx.Client, turns: int) -> tuple[str, list[str]]:
    """A chat with one reply per turn. Returns its id and the ids of the replies."""
    characters = "/characters"
    if client.post(f"{characters}/ready/maren").status_code == 404:
        characters = "/bots"  # their name in the first version
        client.post(f"{characters}/ready/maren").raise_for_status()
    character = client.get(characters, headers={"accept": "application/json"}).json()[0]["id"]
    kickoff = client.post(f"{characters}/{character}/kickoff", json={"place": {"name": "the lighthouse"}})
    kickoff.raise_for_status()
    chat = kickoff.json()["id"]
    replies = []
    for number in range(turns):
        text = f"What did you see on day {number}, apart from ship {number * 37 % 101}?"
        answer = client.post(f"/chats/{chat}/turns?wait=true", json={"text": text})
        answer.raise_for_status()
        replies.append(answer.json()["reply"])
        progress(number + 1, turns, "turns")
    return chat, replies


def prompts(client: httpx.Client, chat: str, replies: list[str]) -> list[list[tuple[Any, ...]] | None]:
    """The parts of each reply's prompt."""
    shown: list[list[tuple[Any, ...]] | None] = []
    for reply in replies:
        answer = client.get(f"/chats/{chat}/prompt/{reply}", headers={"accept": "application/json"})
        parts = answer.json()["parts"] if answer.is_success else None
        shown.append(None if parts is None else [tuple(part.get(name) for name in _FIELDS) for part in parts])
    return shown


def size_mb(home: Path) -> float:
    return sum(file.stat().st_size for file in home.glob("coterie.db*")) / 1e6


def migrate(folder: Path, commit: str, turns: int) -> dict[str, Any]:
    source, home = folder / "source", folder / "home"
    source.mkdir(parents=True)
    home.mkdir()
    archive = subprocess.run(["git", "archive", commit], cwd=_ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(source, filter="data")
    with model() as address:
        (home / "config.toml").write_text(_CONFIG.format(address=address))
        with served(source, home) as client:
            chat, replies = write_chat(client, turns)
            before = prompts(client, chat, replies)
        size_before = size_mb(home)
        with served(_ROOT, home) as client:
            after = prompts(client, chat, replies)
    command = [sys.executable, "-m", "coterie", "verify"]
    verified = subprocess.run(command, env=_environment(_ROOT, home), capture_output=True, check=False, cwd=_ROOT)
    return {
        "commit": commit,
        "prompts": sum(prompt is not None for prompt in before),
        "parts": sum(len(prompt or ()) for prompt in before),
        "differences": sum(one != other for one, other in zip(before, after, strict=True)),
        "mb_before": round(size_before, 2),
        "mb_after": round(size_mb(home), 2),
        "verify_clean": verified.returncode == 0,
    }


def main() -> None:
    options = arguments(__doc__).parse_args()
    turns = 20 if options.quick else 100
    figures: dict[str, Any] = {}
    with scratch_folder() as name:
        for label, commit in _COMMITS.items():
            log(f"{label} ({commit})")
            figures[label.replace(" ", "_")] = result = migrate(Path(name).absolute() / commit, commit, turns)
            log(f"  {result}")
    finish({"turns": turns, **figures})


if __name__ == "__main__":
    main()
