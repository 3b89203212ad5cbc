"""Deciding about proposals, and writing by hand: what turns into commits. F7–F10

Each accept is one commit, made on the newest version under the branch's lock, with the change's id in its trailer. The
row comes after it. All other proposals of the document are judged anew in the same transaction.
"""

from __future__ import annotations

import asyncio
import html
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from coterie.base.ids import new_id
from coterie.eventstore import NewEvent
from coterie.modes.draft.diff import Match, MatchKind, Span, TextEdit, edits_between, merge_texts, unified_diff
from coterie.modes.draft.documents import LiveEditing
from coterie.modes.draft.edit_formats import EditBlock
from coterie.modes.draft.errors import Clash, NotPending, StaleChange, Unplaced
from coterie.modes.draft.events import (
    AcceptUndone,
    AnchorData,
    ChangeAccepted,
    ChangeDeclined,
    ChangeProposed,
    ChangeWithdrawn,
    DocumentSaved,
    ThreadNoted,
)
from coterie.modes.draft.git.committer import CommitResult
from coterie.modes.draft.git.repository import (
    CHANGE_TRAILER,
    PROPOSED_BY_TRAILER,
    THREAD_TRAILER,
    UNDOES_TRAILER,
    CommitMessage,
    Contributor,
    DocumentVersion,
)
from coterie.modes.draft.locate.anchors import Anchor, anchor_at, find_similar, move_anchors
from coterie.modes.draft.locate.locate import locate
from coterie.modes.draft.projections import Proposal, Thread


