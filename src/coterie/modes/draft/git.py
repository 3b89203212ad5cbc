"""Documents in a Git repository, for reading; `committer` writes them.

Nothing is checked out to read or to write. A folder without a repository gets a bare one; an existing clone is used as
it is.
"""

from __future__ import annotations

import functools
import os
import re
import textwrap
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Concatenate, ParamSpec, Protocol, TypeVar

import pygit2
from pygit2.enums import FileMode, SortMode

from coterie.base.redaction import redact
from coterie.base.values import is_text
from coterie.modes.draft.diff import patch_text
from coterie.modes.draft.errors import NoSuchDocument, NotADocument, SecretInDocument, WorkspaceError, WorkspaceMissing

MAIN_BRANCH = "main"
CHANGE_TRAILER, THREAD_TRAILER, UNDOES_TRAILER = "Coterie-Change", "Coterie-Thread", "Coterie-Undoes"
PROPOSED_BY_TRAILER, CO_AUTHOR_TRAILER = "Proposed-by", "Co-authored-by"
_SUBJECT_LENGTH = 72
_TITLE = re.compile(r"^#[ \t]+(.+?)[ \t]*#*[ \t]*$", re.MULTILINE)
REGULAR_FILES = (FileMode.BLOB, FileMode.BLOB_EXECUTABLE)
MARKDOWN_SUFFIXES = (".md", ".markdown")
MAX_SIZE = 4_000_000
_RECENT_COMMITS = 40
"""How many commits are searched for recently changed documents."""
MAX_BRANCH = 240
_MAX_NAME_BYTES, _MAX_PATH_BYTES = 255, 4_000
"""What file systems can store."""


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


class _InFolder(Protocol):
    @property
    def folder(self) -> Path: ...


_Owner = TypeVar("_Owner", bound=_InFolder)
_Params = ParamSpec("_Params")
_Result = TypeVar("_Result")


def reports_git_errors(
    method: Callable[Concatenate[_Owner, _Params], _Result],
) -> Callable[Concatenate[_Owner, _Params], _Result]:
    """Raise `WorkspaceError` where a method of a repository fails because Git or the disk does."""

    @functools.wraps(method)
    def call(self: _Owner, /, *args: _Params.args, **kwargs: _Params.kwargs) -> _Result:
        with _git_errors(self.folder):
            return method(self, *args, **kwargs)

    return call


@contextmanager
def _git_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except (pygit2.GitError, KeyError, OSError) as error:  # libgit2 raises KeyError for an object that is missing
        raise WorkspaceError(
            f"The repository in {folder} cannot be used ({str(error)[:200]}).", "Check it with `git fsck`."
        ) from error


