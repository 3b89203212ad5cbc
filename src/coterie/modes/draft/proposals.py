"""Proposed changes: locate them in the document, accept, decline, withdraw, undo, repropose.

Accepting is one commit, made to the newest version under the branch's lock, with the proposal's id as a trailer. Its
event follows, and in the same transaction the new positions of all other pending proposals of the document.
"""

from __future__ import annotations

import asyncio
import html
from dataclasses import dataclass, replace
from typing import Literal

from coterie.base.ids import new_id
from coterie.characters import Characters
from coterie.eventstore import NewEvent, Store
from coterie.modes.draft.committer import CommitResult
from coterie.modes.draft.diff import TextEdit, edits_between, merge_texts, unified_diff
from coterie.modes.draft.documents import Documents, moved_event
from coterie.modes.draft.edit_formats import EditBlock
from coterie.modes.draft.errors import EditConflict, NotPending, PositionUnknown, StaleProposal
from coterie.modes.draft.events import (
    AcceptUndone,
    AnchorData,
    ChangeAccepted,
    ChangeDeclined,
    ChangeProposed,
    ChangeWithdrawn,
    ThreadNoted,
)
from coterie.modes.draft.git import (
    CHANGE_TRAILER,
    PROPOSED_BY_TRAILER,
    THREAD_TRAILER,
    UNDOES_TRAILER,
    CommitMessage,
    Contributor,
    DocumentVersion,
)
from coterie.modes.draft.locate import Anchor, Match, MatchKind, anchor_at, find_similar, locate, move_anchors
from coterie.modes.draft.queries import Proposal, ProposalQueries, Thread, ThreadQueries

_ACCEPT_ATTEMPTS = 5


