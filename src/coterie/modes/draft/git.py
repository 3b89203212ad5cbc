"""Documents in a Git repository: reading (`DocumentRepository`) and writing (`Committer`).

Nothing is checked out to read or to write. A folder without a repository gets a bare one; an existing clone is used as
it is. A write creates a commit, then moves the branch's head by compare-and-swap: a file lock per branch serialises
writers of this program, and the compare-and-swap detects every other writer, such as plain git.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import textwrap
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from pathlib import Path, PurePosixPath

import pygit2
from pygit2.enums import FileMode, SortMode

from coterie.base.logging import get_logger
from coterie.base.paths import write_atomic
from coterie.modes.draft.errors import EditConflict, NoSuchDocument, NotADocument, WorkspaceError

MAIN_BRANCH = "main"
CHANGE_TRAILER, THREAD_TRAILER, UNDOES_TRAILER = "Coterie-Change", "Coterie-Thread", "Coterie-Undoes"
PROPOSED_BY_TRAILER, CO_AUTHOR_TRAILER = "Proposed-by", "Co-authored-by"
_SUBJECT_LENGTH = 72
_TITLE = re.compile(r"^#[ \t]+(.+?)[ \t]*#*[ \t]*$", re.MULTILINE)
_REGULAR_FILES = (FileMode.BLOB, FileMode.BLOB_EXECUTABLE)
MARKDOWN_SUFFIXES = (".md", ".markdown")
MAX_SIZE = 4_000_000
_RECENT_COMMITS = 40
"""How many commits are searched for recently changed documents."""
_STALE_LOCK_S = 3.0
"""Git holds a ref's lock file for milliseconds. One this old was left behind by a killed process."""
_WRITE_TIMEOUT_S = 30.0
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class GitAuthor:
    name: str
    email: str


@dataclass(frozen=True, slots=True)
class Contributor:
    """A person who acts on a document, as known to this mode."""

    id: str
    name: str
    email: str = ""

    @property
    def author(self) -> GitAuthor:
        return GitAuthor(self.name, self.email or f"{self.id}@coterie.invalid")


@dataclass(frozen=True, slots=True)
class CommitMessage:
    subject: str
    body: str = ""
    trailers: Mapping[str, str | list[str]] = field(default_factory=dict)
    """By name; several values become several trailers."""

    def format(self) -> str:
        """Subject, body and trailers as Git stores them:

        Say it shorter

        The sentence said the same thing twice.

        Coterie-Change: 01KB…
        Coterie-Thread: 01KB…
        Proposed-by: Mara
        """
        subject = textwrap.shorten(_one_line(self.subject) or "Change the text", _SUBJECT_LENGTH, placeholder="…")
        # Git takes trailers from the last paragraph only, so a trailer in the body is not read as one of ours.
        body = [] if self.body.strip() in ("", subject) else [self.body.strip()]
        values = ((name, [value] if isinstance(value, str) else value) for name, value in self.trailers.items())
        trailers = "\n".join(f"{name}: {_one_line(one)}" for name, several in values for one in several if one)
        return "\n\n".join([subject, *body, *([trailers] if trailers else [])]) + "\n"


@dataclass(frozen=True, slots=True)
class Revision:
    """A commit, as shown in the history."""

    id: str
    author: str
    when: int
    """Seconds since 1970."""
    subject: str
    trailers: Mapping[str, str]

    @property
    def thread(self) -> str:
        """The id of the thread that led to it; empty if there was none."""
        return self.trailers.get(THREAD_TRAILER, "")


@dataclass(frozen=True, slots=True)
class DocumentVersion:
    """A document as of a commit on a branch."""

    path: str
    branch: str
    commit: str
    blob: str
    text: str

    @property
    def title(self) -> str:
        return document_title(self.path, self.text)


EditFunction = Callable[[DocumentVersion | None], str | None]
"""From the current version of a document to its new text; None leaves it unchanged."""


@dataclass(frozen=True, slots=True)
class DocumentDiff:
    """How a document differs between two branches, as a patch."""

    path: str
    patch: str


@dataclass(frozen=True, slots=True)
class RecentDocument:
    """A document and when it was last changed."""

    path: str
    title: str
    changed_at: int
    """Seconds since 1970."""


