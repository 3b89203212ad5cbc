"""Every file is written through `coterie.base.paths`; other ways are listed here with their reason."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src" / "coterie"
ALLOWED = {
    "base/offload.py": (2, "the pipe to the parent process, and the null device"),
    "base/folders.py": (3, "the same atomic write, below an open folder so that no link is followed"),
    "base/paths.py": (3, "the atomic writer itself"),
    "base/secrets.py": (1, "a lock file without content"),
    "eventstore/sqlite/database.py": (2, "a lock file, and an empty database file with narrow permissions"),
    "eventstore/sqlite/file_guard.py": (1, "an empty file with narrow permissions, which SQLite fills"),
    "llm/embedded/server.py": (1, "the standard output"),
    "llm/local_models.py": (1, "copies a model file beside its place, which it then takes"),
    "llm/recording.py": (1, "appends one line per call"),
    "modes/crowd/audio/source.py": (1, "sound that is written into a file of `open_atomic`"),
    "modes/desk/agents/tools.py": (2, "the null device"),
    "modes/desk/sandbox/limits.py": (1, "settings of a cgroup, which are not files on a disk"),
    "modes/desk/sandbox/sandbox.py": (1, "an empty file that tests the sandbox"),
    "modes/draft/committer.py": (1, "a lock file"),
    "modes/remote/agent.py": (1, "appends the parts of a received file in a temporary folder"),
    "ops/archive.py": (4, "an archive that is published when it is complete, and files restored into a new folder"),
    "ops/restore.py": (2, "copies a database beside the current one, which a plan then replaces"),
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