class DocumentRepository:
    def __init__(self, folder: Path, *, create: bool = True) -> None:
        """Open the repository in a folder. If there is none, create a bare one, or raise `WorkspaceMissing`."""
        self.folder = folder
        self._handles = threading.local()
        with _git_errors(folder):
            if not _is_repository(folder):
                if os.path.lexists(folder / ".git"):
                    raise WorkspaceError(f"The repository in {folder} is damaged.", "Check it with `git fsck`.")
                if not create:
                    raise WorkspaceMissing(f"There is no repository in {folder}.", "Put it back.")
                folder.mkdir(parents=True, exist_ok=True)
                pygit2.init_repository(str(folder), bare=True, initial_head=MAIN_BRANCH)
            self.git_folder = Path(self.git.path)

    @reports_git_errors
    def check(self) -> None:
        """Raise `WorkspaceError` if the newest commit of the main branch cannot be read."""
        head = self.head(self.main_branch)
        if head is not None:
            self.git[head].peel(pygit2.Tree)

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
        with _git_errors(self.folder):
            head = self.git.lookup_reference("HEAD").raw_target
        name = head.decode() if isinstance(head, bytes) else ""
        return name.removeprefix("refs/heads/") or MAIN_BRANCH

    @reports_git_errors
    def branches(self) -> list[str]:
        return sorted(self.git.branches.local)

    @reports_git_errors
    def head(self, branch: str) -> str | None:
        """The branch's newest commit; None if it has none."""
        if len(branch) > MAX_BRANCH:
            return None  # libgit2 takes quadratic time for a long name
        try:
            ref = self.git.references.get(f"refs/heads/{branch}")
        except ValueError:
            return None  # no branch could have such a name
        return str(ref.peel(pygit2.Commit).id) if ref is not None else None

    @reports_git_errors
    def documents(self, branch: str) -> list[tuple[str, str]]:
        """Path and title of every document of a branch."""
        head = self.head(branch)
        if head is None:
            return []
        documents = []
        for path, blob in _markdown(self.git[head].peel(pygit2.Tree), PurePosixPath()):
            documents.append((path, document_title(path, blob.data.decode("utf-8", "replace"))))
        return sorted(documents)

    @reports_git_errors
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

    @reports_git_errors
    def read(self, path: str, branch: str, commit: str | None = None) -> DocumentVersion:
        validate_path(path)
        revision = commit or self.head(branch)
        entry = self.blob_at(revision, path) if revision is not None else None
        if revision is None or entry is None:
            raise NoSuchDocument(f"There is no document {path} on {branch}.", "List the documents of the branch.")
        return DocumentVersion(path, branch, revision, str(entry.id), decode_blob(entry, path))

    @reports_git_errors
    def blob_text(self, blob: str) -> str:
        try:
            entry = self.git.get(blob)
        except ValueError:
            entry = None  # not an object's name
        if not isinstance(entry, pygit2.Blob):
            raise NoSuchDocument("This version of the document is not in the repository.", "Reload the document.")
        return decode_blob(entry, "The document")

    @reports_git_errors
    def blob_at(self, commit: str, path: str) -> pygit2.Blob | None:
        tree = self.git[commit].peel(pygit2.Tree)
        try:
            entry = tree[path]
        except KeyError:
            return None
        return entry if isinstance(entry, pygit2.Blob) and entry.filemode in REGULAR_FILES else None

    @reports_git_errors
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

    @reports_git_errors
    def find_changes(self, branch: str, changes: Collection[str], until: str | None = None) -> dict[str, Revision]:
        """The newest commit with the trailer of each change, searched back to `until`."""
        revisions: dict[str, Revision] = {}
        for revision in self.walk(branch, until=until):
            change = revision.trailers.get(CHANGE_TRAILER, "")
            if change in changes:
                revisions.setdefault(change, revision)
        return revisions

    @reports_git_errors
    def compare(self, source: str, target: str) -> list[DocumentDiff]:
        """The documents that merging one branch into another would change, each with its patch."""
        heads = self.head(target), self.head(source)
        if heads[0] is None or heads[1] is None:
            raise NoSuchDocument(f"{source} and {target} are not both there.", "List the branches.")
        ours, theirs = pygit2.Oid(hex=heads[0]), pygit2.Oid(hex=heads[1])
        base = self.git.merge_base(ours, theirs)
        patches = self.git.diff(str(base) if base is not None else heads[0], heads[1], context_lines=3)
        diffs: list[DocumentDiff] = []
        # The patches themselves are not used: libgit2 makes each when it is asked for, however long that takes.
        for delta in patches.deltas:
            path = delta.new_file.path
            if path.lower().endswith(MARKDOWN_SUFFIXES):
                old, new = (self._side_of(file) for file in (delta.old_file, delta.new_file))
                header = f"--- a/{delta.old_file.path}\n+++ b/{path}\n"
                diffs.append(DocumentDiff(path, header + patch_text(old, new)))
        return diffs

    def _side_of(self, file: pygit2.DiffFile) -> bytes:
        """The content of a file on one side of a difference; nothing if it is not there."""
        blob = self.git.get(file.id)
        return blob.data if isinstance(blob, pygit2.Blob) else b""

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
        or not is_text(path)
        or len(path.encode()) > _MAX_PATH_BYTES
        or any(_is_invalid_name(part) for part in parts)
    )
    if invalid or str(PurePosixPath(path)) != path or not path.lower().endswith(MARKDOWN_SUFFIXES):
        raise NotADocument(
            f"{path[:200]!r} cannot be a document.", "Name a Markdown file inside the workspace: notes/plan.md"
        )
    return path


def check_text(text: str, before: str | None) -> None:
    """`SecretInDocument` if a text has more configured secrets than the version before it."""
    if (found := redact.count_registered(text)) and found > (redact.count_registered(before) if before else 0):
        raise SecretInDocument(
            "A configured secret (a key, token or password) was found in the text, so nothing was saved.",
            "Remove it from the text, then save again.",
        )


def _is_invalid_name(part: str) -> bool:
    return part in ("..", ".") or part.lower().startswith(".git") or len(part.encode()) > _MAX_NAME_BYTES


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
            and entry.filemode in REGULAR_FILES
            and name.suffix.lower() in MARKDOWN_SUFFIXES
        ):
            yield str(name), entry


def _one_line(text: str) -> str:
    return re.sub(r"[\s\x00-\x1f\x7f]+", " ", text).strip()