class Proposals:
    def __init__(
        self,
        store: Store,
        characters: Characters,
        documents: Documents,
        threads: ThreadQueries,
        queries: ProposalQueries,
    ) -> None:
        self._store = store
        self._characters = characters
        self._documents = documents
        self._threads = threads
        self._queries = queries

    async def accept(self, proposal_id: str, contributor: Contributor, *, text: str | None = None) -> Proposal:
        """Commit a proposal; with `text`, that text instead of the proposed one.

        Accepting an accepted proposal returns it unchanged.
        """
        requested = self._queries.proposal(proposal_id)
        workspace, branch, document = requested.workspace, requested.branch, requested.document
        async with self._documents.lock(workspace, branch):
            for _ in range(_ACCEPT_ATTEMPTS):
                await self._documents.sync(workspace, branch, document)
                proposal = self._queries.proposal(proposal_id)
                if proposal.accepted_commit and proposal.state != "pending":
                    return proposal  # accepted twice, or `sync` found its commit after a crash
                _require_acceptable(proposal)
                replacement = proposal.replacement(text)
                if replacement == proposal.exact:
                    raise NotPending("The document has this text already.", "Decline the proposal, or withdraw it.")
                result = await self._commit_accepted(proposal, contributor, replacement)
                if result is None:
                    continue  # plain git committed meanwhile
                accepted = ChangeAccepted(
                    change=proposal.id,
                    commit=result.version.commit,
                    blob=result.version.blob,
                    before=result.before.blob if result.before else "",
                    text=replacement,
                    edited=text is not None and text != proposal.proposed,
                )
                key = f"accept:{proposal.id}:{result.version.commit}"
                edits = [TextEdit(proposal.start, proposal.end, replacement)]
                event = NewEvent(proposal.room, accepted, contributor.id, key=key)
                return await self._record(proposal, event, result, edits)
        raise EditConflict("The document changes too quickly.", "Try again in a moment.")

    async def _commit_accepted(
        self, proposal: Proposal, contributor: Contributor, replacement: str
    ) -> CommitResult | None:
        """One commit with the replacement; None if the branch has another version than the proposal refers to."""

        def edit(version: DocumentVersion | None) -> str | None:
            if version is None or version.blob != proposal.blob:
                return None
            if version.text[proposal.start : proposal.end] != proposal.exact:
                raise StaleProposal("The words that this proposal would change are not there.", "Propose it again.")
            return version.text[: proposal.start] + replacement + version.text[proposal.end :]

        trailers = {
            CHANGE_TRAILER: proposal.id,
            THREAD_TRAILER: self._threads.thread(proposal.room).id,
            PROPOSED_BY_TRAILER: self._characters.get(proposal.author).name,
        }
        message = CommitMessage(proposal.reason or f"Change {proposal.document}", proposal.reason, trailers)
        return await self._documents.workspaces.commit(
            proposal.workspace, proposal.document, proposal.branch, edit, contributor, message
        )

    async def _record(
        self, proposal: Proposal, event: NewEvent, result: CommitResult, edits: list[TextEdit]
    ) -> Proposal:
        """Append the event of a commit and the new positions of the other proposals; show the text in open editors."""
        new_events = [event]
        if result.before is not None:
            pending = self._queries.of_document(proposal.workspace, proposal.branch, proposal.document, "pending")
            # Proposals about another version are brought in line by the next `sync`.
            same_base = [other for other in pending if other.placed and other.blob == result.before.blob]
            if others := [other for other in same_base if other.id != proposal.id]:
                new_events.append(moved_event(proposal.workspace, others, result.before.text, result.version, edits))
        await self._store.append(new_events)
        await self._documents.live.merge_saved(proposal.workspace, result.version)
        return self._queries.proposal(proposal.id)

    async def accept_all(self, room: str, contributor: Contributor) -> list[Proposal]:
        """Accept the fresh proposals of a thread, one commit each, in the document's order.

        A proposal that another one makes stale stays pending, and so does one that cannot be accepted.
        """
        self._threads.thread(room)
        accepted: list[Proposal] = []
        failed: set[str] = set()
        while True:
            pending = [one for one in self._queries.of_thread(room) if one.state == "pending" and one.fresh]
            fresh = [proposal for proposal in pending if proposal.id not in failed]
            if not fresh:
                return accepted
            first = min(fresh, key=lambda proposal: proposal.start)
            try:
                accepted.append(await self.accept(first.id, contributor))
            except (StaleProposal, NotPending):
                failed.add(first.id)

    async def decline(self, proposal_id: str, contributor: Contributor, comment: str = "") -> Proposal:
        """Decline with a comment, which is noted in the thread and given to the model in later prompts."""
        proposal = self._pending(proposal_id)
        comment = comment.strip()
        new_events = [NewEvent(proposal.room, ChangeDeclined(change=proposal_id, comment=comment), contributor.id)]
        if comment:
            note = ThreadNoted(text=f"{contributor.name} declined a proposal: {comment}", about=proposal_id)
            new_events.append(NewEvent(proposal.room, note, contributor.id))
        await self._store.append(new_events)
        return self._queries.proposal(proposal_id)

    async def withdraw(self, proposal_id: str, actor: str) -> Proposal:
        proposal = self._pending(proposal_id)
        await self._store.append([NewEvent(proposal.room, ChangeWithdrawn(change=proposal_id), actor)])
        return self._queries.proposal(proposal_id)

    async def undo(self, proposal_id: str, contributor: Contributor) -> Proposal:
        """Commit the reverse of an accepted proposal, which becomes pending again."""
        requested = self._queries.proposal(proposal_id)
        workspace, branch, document = requested.workspace, requested.branch, requested.document
        async with self._documents.lock(workspace, branch):
            await self._documents.sync(workspace, branch, document)
            proposal = self._queries.proposal(proposal_id)
            if not proposal.accepted_commit:
                raise NotPending("This proposal is not accepted.", "There is nothing to undo.")
            repository = self._documents.workspaces.repository(workspace)
            before = repository.blob_text(proposal.blob_before)
            result = await self._commit_undo(proposal, contributor, before, repository.blob_text(proposal.blob))
            commit, blob = result.version.commit, result.version.blob
            place = AnchorData.of(await asyncio.to_thread(_restored_anchor, proposal, result.version, before))
            undone = AcceptUndone(change=proposal_id, commit=commit, blob=blob, place=place)
            event = NewEvent(proposal.room, undone, contributor.id, key=f"undo:{proposal_id}:{commit}")
            earlier = result.before.text if result.before else result.version.text
            edits = await asyncio.to_thread(edits_between, earlier, result.version.text)
            return await self._record(proposal, event, result, edits)

    async def _commit_undo(self, proposal: Proposal, contributor: Contributor, before: str, after: str) -> CommitResult:
        def edit(version: DocumentVersion | None) -> str | None:
            current = version.text if version is not None else ""
            undone = merge_texts(after, current, before)
            if undone is None or undone == current:
                raise EditConflict(
                    "What this proposal wrote was changed since.",
                    "Edit the document by hand instead.",
                    unified_diff(current, before, proposal.document),
                )
            return undone

        trailers = {UNDOES_TRAILER: proposal.id, THREAD_TRAILER: self._threads.thread(proposal.room).id}
        message = CommitMessage(f"Undo: {proposal.reason or proposal.document}", "", trailers)
        result = await self._documents.workspaces.commit(
            proposal.workspace, proposal.document, proposal.branch, edit, contributor, message
        )
        if result is None:
            raise EditConflict("There is nothing left to undo.", "Reload the document.")
        return result

    async def repropose(self, proposal_id: str, contributor: Contributor) -> Proposal:
        """Make a stale proposal again for the current text, at the most similar passage."""
        requested = self._pending(proposal_id)
        version = await self._documents.read(requested.workspace, requested.document, requested.branch)
        old = self._pending(proposal_id)  # again, because reading updates it
        if old.fresh:
            return old
        match = await asyncio.to_thread(find_similar, old.anchor, version.text) if old.placed else None
        if not isinstance(match, Match):
            raise PositionUnknown(
                "Nothing in the document is like what this proposal was about.", "Ask for it again in the thread."
            )
        place = AnchorData.of(anchor_at(version.text, match.span))
        edit = LocatedEdit(old.proposed, place, match.how, match.score, inserts=old.inserts)
        proposed = _proposed(
            new_id(), old.reply, old.author, old.workspace, version, place.exact, old.reason, edit, replaces=old.id
        )
        await self._store.append(
            [
                NewEvent(old.room, proposed, contributor.id, key=f"again:{old.id}"),
                NewEvent(old.room, ChangeWithdrawn(change=old.id), contributor.id),
            ]
        )
        return next(one for one in self._queries.of_thread(old.room) if one.replaces == old.id)

    def _pending(self, proposal_id: str) -> Proposal:
        proposal = self._queries.proposal(proposal_id)
        _require_pending(proposal)
        return proposal


