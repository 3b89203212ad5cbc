"""Writing documents to a Git repository: commits, branches, merges, and the files of a checked-out branch.

A write creates a commit, then moves the branch's head by compare-and-swap: a file lock per branch serialises writers of
this program, and the compare-and-swap detects every other writer, such as plain git. No write replaces anything but the
document it is about, and none overwrites what somebody has not committed in a checkout.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path, PurePosixPath

import pygit2
from pygit2.enums import CheckoutStrategy, DeltaStatus, FileMode, FileStatus

from coterie.base.errors import UnsafePath
from coterie.base.folders import Folder
from coterie.base.logging import get_logger
from coterie.base.offload import run_limited_blocking
from coterie.base.redaction import redact
from coterie.base.values import is_text, replace_surrogates
from coterie.modes.draft.errors import EditConflict, NoSuchDocument, PathTaken, WorkspaceError
from coterie.modes.draft.git import (
    MAX_BRANCH,
    REGULAR_FILES,
    CommitMessage,
    DocumentRepository,
    DocumentVersion,
    EditFunction,
    GitAuthor,
    check_text,
    reports_git_errors,
    validate_path,
)

_STALE_LOCK_S = 3.0
"""Git holds a ref's lock file for milliseconds. One this old was left behind by a killed process."""
_WRITE_TIMEOUT_S = 30.0
_RECENT_VERSIONS = 20
"""How many commits back a file of the checkout may be, after a process was killed before it could update it."""
_WORK_TREE_CHANGES = (
    FileStatus.WT_NEW
    | FileStatus.WT_MODIFIED
    | FileStatus.WT_DELETED
    | FileStatus.WT_TYPECHANGE
    | FileStatus.WT_RENAMED
    | FileStatus.WT_UNREADABLE
)
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CommitResult:
    version: DocumentVersion
    before: DocumentVersion | None
    """The version that the commit changed."""


_SMALL_MERGE_BYTES = 200_000
_MERGE_S = 20.0


def merged_tree(folder: Path, ours: str, theirs: str, durable: bool) -> tuple[list[str], str]:
    """The documents that conflict, or the tree of the merge."""
    pygit2.settings.enable_fsync_gitdir(durable)
    git = DocumentRepository(folder, create=False).git
    index = git.merge_commits(pygit2.Oid(hex=ours), pygit2.Oid(hex=theirs))
    if index.conflicts is not None:
        return sorted({side.path for sides in index.conflicts for side in sides if side is not None}), ""
    return [], str(index.write_tree(git))


