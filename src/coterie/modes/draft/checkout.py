"""A clone that somebody also works in: its files follow our commits, unless they were changed by hand. F1"""

from __future__ import annotations

from pathlib import Path

import pygit2

from coterie.base.files import write_atomic
from coterie.base.logging import get_logger
from coterie.modes.draft.workspace import DocumentRepository

_log = get_logger(__name__)


def refresh_checkout(workspace: DocumentRepository, branch: str, path: str, before: str | None, after: str) -> None:
    """Bring a document's file in line if its branch is checked out; a file that somebody changed is left alone."""
    repository = workspace.repository
    if repository.is_bare or repository.workdir is None or workspace.main_branch != branch:
        return
    file = Path(repository.workdir) / path
    try:
        if _is_ours(repository, file, path, before, after):
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(file, repository[after].peel(pygit2.Blob).data, durable=False)
            repository.index.read()
            repository.index.add(path)
            repository.index.write()
    except (OSError, pygit2.GitError) as error:
        # The commit is made; `git status` shows what the file lacks.
        _log.warning("checkout not refreshed", path=path, error=str(error))


def _is_ours(repository: pygit2.Repository, file: Path, path: str, before: str | None, after: str) -> bool:
    if file.is_symlink():
        return False
    if not file.exists():
        return before is None
    there = str(pygit2.hash(file.read_bytes()))
    repository.index.read()
    staged = str(repository.index[path].id) if path in repository.index else None
    return there in (before, after, staged)