class DocumentRepository:
    def __init__(self, folder: Path) -> None:
        """Open the repository in a folder, or create a bare one there."""
        self.folder = folder
        self._handles = threading.local()
        if not _is_repository(folder):
            folder.mkdir(parents=True, exist_ok=True)
            pygit2.init_repository(str(folder), bare=True, initial_head=MAIN_BRANCH)
        self.git_folder = Path(self.git.path)

    @property
    def git(self) -> pygit2.Repository:
        """The libgit2 handle of this thread: handles must not be shared between threads."""
        if not hasattr(self._handles, "git"):
            try:
                self._handles.git = pygit2.Repository(str(self.folder))
            except pygit2.GitError as error:
                raise WorkspaceError(
                    f"The repository in {self.folder} cannot be opened ({error}).", "Check it with `git fsck`."
                ) from error
        handle: pygit2.Repository = self._handles.git
        return handle

    @property
    def main_branch(self) -> str:
        """The branch that HEAD names, with or without commits."""
        head = self.git.lookup_reference("HEAD").raw_target
        name = head.decode() if isinstance(head, bytes) else ""
        return name.removeprefix("refs/heads/") or MAIN_BRANCH

    def branches(self) -> list[str]:
        return sorted(self.git.branches.local)

    def head(self, branch: str) -> str | None:
        """The branch's newest commit; None if it has none."""
        try:
            ref = self.git.references.get(f"refs/heads/{branch}")
        except ValueError:
            return None  # no branch could have such a name
        return str(ref.peel(pygit2.Commit).id) if ref is not None else None

    def documents(self, branch: str) -> list[tuple[str, str]]:
        """Path and title of every document of a branch."""
        head = self.head(branch)
        if head is None:
            return []
        documents = []
        for path, blob in _markdown(self.git[head].peel(pygit2.Tree), PurePosixPath()):
            documents.append((path, document_title(path, blob.data.decode("utf-8", "replace"))))
        return sorted(documents)

    def recent(self, branch: str, limit: int) -> list[RecentDocument]:
        """Recently changed documents, newest first. Only the last commits are searched."""
        head = self.head(branch)
        recent: dict[str, RecentDocument] = {}
        if head is None:
            return []
        for commit in islice(self.git.walk(head, SortMode.TOPOLOGICAL), _RECENT_COMMITS):
            for path in self._changed_paths(commit):
                blob = self.blob_at(head, path) if path not in recent else None
                if blob is not None:
                    title = document_title(path, blob.data.decode("utf-8", "replace"))
                    recent[path] = RecentDocument(path, title, commit.commit_time)
            if len(recent) >= limit:
                break
        return list(recent.values())[:limit]

    def _changed_paths(self, commit: pygit2.Commit) -> list[str]:
        """The documents that a commit changed."""
        if commit.parents:
            deltas = self.git.diff(commit.parents[0], commit).deltas
        else:
            deltas = commit.tree.diff_to_tree(swap=True).deltas
        paths = (delta.new_file.path for delta in deltas)
        return [path for path in paths if path.lower().endswith(MARKDOWN_SUFFIXES)]

    def read(self, path: str, branch: str, commit: str | None = None) -> DocumentVersion:
        validate_path(path)
        revision = commit or self.head(branch)
        entry = self.blob_at(revision, path) if revision is not None else None
        if revision is None or entry is None:
            raise NoSuchDocument(f"There is no document {path} on {branch}.", "List the documents of the branch.")
        return DocumentVersion(path, branch, revision, str(entry.id), decode_blob(entry, path))

    def blob_text(self, blob: str) -> str:
        entry = self.git.get(blob)
        if not isinstance(entry, pygit2.Blob):
            raise NoSuchDocument("This version of the document is not in the repository.", "Reload the document.")
        return decode_blob(entry, "The document")

    def blob_at(self, commit: str, path: str) -> pygit2.Blob | None:
        try:
            entry = self.git[commit].peel(pygit2.Tree)[path]
        except KeyError:
            return None
        return entry if isinstance(entry, pygit2.Blob) and entry.filemode in _REGULAR_FILES else None

    def history(self, branch: str, limit: int = 100, path: str | None = None) -> list[Revision]:
        """Commits, newest first; with `path`, only those that changed that document."""
        return list(islice(self.walk(branch, path), limit))

    def walk(self, branch: str, path: str | None = None, until: str | None = None) -> Iterator[Revision]:
        head = self.head(branch)
        if head is None:
            return
        walker = self.git.walk(head, SortMode.TOPOLOGICAL)
        if until is not None and until in self.git:
            walker.hide(until)
        for commit in walker:
            if path is None or self._changed(commit, path):
                yield _revision(commit)

    def find_changes(self, branch: str, changes: Collection[str], until: str | None = None) -> dict[str, Revision]:
        """The newest commit with the trailer of each change, searched back to `until`."""
        revisions: dict[str, Revision] = {}
        for revision in self.walk(branch, until=until):
            change = revision.trailers.get(CHANGE_TRAILER, "")
            if change in changes:
                revisions.setdefault(change, revision)
        return revisions

    def compare(self, source: str, target: str) -> list[DocumentDiff]:
        """The documents that merging one branch into another would change, each with its patch."""
        heads = self.head(target), self.head(source)
        if heads[0] is None or heads[1] is None:
            raise NoSuchDocument(f"{source} and {target} are not both there.", "List the branches.")
        ours, theirs = pygit2.Oid(hex=heads[0]), pygit2.Oid(hex=heads[1])
        base = self.git.merge_base(ours, theirs)
        patches = self.git.diff(str(base) if base is not None else heads[0], heads[1], context_lines=3)
        diffs: list[DocumentDiff] = []
        for patch in patches:
            if patch is None:
                continue
            path = patch.delta.new_file.path
            if path.lower().endswith(MARKDOWN_SUFFIXES):
                diffs.append(DocumentDiff(path, patch.text or ""))
        return diffs

    def blame(self, branch: str, path: str, line: int) -> Revision | None:
        """The commit that last changed a line, counted from 1."""
        head = self.head(branch)
        if head is None:
            return None
        try:
            hunk = self.git.blame(path, newest_commit=pygit2.Oid(hex=head)).for_line(line)
        except (IndexError, ValueError, KeyError, pygit2.GitError):
            return None
        found = self.git[hunk.final_commit_id]
        return _revision(found.peel(pygit2.Commit))

    def _changed(self, commit: pygit2.Commit, path: str) -> bool:
        blob = self.blob_at(str(commit.id), path)
        parents = [self.blob_at(str(parent), path) for parent in commit.parent_ids]
        if not parents:
            return blob is not None
        blob_id = blob.id if blob else None
        return all(blob_id != (parent.id if parent else None) for parent in parents)


