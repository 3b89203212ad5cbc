"""Write to a branch: create a commit, then move the branch's head by compare-and-swap.

A file lock per branch serialises writers of this program; the compare-and-swap detects every other writer, such as
plain git. A killed process can leave a ref's lock file behind; the holder of the branch lock removes an old one.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pygit2
from pygit2.enums import FileMode

from coterie.base.files import write_atomic
from coterie.base.logging import get_logger
from coterie.modes.draft.errors import Clash, NoSuchDocument, WorkspaceError
from coterie.modes.draft.git.repository import (
    CHANGE_TRAILER,
    CommitMessage,
    DocumentRepository,
    DocumentVersion,
    GitAuthor,
    Revision,
    validate_path,
)

_STALE_LOCK_S = 3.0
"""Git holds a ref's lock file for milliseconds. One this old was left behind."""
_WRITE_TIMEOUT_S = 30.0

EditFunction = Callable[[DocumentVersion | None], str | None]
"""From the current version of a document to its new text; None leaves it unchanged."""
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CommitResult:
    commit: str
    blob: str
    text: str
    before: DocumentVersion | None
    """The version that the commit changed."""


class Committer:
    def __init__(self, repository: DocumentRepository, *, durable: bool = True) -> None:
        """With `durable`, a commit is synced to the disk before it is returned."""
        self._repository = repository
        pygit2.settings.enable_fsync_gitdir(durable)

    def write(
        self, path: str, branch: str, edit: EditFunction, author: GitAuthor, message: CommitMessage, when: datetime
    ) -> CommitResult | None:
        """Commit a change of one document. `edit` is called under the branch's lock with the newest version, again
        if another writer moved the branch meanwhile."""
        validate_path(path)
        with branch_lock(self._repository.git_folder, branch):
            for _ in _attempts():
                head = self._repository.head(branch)
                before = self._version_at(path, branch, head)
                text = edit(before)
                if text is None or (before is not None and text == before.text):
                    return None
                blob, commit = self._create_commit(path, text, head, author, message, when)
                if self._move_branch(branch, head, commit, message):
                    update_checkout(self._repository, branch, path, before.blob if before else None, blob)
                    return CommitResult(commit, blob, text, before)
        raise WorkspaceError(f"The branch {branch} could not be written.", "Something else holds it: try again.")

    def find_change(self, branch: str, change: str, until: str | None = None) -> Revision | None:
        """The commit with this change's trailer, searched back to `until`."""
        revisions = self._repository.walk(branch, until=until)
        return next((revision for revision in revisions if revision.trailers.get(CHANGE_TRAILER) == change), None)

    def create_branch(self, name: str, source: str) -> None:
        head = self._repository.head(source)
        if head is None:
            raise NoSuchDocument(f"The branch {source} has no commits yet.", "Write something on it first.")
        if not pygit2.reference_is_valid_name(f"refs/heads/{name}") or name.startswith("-"):
            raise WorkspaceError(f"{name!r} cannot be the name of a branch.", "Use letters, digits, - and /.")
        try:
            self._repository.git.references.create(f"refs/heads/{name}", pygit2.Oid(hex=head))
        except (pygit2.AlreadyExistsError, ValueError) as error:
            raise WorkspaceError(f"There is a branch {name} already.", "Choose another name.") from error

    def merge(self, source: str, target: str, author: GitAuthor, when: datetime) -> str:
        """Fast-forward the target, or create a merge commit. A conflict raises `Clash` and changes nothing."""
        git = self._repository.git
        with branch_lock(self._repository.git_folder, target):
            theirs, ours = self._repository.head(source), self._repository.head(target)
            if theirs is None or ours is None:
                raise NoSuchDocument(f"{source} and {target} are not both there.", "List the branches.")
            ours_id, theirs_id = pygit2.Oid(hex=ours), pygit2.Oid(hex=theirs)
            base = git.merge_base(ours_id, theirs_id)
            message = CommitMessage(f"Merge {source} into {target}")
            if str(base) == theirs:
                return ours
            if str(base) == ours:
                commit = theirs
            else:
                index = git.merge_commits(ours_id, theirs_id)
                if index.conflicts is not None:
                    paths = sorted({side.path for sides in index.conflicts for side in sides if side is not None})
                    raise Clash(
                        f"{source} and {target} changed the same words of {', '.join(paths)}.",
                        "Bring one of them in line with the other first.",
                    )
                tree = index.write_tree(git)
                signature = _signature(author, when)
                commit = str(
                    git.create_commit(None, signature, signature, message.format(), tree, [ours_id, theirs_id])
                )
            if not self._move_branch(target, ours, commit, message):
                raise Clash(f"{target} changed meanwhile.", "Compare the branches again.")
            return commit

    def _version_at(self, path: str, branch: str, head: str | None) -> DocumentVersion | None:
        try:
            return self._repository.read(path, branch, head)
        except NoSuchDocument:
            return None

    def _create_commit(
        self, path: str, text: str, head: str | None, author: GitAuthor, message: CommitMessage, when: datetime
    ) -> tuple[str, str]:
        git = self._repository.git
        blob = git.create_blob(text.encode("utf-8", "replace"))
        tree = self._write_tree(git[head].peel(pygit2.Tree) if head else None, path.split("/"), blob)
        signature = _signature(author, when)
        parents = [pygit2.Oid(hex=head)] if head else []
        commit = git.create_commit(None, signature, signature, message.format(), tree, parents)
        return str(blob), str(commit)

    def _write_tree(self, tree: pygit2.Tree | None, parts: list[str], blob: pygit2.Oid) -> pygit2.Oid:
        git = self._repository.git
        builder = git.TreeBuilder(tree) if tree is not None else git.TreeBuilder()
        name, *rest = parts
        entry = builder.get(name)
        if not rest:
            mode = entry.filemode if isinstance(entry, pygit2.Blob) else FileMode.BLOB
            builder.insert(name, blob, mode)
        else:
            subtree = self._write_tree(entry if isinstance(entry, pygit2.Tree) else None, rest, blob)
            builder.insert(name, subtree, FileMode.TREE)
        return builder.write()

    def _move_branch(self, branch: str, expected: str | None, commit: str, message: CommitMessage) -> bool:
        """Move the branch from the expected commit to the new one; False if its head is another one by now."""
        git, name = self._repository.git, f"refs/heads/{branch}"
        try:
            if expected is None:
                git.references.create(name, pygit2.Oid(hex=commit))
                return True
            ref = git.lookup_reference(name)
            if str(ref.target) != expected:
                return False
            # libgit2 compares with the value that was read just now, under the ref's own lock file.
            ref.set_target(pygit2.Oid(hex=commit), f"commit: {message.subject}")
        except (pygit2.GitError, ValueError, KeyError):
            return False
        except OSError as error:
            if "lock" not in str(error):
                raise
            self._remove_stale_lock(branch)
            return False
        return True

    def _remove_stale_lock(self, branch: str) -> None:
        lock = self._repository.git_folder / "refs" / "heads" / f"{branch}.lock"
        try:
            if time.time() - lock.stat().st_mtime > _STALE_LOCK_S:
                lock.unlink()
        except FileNotFoundError:
            return