def _require_pending(proposal: Proposal) -> None:
    if proposal.state != "pending":
        raise NotPending(f"This proposal is {proposal.state} already.", "Reload the thread.")


def _require_acceptable(proposal: Proposal) -> None:
    _require_pending(proposal)
    if not proposal.placed:
        raise PositionUnknown(
            "It is not known where in the document this belongs.", "Ask for it again, or edit by hand."
        )
    if not proposal.fresh:
        raise StaleProposal(
            "The words that this proposal would change are gone.", "Propose it again for the text as it is."
        )


def _restored_anchor(proposal: Proposal, version: DocumentVersion, before: str) -> Anchor:
    """Where the original text is after an undo. The proposal still has its position before it was accepted."""
    original = replace(proposal.anchor, fresh=before[proposal.start : proposal.end] == proposal.exact)
    (anchor,) = move_anchors([original], before, version.text, edits_between(before, version.text), version.blob)
    return anchor


@dataclass(frozen=True, slots=True)
class LocatedEdit:
    """An edit with its position in the document, or the reason why it has none."""

    proposed: str
    place: AnchorData | None
    how: MatchKind | None = None
    score: float = 1.0
    missing: Literal["", "absent", "ambiguous"] = ""
    inserts: bool = False


def locate_edit(original: str, proposed: str, version: DocumentVersion, context: Anchor | None) -> LocatedEdit:
    """Find the quoted original in the document. `context`, the selection or the thread's own passage, decides between
    several matches, and is where an edit without an original is inserted."""
    within = context.span if context is not None and context.fresh else None
    if not original.strip():
        if within is None:
            return LocatedEdit(proposed, None, missing="absent")
        return LocatedEdit(proposed, AnchorData.of(anchor_at(version.text, within)), "exact", inserts=True)
    match = locate(version.text, original, within)
    if "&" in original and not (isinstance(match, Match) and match.how != "fuzzy"):
        # Some models write HTML entities inside tags; decoded only if the raw quote has no exact match.
        decoded = locate(version.text, html.unescape(original), within)
        if isinstance(decoded, Match) and (decoded.how != "fuzzy" or not isinstance(match, Match)):
            match, proposed = decoded, html.unescape(proposed)
    if isinstance(match, Match):
        return LocatedEdit(proposed, AnchorData.of(anchor_at(version.text, match.span)), match.how, match.score)
    return LocatedEdit(proposed, None, missing=match.reason)


def proposal_event(
    thread: Thread,
    reply: str,
    number: int,
    author: str,
    block: EditBlock,
    version: DocumentVersion,
    context: Anchor | None,
) -> ChangeProposed:
    """The event for the `number`th edit block of a reply."""
    edit = locate_edit(block.original, block.proposed, version, context)
    change = proposal_id(reply, number)
    return _proposed(change, reply, author, thread.workspace, version, block.original, block.reason, edit)


def _proposed(
    change: str,
    reply: str,
    author: str,
    workspace: str,
    version: DocumentVersion,
    original: str,
    reason: str,
    edit: LocatedEdit,
    replaces: str = "",
) -> ChangeProposed:
    return ChangeProposed(
        change=change,
        reply=reply,
        author=author,
        workspace=workspace,
        document=version.path,
        branch=version.branch,
        original=original,
        proposed=edit.proposed,
        reason=reason,
        commit=version.commit,
        blob=version.blob,
        place=edit.place,
        how=edit.how,
        score=edit.score,
        missing=edit.missing,
        inserts=edit.inserts,
        again=replaces,
    )


def proposal_id(reply: str, number: int) -> str:
    """The id of a reply's `number`th edit block: derived, so that a block is never proposed twice."""
    return f"{reply}-{number}"
