"""What a commit of ours says: why, for which change, from which thread. Plain git shows it. F1

Say it shorter

The sentence said the same thing twice.

Coterie-Change: 01KB…
Coterie-Thread: 01KB…
Proposed-by: Mara
"""

from __future__ import annotations

import re
import textwrap
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path, PurePosixPath

import pygit2
from pygit2.enums import FileMode, SortMode

from coterie.modes.draft.errors import NoSuchDocument, NotADocument, WorkspaceError

CHANGE_TRAILER, THREAD_TRAILER, PROPOSED_BY_TRAILER, UNDOES_TRAILER = (
    "Coterie-Change",
    "Coterie-Thread",
    "Proposed-by",
    "Coterie-Undoes",
)
CO_AUTHOR_TRAILER = "Co-authored-by"
_SUBJECT = 72


@dataclass(frozen=True, slots=True)
class GitAuthor:
    name: str
    email: str


@dataclass(frozen=True, slots=True)
class CommitMessage:
    """What a commit is to say."""

    subject: str
    body: str = ""
    trailers: Mapping[str, str | list[str]] = field(default_factory=dict)
    """A name may have several values: each is a trailer of its own."""

    def format(self) -> str:
        told = _one_line(self.subject) or "Change the text"
        subject = textwrap.shorten(told, _SUBJECT, placeholder="…")
        # A trailer in somebody's reason would be read as ours, so the body is never the last paragraph alone.
        body = [] if self.body.strip() in ("", subject) else [self.body.strip()]
        values = ((name, [value] if isinstance(value, str) else value) for name, value in self.trailers.items())
        trailers = "\n".join(f"{name}: {_one_line(one)}" for name, several in values for one in several if one)
        return "\n\n".join([subject, *body, *([trailers] if trailers else [])]) + "\n"


@dataclass(frozen=True, slots=True)
class Revision:
    """A commit of a branch, as history shows it."""

    id: str
    author: str
    when: int
    """Seconds since 1970."""
    subject: str
    trailers: Mapping[str, str]

    @property
    def thread(self) -> str:
        """The talk that earned it; empty where there was none."""
        return self.trailers.get(THREAD_TRAILER, "")


def _one_line(text: str) -> str:
    return re.sub(r"[\s\x00-\x1f\x7f]+", " ", text).strip()


# Who acts in a document. Accounts come with the surfaces; here a person is an id and a name.


@dataclass(frozen=True, slots=True)
class Contributor:
    id: str
    name: str
    email: str = ""

    @property
    def author(self) -> GitAuthor:
        return GitAuthor(self.name, self.email or f"{self.id}@coterie.invalid")


# A folder that is a Git repository, and the Markdown documents in it. F1
#
# Reading. Every thread has a repository handle of its own; nothing is ever checked out to read or to write it. A folder
# without a repository gets a bare one; a clone that is there is adopted as it is.


MAIN_BRANCH = "main"
_TITLE = re.compile(r"^#[ \t]+(.+?)[ \t]*#*[ \t]*$", re.MULTILINE)
_PLAIN_FILES = (FileMode.BLOB, FileMode.BLOB_EXECUTABLE)
_MARKDOWN = (".md", ".markdown")
_LARGEST = 4_000_000
_LOOKED_BACK = 40


@dataclass(frozen=True, slots=True)
class DocumentVersion:
    """A document as a branch has it."""

    path: str
    branch: str
    commit: str
    blob: str
    text: str

    @property
    def title(self) -> str:
        return document_title(self.path, self.text)


@dataclass(frozen=True, slots=True)
class DocumentDiff:
    """How a document differs between two branches, as a patch."""

    path: str
    patch: str


@dataclass(frozen=True, slots=True)
class RecentDocument:
    """A document, and when it was changed last."""

    path: str
    title: str
    changed_at: int
    """Seconds since 1970."""


