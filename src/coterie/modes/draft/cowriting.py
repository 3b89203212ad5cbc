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
from coterie.kernel import Draft, Message
from coterie.kernel.bus import word
from coterie.modes.draft.commits import CO_AUTHOR, Note
from coterie.modes.draft.committing import Written
from coterie.modes.draft.desk import Desk
from coterie.modes.draft.errors import SheetGone
from coterie.modes.draft.events import DocumentSaved, ThreadNoted
from coterie.modes.draft.people import Person
from coterie.modes.draft.sheet import Sheet, Update, kept_both
from coterie.modes.draft.workspace import Version, title_of

PAUSE_S = 1.5
"""Nobody typed for so long: what is there is committed."""
LONGEST_S = 15.0
"""Somebody who never pauses is committed all the same."""
_log = get_logger(__name__)


class Cowriting(Desk):
    async def sheet(self, workspace: str, document: str, branch: str | None = None) -> Sheet:
        """The document as it is being typed; the first who asks lays it out."""
        version = await self.read(workspace, document, branch)
        key = (workspace, version.branch, document)
        if key not in self._sheets:
            self._sheets[key] = Sheet(document, version.branch, version.text, version.blob, version.text)
        return self._sheets[key]

    async def sheet_as_it_is(self, workspace: str, document: str, branch: str) -> Sheet:
        """The same without committing what is being typed, where somebody has it before them."""
        found = self._sheets.get((workspace, branch, document))
        return found if found is not None else await self.sheet(workspace, document, branch)

    def title(self, sheet: Sheet) -> str:
        return title_of(sheet.document, sheet.text)

    def open_sheet(self, workspace: str, document: str, branch: str, epoch: str) -> Sheet:
        """The sheet that somebody has before them."""
        sheet = self._sheets.get((workspace, branch, document))
        if sheet is None or sheet.epoch != epoch:
            raise SheetGone("This page is about an earlier run of Coterie.", "What you typed is merged in; go on.")
        return sheet

    def sheet_version(self, workspace: str, document: str, branch: str) -> int:
        """Grows with every keystroke and every commit; 0 if nobody has the document open."""
        sheet = self._sheets.get((workspace, branch, document))
        return 0 if sheet is None else 2 * sheet.version + (not sheet.unsaved)

    async def type_in(
        self,
        workspace: str,
        sheet: Sheet,
        version: int,
        updates: Sequence[Update],
        person: Person,
        room: str | None = None,
    ) -> bool:
        """Add keystrokes that count from a number; False if others typed meanwhile, and nothing was taken."""
        async with self._alone(f"{workspace}/{sheet.branch}"):
            if version != sheet.version:
                return False
            sheet.take(updates, person, room)
        if updates:
            self._tell_sheet(workspace, sheet)
            self._commit_after_pause(workspace, sheet)
        return True

    async def flush(self, workspace: str, document: str, branch: str) -> None:
        """Commit what was typed, now."""
        async with self._alone(f"{workspace}/{branch}"):
            await self._sync(workspace, branch, document)

    async def put_away(self) -> None:
        """Before the house closes: whatever was typed is committed."""
        for task in self._pauses.values():
            task.cancel()
        for (workspace, branch, document), sheet in list(self._sheets.items()):
            if sheet.unsaved:
                with contextlib.suppress(CoterieError):
                    await self.flush(workspace, document, branch)
        self._sheets.clear()

    async def _sync(self, workspace: str, branch: str, document: str) -> Version:
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
            sheet.adopt(text, blob)
            self._tell_sheet(workspace, sheet)

    def _commit_after_pause(self, workspace: str, sheet: Sheet) -> None:
        key = (workspace, sheet.branch, sheet.document)
        now = self._clock.monotonic()
        began = self._typing.setdefault(key, now)
        if (waiting := self._pauses.get(key)) is not None:
            waiting.cancel()
        wait = max(0.0, min(PAUSE_S, began + LONGEST_S - now))
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

    async def _commit_sheet(self, workspace: str, sheet: Sheet) -> None:
        """With the branch's lock held."""
        written = await asyncio.to_thread(self._write_sheet, workspace, sheet)
        first, *_ = sheet.writers.values()
        if written is not None:
            saved = DocumentSaved(
                document=sheet.document, branch=sheet.branch, commit=written.commit, blob=written.blob
            )
            drafts = [Draft(f"draft:{workspace}", saved, first.id, key=f"save:{written.commit}")]
            names = " and ".join(person.name for person in sheet.writers.values())
            note = ThreadNoted(text=f"{names} edited the document.", about=written.commit)
            drafts += [Draft(room, note, first.id) for room in sorted(sheet.rooms)]
            sheet.become(written.text, written.blob)
            await self._store.append(drafts)
            self._tell_sheet(workspace, sheet)

    def _write_sheet(self, workspace: str, sheet: Sheet) -> Written | None:
        def make(version: Version | None) -> str | None:
            if version is None or version.blob == sheet.blob:
                return sheet.text
            return kept_both(sheet.base, sheet.text, version.text)

        first, *others = sheet.writers.values()
        also = {CO_AUTHOR: [f"{one.author.name} <{one.author.email}>" for one in others]}
        note = Note(f"Edit {sheet.document}", trailers=also)
        return self.committer(workspace).write(
            sheet.document, sheet.branch, make, first.author, note, self._clock.now()
        )

    def _tell_sheet(self, workspace: str, sheet: Sheet) -> None:
        self._store.bus.publish([Message(f"sheet.{word(workspace)}", sheet.version)])
