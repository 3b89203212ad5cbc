"""Runs the `console` blocks of a documentation page in one shell and checks their output.

A line with `$ ` is a command, `> ` its input, and `^C` stops the server that `make run` started. All other lines are
expected output, except lines with `…`, which vary.
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
class ConsoleStep:
    command: str
    inputs: list[str] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)


def console_steps(text: str) -> list[ConsoleStep]:
    steps: list[ConsoleStep] = []
    for block in re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                steps.append(ConsoleStep(line[2:].partition("   #")[0].strip()))
            elif line == "^C":
                steps.append(ConsoleStep("^C"))
            elif line.startswith("> "):
                steps[-1].inputs.append(line[2:])
            elif line.strip() and "…" not in line:
                steps[-1].expected.append(line.strip())
    return steps


def run(steps: list[ConsoleStep], folder: Path) -> None:
    """Run all steps; raises AssertionError with the output of the step that failed."""
    port = _free_port()
    lines = ["set -eu -o pipefail", "SERVER=", f"trap '{_END}' EXIT"]
    for number, step in enumerate(steps):
        (folder / f"{number}.in").write_text("".join(f"{line}\n" for line in step.inputs), encoding="utf-8")
        command = {"make run": _SERVE.format(port=port), "^C": _STOP}.get(step.command, step.command)
        command = re.sub(r"(127\.0\.0\.1|localhost):8000", f"127.0.0.1:{port}", command)
        lines += [
            f"echo {number} > {folder}/at",
            "{",
            command,
            f"}} < {folder}/{number}.in > {folder}/{number}.out 2>&1",
        ]
    work = folder / "work"
    work.mkdir()
    bin_folder = str(Path(sys.executable).parent)
    environ = {
        **os.environ,
        "COTERIE_HOME": str(folder / "home"),
        "COTERIE_STORY__REPLY_TOKENS": "60",  # the embedded model is slow on a busy machine
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
            _, errors = shell.communicate()
        finally:  # kills what it started, also if the test is aborted
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
    last = int((folder / "at").read_text())
    output = (folder / f"{last}.out").read_text(encoding="utf-8")
    assert shell.returncode == 0, f"`{steps[last].command}` ended with {shell.returncode}:\n{output}\n{errors}"
    for number, step in enumerate(steps):
        output = (folder / f"{number}.out").read_text(encoding="utf-8")
        missing = [line for line in step.expected if line not in output]
        assert not missing, f"`{step.command}` did not print {missing}, but:\n{output}"


def _free_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return int(unused.getsockname()[1])
