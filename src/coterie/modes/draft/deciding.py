"""Deciding about proposals, and writing by hand: what turns into commits. F7–F10

Each accept is one commit, made on the newest version under the branch's lock, with the change's id in its trailer. The
row comes after it. All other proposals of the document are judged anew in the same transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from coterie.base.ids import new_id
from coterie.kernel import Draft
from coterie.modes.draft.anchors import Anchor, anchor_at, moved, reanchor
from coterie.modes.draft.changes import Change
from coterie.modes.draft.commits import CHANGE, PROPOSED_BY, THREAD, UNDOES, Note
from coterie.modes.draft.committing import Written
from coterie.modes.draft.cowriting import Cowriting
from coterie.modes.draft.edits import Edit, edits_between
from coterie.modes.draft.errors import Clash, NotPending, StaleChange, Unplaced
from coterie.modes.draft.events import (
    AcceptUndone,
    ChangeAccepted,
    ChangeDeclined,
    ChangeProposed,
    ChangeWithdrawn,
    DocumentSaved,
    Place,
    ThreadNoted,
)
from coterie.modes.draft.merging import difference, merged
from coterie.modes.draft.people import Person
from coterie.modes.draft.placing import Found
from coterie.modes.draft.workspace import Version


class Deciding(Cowriting):
    async def accept(self, change_id: str, person: Person, *, text: str | None = None) -> Change:
        """F8: one commit. With `text`, it is accepted as edited."""
        asked = self.changes.change(change_id)
        async with self._alone(f"{asked.workspace}/{asked.branch}"):
            for _ in range(5):
                await self._sync(asked.workspace, asked.branch, asked.document)
                change = self.changes.change(change_id)
                if change.accepted and change.state != "pending":
                    return change  # by a crash its row was missing until now, or it was clicked twice
                _must_be_open(change)
                if change.becomes(text) == change.exact:
                    raise NotPending("The document says so already.", "Decline the proposal, or take it back.")
                written = await asyncio.to_thread(self._write_change, change, person, text)
                if written is not None:
                    await self._record_accept(change, written, person, text)
                    return self.changes.change(change_id)
        raise Clash("The document changes too quickly.", "Try again in a moment.")

    async def accept_all(self, room: str, person: Person) -> list[Change]:
        """One commit each, in the document's order; what another one made stale stays pending."""
        self.threads.thread(room)
        done: list[Change] = []
        while True:
            waiting = [one for one in self.changes.of_thread(room) if one.state == "pending" and one.fresh]
            if not waiting:
                return done
            first = min(waiting, key=lambda one: one.start)
            try:
                done.append(await self.accept(first.id, person))
            except (StaleChange, NotPending):
                continue  # its row says so now

    async def decline(self, change_id: str, person: Person, comment: str = "") -> Change:
        """F10: the comment is noted in the thread, and told to the model next time."""
        change = self._pending(change_id)
        drafts = [Draft(change.room, ChangeDeclined(change=change_id, comment=comment.strip()), person.id)]
        if comment.strip():
            note = f"{person.name} declined a proposal: {comment.strip()}"
            drafts.append(Draft(change.room, ThreadNoted(text=note, about=change_id), person.id))
        await self._store.append(drafts)
        return self.changes.change(change_id)

    async def withdraw(self, change_id: str, actor: str) -> Change:
        change = self._pending(change_id)
        await self._store.append([Draft(change.room, ChangeWithdrawn(change=change_id), actor)])
        return self.changes.change(change_id)

    async def undo(self, change_id: str, person: Person) -> Change:
        """F8: a commit that takes an accepted change back; it is pending again."""
        asked = self.changes.change(change_id)
        async with self._alone(f"{asked.workspace}/{asked.branch}"):
            await self._sync(asked.workspace, asked.branch, asked.document)
            change = self.changes.change(change_id)
            if not change.accepted:
                raise NotPending("This proposal is not accepted.", "There is nothing to undo.")
            written = await asyncio.to_thread(self._write_undo, change, person)
            place = _restored(change, written, self.workspace(change.workspace).blob_text(change.before))
            undone = AcceptUndone(change=change_id, commit=written.commit, blob=written.blob, place=Place.of(place))
            drafts = [Draft(change.room, undone, person.id, key=f"undo:{change_id}:{written.commit}")]
            await self._store.append([*drafts, *self._others_after(change, written, None)])
            self._adopt(change.workspace, change.branch, change.document, written.text, written.blob)
        return self.changes.change(change_id)

    async def repropose(self, change_id: str, person: Person) -> Change:
        """F7: a stale proposal made anew against the text as it is. Fuzzy matching offers where."""
        old = self._pending(change_id)
        version = await self.read(old.workspace, old.document, old.branch)
        old = self._pending(change_id)
        if old.fresh:
            return old
        offered = await asyncio.to_thread(reanchor, old.anchor, version.text) if old.placed else None
        if not isinstance(offered, Found):
            raise Unplaced(
                "Nothing in the document is like what this proposal was about.", "Ask for it again in the thread."
            )
        place = Place.of(anchor_at(version.text, offered.span))
        anew = ChangeProposed(
            change=new_id(),
            reply=old.reply,
            author=old.author,
            workspace=old.workspace,
            document=old.document,
            branch=old.branch,
            original=place.exact,
            proposed=old.proposed,
            reason=old.reason,
            commit=version.commit,
            blob=version.blob,
            place=place,
            how=offered.how,
            score=offered.score,
            inserts=old.inserts,
            again=old.id,
        )
        withdrawn = ChangeWithdrawn(change=old.id)
        key = f"again:{old.id}"
        await self._store.append([Draft(old.room, anew, person.id, key=key), Draft(old.room, withdrawn, person.id)])
        return next(one for one in self.changes.of_thread(old.room) if one.again == old.id)

    async def save(
        self, workspace: str, document: str, branch: str, text: str, base: str, person: Person, room: str | None = None
    ) -> Version:
        """F9: what somebody wrote by hand, from a version they had; merged if the document moved on, else a `Clash`."""
        async with self._alone(f"{workspace}/{branch}"):
            if base:
                await self._sync(workspace, branch, document)
            written = await asyncio.to_thread(self._write_text, workspace, document, branch, text, base, person)
            if written is not None:
                saved = DocumentSaved(document=document, branch=branch, commit=written.commit, blob=written.blob)
                drafts = [Draft(f"draft:{workspace}", saved, person.id, key=f"save:{written.commit}")]
                if room is not None:
                    note = f"{person.name} edited the document."
                    drafts.append(Draft(room, ThreadNoted(text=note, about=written.commit), person.id))
                await self._store.append(drafts)
            return await self._sync(workspace, branch, document)

    # --- inside ----------------------------------------------------------------------------------------------------

    def _pending(self, change_id: str) -> Change:
        change = self.changes.change(change_id)
        if change.state != "pending":
            raise NotPending(f"This proposal is {change.state} already.", "Reload the thread.")
        return change

    def _write_change(self, change: Change, person: Person, text: str | None) -> Written | None:
        def make(version: Version | None) -> str | None:
            if version is None or version.blob != change.blob:
                return None  # plain git was quicker: the rows are brought in line first
            if version.text[change.start : change.end] != change.exact:
                raise StaleChange("The words that this proposal would change are not there.", "Propose it again.")
            return version.text[: change.start] + change.becomes(text) + version.text[change.end :]

        thread = self.threads.thread(change.room)
        trailers = {CHANGE: change.id, THREAD: thread.id, PROPOSED_BY: self._roster.bot(change.author).name}
        note = Note(change.reason or f"Change {thread.document}", change.reason, trailers)
        return self._commit(change, make, person, note)

    def _write_undo(self, change: Change, person: Person) -> Written:
        repository = self.workspace(change.workspace)
        after, before = repository.blob_text(change.blob), repository.blob_text(change.before)

        def make(version: Version | None) -> str | None:
            now = version.text if version is not None else ""
            undone = merged(after, now, before)
            if undone is None or undone == now:
                raise Clash(
                    "What this proposal wrote was changed since.",
                    "Edit the document by hand instead.",
                    difference(now, before, change.document),
                )
            return undone

        thread = self.threads.thread(change.room)
        note = Note(f"Undo: {change.reason or change.document}", "", {UNDOES: change.id, THREAD: thread.id})
        written = self._commit(change, make, person, note)
        if written is None:
            raise Clash("There is nothing left to undo.", "Reload the document.")
        return written

    def _write_text(
        self, workspace: str, document: str, branch: str, text: str, base: str, person: Person
    ) -> Written | None:
        repository = self.workspace(workspace)

        def make(version: Version | None) -> str | None:
            if version is None or version.blob == base:
                return text
            together = merged(repository.blob_text(base), version.text, text) if base else None
            if together is None:
                raise Clash(
                    "Somebody changed the same words meanwhile.",
                    "Look at the difference, then save what you want to keep.",
                    difference(version.text, text, document),
                )
            return together

        note = Note(f"Edit {document}")
        return self.committer(workspace).write(document, branch, make, person.author, note, self._clock.now())

    def _commit(
        self, change: Change, make: Callable[[Version | None], str | None], person: Person, note: Note
    ) -> Written | None:
        committer = self.committer(change.workspace)
        return committer.write(change.document, change.branch, make, person.author, note, self._clock.now())

    async def _record_accept(self, change: Change, written: Written, person: Person, text: str | None) -> None:
        becomes = change.becomes(text)
        accepted = ChangeAccepted(
            change=change.id,
            commit=written.commit,
            blob=written.blob,
            before=written.before.blob if written.before else "",
            text=becomes,
            edited=text is not None and text != change.proposed,
        )
        drafts = [Draft(change.room, accepted, person.id, key=f"accept:{change.id}:{written.commit}")]
        edit = Edit(change.start, change.end, becomes)
        await self._store.append([*drafts, *self._others_after(change, written, edit)])
        self._adopt(change.workspace, change.branch, change.document, written.text, written.blob)

    def _others_after(self, change: Change, written: Written, edit: Edit | None) -> list[Draft]:
        pending = self.changes.of_document(change.workspace, change.branch, change.document, "pending")
        if written.before is None:
            return []
        # Rows about another version are brought in line when somebody looks at the branch next.
        at = written.before.blob
        others = [one for one in pending if one.id != change.id and one.placed and one.blob == at]
        old = written.before.text
        version = Version(change.document, change.branch, written.commit, written.blob, written.text)
        edits = [edit] if edit is not None else edits_between(old, written.text)
        return [self._moved(others, old, version, edits, change.workspace)] if others else []


def _must_be_open(change: Change) -> None:
    if change.state != "pending":
        raise NotPending(f"This proposal is {change.state} already.", "Reload the thread.")
    if not change.placed:
        raise Unplaced("It is not known where in the document this belongs.", "Ask for it again, or edit by hand.")
    if not change.fresh:
        raise StaleChange(
            "The words that this proposal would change are gone.", "Propose it again for the text as it is."
        )


def _restored(change: Change, written: Written, before: str) -> Anchor:
    """Where the original stands again after an undo. Its row still holds where it stood before the accept."""
    stood = replace(change.anchor, fresh=before[change.start : change.end] == change.exact)
    (anchor,) = moved([stood], before, written.text, edits_between(before, written.text), written.blob)
    return anchor
