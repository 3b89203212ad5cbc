"""A file on somebody's disk as a document: in its own repository, or, if it has none, kept in one of ours. F16

A tracked file is worked on where it is: accepting commits to its branch, and the file follows. Any other file is copied
into a repository on the shelf, so that its proposals and its history last; what is accepted is written to the file, as
long as nobody else wrote there meanwhile.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import pygit2

from coterie.base.files import write_atomic
from coterie.modes.draft.diff import unified_diff
from coterie.modes.draft.errors import Clash, NotADocument
from coterie.modes.draft.git.repository import MAIN_BRANCH, Contributor, DocumentVersion
from coterie.modes.draft.service import DraftService

_LARGEST = 4_000_000


@dataclass(frozen=True, slots=True)
class FileDocument:
    file: Path
    workspace: str
    document: str
    branch: str
    in_git: bool
    person: Contributor
    """Who commits: what the repository's own settings say, where there are any."""


async def open_file(
    draft: DraftService, file: Path, owner: Contributor, folder: Path, *, plain: bool = False
) -> FileDocument:
    """Find or make the document that a file is. `plain` keeps a tracked file's repository out of it."""
    path = file.expanduser().resolve()  # noqa: ASYNC240 - one look at one path
    text = _read(path)
    repository = None if plain else _repository_of(path)
    if repository is not None and repository.workdir is not None:
        return await _in_git(draft, path, text, repository, owner)
    name = hashlib.sha256(str(path).encode()).hexdigest()[:16]
    workspace = await draft.open_workspace(folder / f"file-{name}", path.name)
    document = path.name if path.name.lower().endswith((".md", ".markdown")) else f"{path.name}.md"
    bound = FileDocument(path, workspace, document, MAIN_BRANCH, False, owner)
    await sync_from_file(draft, bound)
    return bound


async def sync_from_file(draft: DraftService, bound: FileDocument) -> DocumentVersion:
    """What the file says now is what the document says: somebody may have written in it by hand."""
    if bound.in_git:
        return await draft.read(bound.workspace, bound.document, bound.branch)
    text = _read(bound.file)
    there = dict(draft.repository(bound.workspace).documents(bound.branch))
    if bound.document not in there:
        return await draft.create(bound.workspace, bound.document, text, bound.person, bound.branch)
    version = await draft.read(bound.workspace, bound.document, bound.branch)
    if version.text == text:
        return version
    return await draft.save(bound.workspace, bound.document, bound.branch, text, version.blob, bound.person)


async def write_to_file(draft: DraftService, bound: FileDocument, before: str) -> None:
    """Put the document into a file that is in no repository; `before` is what the file should hold."""
    if bound.in_git:
        return
    version = await draft.read(bound.workspace, bound.document, bound.branch)
    now = _read(bound.file)
    if now == version.text:
        return
    if now != before:
        raise Clash(
            f"{bound.file.name} was changed by somebody else just now.",
            "Run the command again: it starts from what the file says.",
            unified_diff(now, version.text, bound.file.name),
        )
    write_atomic(bound.file, version.text.encode())


async def _in_git(
    draft: DraftService, path: Path, text: str, repository: pygit2.Repository, you: Contributor
) -> FileDocument:
    root = Path(repository.workdir or "").resolve()  # noqa: ASYNC240
    workspace = await draft.open_workspace(root, root.name)
    document = path.relative_to(root).as_posix()
    branch = draft.repository(workspace).main_branch
    version = await draft.read(workspace, document, branch)
    if version.text != text:
        raise Clash(
            f"{path.name} has changes that are not committed.",
            "Commit them first, or work on the file alone with --plain.",
            unified_diff(version.text, text, path.name),
        )
    name, email = _set_in(repository, "user.name", you.name), _set_in(repository, "user.email", you.email)
    return FileDocument(path, workspace, document, branch, True, Contributor(you.id, name, email))


def _set_in(repository: pygit2.Repository, setting: str, otherwise: str) -> str:
    try:
        return repository.config[setting] or otherwise
    except KeyError:
        return otherwise


def _repository_of(path: Path) -> pygit2.Repository | None:
    found = pygit2.discover_repository(str(path.parent))
    if found is None:
        return None
    repository = pygit2.Repository(found)
    if repository.is_bare or repository.workdir is None or repository.head_is_unborn or repository.head_is_detached:
        return None
    inside = path.relative_to(Path(repository.workdir).resolve()).as_posix()
    tracked = inside in repository.index and inside.lower().endswith((".md", ".markdown"))
    return repository if tracked else None


def _read(path: Path) -> str:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise NotADocument(f"There is no file {path}.", "Check its name.") from None
    except IsADirectoryError:
        raise NotADocument(f"{path} is a folder.", "Name a file in it.") from None
    if len(data) > _LARGEST or b"\0" in data:
        raise NotADocument(f"{path.name} is too large, or is not text.", "Name a text file of less than 4 MB.")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise NotADocument(f"{path.name} is not UTF-8 text.", "Convert it, then try again.") from None
