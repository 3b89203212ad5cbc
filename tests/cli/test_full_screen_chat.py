"""`coterie chat` on a pseudo-terminal. P16"""

from __future__ import annotations

import json
import os
import pty
import select
import struct
import subprocess
import sys
import time
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ

from tests.cli.conftest import ROOT


def read_until(screen: int, expected: str, seconds: float = 120) -> str:
    output, ends = "", time.monotonic() + seconds
    while expected not in output and time.monotonic() < ends:
        if select.select([screen], [], [], 0.5)[0]:
            output += os.read(screen, 65_536).decode(errors="replace")
    assert expected in output, output[-2_000:]
    return output


def test_p16_the_full_screen_chat_opens_answers_and_quits(tmp_path: Path) -> None:
    tape = tmp_path / "tape.jsonl"
    lines = [{"when": "Opening prose:", "say": "{}"}, {"when": "say something", "say": "Xylophone."}]
    tape.write_text("\n".join(map(json.dumps, lines)))
    screen, terminal = pty.openpty()
    ioctl(terminal, TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    environ = {**os.environ, "COTERIE_HOME": str(tmp_path / "home"), "COTERIE_MODELS__REPLAY": str(tape)}
    command = [sys.executable, "-m", "coterie", "chat", "maren"]
    process = subprocess.Popen(
        command, cwd=ROOT, env={**environ, "TERM": "xterm-256color"}, stdin=terminal, stdout=terminal, stderr=terminal
    )
    os.close(terminal)
    try:
        read_until(screen, "kettle")
        os.write(screen, b"say something\r")
        read_until(screen, "Xylophone.")
        os.write(screen, b"/quit\r")
        ends = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < ends:
            if select.select([screen], [], [], 0.2)[0]:
                try:
                    os.read(screen, 65_536)
                except OSError:
                    break
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        os.close(screen)
