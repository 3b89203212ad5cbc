"""Local files as documents, for the command line.

A file that Git tracks is committed to where it is. Any other file is copied into a repository in the data folder, which
keeps its proposals and history; accepted changes are written back unless the file was changed meanwhile.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import pygit2

from coterie.base.files import write_atomic
from coterie.modes.draft.diff import unified_diff
from coterie.modes.draft.errors import Clash, NotADocument
from coterie.modes.draft.git import MAIN_BRANCH, Contributor, DocumentVersion
from coterie.modes.draft.service import DraftService

_MAX_SIZE = 4_000_000


@dataclass(frozen=True, slots=True)
class FileDocument:
    file: Path
    workspace: str
    document: str
    branch: str
    in_git: bool
    person: Contributor
    """Who commits: the identity in the repository's settings, if there is one."""


async def open_file(
    draft: DraftService, file: Path, owner: Contributor, folder: Path, *, plain: bool = False
) -> FileDocument:
    """The document of a file. With `plain`, a file that Git tracks is treated like any other."""
    path = file.expanduser().resolve()  # noqa: ASYNC240 - a single path
    text = _read(path)
    repository = None if plain else _repository_of(path)
    if repository is not None and repository.workdir is not None:
        return await _open_tracked(draft, path, text, repository, owner)
    name = hashlib.sha256(str(path).encode()).hexdigest()[:16]
    workspace = await draft.workspaces.open(folder / f"file-{name}", path.name)
    document = path.name if path.name.lower().endswith((".md", ".markdown")) else f"{path.name}.md"
    opened = FileDocument(path, workspace, document, MAIN_BRANCH, False, owner)
    await sync_from_file(draft, opened)
    return opened


async def sync_from_file(draft: DraftService, opened: FileDocument) -> DocumentVersion:
    """Save the file's current text as the document's."""
    workspace, document, branch = opened.workspace, opened.document, opened.branch
    if opened.in_git:
        return await draft.documents.read(workspace, document, branch)
    text = _read(opened.file)
    if document not in dict(draft.workspaces.repository(workspace).documents(branch)):
        return await draft.documents.create(workspace, document, text, opened.person, branch)
    version = await draft.documents.read(workspace, document, branch)
    if version.text == text:
        return version
    return await draft.documents.save(workspace, document, branch, text, version.blob, opened.person)


async def write_to_file(draft: DraftService, opened: FileDocument, before: str) -> None:
    """Write the document's text to a file that Git does not track; `before` is the text expected in the file."""
    if opened.in_git:
        return
    version = await draft.documents.read(opened.workspace, opened.document, opened.branch)
    current = _read(opened.file)
    if current == version.text:
        return
    if current != before:
        raise Clash(
            f"{opened.file.name} was changed by somebody else just now.",
            "Run the command again: it starts from what the file says.",
            unified_diff(current, version.text, opened.file.name),
        )
    write_atomic(opened.file, version.text.encode())


async def _open_tracked(
    draft: DraftService, path: Path, text: str, repository: pygit2.Repository, owner: Contributor
) -> FileDocument:
    root = Path(repository.workdir or "").resolve()  # noqa: ASYNC240
    workspace = await draft.workspaces.open(root, root.name)
    document = path.relative_to(root).as_posix()
    branch = draft.workspaces.repository(workspace).main_branch
    version = await draft.documents.read(workspace, document, branch)
    if version.text != text:
        raise Clash(
            f"{path.name} has changes that are not committed.",
            "Commit them first, or work on the file alone with --plain.",
            unified_diff(version.text, text, path.name),
        )
    name = _git_setting(repository, "user.name", owner.name)
    email = _git_setting(repository, "user.email", owner.email)
    return FileDocument(path, workspace, document, branch, True, Contributor(owner.id, name, email))


def _git_setting(repository: pygit2.Repository, setting: str, default: str) -> str:
    try:
        return repository.config[setting] or default
    except KeyError:
        return default


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
    if len(data) > _MAX_SIZE or b"\0" in data:
        raise NotADocument(f"{path.name} is too large, or is not text.", "Name a text file of less than 4 MB.")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise NotADocument(f"{path.name} is not UTF-8 text.", "Convert it, then try again.") from None
