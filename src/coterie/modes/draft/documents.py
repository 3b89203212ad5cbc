"""Workspaces and their documents: reading, saving, branches, live editing, and keeping proposals in line with Git.

Git holds the text, the event log holds the conversation. A commit comes first and its event after it. Commits without
an event, after a crash or made by plain git, are detected the next time the document is read.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakValueDictionary

import pygit2

from coterie.base.clock import Clock
from coterie.base.errors import ConfirmationNeeded
from coterie.base.ids import new_id
from coterie.base.paths import write_atomic
from coterie.base.redaction import redact
from coterie.base.supervisor import Supervisor
from coterie.base.values import is_text
from coterie.eventstore import NewEvent, Store
from coterie.modes.draft.committer import CommitResult, Committer
from coterie.modes.draft.diff import TextEdit, edits_between, merge_texts, unified_diff
from coterie.modes.draft.errors import EditConflict, NoSuchDocument, NotADocument, WorkspaceError, WorkspaceMissing
from coterie.modes.draft.events import (
    ChangeAccepted,
    ChangesMoved,
    MovedAnchor,
    WorkspaceMoved,
    WorkspaceOpened,
)
from coterie.modes.draft.git import (
    MAIN_BRANCH,
    MARKDOWN_SUFFIXES,
    MAX_SIZE,
    CommitMessage,
    Contributor,
    DocumentRepository,
    DocumentVersion,
    EditFunction,
    Revision,
    validate_path,
)
from coterie.modes.draft.live_document import LiveDocument, LiveDocuments, Update, saved_events
from coterie.modes.draft.locate import move_anchors
from coterie.modes.draft.queries import Proposal, ProposalQueries, ThreadQueries
from coterie.modes.draft.relocation import moved_events, own_folders, relative_folder

_WHOLE_PATH = "Give the whole path of a folder on this machine that you may read, such as /srv/texts."


class GitWorkspaces:
    """Folders with Git repositories. New ones are created in `folder`; opened ones stay where they are."""

    def __init__(self, store: Store, threads: ThreadQueries, clock: Clock, folder: Path) -> None:
        self._store = store
        self._threads = threads
        self._clock = clock
        self.folder = folder
        self._repositories: dict[str, DocumentRepository] = {}

    async def adopt(self, folder: str, name: str = "", *, confirmed: bool = False) -> str:
        """The id of the workspace of an existing folder, given by its whole path.

        A folder outside the one for workspaces is a `ConfirmationNeeded`, unless the owner has `confirmed` it.
        """
        if not confirmed and not await asyncio.to_thread(self._is_inside, folder):
            # Before the folder is looked for: whether it exists is not for the page to know.
            raise ConfirmationNeeded(
                f"{folder[:200]} is not in {self.folder}, the folder for workspaces.",
                f"Open it in the terminal: coterie draft open {folder[:200]}",
            )
        existing = await asyncio.to_thread(_existing_folder, folder)
        return await self.open(existing, name)

    def _is_inside(self, folder: str) -> bool:
        try:
            return Path(folder).resolve().is_relative_to(self.folder.resolve())
        except (OSError, ValueError, RuntimeError):
            return False

    async def open(self, folder: Path, name: str = "") -> str:
        """The id of the folder's workspace, which is created if there is none."""
        resolved = await asyncio.to_thread(lambda: folder.expanduser().resolve())
        for workspace, (_, existing) in self._threads.workspaces().items():
            if existing == resolved:
                return workspace
        redact.check_names(name, str(resolved))
        await asyncio.to_thread(lambda: DocumentRepository(resolved).check())
        workspace = new_id()
        opened = WorkspaceOpened(name=name or resolved.name, folder=relative_folder(resolved, self.folder.parent))
        await self._store.append([NewEvent(f"draft:{workspace}", opened)])
        return workspace

    async def create(self, name: str) -> str:
        slug = re.sub(r"[^\w-]+", "-", name.lower()).strip("-") or "text"
        return await self.open(self.folder / f"{slug}-{new_id()[-6:].lower()}", name)

    def repository(self, workspace: str) -> DocumentRepository:
        """`WorkspaceMissing` if its folder is gone: a new, empty one would hide that."""
        if workspace not in self._repositories:
            folder = self._threads.folder(workspace)
            try:
                self._repositories[workspace] = DocumentRepository(folder, create=False)
            except WorkspaceMissing:
                raise WorkspaceMissing(
                    f"The documents of this workspace are missing: there is no repository in {folder}.",
                    "Put the folder back, restore a backup that has it with `coterie restore`, or say where it is now:"
                    f" coterie draft move {workspace} FOLDER",
                ) from None
        return self._repositories[workspace]

    async def move(self, workspace: str, folder: Path) -> None:
        """Use the repository in another folder, which must have one, as the workspace."""
        self._threads.folder(workspace)
        resolved = await asyncio.to_thread(_existing_folder, str(folder))
        redact.check_names(str(resolved))
        await asyncio.to_thread(lambda: DocumentRepository(resolved, create=False).check())
        moved = WorkspaceMoved(folder=relative_folder(resolved, self.folder.parent))
        await self._store.append([NewEvent(f"draft:{workspace}", moved)])
        self._repositories.pop(workspace, None)

    async def store_relative_folders(self) -> int:
        """Store the folders in the data folder, which earlier versions stored as whole paths, by relative paths."""
        moved = await asyncio.to_thread(own_folders, self._threads.stored_folders(), self.folder.parent)
        if moved:
            await self._store.append(moved_events(moved))
        return len(moved)

    async def commit(
        self,
        workspace: str,
        document: str,
        branch: str,
        edit: EditFunction,
        contributor: Contributor,
        message: CommitMessage,
    ) -> CommitResult | None:
        """Commit an edit of one document; None if the edit leaves it unchanged. See `Committer.write`."""
        write = Committer(self.repository(workspace)).write
        return await asyncio.to_thread(write, document, branch, edit, contributor.author, message, self._clock.now())

    async def create_branch(self, workspace: str, name: str, source: str) -> None:
        await asyncio.to_thread(Committer(self.repository(workspace)).create_branch, name, source)

    async def merge(self, workspace: str, source: str, target: str, contributor: Contributor) -> str:
        merge = Committer(self.repository(workspace)).merge
        return await asyncio.to_thread(merge, source, target, contributor.author, self._clock.now())


