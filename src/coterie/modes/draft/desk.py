"""What every command on documents needs: the books, the repositories, and rows that agree with Git. F1, F7

Git holds the text, the log holds the talk. A commit comes first and its row after; whatever was committed without a
row, by a crash or by plain git, is noticed the next time somebody looks at the branch.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path
from weakref import WeakValueDictionary

import pygit2

from coterie.base.clock import Clock
from coterie.base.ids import new_id
from coterie.cast.roster import Characters
from coterie.engine.feed import Feed
from coterie.engine.replies import Replies
from coterie.engine.turns import TurnQueries
from coterie.kernel import NewEvent, Store
from coterie.llm.router import Models
from coterie.memory import Memory
from coterie.modes.draft.anchors import move_anchors
from coterie.modes.draft.changes import Proposal, ProposalQueries
from coterie.modes.draft.commits import CHANGE_TRAILER, Revision
from coterie.modes.draft.committing import Committer
from coterie.modes.draft.edits import TextEdit, edits_between
from coterie.modes.draft.errors import NoSuchDocument
from coterie.modes.draft.events import ChangeAccepted, ChangesMoved, MovedAnchor, WorkspaceOpened
from coterie.modes.draft.notices import NotificationQueries
from coterie.modes.draft.readers import ListReaders, ThreadMemory
from coterie.modes.draft.settings import DraftSettings
from coterie.modes.draft.sheet import LiveDocument
from coterie.modes.draft.threads import ThreadQueries
from coterie.modes.draft.workspace import DocumentRepository, DocumentVersion


class Documents:
    def __init__(
        self,
        store: Store,
        roster: Characters,
        memory: Memory,
        models: Models,
        settings: DraftSettings,
        clock: Clock,
        folder: Path,
        list_readers: ListReaders = tuple,
    ) -> None:
        """New workspaces are made on the `shelf`; adopted ones stay where they are. `may_open` tells who beside the
        owner can read what is said about documents."""
        self.thread_memory = ThreadMemory(store, memory, list_readers)
        self.thread_queries = ThreadQueries(store)
        self.proposal_queries = ProposalQueries(store)
        self.notification_queries = NotificationQueries(store)
        self.timeline = TurnQueries(store)
        self.replies = Replies(store)
        self.feed = Feed(store, self.replies)
        self._store = store
        self._roster = roster
        self._models = models
        self._settings = settings
        self._clock = clock
        self._shelf = folder
        self._open: dict[str, DocumentRepository] = {}
        self._sheets: dict[tuple[str, str, str], LiveDocument] = {}
        self._pauses: dict[tuple[str, str, str], asyncio.Task[None]] = {}
        self._typing: dict[tuple[str, str, str], float] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    # --- workspaces --------------------------------------------------------------------------------------------

    async def open_workspace(self, folder: Path, name: str = "") -> str:
        """A folder becomes a workspace; one that is known already is that one."""
        resolved = await asyncio.to_thread(lambda: folder.expanduser().resolve())
        for known, (_, where) in self.thread_queries.workspaces().items():
            if where == resolved:
                return known
        await asyncio.to_thread(DocumentRepository, resolved)
        workspace = new_id()
        opened = WorkspaceOpened(name=name or resolved.name, folder=str(resolved))
        await self._store.append([NewEvent(f"draft:{workspace}", opened)])
        return workspace

    async def create_workspace(self, name: str) -> str:
        slug = re.sub(r"[^\w-]+", "-", name.lower()).strip("-") or "text"
        return await self.open_workspace(self._shelf / f"{slug}-{new_id()[-6:].lower()}", name)

    def repository(self, workspace: str) -> DocumentRepository:
        if workspace not in self._open:
            self._open[workspace] = DocumentRepository(self.thread_queries.folder(workspace))
        return self._open[workspace]

    def committer(self, workspace: str) -> Committer:
        return Committer(self.repository(workspace))

    async def read(self, workspace: str, document: str, branch: str | None = None) -> DocumentVersion:
        """The document as it is, with every row that is about it brought in line."""
        text = self.repository(workspace)
        chosen = branch or text.main_branch
        async with self._alone(f"{workspace}/{chosen}"):
            return await self._sync(workspace, chosen, document)

    # --- rows that agree with Git ------------------------------------------------------------------------------

    def _alone(self, what: str) -> asyncio.Lock:
        """One decision at a time about a branch, or in a thread."""
        return self._locks.setdefault(what, asyncio.Lock())

    async def _sync(self, workspace: str, branch: str, document: str) -> DocumentVersion:
        text = self.repository(workspace)
        version = await asyncio.to_thread(text.read, document, branch)
        pending = self.proposal_queries.of_document(workspace, branch, document, "pending")
        behind = [change for change in pending if change.placed and change.commit != version.commit]
        if behind:
            drafts = await asyncio.to_thread(self._catch_up, version, workspace, behind)
            if drafts:
                await self._store.append(drafts)
        return version

    def _catch_up(self, version: DocumentVersion, workspace: str, behind: Sequence[Proposal]) -> list[NewEvent]:
        text = self.repository(workspace)
        made = self._made_without_row(text, version.branch, behind)
        drafts = [self._accepted_already(text, change, made[change.id]) for change in behind if change.id in made]
        waiting = [change for change in behind if change.id not in made and change.blob != version.blob]
        for blob in {change.blob for change in waiting}:
            mine = [change for change in waiting if change.blob == blob]
            try:
                old = text.blob_text(blob)
            except NoSuchDocument:
                old = ""
            drafts.append(self._moved(mine, old, version, edits_between(old, version.text), workspace))
        return drafts

    def _made_without_row(
        self, text: DocumentRepository, branch: str, pending: Sequence[Proposal]
    ) -> dict[str, Revision]:
        """Changes whose commit was made before a crash kept its row from being written."""
        wanted = {change.id for change in pending}
        found: dict[str, Revision] = {}
        for known in {change.commit for change in pending}:
            for one in text.walk(branch, until=known):
                change = one.trailers.get(CHANGE_TRAILER, "")
                if change in wanted and change not in found:
                    found[change] = one
        return found

    def _accepted_already(self, text: DocumentRepository, change: Proposal, made: Revision) -> NewEvent:
        after = text.read(change.document, change.branch, made.id)
        parent = str(text.repository[made.id].peel(pygit2.Commit).parent_ids[0])
        before = text.read(change.document, change.branch, parent)
        base = text.blob_text(change.blob)
        (anchor,) = move_anchors([change.anchor], base, before.text, edits_between(base, before.text))
        written = after.text[anchor.start :][: len(after.text) - len(before.text) + len(change.exact)]
        edited = written != change.replacement()
        accepted = ChangeAccepted(
            change=change.id, commit=made.id, blob=after.blob, before=before.blob, text=written, edited=edited
        )
        return NewEvent(change.room, accepted, made.author, key=f"accept:{change.id}:{made.id}")

    def _moved(
        self, changes: Sequence[Proposal], old: str, version: DocumentVersion, edits: Sequence[TextEdit], workspace: str
    ) -> NewEvent:
        anchors = move_anchors([change.anchor for change in changes], old, version.text, edits, version.blob)
        places = tuple(
            MovedAnchor(change=change.id, start=anchor.start, end=anchor.end, fresh=anchor.fresh)
            for change, anchor in zip(changes, anchors, strict=True)
        )
        told = ChangesMoved(
            document=version.path, branch=version.branch, commit=version.commit, blob=version.blob, moved=places
        )
        return NewEvent(f"draft:{workspace}", told)