@contextmanager
def branch_lock(git_folder: Path, branch: str) -> Iterator[None]:
    """Exclude other writers of this branch in all threads and processes.

    Each call opens the lock file anew, so threads exclude each other too; the system releases it if a process dies.
    """
    folder = git_folder / "coterie"
    folder.mkdir(exist_ok=True)
    name = hashlib.sha256(branch.encode()).hexdigest()[:16]
    handle = os.open(folder / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def update_checkout(repository: DocumentRepository, branch: str, path: str, before: str | None, after: str) -> None:
    """Update the document's file if its branch is checked out and the file was not changed by hand."""
    git = repository.git
    if git.is_bare or git.workdir is None or repository.main_branch != branch:
        return
    file = Path(git.workdir) / path
    try:
        if _is_unmodified(git, file, path, before, after):
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(file, git[after].peel(pygit2.Blob).data, durable=False)
            git.index.read()
            git.index.add(path)
            git.index.write()
    except (OSError, pygit2.GitError) as error:
        # The commit exists; `git status` shows that the file differs.
        _log.warning("checkout not updated", path=path, error=str(error))


def _is_unmodified(git: pygit2.Repository, file: Path, path: str, before: str | None, after: str) -> bool:
    if file.is_symlink():
        return False
    if not file.exists():
        return before is None
    current = str(pygit2.hash(file.read_bytes()))
    git.index.read()
    staged = str(git.index[path].id) if path in git.index else None
    return current in (before, after, staged)


def _signature(author: GitAuthor, when: datetime) -> pygit2.Signature:
    # Git separates a name from its address by angle brackets and refuses a name that contains any.
    name = author.name.replace("<", "").replace(">", "").strip()
    return pygit2.Signature(name or "Somebody", author.email, int(when.timestamp()), 0)


def _attempts() -> Iterator[int]:
    """Count attempts until the timeout, with a short pause between them."""
    began, number = time.monotonic(), 0
    while time.monotonic() - began < _WRITE_TIMEOUT_S:
        yield number
        number += 1
        time.sleep(0.05)
