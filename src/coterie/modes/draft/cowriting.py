"""Typing in a document together, live; a pause turns what was typed into a commit. F9

The sheet is the text of this moment, Git the text that was saved. Whoever decides anything about a document first has
what was typed committed, so that a proposal is always judged against everybody's words.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from coterie.base.errors import CoterieError
from coterie.base.logging import get_logger
from coterie.kernel import BusMessage, NewEvent
from coterie.kernel.bus import subject_token
from coterie.modes.draft.commits import CO_AUTHOR_TRAILER, CommitMessage
from coterie.modes.draft.committing import CommitResult
from coterie.modes.draft.desk import Documents
from coterie.modes.draft.errors import LiveDocumentGone
from coterie.modes.draft.events import DocumentSaved, ThreadNoted
from coterie.modes.draft.people import Contributor
from coterie.modes.draft.sheet import LiveDocument, Update, merge_keeping_both
from coterie.modes.draft.workspace import DocumentVersion, document_title

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
