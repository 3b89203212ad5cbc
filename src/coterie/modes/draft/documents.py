"""What every command on documents needs: the books, the repositories, and rows that agree with Git. F1, F7

Git holds the text, the log holds the talk. A commit comes first and its row after; whatever was committed without a
row, by a crash or by plain git, is noticed the next time somebody looks at the branch.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Sequence
from pathlib import Path
from weakref import WeakValueDictionary

import pygit2

from coterie.base.clock import Clock
from coterie.base.errors import CoterieError
from coterie.base.ids import new_id
from coterie.base.logging import get_logger
from coterie.characters.service import Characters
from coterie.conversation.feed import Feed
from coterie.conversation.replies import Replies
from coterie.conversation.turns import TurnQueries
from coterie.eventstore import BusMessage, NewEvent, Store
from coterie.eventstore.bus import subject_token
from coterie.llm.router import Models
from coterie.memory import Memory
from coterie.modes.draft.diff import TextEdit, edits_between
from coterie.modes.draft.errors import LiveDocumentGone, NoSuchDocument
from coterie.modes.draft.events import (
    ChangeAccepted,
    ChangesMoved,
    DocumentSaved,
    MovedAnchor,
    ThreadNoted,
    WorkspaceOpened,
)
from coterie.modes.draft.git.committer import CommitResult, Committer
from coterie.modes.draft.git.repository import (
    CHANGE_TRAILER,
    CO_AUTHOR_TRAILER,
    CommitMessage,
    Contributor,
    DocumentRepository,
    DocumentVersion,
    Revision,
    document_title,
)
from coterie.modes.draft.live_document import LiveDocument, Update, merge_keeping_both
from coterie.modes.draft.locate.anchors import move_anchors
from coterie.modes.draft.projections import NotificationQueries, Proposal, ProposalQueries, ThreadQueries
from coterie.modes.draft.prompts import ListReaders, ThreadMemory
from coterie.modes.draft.settings import DraftSettings


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


# Typing in a document together, live; a pause turns what was typed into a commit. F9
#
# The sheet is the text of this moment, Git the text that was saved. Whoever decides anything about a document first has
# what was typed committed, so that a proposal is always judged against everybody's words.


COMMIT_PAUSE_S = 1.5
"""Nobody typed for so long: what is there is committed."""
COMMIT_LATEST_S = 15.0
"""Somebody who never pauses is committed all the same."""
_log = get_logger(__name__)


class LiveEditing(Documents):
    async def live_document(self, workspace: str, document: str, branch: str | None = None) -> LiveDocument:
        """The document as it is being typed; the first who asks lays it out."""
        version = await self.read(workspace, document, branch)
        key = (workspace, version.branch, document)
        if key not in self._sheets:
            self._sheets[key] = LiveDocument(document, version.branch, version.text, version.blob, version.text)
        return self._sheets[key]

    async def live_document_unsynced(self, workspace: str, document: str, branch: str) -> LiveDocument:
        """The same without committing what is being typed, where somebody has it before them."""
        found = self._sheets.get((workspace, branch, document))
        return found if found is not None else await self.live_document(workspace, document, branch)

    def title(self, sheet: LiveDocument) -> str:
        return document_title(sheet.document, sheet.text)

    def live_document_of_epoch(self, workspace: str, document: str, branch: str, epoch: str) -> LiveDocument:
        """The sheet that somebody has before them."""
        sheet = self._sheets.get((workspace, branch, document))
        if sheet is None or sheet.epoch != epoch:
            raise LiveDocumentGone(
                "This page is about an earlier run of Coterie.", "What you typed is merged in; go on."
            )
        return sheet

    def live_version(self, workspace: str, document: str, branch: str) -> int:
        """Grows with every keystroke and every commit; 0 if nobody has the document open."""
        sheet = self._sheets.get((workspace, branch, document))
        return 0 if sheet is None else 2 * sheet.version + (not sheet.unsaved)

    async def add_updates(
        self,
        workspace: str,
        sheet: LiveDocument,
        version: int,
        updates: Sequence[Update],
        person: Contributor,
        room: str | None = None,
    ) -> bool:
        """Add keystrokes that count from a number; False if others typed meanwhile, and nothing was taken."""
        async with self._alone(f"{workspace}/{sheet.branch}"):
            if version != sheet.version:
                return False
            sheet.add_updates(updates, person, room)
        if updates:
            self._tell_sheet(workspace, sheet)
            self._commit_after_pause(workspace, sheet)
        return True

    async def flush(self, workspace: str, document: str, branch: str) -> None:
        """Commit what was typed, now."""
        async with self._alone(f"{workspace}/{branch}"):
            await self._sync(workspace, branch, document)

    async def close(self) -> None:
        """Before the house closes: whatever was typed is committed."""
        for task in self._pauses.values():
            task.cancel()
        for (workspace, branch, document), sheet in list(self._sheets.items()):
            if sheet.unsaved:
                with contextlib.suppress(CoterieError):
                    await self.flush(workspace, document, branch)
        self._sheets.clear()

    async def _sync(self, workspace: str, branch: str, document: str) -> DocumentVersion:
        sheet = self._sheets.get((workspace, branch, document))
        if sheet is not None and sheet.unsaved:
            await self._commit_sheet(workspace, sheet)
        version = await super()._sync(workspace, branch, document)
        self._adopt(workspace, branch, document, version.text, version.blob)
        return version

    def _adopt(self, workspace: str, branch: str, document: str, text: str, blob: str) -> None:
        """Git has a new version: whoever has the document open sees it."""
        sheet = self._sheets.get((workspace, branch, document))
        if sheet is not None and (sheet.blob != blob or sheet.unsaved):
            sheet.merge_saved(text, blob)
            self._tell_sheet(workspace, sheet)

    def _commit_after_pause(self, workspace: str, sheet: LiveDocument) -> None:
        key = (workspace, sheet.branch, sheet.document)
        now = self._clock.monotonic()
        began = self._typing.setdefault(key, now)
        if (waiting := self._pauses.get(key)) is not None:
            waiting.cancel()
        wait = max(0.0, min(COMMIT_PAUSE_S, began + COMMIT_LATEST_S - now))
        self._pauses[key] = asyncio.create_task(self._commit_later(key, wait), name="pause")

    async def _commit_later(self, key: tuple[str, str, str], wait: float) -> None:
        await asyncio.sleep(wait)
        workspace, branch, document = key
        self._pauses.pop(key, None)
        self._typing.pop(key, None)
        try:
            await self.flush(workspace, document, branch)
        except CoterieError as error:
            # The words are still on the sheet, and in every page that has it open; the next pause tries again.
            _log.warning("typed text not committed", document=document, error=error.what)

    async def _commit_sheet(self, workspace: str, sheet: LiveDocument) -> None:
        """With the branch's lock held."""
        written = await asyncio.to_thread(self._write_sheet, workspace, sheet)
        first, *_ = sheet.writers.values()
        if written is not None:
            saved = DocumentSaved(
                document=sheet.document, branch=sheet.branch, commit=written.commit, blob=written.blob
            )
            drafts = [NewEvent(f"draft:{workspace}", saved, first.id, key=f"save:{written.commit}")]
            names = " and ".join(person.name for person in sheet.writers.values())
            note = ThreadNoted(text=f"{names} edited the document.", about=written.commit)
            drafts += [NewEvent(room, note, first.id) for room in sorted(sheet.rooms)]
            sheet.mark_saved(written.text, written.blob)
            await self._store.append(drafts)
            self._tell_sheet(workspace, sheet)

    def _write_sheet(self, workspace: str, sheet: LiveDocument) -> CommitResult | None:
        def make(version: DocumentVersion | None) -> str | None:
            if version is None or version.blob == sheet.blob:
                return sheet.text
            return merge_keeping_both(sheet.base, sheet.text, version.text)

        first, *others = sheet.writers.values()
        also = {CO_AUTHOR_TRAILER: [f"{one.author.name} <{one.author.email}>" for one in others]}
        note = CommitMessage(f"Edit {sheet.document}", trailers=also)
        return self.committer(workspace).write(
            sheet.document, sheet.branch, make, first.author, note, self._clock.now()
        )

    def _tell_sheet(self, workspace: str, sheet: LiveDocument) -> None:
        self._store.bus.publish([BusMessage(f"sheet.{subject_token(workspace)}", sheet.version)])
