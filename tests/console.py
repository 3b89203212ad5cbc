"""What a page tells a reader to type, typed: its `console` blocks, one after the other, in one shell.

`$ ` begins a command, `> ` is typed into it, `^C` stops the server that `make run` started. Everything else is what the
terminal shows: it must be among what the command really said, but for lines with `…`, which differ each time.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

_SERVE = """coterie serve --port {port} > server.log 2>&1 &
SERVER=$!
for _ in $(seq 600); do curl -sf 127.0.0.1:{port}/health > /dev/null && break; sleep 0.2; done"""
_STOP = 'kill -INT "$SERVER"; wait "$SERVER" || true; SERVER='
_END = "jobs -p | xargs -r kill 2> /dev/null || true; wait"


@dataclass
class Typed:
    command: str
    answers: list[str] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)


def typed(text: str) -> list[Typed]:
    steps: list[Typed] = []
    for block in re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                steps.append(Typed(line[2:].partition("   #")[0].strip()))
            elif line == "^C":
                steps.append(Typed("^C"))
            elif line.startswith("> "):
                steps[-1].answers.append(line[2:])
            elif line.strip() and "…" not in line:
                steps[-1].shown.append(line.strip())
    return steps


def run(steps: list[Typed], folder: Path) -> None:
    """Type it all; raises AssertionError with what was said where something went wrong."""
    port = _free_port()
    lines = ["set -eu -o pipefail", "SERVER=", f"trap '{_END}' EXIT"]
    for number, step in enumerate(steps):
        (folder / f"{number}.in").write_text("".join(f"{answer}\n" for answer in step.answers), encoding="utf-8")
        command = {"make run": _SERVE.format(port=port), "^C": _STOP}.get(step.command, step.command)
        here = re.sub(r"(127\.0\.0\.1|localhost):8000", f"127.0.0.1:{port}", command)
        lines += [f"echo {number} > {folder}/at", "{", here, f"}} < {folder}/{number}.in > {folder}/{number}.out 2>&1"]
    work = folder / "work"
    work.mkdir()
    bin_folder = str(Path(sys.executable).parent)
    environ = {
        **os.environ,
        "COTERIE_HOME": str(folder / "home"),
        "COTERIE_STORY__REPLY_TOKENS": "60",  # the small model is slow on a busy machine
        "PATH": f"{bin_folder}:{os.environ['PATH']}",
    }
    with subprocess.Popen(
        ["bash", "-c", "\n".join(lines)],
        cwd=work,
        env=environ,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as shell:
        try:
            _, complaint = shell.communicate()
        finally:  # whatever it started ends with it, also when the test is given up
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
    last = int((folder / "at").read_text())
    said = (folder / f"{last}.out").read_text(encoding="utf-8")
    assert shell.returncode == 0, f"`{steps[last].command}` ended with {shell.returncode}:\n{said}\n{complaint}"
    for number, step in enumerate(steps):
        output = (folder / f"{number}.out").read_text(encoding="utf-8")
        missing = [line for line in step.shown if line not in output]
        assert not missing, f"`{step.command}` did not say {missing}, but:\n{output}"


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])