class DocumentRepository:
    def __init__(self, folder: Path) -> None:
        """Open the repository in a folder, or make one there."""
        self.folder = folder
        self._handles = threading.local()
        if not _is_repository(folder):
            folder.mkdir(parents=True, exist_ok=True)
            pygit2.init_repository(str(folder), bare=True, initial_head=MAIN_BRANCH)
        self.git_folder = Path(self.repository.path)

    @property
    def repository(self) -> pygit2.Repository:
        """This thread's own handle: libgit2's are not to be shared."""
        if not hasattr(self._handles, "repository"):
            try:
                self._handles.repository = pygit2.Repository(str(self.folder))
            except pygit2.GitError as error:
                raise WorkspaceError(
                    f"The repository in {self.folder} cannot be opened ({error}).", "Check it with `git fsck`."
                ) from error
        handle: pygit2.Repository = self._handles.repository
        return handle

    @property
    def main_branch(self) -> str:
        """What HEAD names, whether it has commits or not."""
        head = self.repository.lookup_reference("HEAD").raw_target
        named = head.decode() if isinstance(head, bytes) else ""
        return named.removeprefix("refs/heads/") or MAIN_BRANCH

    def branches(self) -> list[str]:
        return sorted(self.repository.branches.local)

    def head(self, branch: str) -> str | None:
        """The branch's newest commit; None for one that has none yet."""
        try:
            ref = self.repository.references.get(f"refs/heads/{branch}")
        except ValueError:
            return None  # no branch could have such a name
        return str(ref.peel(pygit2.Commit).id) if ref is not None else None

    def documents(self, branch: str) -> list[tuple[str, str]]:
        """Path and title of every document of a branch."""
        head = self.head(branch)
        if head is None:
            return []
        found = []
        for path, blob in _markdown(self.repository[head].peel(pygit2.Tree), PurePosixPath()):
            found.append((path, document_title(path, blob.data.decode("utf-8", "replace"))))
        return sorted(found)

    def recent(self, branch: str, limit: int) -> list[RecentDocument]:
        """The documents that were changed last, newest first. It looks no further back than a few dozen commits."""
        head = self.head(branch)
        found: dict[str, RecentDocument] = {}
        if head is None:
            return []
        for commit in islice(self.repository.walk(head, SortMode.TOPOLOGICAL), _LOOKED_BACK):
            for path in self._paths_of(commit):
                blob = self.blob_at(head, path) if path not in found else None
                if blob is not None:
                    title = document_title(path, blob.data.decode("utf-8", "replace"))
                    found[path] = RecentDocument(path, title, commit.commit_time)
            if len(found) >= limit:
                break
        return list(found.values())[:limit]

    def _paths_of(self, commit: pygit2.Commit) -> list[str]:
        """The documents that a commit changed."""
        if commit.parents:
            deltas = self.repository.diff(commit.parents[0], commit).deltas
        else:
            deltas = commit.tree.diff_to_tree(swap=True).deltas
        paths = (delta.new_file.path for delta in deltas)
        return [path for path in paths if path.lower().endswith(_MARKDOWN)]

    def read(self, path: str, branch: str, commit: str | None = None) -> DocumentVersion:
        validate_path(path)
        at = commit or self.head(branch)
        entry = self.blob_at(at, path) if at is not None else None
        if at is None or entry is None:
            raise NoSuchDocument(f"There is no document {path} on {branch}.", "List the documents of the branch.")
        return DocumentVersion(path, branch, at, str(entry.id), decode_blob(entry, path))

    def blob_text(self, blob: str) -> str:
        found = self.repository.get(blob)
        if not isinstance(found, pygit2.Blob):
            raise NoSuchDocument("This version of the document is not in the repository.", "Reload the document.")
        return decode_blob(found, "The document")

    def blob_at(self, commit: str, path: str) -> pygit2.Blob | None:
        try:
            found = self.repository[commit].peel(pygit2.Tree)[path]
        except KeyError:
            return None
        return found if isinstance(found, pygit2.Blob) and found.filemode in _PLAIN_FILES else None

    def history(self, branch: str, limit: int = 100, path: str | None = None) -> list[Revision]:
        """Newest first; of one document, only the commits that changed it."""
        return [one for one, _ in zip(self.walk(branch, path), range(limit), strict=False)]

    def walk(self, branch: str, path: str | None = None, until: str | None = None) -> Iterator[Revision]:
        head = self.head(branch)
        if head is None:
            return
        walker = self.repository.walk(head, SortMode.TOPOLOGICAL)
        if until is not None and until in self.repository:
            walker.hide(until)
        for commit in walker:
            if path is None or self._changed(commit, path):
                yield revision(commit)

    def compare(self, source: str, target: str) -> list[DocumentDiff]:
        """F11: what each document would become if one branch were merged into another, as far as they differ."""
        heads = self.head(target), self.head(source)
        if heads[0] is None or heads[1] is None:
            raise NoSuchDocument(f"{source} and {target} are not both there.", "List the branches.")
        ours, theirs = pygit2.Oid(hex=heads[0]), pygit2.Oid(hex=heads[1])
        base = self.repository.merge_base(ours, theirs)
        patches = self.repository.diff(str(base) if base is not None else heads[0], heads[1], context_lines=3)
        found: list[DocumentDiff] = []
        for patch in patches:
            if patch is None:
                continue
            path = patch.delta.new_file.path
            if path.lower().endswith(_MARKDOWN):
                found.append(DocumentDiff(path, patch.text or ""))
        return found

    def blame(self, branch: str, path: str, line: int) -> Revision | None:
        """The commit that a line, counted from 1, comes from."""
        head = self.head(branch)
        if head is None:
            return None
        try:
            hunk = self.repository.blame(path, newest_commit=pygit2.Oid(hex=head)).for_line(line)
        except (IndexError, ValueError, KeyError, pygit2.GitError):
            return None
        found = self.repository[hunk.final_commit_id]
        return revision(found.peel(pygit2.Commit))

    def _changed(self, commit: pygit2.Commit, path: str) -> bool:
        mine = self.blob_at(str(commit.id), path)
        before = [self.blob_at(str(parent), path) for parent in commit.parent_ids]
        here = mine.id if mine else None
        return all(here != (one.id if one else None) for one in before) if before else mine is not None


def revision(commit: pygit2.Commit) -> Revision:
    subject = commit.message.split("\n", 1)[0]
    author = commit.author
    return Revision(str(commit.id), author.name, commit.commit_time, subject, dict(commit.message_trailers))


def document_title(path: str, text: str) -> str:
    found = _TITLE.search(text)
    return found.group(1) if found else PurePosixPath(path).stem


def validate_path(path: str) -> str:
    """A document's path: relative, within the workspace, Markdown."""
    parts = PurePosixPath(path).parts
    strange = (
        not parts
        or path.startswith("/")
        or "\\" in path
        or "\0" in path
        or any(part in ("..", ".") or part.lower().startswith(".git") for part in parts)
    )
    if strange or str(PurePosixPath(path)) != path or not path.lower().endswith(_MARKDOWN):
        raise NotADocument(
            f"{path!r} cannot be a document.", "Name a Markdown file inside the workspace: notes/plan.md"
        )
    return path


def decode_blob(blob: pygit2.Blob, name: str) -> str:
    if blob.size > _LARGEST:
        raise NotADocument(f"{name} is larger than {_LARGEST // 1_000_000} MB.", "Split it into several documents.")
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
        elif isinstance(entry, pygit2.Blob) and entry.filemode in _PLAIN_FILES and name.suffix.lower() in _MARKDOWN:
            yield str(name), entry