class Proposals(LiveEditing):
    async def accept(self, change_id: str, person: Contributor, *, text: str | None = None) -> Proposal:
        """F8: one commit. With `text`, it is accepted as edited."""
        asked = self.proposal_queries.proposal(change_id)
        async with self._alone(f"{asked.workspace}/{asked.branch}"):
            for _ in range(5):
                await self._sync(asked.workspace, asked.branch, asked.document)
                change = self.proposal_queries.proposal(change_id)
                if change.accepted_commit and change.state != "pending":
                    return change  # by a crash its row was missing until now, or it was clicked twice
                _must_be_open(change)
                if change.replacement(text) == change.exact:
                    raise NotPending("The document says so already.", "Decline the proposal, or take it back.")
                written = await asyncio.to_thread(self._write_change, change, person, text)
                if written is not None:
                    await self._record_accept(change, written, person, text)
                    return self.proposal_queries.proposal(change_id)
        raise Clash("The document changes too quickly.", "Try again in a moment.")

    async def accept_all(self, room: str, person: Contributor) -> list[Proposal]:
        """One commit each, in the document's order; what another one made stale stays pending."""
        self.thread_queries.thread(room)
        done: list[Proposal] = []
        while True:
            waiting = [one for one in self.proposal_queries.of_thread(room) if one.state == "pending" and one.fresh]
            if not waiting:
                return done
            first = min(waiting, key=lambda one: one.start)
            try:
                done.append(await self.accept(first.id, person))
            except (StaleChange, NotPending):
                continue  # its row says so now

    async def decline(self, change_id: str, person: Contributor, comment: str = "") -> Proposal:
        """F10: the comment is noted in the thread, and told to the model next time."""
        change = self._pending(change_id)
        drafts = [NewEvent(change.room, ChangeDeclined(change=change_id, comment=comment.strip()), person.id)]
        if comment.strip():
            note = f"{person.name} declined a proposal: {comment.strip()}"
            drafts.append(NewEvent(change.room, ThreadNoted(text=note, about=change_id), person.id))
        await self._store.append(drafts)
        return self.proposal_queries.proposal(change_id)

    async def withdraw(self, change_id: str, actor: str) -> Proposal:
        change = self._pending(change_id)
        await self._store.append([NewEvent(change.room, ChangeWithdrawn(change=change_id), actor)])
        return self.proposal_queries.proposal(change_id)

    async def undo(self, change_id: str, person: Contributor) -> Proposal:
        """F8: a commit that takes an accepted change back; it is pending again."""
        asked = self.proposal_queries.proposal(change_id)
        async with self._alone(f"{asked.workspace}/{asked.branch}"):
            await self._sync(asked.workspace, asked.branch, asked.document)
            change = self.proposal_queries.proposal(change_id)
            if not change.accepted_commit:
                raise NotPending("This proposal is not accepted.", "There is nothing to undo.")
            written = await asyncio.to_thread(self._write_undo, change, person)
            place = _restored(change, written, self.repository(change.workspace).blob_text(change.blob_before))
            undone = AcceptUndone(
                change=change_id, commit=written.commit, blob=written.blob, place=AnchorData.of(place)
            )
            drafts = [NewEvent(change.room, undone, person.id, key=f"undo:{change_id}:{written.commit}")]
            await self._store.append([*drafts, *self._others_after(change, written, None)])
            self._adopt(change.workspace, change.branch, change.document, written.text, written.blob)
        return self.proposal_queries.proposal(change_id)

    async def repropose(self, change_id: str, person: Contributor) -> Proposal:
        """F7: a stale proposal made anew against the text as it is. Fuzzy matching offers where."""
        old = self._pending(change_id)
        version = await self.read(old.workspace, old.document, old.branch)
        old = self._pending(change_id)
        if old.fresh:
            return old
        offered = await asyncio.to_thread(find_similar, old.anchor, version.text) if old.placed else None
        if not isinstance(offered, Match):
            raise Unplaced(
                "Nothing in the document is like what this proposal was about.", "Ask for it again in the thread."
            )
        place = AnchorData.of(anchor_at(version.text, offered.span))
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
        await self._store.append(
            [NewEvent(old.room, anew, person.id, key=key), NewEvent(old.room, withdrawn, person.id)]
        )
        return next(one for one in self.proposal_queries.of_thread(old.room) if one.replaces == old.id)

    async def save(
        self,
        workspace: str,
        document: str,
        branch: str,
        text: str,
        base: str,
        person: Contributor,
        room: str | None = None,
    ) -> DocumentVersion:
        """F9: what somebody wrote by hand, from a version they had; merged if the document moved on, else a `Clash`."""
        async with self._alone(f"{workspace}/{branch}"):
            if base:
                await self._sync(workspace, branch, document)
            written = await asyncio.to_thread(self._write_text, workspace, document, branch, text, base, person)
            if written is not None:
                saved = DocumentSaved(document=document, branch=branch, commit=written.commit, blob=written.blob)
                drafts = [NewEvent(f"draft:{workspace}", saved, person.id, key=f"save:{written.commit}")]
                if room is not None:
                    note = f"{person.name} edited the document."
                    drafts.append(NewEvent(room, ThreadNoted(text=note, about=written.commit), person.id))
                await self._store.append(drafts)
            return await self._sync(workspace, branch, document)

    # --- inside ----------------------------------------------------------------------------------------------------

    def _pending(self, change_id: str) -> Proposal:
        change = self.proposal_queries.proposal(change_id)
        if change.state != "pending":
            raise NotPending(f"This proposal is {change.state} already.", "Reload the thread.")
        return change

    def _write_change(self, change: Proposal, person: Contributor, text: str | None) -> CommitResult | None:
        def make(version: DocumentVersion | None) -> str | None:
            if version is None or version.blob != change.blob:
                return None  # plain git was quicker: the rows are brought in line first
            if version.text[change.start : change.end] != change.exact:
                raise StaleChange("The words that this proposal would change are not there.", "Propose it again.")
            return version.text[: change.start] + change.replacement(text) + version.text[change.end :]

        thread = self.thread_queries.thread(change.room)
        trailers = {
            CHANGE_TRAILER: change.id,
            THREAD_TRAILER: thread.id,
            PROPOSED_BY_TRAILER: self._roster.get(change.author).name,
        }
        note = CommitMessage(change.reason or f"Change {thread.document}", change.reason, trailers)
        return self._commit(change, make, person, note)

    def _write_undo(self, change: Proposal, person: Contributor) -> CommitResult:
        repository = self.repository(change.workspace)
        after, before = repository.blob_text(change.blob), repository.blob_text(change.blob_before)

        def make(version: DocumentVersion | None) -> str | None:
            now = version.text if version is not None else ""
            undone = merge_texts(after, now, before)
            if undone is None or undone == now:
                raise Clash(
                    "What this proposal wrote was changed since.",
                    "Edit the document by hand instead.",
                    unified_diff(now, before, change.document),
                )
            return undone

        thread = self.thread_queries.thread(change.room)
        note = CommitMessage(
            f"Undo: {change.reason or change.document}", "", {UNDOES_TRAILER: change.id, THREAD_TRAILER: thread.id}
        )
        written = self._commit(change, make, person, note)
        if written is None:
            raise Clash("There is nothing left to undo.", "Reload the document.")
        return written

    def _write_text(
        self, workspace: str, document: str, branch: str, text: str, base: str, person: Contributor
    ) -> CommitResult | None:
        repository = self.repository(workspace)

        def make(version: DocumentVersion | None) -> str | None:
            if version is None or version.blob == base:
                return text
            together = merge_texts(repository.blob_text(base), version.text, text) if base else None
            if together is None:
                raise Clash(
                    "Somebody changed the same words meanwhile.",
                    "Look at the difference, then save what you want to keep.",
                    unified_diff(version.text, text, document),
                )
            return together

        note = CommitMessage(f"Edit {document}")
        return self.committer(workspace).write(document, branch, make, person.author, note, self._clock.now())

    def _commit(
        self,
        change: Proposal,
        make: Callable[[DocumentVersion | None], str | None],
        person: Contributor,
        note: CommitMessage,
    ) -> CommitResult | None:
        committer = self.committer(change.workspace)
        return committer.write(change.document, change.branch, make, person.author, note, self._clock.now())

    async def _record_accept(
        self, change: Proposal, written: CommitResult, person: Contributor, text: str | None
    ) -> None:
        becomes = change.replacement(text)
        accepted = ChangeAccepted(
            change=change.id,
            commit=written.commit,
            blob=written.blob,
            before=written.before.blob if written.before else "",
            text=becomes,
            edited=text is not None and text != change.proposed,
        )
        drafts = [NewEvent(change.room, accepted, person.id, key=f"accept:{change.id}:{written.commit}")]
        edit = TextEdit(change.start, change.end, becomes)
        await self._store.append([*drafts, *self._others_after(change, written, edit)])
        self._adopt(change.workspace, change.branch, change.document, written.text, written.blob)

    def _others_after(self, change: Proposal, written: CommitResult, edit: TextEdit | None) -> list[NewEvent]:
        pending = self.proposal_queries.of_document(change.workspace, change.branch, change.document, "pending")
        if written.before is None:
            return []
        # Rows about another version are brought in line when somebody looks at the branch next.
        at = written.before.blob
        others = [one for one in pending if one.id != change.id and one.placed and one.blob == at]
        old = written.before.text
        version = DocumentVersion(change.document, change.branch, written.commit, written.blob, written.text)
        edits = [edit] if edit is not None else edits_between(old, written.text)
        return [self._moved(others, old, version, edits, change.workspace)] if others else []