class Committer:
    def __init__(self, repository: DocumentRepository, *, durable: bool = True) -> None:
        """With `durable`, a commit is synced to the disk before it is returned."""
        self._repository = repository
        self.folder = repository.folder
        pygit2.settings.enable_fsync_gitdir(durable)
        self._durable = durable

    @reports_git_errors
    def write(
        self, path: str, branch: str, edit: EditFunction, author: GitAuthor, message: CommitMessage, when: datetime
    ) -> CommitResult | None:
        """Commit a change of one document. `edit` is called under the branch's lock with the newest version, again
        if another writer moved the branch meanwhile."""
        validate_path(path)
        _validate_branch(branch)
        redact.check_names(path, branch)
        with branch_lock(self._repository.git_folder, branch):
            for _ in _attempts():
                head = self._repository.head(branch)
                before = self._version_at(path, branch, head)
                text = edit(before)
                if text is None or (before is not None and text == before.text):
                    return None
                check_text(text, before.text if before else None)
                blob, commit = self._create_commit(path, text, head, author, message, when)
                if self._move_branch(branch, head, commit, message):
                    update_checkout(self._repository, branch, path, before.blob if before else None, blob)
                    return CommitResult(DocumentVersion(path, branch, commit, blob, text), before)
        raise WorkspaceError(f"The branch {branch} could not be written.", "Something else holds it: try again.")

    @reports_git_errors
    def create_branch(self, name: str, source: str) -> None:
        head = self._repository.head(source)
        if head is None:
            raise NoSuchDocument(f"The branch {source} has no commits yet.", "Write something on it first.")
        _validate_branch(name)
        redact.check_names(name)
        try:
            self._repository.git.references.create(f"refs/heads/{name}", pygit2.Oid(hex=head))
        except (pygit2.GitError, ValueError) as error:
            raise WorkspaceError(
                f"There is a branch {name} already, or one whose name begins with the same part.",
                "Choose another name.",
            ) from error

    @reports_git_errors
    def merge(self, source: str, target: str, author: GitAuthor, when: datetime) -> str:
        """Fast-forward the target, or create a merge commit, and update the files if the target is checked out.

        A conflict raises `EditConflict` and changes nothing, and so do uncommitted changes of files that would change.
        """
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
                conflicts, tree = self._merged_tree(str(base) if base is not None else None, ours, theirs)
                if conflicts:
                    raise EditConflict(
                        f"{source} and {target} conflict in {', '.join(conflicts)}.",
                        "Bring one of them in line with the other first.",
                    )
                signature = _signature(author, when)
                commit = str(
                    git.create_commit(
                        None, signature, signature, _message(message), pygit2.Oid(hex=tree), [ours_id, theirs_id]
                    )
                )
            checkout = Checkout.of(self._repository, target)
            changes = checkout.changes(ours, commit) if checkout is not None else {}
            if checkout is not None and (uncommitted := checkout.uncommitted(changes, ours)):
                shown = ", ".join(uncommitted[:5]) + (" …" if len(uncommitted) > 5 else "")
                raise EditConflict(
                    f"The merge would overwrite changes in {self.folder} that are not committed: {shown}.",
                    "Commit them, or put them aside with `git stash`, then merge again.",
                )
            if not self._move_branch(target, ours, commit, message):
                raise EditConflict(f"{target} changed meanwhile.", "Compare the branches again.")
            if checkout is not None:
                checkout.apply(changes, commit)
            return commit

    def _merged_tree(self, base: str | None, ours: str, theirs: str) -> tuple[list[str], str]:
        """Large documents are merged in a worker process: nothing else runs while libgit2 compares their lines."""
        git = self._repository.git
        sides = [git.diff(base, side) for side in (ours, theirs)] if base is not None else []
        files = {file.id for side in sides for delta in side.deltas for file in (delta.old_file, delta.new_file)}
        blobs = [blob for file in files if isinstance(blob := git.get(file), pygit2.Blob)]
        arguments = (self._repository.folder, ours, theirs, self._durable)
        if base is not None and sum(blob.size for blob in blobs) <= _SMALL_MERGE_BYTES:
            return merged_tree(*arguments)
        try:
            return run_limited_blocking("Merging the branches", _MERGE_S, merged_tree, *arguments)
        except WorkspaceError:  # a repository of another user, which only this process is configured to open
            return merged_tree(*arguments)

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
        commit = git.create_commit(None, signature, signature, _message(message), tree, parents)
        return str(blob), str(commit)

    def _write_tree(self, tree: pygit2.Tree | None, parts: list[str], blob: pygit2.Oid) -> pygit2.Oid:
        """The tree with the blob at a path. An entry that is no document, or a folder of one, is never replaced."""
        git = self._repository.git
        builder = git.TreeBuilder(tree) if tree is not None else git.TreeBuilder()
        name, *rest = parts
        entry = builder.get(name)
        if rest:
            if entry is not None and not isinstance(entry, pygit2.Tree):
                raise PathTaken(f"{name} is a file, so nothing can be inside it.", "Choose another path.")
            builder.insert(name, self._write_tree(entry, rest, blob), FileMode.TREE)
        else:
            if entry is not None and entry.filemode not in REGULAR_FILES:
                kind = "a folder" if isinstance(entry, pygit2.Tree) else "a link or a submodule"
                raise PathTaken(f"{name} is {kind}, not a document.", "Choose another path.")
            builder.insert(name, blob, entry.filemode if entry is not None else FileMode.BLOB)
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
        except (pygit2.GitError, ValueError, KeyError) as error:
            if expected is None and self._repository.head(branch) is None and "lock" not in str(error):
                raise WorkspaceError(
                    f"The branch {branch} cannot be created ({error}).", "Choose another name."
                ) from error
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
    handle = os.open(folder / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def update_checkout(repository: DocumentRepository, branch: str, path: str, before: str | None, after: str) -> None:
    """Update the document's file if its branch is checked out and nobody changed the file or staged a change of it."""
    checkout = Checkout.of(repository, branch)
    if checkout is None:
        return
    try:
        if checkout.has_version(path, before, after):
            checkout.write(path, after)
    except (OSError, UnsafePath, pygit2.GitError) as error:
        # The commit exists; `git status` shows that the file differs.
        _log.warning("checkout not updated", path=path, error=str(error))


class Checkout:
    """The files and the index of a branch that is checked out."""

    def __init__(self, repository: DocumentRepository, branch: str, folder: Path) -> None:
        self._repository = repository
        self._git = repository.git
        self._branch = branch
        self._folder = folder

    @classmethod
    def of(cls, repository: DocumentRepository, branch: str) -> Checkout | None:
        """None if the branch is not checked out in the repository's own folder."""
        git = repository.git
        if git.is_bare or git.workdir is None or git.head_is_detached or repository.main_branch != branch:
            return None
        return cls(repository, branch, Path(git.workdir).resolve())

    def write(self, path: str, blob: str) -> None:
        self._git.index.read()
        staged = self._git.index[path].mode if path in self._git.index else FileMode.BLOB
        with Folder.open(self._folder) as folder:
            self._write_file(folder, path, pygit2.Oid(hex=blob), FileMode(staged))
        self._git.index.write()

    def _write_file(self, folder: Folder, path: str, blob: pygit2.Oid, mode: FileMode, *, chmod: bool = False) -> None:
        """Write a file without following a link on the way, and stage it."""
        permissions = (0o755 if mode == FileMode.BLOB_EXECUTABLE else 0o644) if chmod else None
        folder.write(path, self._git[blob].peel(pygit2.Blob).data, mode=permissions, create_folders=True)
        # Not read from the file again, whose folder may be a link to somewhere else by now.
        self._git.index.add(pygit2.IndexEntry(path, blob, mode))

    def has_version(self, path: str, before: str | None, after: str) -> bool:
        """Whether the file and the index have a committed version, so that nothing is lost by replacing it."""
        self._git.index.read()
        staged = str(self._git.index[path].id) if path in self._git.index else None
        try:
            with Folder.open(self._folder) as folder:
                current = str(pygit2.hash(folder.read(path)))
        except FileNotFoundError:
            return before is None and staged is None
        except (OSError, UnsafePath):
            return False
        if current in (before, after):
            return staged in (None, before, after)
        return current == staged and self._is_recent_version(path, current)

    def _is_below_link(self, path: str) -> bool:
        return any((self._folder / parent).is_symlink() for parent in PurePosixPath(path).parents)

    def _is_recent_version(self, path: str, blob: str) -> bool:
        """Whether it was committed lately: the process that did so was killed before it could update the file."""
        versions = islice(self._repository.walk(self._branch, path), _RECENT_VERSIONS)
        return any((found := self._repository.blob_at(one.id, path)) and str(found.id) == blob for one in versions)

    # --- merges ----------------------------------------------------------------------------------------------

    def changes(self, old: str, new: str) -> dict[str, bool]:
        """The paths that differ between two commits, each with whether the new one has it."""
        deltas = self._git.diff(old, new).deltas
        return {delta.old_file.path: delta.status != DeltaStatus.DELETED for delta in deltas}

    def uncommitted(self, changes: dict[str, bool], head: str) -> list[str]:
        """The changed paths where the files or the index differ from the commit `head`."""
        self._git.index.read()
        tree = self._git[head].peel(pygit2.Tree)
        deleted = {path for path, kept in changes.items() if not kept}
        return [path for path in changes if not self._is_clean(path, tree, deleted)]

    def _is_clean(self, path: str, tree: pygit2.Tree, deleted: set[str]) -> bool:
        expected = tree[path] if path in tree else None  # noqa: SIM401 - it has no get
        staged = self._git.index[path] if path in self._git.index else None  # noqa: SIM401
        if expected is None or isinstance(expected, pygit2.Tree):
            return staged is None and self._is_free(path, deleted)
        if staged is None or (staged.id, staged.mode) != (expected.id, expected.filemode):
            return False
        if self._is_below_link(path) or (self._folder / path).is_dir() != isinstance(expected, pygit2.Commit):
            return False
        return not self._git.status_file(path) & _WORK_TREE_CHANGES

    def _is_free(self, path: str, deleted: set[str]) -> bool:
        """Whether a new file can be created, once the deleted ones are gone."""
        parents = [str(parent) for parent in PurePosixPath(path).parents if str(parent) != "."]
        if any(not (self._folder / one).is_dir() for one in parents if os.path.lexists(self._folder / one)):
            return any(one in deleted for one in parents)
        file = self._folder / path
        if self._is_below_link(path) or file.is_symlink() or file.is_file():
            return False
        below = (one.relative_to(self._folder).as_posix() for one in file.rglob("*") if not one.is_dir())
        return all(one in deleted for one in below)

    def apply(self, changes: dict[str, bool], commit: str) -> None:
        """Bring the changed paths, which must be clean, to the commit."""
        try:
            tree, others = self._git[commit].peel(pygit2.Tree), []
            with Folder.open(self._folder) as folder:
                for path in (path for path, kept in changes.items() if not kept):
                    self._delete(folder, path)
                for path in (path for path, kept in changes.items() if kept):
                    if tree[path].filemode in REGULAR_FILES:
                        self._replace(folder, path, tree[path])
                    else:
                        others.append(path)
            self._git.index.write()
            if others:  # links and submodules
                strategy = CheckoutStrategy.FORCE | CheckoutStrategy.DISABLE_PATHSPEC_MATCH
                self._git.checkout_tree(tree, strategy=strategy, paths=others)  # type: ignore[no-untyped-call]
        except (OSError, UnsafePath, pygit2.GitError) as error:
            # The merge is committed; `git status` shows which files differ.
            _log.warning("checkout not updated", commit=commit, error=str(error))

    def _replace(self, folder: Folder, path: str, entry: pygit2.Object) -> None:
        with suppress(OSError):
            if stat.S_ISLNK(folder.status(path).st_mode):
                folder.remove(path)  # a link that the commit replaces by a file
        self._write_file(folder, path, entry.id, FileMode(entry.filemode), chmod=True)

    def _delete(self, folder: Folder, path: str) -> None:
        with suppress(FileNotFoundError):
            folder.remove(path)
        with suppress(OSError):  # not empty
            for parent in PurePosixPath(path).parents:
                if parent.name:
                    folder.remove_empty(str(parent))
        self._git.index.remove(path)


def _validate_branch(name: str) -> None:
    valid = is_text(name) and len(name) <= MAX_BRANCH and not name.startswith("-")
    if not valid or not pygit2.reference_is_valid_name(f"refs/heads/{name}"):
        raise WorkspaceError(f"{name[:200]!r} cannot be the name of a branch.", "Use letters, digits, - and /.")


def _message(message: CommitMessage) -> str:
    return replace_surrogates(message.format())


def _signature(author: GitAuthor, when: datetime) -> pygit2.Signature:
    # Git separates a name from its address by angle brackets and refuses a name that contains any.
    name, email = (
        replace_surrogates(text).replace("<", "").replace(">", "").strip() for text in (author.name, author.email)
    )
    return pygit2.Signature(name or "Somebody", email or "somebody@coterie.invalid", int(when.timestamp()), 0)


def _attempts() -> Iterator[int]:
    """Count attempts until the timeout, with a short pause between them."""
    began, number = time.monotonic(), 0
    while time.monotonic() - began < _WRITE_TIMEOUT_S:
        yield number
        number += 1
        time.sleep(0.05)
