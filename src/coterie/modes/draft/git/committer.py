"""One writer at a time on a branch, across threads and processes; the system lets go when a process dies."""

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
    UNDOES_TRAILER,
    CommitMessage,
    DocumentRepository,
    DocumentVersion,
    GitAuthor,
    Revision,
    validate_path,
)


@contextmanager
def branch_lock(git_folder: Path, branch: str) -> Iterator[None]:
    """Held on a file of its own: each open file has its own lock, so threads exclude each other too."""
    folder = git_folder / "coterie"
    folder.mkdir(exist_ok=True)
    name = hashlib.sha256(branch.encode()).hexdigest()[:16]
    handle = os.open(folder / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


# A clone that somebody also works in: its files follow our commits, unless they were changed by hand. F1


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


# Writing a branch: a commit made in the object store, then the branch's head moved from what it was expected to be. F1
#
# The lock keeps our own writers in line; the compare-and-swap keeps out everybody else, plain git included. A process
# that is killed may leave a ref's lock file behind; whoever holds the branch lock takes an old one away.


_ABANDONED_S = 3.0
"""Git holds a ref's lock file for milliseconds. One that is this old belongs to nobody."""
_PATIENCE_S = 30.0

EditFunction = Callable[[DocumentVersion | None], str | None]
"""From the document as it is now to what it shall be; None to leave it."""


@dataclass(frozen=True, slots=True)
class CommitResult:
    commit: str
    blob: str
    text: str
    before: DocumentVersion | None
    """The document as the commit found it."""


class Committer:
    def __init__(self, workspace: DocumentRepository, *, durable: bool = True) -> None:
        """`durable`: what is acknowledged is on the disk."""
        self._workspace = workspace
        pygit2.settings.enable_fsync_gitdir(durable)

    def write(
        self, path: str, branch: str, make: EditFunction, author: GitAuthor, note: CommitMessage, when: datetime
    ) -> CommitResult | None:
        """One commit that changes one document; `make` decides under the branch's lock, on its newest version."""
        validate_path(path)
        with branch_lock(self._workspace.git_folder, branch):
            for _ in _until_patience_ends():
                head = self._workspace.head(branch)
                before = self._at(path, branch, head)
                text = make(before)
                if text is None or (before is not None and text == before.text):
                    return None
                blob, commit = self._commit(path, text, head, author, note, when)
                if self._swap(branch, head, commit, note):
                    refresh_checkout(self._workspace, branch, path, before.blob if before else None, blob)
                    return CommitResult(commit, blob, text, before)
        raise WorkspaceError(f"The branch {branch} could not be written.", "Something else holds it: try again.")

    def find(self, branch: str, trailer: str, value: str, until: str | None = None) -> Revision | None:
        """The commit that carries a change, looked for back to a commit that is known not to."""
        walk = self._workspace.walk(branch, until=until)
        return next((one for one in walk if one.trailers.get(trailer) == value), None)

    def find_change(self, branch: str, change: str, until: str | None = None) -> Revision | None:
        return self.find(branch, CHANGE_TRAILER, change, until)

    def find_undo(self, branch: str, change: str, until: str | None = None) -> Revision | None:
        return self.find(branch, UNDOES_TRAILER, change, until)

    def create_branch(self, name: str, source: str) -> None:
        head = self._workspace.head(source)
        if head is None:
            raise NoSuchDocument(f"The branch {source} has no commits yet.", "Write something on it first.")
        repository = self._workspace.repository
        if not pygit2.reference_is_valid_name(f"refs/heads/{name}") or name.startswith("-"):
            raise WorkspaceError(f"{name!r} cannot be the name of a branch.", "Use letters, digits, - and /.")
        try:
            repository.references.create(f"refs/heads/{name}", pygit2.Oid(hex=head))
        except (pygit2.AlreadyExistsError, ValueError) as error:
            raise WorkspaceError(f"There is a branch {name} already.", "Choose another name.") from error

    def merge(self, source: str, target: str, author: GitAuthor, when: datetime) -> str:
        """F11: fast-forward or a merge commit; what clashes is not touched."""
        repository = self._workspace.repository
        with branch_lock(self._workspace.git_folder, target):
            theirs, ours = self._workspace.head(source), self._workspace.head(target)
            if theirs is None or ours is None:
                raise NoSuchDocument(f"{source} and {target} are not both there.", "List the branches.")
            base = repository.merge_base(pygit2.Oid(hex=ours), pygit2.Oid(hex=theirs))
            note = CommitMessage(f"Merge {source} into {target}")
            if str(base) == theirs:
                return ours
            if str(base) == ours:
                commit = theirs
            else:
                index = repository.merge_commits(pygit2.Oid(hex=ours), pygit2.Oid(hex=theirs))
                if index.conflicts is not None:
                    paths = sorted({side.path for sides in index.conflicts for side in sides if side is not None})
                    raise Clash(
                        f"{source} and {target} changed the same words of {', '.join(paths)}.",
                        "Bring one of them in line with the other first.",
                    )
                tree = index.write_tree(repository)
                signature = _signature(author, when)
                parents = [pygit2.Oid(hex=ours), pygit2.Oid(hex=theirs)]
                commit = str(repository.create_commit(None, signature, signature, note.format(), tree, parents))
            if not self._swap(target, ours, commit, note):
                raise Clash(f"{target} changed meanwhile.", "Compare the branches again.")
            return commit

    def _at(self, path: str, branch: str, head: str | None) -> DocumentVersion | None:
        try:
            return self._workspace.read(path, branch, head)
        except NoSuchDocument:
            return None

    def _commit(
        self, path: str, text: str, head: str | None, author: GitAuthor, note: CommitMessage, when: datetime
    ) -> tuple[str, str]:
        repository = self._workspace.repository
        blob = repository.create_blob(text.encode("utf-8", "replace"))
        tree = self._tree(repository[head].peel(pygit2.Tree) if head else None, path.split("/"), blob)
        signature = _signature(author, when)
        parents = [pygit2.Oid(hex=head)] if head else []
        commit = repository.create_commit(None, signature, signature, note.format(), tree, parents)
        return str(blob), str(commit)

    def _tree(self, tree: pygit2.Tree | None, parts: list[str], blob: pygit2.Oid) -> pygit2.Oid:
        repository = self._workspace.repository
        builder = repository.TreeBuilder(tree) if tree is not None else repository.TreeBuilder()
        name, *rest = parts
        there = builder.get(name)
        if not rest:
            mode = there.filemode if isinstance(there, pygit2.Blob) else FileMode.BLOB
            builder.insert(name, blob, mode)
        else:
            inner = self._tree(there if isinstance(there, pygit2.Tree) else None, rest, blob)
            builder.insert(name, inner, FileMode.TREE)
        return builder.write()

    def _swap(self, branch: str, expected: str | None, commit: str, note: CommitMessage) -> bool:
        """Move the branch from the expected commit to the new one; False if it is somewhere else by now."""
        repository, name = self._workspace.repository, f"refs/heads/{branch}"
        try:
            if expected is None:
                repository.references.create(name, pygit2.Oid(hex=commit))
                return True
            ref = repository.lookup_reference(name)
            if str(ref.target) != expected:
                return False
            # libgit2 compares with the value that was read just now, under the ref's own lock file.
            ref.set_target(pygit2.Oid(hex=commit), f"commit: {note.subject}")
        except (pygit2.GitError, ValueError, KeyError):
            return False
        except OSError as error:
            if "lock" not in str(error):
                raise
            self._clear_abandoned(branch)
            return False
        return True

    def _clear_abandoned(self, branch: str) -> None:
        lock = self._workspace.git_folder / "refs" / "heads" / f"{branch}.lock"
        try:
            if time.time() - lock.stat().st_mtime > _ABANDONED_S:
                lock.unlink()
        except FileNotFoundError:
            return


def _signature(author: GitAuthor, when: datetime) -> pygit2.Signature:
    # Git parts a name from its address by angle brackets and refuses a name that has any.
    name = author.name.replace("<", "").replace(">", "").strip()
    return pygit2.Signature(name or "Somebody", author.email, int(when.timestamp()), 0)


def _until_patience_ends() -> Iterator[int]:
    """Tries, with a short pause between them."""
    began, number = time.monotonic(), 0
    while time.monotonic() - began < _PATIENCE_S:
        yield number
        number += 1
        time.sleep(0.05)
