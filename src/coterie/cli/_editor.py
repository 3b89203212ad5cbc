"""Letting a person change a text in the editor they like."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from pathlib import Path

from coterie.base.errors import ConfigError


def edit_text(text: str) -> str | None:
    """What they made of it; None if they left it as it was. `VISUAL` or `EDITOR` says which editor."""
    command = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "proposal.md"
        file.write_text(text, encoding="utf-8")
        try:
            # It is the person's own setting, on their own machine.
            subprocess.run([*shlex.split(command), str(file)], check=True)  # noqa: S603
        except (OSError, subprocess.CalledProcessError, ValueError) as error:
            raise ConfigError(f"The editor {command!r} did not work.", "Set EDITOR to one that does.") from error
        changed = file.read_text(encoding="utf-8")
    # Editors end a file with a line break, whether the text had one or not.
    changed = changed if text.endswith("\n") else changed.removesuffix("\n")
    return None if changed == text else changed