def _revision(commit: pygit2.Commit) -> Revision:
    subject = commit.message.split("\n", 1)[0]
    author = commit.author
    return Revision(str(commit.id), author.name, commit.commit_time, subject, dict(commit.message_trailers))


def document_title(path: str, text: str) -> str:
    match = _TITLE.search(text)
    return match.group(1) if match else PurePosixPath(path).stem


def validate_path(path: str) -> str:
    """Return the path if it can be a document's: relative, inside the workspace, Markdown."""
    parts = PurePosixPath(path).parts
    invalid = (
        not parts
        or path.startswith("/")
        or "\\" in path
        or "\0" in path
        or any(part in ("..", ".") or part.lower().startswith(".git") for part in parts)
    )
    if invalid or str(PurePosixPath(path)) != path or not path.lower().endswith(MARKDOWN_SUFFIXES):
        raise NotADocument(
            f"{path!r} cannot be a document.", "Name a Markdown file inside the workspace: notes/plan.md"
        )
    return path


def decode_blob(blob: pygit2.Blob, name: str) -> str:
    if blob.size > MAX_SIZE:
        raise NotADocument(f"{name} is larger than {MAX_SIZE // 1_000_000} MB.", "Split it into several documents.")
    try:
        return blob.data.decode("utf-8")
    except UnicodeDecodeError:
        raise NotADocument(f"{name} is not UTF-8 text.", "Convert it, then open it again.") from None


def _is_repository(folder: Path) -> bool:
    if not folder.exists():
        return False
    found = pygit2.discover_repository(str(folder), False, str(folder.resolve().parent))
    return found is not None


def _markdown(tree: pygit2.Tree, under: PurePosixPath) -> Iterator[tuple[str, pygit2.Blob]]:
    for entry in tree:
        name = under / (entry.name or "")
        if isinstance(entry, pygit2.Tree):
            yield from _markdown(entry, name)
        elif (
            isinstance(entry, pygit2.Blob)
            and entry.filemode in _REGULAR_FILES
            and name.suffix.lower() in MARKDOWN_SUFFIXES
        ):
            yield str(name), entry


def _one_line(text: str) -> str:
    return re.sub(r"[\s\x00-\x1f\x7f]+", " ", text).strip()


# --- writing -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CommitResult:
    version: DocumentVersion
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
                    return CommitResult(DocumentVersion(path, branch, commit, blob, text), before)
        raise WorkspaceError(f"The branch {branch} could not be written.", "Something else holds it: try again.")

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
        """Fast-forward the target, or create a merge commit. A conflict raises `EditConflict` and changes nothing."""
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
                    raise EditConflict(
                        f"{source} and {target} changed the same words of {', '.join(paths)}.",
                        "Bring one of them in line with the other first.",
                    )
                tree = index.write_tree(git)
                signature = _signature(author, when)
                commit = str(
                    git.create_commit(None, signature, signature, message.format(), tree, [ours_id, theirs_id])
                )
            if not self._move_branch(target, ours, commit, message):
                raise EditConflict(f"{target} changed meanwhile.", "Compare the branches again.")
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