def _must_be_open(change: Proposal) -> None:
    if change.state != "pending":
        raise NotPending(f"This proposal is {change.state} already.", "Reload the thread.")
    if not change.placed:
        raise Unplaced("It is not known where in the document this belongs.", "Ask for it again, or edit by hand.")
    if not change.fresh:
        raise StaleChange(
            "The words that this proposal would change are gone.", "Propose it again for the text as it is."
        )


def _restored(change: Proposal, written: CommitResult, before: str) -> Anchor:
    """Where the original stands again after an undo. Its row still holds where it stood before the accept."""
    stood = replace(change.anchor, fresh=before[change.start : change.end] == change.exact)
    (anchor,) = move_anchors([stood], before, written.text, edits_between(before, written.text), written.blob)
    return anchor


# From a block in a reply to a proposal with a place. F5, F6


@dataclass(frozen=True, slots=True)
class PlacedEdit:
    proposed: str
    place: AnchorData | None
    how: MatchKind | None = None
    score: float = 1.0
    missing: Literal["", "absent", "ambiguous"] = ""
    inserts: bool = False


def locate_edit(original: str, proposed: str, version: DocumentVersion, about: Anchor | None) -> PlacedEdit:
    """`about` is the selection or the thread's own place: what the talk is about."""
    within = about.span if about is not None and about.fresh else None
    if not original.strip():
        if within is None:
            return PlacedEdit(proposed, None, missing="absent")
        return PlacedEdit(proposed, _place(version, within), "exact", inserts=True)
    found = locate(version.text, original, within)
    if "&" in original and not (isinstance(found, Match) and found.how != "fuzzy"):
        # Some models write entities inside tags. Only when the raw text is nowhere is that what they meant.
        decoded = locate(version.text, html.unescape(original), within)
        if isinstance(decoded, Match) and (decoded.how != "fuzzy" or not isinstance(found, Match)):
            found, proposed = decoded, html.unescape(proposed)
    if isinstance(found, Match):
        return PlacedEdit(proposed, _place(version, found.span), found.how, found.score)
    return PlacedEdit(proposed, None, missing=found.reason)


def proposal_event(
    thread: Thread,
    reply: str,
    number: int,
    author: str,
    block: EditBlock,
    version: DocumentVersion,
    about: Anchor | None,
) -> ChangeProposed:
    where = locate_edit(block.original, block.proposed, version, about)
    return ChangeProposed(
        change=proposal_id(reply, number),
        reply=reply,
        author=author,
        workspace=thread.workspace,
        document=thread.document,
        branch=thread.branch,
        original=block.original,
        proposed=where.proposed,
        reason=block.reason,
        commit=version.commit,
        blob=version.blob,
        place=where.place,
        how=where.how,
        score=where.score,
        missing=where.missing,
        inserts=where.inserts,
    )


def proposal_id(reply: str, number: int) -> str:
    """The same block of the same reply is always the same change: nothing is proposed twice."""
    return f"{reply}-{number}"


def _place(version: DocumentVersion, span: Span) -> AnchorData:
    return AnchorData.of(anchor_at(version.text, span))