def _existing_folder(folder: str) -> Path:
    if not folder.strip() or not is_text(folder) or "\0" in folder:
        raise WorkspaceError("This is not the path of a folder.", _WHOLE_PATH)
    try:
        path = Path(folder).expanduser()
        if not path.is_absolute():
            raise WorkspaceError(f"{folder[:200]} is not a whole path.", _WHOLE_PATH)
        resolved = path.resolve(strict=True)
        next(resolved.iterdir(), None)  # fails for a file, and for a folder that may not be read
    except (OSError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise WorkspaceError(f"The folder {folder[:200]} cannot be opened ({reason}).", _WHOLE_PATH) from error
    if not is_text(str(resolved)):
        raise WorkspaceError("The folder's name is not UTF-8 text.", "Rename it, then open it.")
    return resolved


class Documents:
    """Reads and writes documents. Every command holds the branch's lock and starts with `sync`."""

    def __init__(
        self,
        store: Store,
        workspaces: GitWorkspaces,
        threads: ThreadQueries,
        proposals: ProposalQueries,
        supervisor: Supervisor,
    ) -> None:
        self._store = store
        self.workspaces = workspaces
        self._threads = threads
        self._proposals = proposals
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        self.live = LiveDocuments(store, supervisor, workspaces.commit, self.commit_typing)

    def lock(self, workspace: str, branch: str) -> asyncio.Lock:
        """Hold it while something is decided about a branch."""
        return self._locks.setdefault((workspace, branch), asyncio.Lock())

    async def read(self, workspace: str, document: str, branch: str | None = None) -> DocumentVersion:
        """The newest version, with typed text committed and proposals brought in line."""
        chosen = branch or self.workspaces.repository(workspace).main_branch
        async with self.lock(workspace, chosen):
            return await self.sync(workspace, chosen, document)

    async def create(
        self, workspace: str, document: str, text: str, contributor: Contributor, branch: str | None = None
    ) -> DocumentVersion:
        """Commit a new document."""
        chosen = branch or self.workspaces.repository(workspace).main_branch
        return await self.save(workspace, validate_path(document), chosen, text, "", contributor)

    async def save(
        self,
        workspace: str,
        document: str,
        branch: str,
        text: str,
        base: str,
        contributor: Contributor,
        room: str | None = None,
    ) -> DocumentVersion:
        """Commit a text that was edited from the blob `base`. If the document changed since, both are merged;
        where both changed the same words, `EditConflict` is raised."""

        def edit(version: DocumentVersion | None) -> str | None:
            if version is None or version.blob == base:
                return text
            old = self.workspaces.repository(workspace).blob_text(base) if base else None
            merged = merge_texts(old, version.text, text) if old is not None else None
            if merged is None:
                raise EditConflict(
                    "Another person changed the same words meanwhile.",
                    "Look at the difference, then save what you want to keep.",
                    unified_diff(version.text, text, document),
                )
            return merged

        async with self.lock(workspace, branch):
            if base:
                await self.sync(workspace, branch, document)
            message = CommitMessage(f"Edit {document}")
            result = await self.workspaces.commit(workspace, document, branch, edit, contributor, message)
            if result is not None:
                rooms = [room] if room is not None else []
                await self._store.append(saved_events(workspace, result.version, [contributor], rooms))
            return await self.sync(workspace, branch, document)

    async def merge(self, workspace: str, source: str, target: str, contributor: Contributor) -> str:
        """Merge one branch into another, then bring every document of the target in line. Returns the commit."""
        for document in self.live.open_documents(workspace, source):
            await self.commit_typing(workspace, document, source)
        async with self.lock(workspace, target):
            live = self.live.open_documents(workspace, target)
            for document in live:
                await self.sync(workspace, target, document)
            commit = await self.workspaces.merge(workspace, source, target, contributor)
            discussed = {thread.document for thread in self._threads.threads(workspace, branch=target)}
            for document in live | discussed:
                await self.sync(workspace, target, document)
        return commit

    # --- live editing ----------------------------------------------------------------------------------------

    async def live_document(self, workspace: str, document: str, branch: str | None = None) -> LiveDocument:
        """The document for live editing, with everything typed so far committed."""
        version = await self.read(workspace, document, branch)
        return self.live.open(workspace, version)

    async def live_document_unsynced(self, workspace: str, document: str, branch: str) -> LiveDocument:
        """The same without committing what is being typed, if the document is open already."""
        live = self.live.get(workspace, document, branch)
        return live if live is not None else await self.live_document(workspace, document, branch)

    async def add_updates(
        self,
        workspace: str,
        live: LiveDocument,
        version: int,
        updates: Sequence[Update],
        contributor: Contributor,
        room: str | None = None,
    ) -> bool:
        """Apply updates made to `version`; False, with nothing applied, if it is not the current one."""
        async with self.lock(workspace, live.branch):
            if version != live.version:
                return False
            live.add_updates(updates, contributor, room)
        if updates:
            self.live.schedule_commit(workspace, live)
        return True

    async def commit_typing(self, workspace: str, document: str, branch: str) -> None:
        """Commit typed text now instead of after the pause."""
        async with self.lock(workspace, branch):
            await self.sync(workspace, branch, document)

    # --- keeping proposals in line ---------------------------------------------------------------------------

    async def sync(self, workspace: str, branch: str, document: str) -> DocumentVersion:
        """Commit typed text, record where proposals are in the newest version, and show it to open editors.

        The branch's lock must be held.
        """
        await self.live.commit(workspace, document, branch)
        repository = self.workspaces.repository(workspace)
        version = await asyncio.to_thread(repository.read, document, branch)
        pending = self._proposals.of_document(workspace, branch, document, "pending")
        behind = [proposal for proposal in pending if proposal.placed and proposal.commit != version.commit]
        if behind:
            new_events = await asyncio.to_thread(_catch_up, repository, version, workspace, behind)
            if new_events:
                await self._store.append(new_events)
        await self.live.merge_saved(workspace, version)
        return version


def moved_event(
    workspace: str, proposals: Sequence[Proposal], old: str, version: DocumentVersion, edits: Sequence[TextEdit]
) -> NewEvent:
    """The event that records where proposals about the text `old` are in a newer version."""
    anchors = move_anchors([proposal.anchor for proposal in proposals], old, version.text, edits, version.blob)
    moved = ChangesMoved(
        document=version.path,
        branch=version.branch,
        commit=version.commit,
        blob=version.blob,
        moved=tuple(
            MovedAnchor(change=proposal.id, start=anchor.start, end=anchor.end, fresh=anchor.fresh)
            for proposal, anchor in zip(proposals, anchors, strict=True)
        ),
    )
    return NewEvent(f"draft:{workspace}", moved)


def _catch_up(
    repository: DocumentRepository, version: DocumentVersion, workspace: str, behind: Sequence[Proposal]
) -> list[NewEvent]:
    """Events for what happened to pending proposals since the commits they were last compared with."""
    accepted = _accepted_without_event(repository, version.branch, behind)
    new_events = [
        _accepted_event(repository, proposal, accepted[proposal.id]) for proposal in behind if proposal.id in accepted
    ]
    moved = [proposal for proposal in behind if proposal.id not in accepted and proposal.blob != version.blob]
    for blob in {proposal.blob for proposal in moved}:
        try:
            old = repository.blob_text(blob)
        except NoSuchDocument:
            old = ""
        same_base = [proposal for proposal in moved if proposal.blob == blob]
        new_events.append(moved_event(workspace, same_base, old, version, edits_between(old, version.text)))
    return new_events


def _accepted_without_event(
    repository: DocumentRepository, branch: str, pending: Sequence[Proposal]
) -> dict[str, Revision]:
    """Proposals whose commit was made before a crash prevented its event, by id."""
    ids = {proposal.id for proposal in pending}
    revisions: dict[str, Revision] = {}
    for commit in {proposal.commit for proposal in pending}:
        revisions = repository.find_changes(branch, ids, until=commit) | revisions
    return revisions


def _accepted_event(repository: DocumentRepository, proposal: Proposal, revision: Revision) -> NewEvent:
    after = repository.read(proposal.document, proposal.branch, revision.id)
    parent = str(repository.git[revision.id].peel(pygit2.Commit).parent_ids[0])
    before = repository.read(proposal.document, proposal.branch, parent)
    base = repository.blob_text(proposal.blob)
    (anchor,) = move_anchors([proposal.anchor], base, before.text, edits_between(base, before.text))
    written = after.text[anchor.start :][: len(after.text) - len(before.text) + len(proposal.exact)]
    accepted = ChangeAccepted(
        change=proposal.id,
        commit=revision.id,
        blob=after.blob,
        before=before.blob,
        text=written,
        edited=written != proposal.replacement(),
    )
    return NewEvent(proposal.room, accepted, revision.author, key=f"accept:{proposal.id}:{revision.id}")


@dataclass(frozen=True, slots=True)
class FileDocument:
    """A local file and the document that it is edited as."""

    file: Path
    workspace: str
    document: str
    branch: str
    in_git: bool
    person: Contributor
    """Who commits: the identity in the repository's settings, if there is one."""


class LocalFiles:
    """Local files as documents.

    A file that Git tracks is committed to where it is. Any other file is copied into a new workspace, which keeps its
    proposals and history; accepted changes are written back unless the file was changed meanwhile.
    """

    def __init__(self, documents: Documents) -> None:
        self._workspaces = documents.workspaces
        self._documents = documents

    async def open(self, file: Path, owner: Contributor, *, plain: bool = False) -> FileDocument:
        """The document of a file. With `plain`, a file that Git tracks is treated like any other."""
        path = file.expanduser().resolve()  # noqa: ASYNC240 - a single path
        text = _read_file(path)
        repository = None if plain else _tracking_repository(path)
        if repository is not None:
            return await self._open_tracked(path, text, repository, owner)
        name = hashlib.sha256(str(path).encode()).hexdigest()[:16]
        workspace = await self._workspaces.open(self._workspaces.folder / f"file-{name}", path.name)
        document = path.name if path.name.lower().endswith(MARKDOWN_SUFFIXES) else f"{path.name}.md"
        opened = FileDocument(path, workspace, document, MAIN_BRANCH, False, owner)
        await self.read(opened)
        return opened

    async def read(self, opened: FileDocument) -> DocumentVersion:
        """The newest version, with the text of a file that Git does not track saved as the document's."""
        workspace, document, branch = opened.workspace, opened.document, opened.branch
        if opened.in_git:
            return await self._documents.read(workspace, document, branch)
        text = _read_file(opened.file)
        if document not in dict(self._workspaces.repository(workspace).documents(branch)):
            return await self._documents.create(workspace, document, text, opened.person, branch)
        version = await self._documents.read(workspace, document, branch)
        if version.text == text:
            return version
        return await self._documents.save(workspace, document, branch, text, version.blob, opened.person)

    async def write_back(self, opened: FileDocument, before: str) -> None:
        """Write the document's text to a file that Git does not track; `before` is the text expected in the file."""
        if opened.in_git:
            return
        version = await self._documents.read(opened.workspace, opened.document, opened.branch)
        current = _read_file(opened.file)
        if current == version.text:
            return
        if current != before:
            raise EditConflict(
                f"{opened.file.name} was changed by another program just now.",
                "Run the command again: it starts from the file's current text.",
                unified_diff(current, version.text, opened.file.name),
            )
        write_atomic(opened.file, version.text.encode())

    async def _open_tracked(
        self, path: Path, text: str, repository: pygit2.Repository, owner: Contributor
    ) -> FileDocument:
        root = Path(repository.workdir or "").resolve()  # noqa: ASYNC240
        workspace = await self._workspaces.open(root, root.name)
        document = path.relative_to(root).as_posix()
        branch = self._workspaces.repository(workspace).main_branch
        version = await self._documents.read(workspace, document, branch)
        if version.text != text:
            raise EditConflict(
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


def _tracking_repository(path: Path) -> pygit2.Repository | None:
    """The repository with a work tree that tracks a Markdown file."""
    git_folder = pygit2.discover_repository(str(path.parent))
    if git_folder is None:
        return None
    repository = pygit2.Repository(git_folder)
    if repository.is_bare or repository.workdir is None or repository.head_is_unborn or repository.head_is_detached:
        return None
    inside = path.relative_to(Path(repository.workdir).resolve()).as_posix()
    return repository if inside in repository.index and inside.lower().endswith(MARKDOWN_SUFFIXES) else None


def _read_file(path: Path) -> str:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise NotADocument(f"There is no file {path}.", "Check its name.") from None
    except IsADirectoryError:
        raise NotADocument(f"{path} is a folder.", "Name a file in it.") from None
    if len(data) > MAX_SIZE or b"\0" in data:
        raise NotADocument(f"{path.name} is too large, or is not text.", "Name a text file of less than 4 MB.")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise NotADocument(f"{path.name} is not UTF-8 text.", "Convert it, then try again.") from None
