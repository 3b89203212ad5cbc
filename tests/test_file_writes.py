"""Every file is written through `coterie.base.paths`; other ways are listed here with their reason."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src" / "coterie"
ALLOWED = {
    "base/offload.py": (2, "the pipe to the parent process, and the null device"),
    "base/paths.py": (3, "the atomic writer itself"),
    "base/secrets.py": (1, "a lock file without content"),
    "eventstore/sqlite/backup.py": (2, "copies a backup beside the database, then publishes it"),
    "eventstore/sqlite/database.py": (2, "a lock file, and an empty database file with narrow permissions"),
    "llm/embedded/server.py": (1, "the standard output"),
    "llm/recording.py": (1, "appends one line per call"),
    "messaging/files.py": (2, "receives a file under a new name, removed if the upload fails"),
    "modes/crowd/audio/source.py": (1, "sound that is written into a file of `open_atomic`"),
    "modes/desk/agents/tools.py": (2, "the null device"),
    "modes/desk/sandbox/files.py": (2, "the same atomic write, below an open folder so that no link is followed"),
    "modes/desk/sandbox/sandbox.py": (1, "an empty file that tests the sandbox"),
    "modes/draft/committer.py": (1, "a lock file"),
    "modes/remote/agent.py": (1, "appends the parts of a received file in a temporary folder"),
}
_WRITING_CALLS = {
    "write_text",
    "write_bytes",
    "mkstemp",
    "NamedTemporaryFile",
    "touch",
    "copyfile",
    "copy2",
    "copytree",
}
_WRITING_FLAGS = {"O_WRONLY", "O_RDWR", "O_CREAT", "O_APPEND", "O_TRUNC"}


def test_files_are_written_through_the_atomic_writer() -> None:
    found: Counter[str] = Counter()
    lines: list[str] = []
    for file in SOURCE.rglob("*.py"):
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and writes_a_file(call):
                name = file.relative_to(SOURCE).as_posix()
                found[name] += 1
                lines.append(f"{name}:{call.lineno}")
    expected = {name: count for name, (count, _) in ALLOWED.items()}
    assert dict(found) == expected, "\n".join(
        ["Use write_atomic or open_atomic of coterie.base.paths, or list the file here with its reason:", *lines]
    )


def writes_a_file(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name in _WRITING_CALLS:
        return True
    if name not in ("open", "fdopen"):
        return False
    if any(isinstance(node, ast.Attribute) and node.attr in _WRITING_FLAGS for node in ast.walk(call)):
        return True
    return any(is_writing_mode(node) for node in [*call.args, *(keyword.value for keyword in call.keywords)])


def is_writing_mode(node: ast.expr) -> bool:
    mode = node.value if isinstance(node, ast.Constant) else None
    if not isinstance(mode, str) or len(mode) > 3 or not set(mode) <= set("rwaxbt+"):
        return False
    return any(letter in mode for letter in "wax+")
