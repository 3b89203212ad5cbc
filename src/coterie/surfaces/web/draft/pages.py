"""Pages of drafts: the workspaces, one document with its sidebar, history, branches, and the inbox.

F1, F2, F9, F11, F12, F14. What changes anything goes through the API; these routes only show.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any
from urllib.parse import quote

from fastapi import Request, Response
from fastapi.responses import JSONResponse, RedirectResponse

from coterie.base.clock import from_micros
from coterie.base.redaction import redact
from coterie.characters import Character, Characters
from coterie.conversation import Turn
from coterie.modes.draft import (
    DraftError,
    DraftService,
    LiveDocument,
    Proposal,
    Revision,
    Thread,
    can_retry,
    parse_reply,
    utf16_length,
    visible_text,
    word_diff,
)
from coterie.surfaces.web.draft.live import channel_name
from coterie.surfaces.web.shared.access import (
    CurrentPerson,
    content_security_policy,
    document_in_path,
    document_of_thread,
    guest_share,
    open_to_guests,
)
from coterie.surfaces.web.shared.dependencies import CharactersDep, DraftDep, FeedDep
from coterie.surfaces.web.shared.labels import NameCache, NamesDep, ReplyError, proposal_state_label, reply_error
from coterie.surfaces.web.shared.messages import N_, gettext
from coterie.surfaces.web.shared.prose import clean_fragment, clean_line, excerpt
from coterie.surfaces.web.shared.templates import PageRouter, fragment_response, hue_class, page_response, render

# The sidebar of a document: proposals as cards and as marks in the text, threads and their messages.


_MOST_DECIDED = 30
_MAX_DIFF_LINES = 2_000
"""The lines of a comparison that are shown of a document; a browser takes long for more."""
HOW = {
    "exact": "",
    "normalised": N_("Found with other white space or quotes"),
    "markup": N_("Found without Markdown’s signs"),
    "ellipsis": N_("Found across an ellipsis"),
    "fuzzy": N_("Found at the one place that is clearly nearest"),
}
MISSING = {
    "absent": N_("These words are nowhere in the document."),
    "ambiguous": N_("These words stand in more than one place."),
}


@dataclass(frozen=True)
class ProposalCard:
    change: Proposal
    author: str
    pieces: tuple[tuple[str, str], ...]
    how: str
    missing: str

    @property
    def thread(self) -> str:
        return self.change.room.partition(":")[2]

    @property
    def open(self) -> bool:
        return self.change.state == "pending"

    @property
    def can_accept(self) -> bool:
        return self.open and self.change.fresh


@dataclass(frozen=True)
class ThreadRow:
    """A thread as the list shows it."""

    id: str
    title: str
    quote: str
    orphaned: bool
    messages: int
    speaking: bool


@dataclass(frozen=True)
class ThreadMessage:
    """A message of a thread, or a note about the document."""

    id: str
    seq: int
    name: str
    text: str
    by_person: bool = True
    note: bool = False
    quote: str = ""
    state: str = "done"
    at: datetime | None = None
    model: str = ""
    error: ReplyError | None = None
    can_retry: bool = False
    proposals: tuple[tuple[str, str], ...] = ()
    """Id and state of each."""


def proposal_cards(
    draft: DraftService, names: NameCache, workspace: str, branch: str, path: str
) -> tuple[list[ProposalCard], list[ProposalCard]]:
    """Pending ones in the document's order, and the latest decided ones."""
    cards = [_card(names, change) for change in draft.proposal_queries.of_document(workspace, branch, path)]
    pending = [card for card in cards if card.open]
    waiting = sorted(pending, key=lambda card: (not card.change.placed, card.change.start))
    decided = sorted((card for card in cards if not card.open), key=lambda card: card.change.id, reverse=True)
    return waiting, decided[:_MOST_DECIDED]


def _card(names: NameCache, change: Proposal) -> ProposalCard:
    shown = "" if change.inserts else change.exact if change.placed else change.original
    decided = change.text if change.state == "edited-and-accepted" else change.proposed
    pieces = tuple((mark, clean_text(text)) for mark, text in word_diff(shown, decided))
    how = HOW.get(change.how or "", "") if change.placed else ""
    return ProposalCard(change, names[change.author], pieces, how, MISSING.get(change.missing, ""))


def clean_text(text: str) -> str:
    """Without invisible characters; line breaks are kept."""
    return "\n".join(clean_fragment(line) for line in text.split("\n"))


def proposal_marks(draft: DraftService, names: NameCache, workspace: str, sheet: LiveDocument) -> list[dict[str, Any]]:
    """Where each applicable proposal is in the committed text, in UTF-16 units."""
    marks: list[dict[str, Any]] = []
    for change in draft.proposal_queries.of_document(workspace, sheet.branch, sheet.document, "pending"):
        if not change.fresh or change.blob != sheet.blob:
            continue
        pieces = word_diff(change.exact, change.replacement())
        name = names[change.author]
        start = utf16_length(sheet.base[: change.start])
        marks.append({"id": change.id, "start": start, "pieces": pieces, "name": name, "hue": hue_class(name)})
    return marks


def thread_rows(
    draft: DraftService, workspace: str, branch: str, path: str, sheet: LiveDocument | None
) -> list[ThreadRow]:
    rows = []
    for thread in draft.thread_queries.threads(workspace, path, branch):
        place = draft.threads.anchor_in(thread, sheet.base, sheet.blob) if sheet is not None else None
        rows.append(
            ThreadRow(
                thread.id,
                clean_line(thread.title),
                excerpt(thread.place.exact, 80) if thread.place else "",
                thread.place is not None and sheet is not None and place is None,
                len(draft.timeline.latest(thread.room, 500)),
                draft.replies.is_running(thread.room),
            )
        )
    return rows


def thread_anchors(draft: DraftService, workspace: str, sheet: LiveDocument) -> list[dict[str, Any]]:
    """Where the quoted text of each thread is now."""
    anchors: list[dict[str, Any]] = []
    for thread in draft.thread_queries.threads(workspace, sheet.document, sheet.branch):
        place = draft.threads.anchor_in(thread, sheet.base, sheet.blob)
        if place is not None:
            start = utf16_length(sheet.base[: place.start])
            length = utf16_length(sheet.base[place.start : place.end])
            anchors.append({"thread": thread.id, "start": start, "end": start + length})
    return anchors


def thread_messages(draft: DraftService, names: NameCache, thread: Thread) -> list[ThreadMessage]:
    """Messages and notes in order; repeated notes are left out."""
    messages = [*_messages(draft, thread, names), *_notes(draft, thread)]
    return sorted(messages, key=lambda one: one.seq)


def _messages(draft: DraftService, thread: Thread, names: NameCache) -> Iterator[ThreadMessage]:
    changes = draft.proposal_queries.of_thread(thread.room)
    so_far = draft.replies.partial(thread.room)
    turns = draft.timeline.latest(thread.room, 500)
    for turn in turns:
        quote = draft.thread_queries.quote(thread.room, turn.id)
        spoken = so_far.text if so_far is not None and so_far.reply == turn.id else turn.text
        yield ThreadMessage(
            id=turn.id,
            seq=turn.seq,
            name=names[turn.speaker],
            text=_visible(turn, thread, spoken),
            by_person=turn.by_person,
            quote=excerpt(quote.exact, 240) if quote else "",
            state=turn.state,
            at=turn.at,
            model=clean_line(turn.model),
            error=reply_error(redact(turn.why), turn.status, has_text=bool(turn.text.strip()))
            if turn.state == "truncated"
            else None,
            can_retry=can_retry(turn, turns),
            proposals=tuple((one.id, _became(one)) for one in changes if one.reply == turn.id and not one.replaces),
        )


def _visible(turn: Turn, thread: Thread, text: str) -> str:
    if turn.by_person:
        return text
    pieces = parse_reply(text, thread.member(turn.speaker).format, complete=turn.state != "open")
    return visible_text(pieces)


def _notes(draft: DraftService, thread: Thread) -> Iterator[ThreadMessage]:
    last = ""
    for note in draft.thread_queries.notes(thread.room):
        if note.text != last:
            yield ThreadMessage(f"note-{note.seq}", note.seq, "", clean_text(note.text), note=True)
        last = note.text


def _became(change: Proposal) -> str:
    if change.state == "pending":
        return gettext("waits") if change.fresh else gettext("stale") if change.placed else gettext("not found")
    return gettext("accepted, edited") if change.state == "edited-and-accepted" else proposal_state_label(change.state)


def from_timestamp(seconds: int) -> datetime:
    return from_micros(seconds * 1_000_000)


router = PageRouter(prefix="/draft")
_ONE = "/workspaces/{workspace}"


@dataclass(frozen=True)
class WorkspaceRow:
    """A workspace as the list shows it."""

    id: str
    name: str
    folder: str
    branch: str
    documents: list[tuple[str, str, int]]
    """Path, title, and number of pending proposals."""
    error: str = ""


@dataclass(frozen=True)
class CommitRow:
    """A commit as history shows it."""

    id: str
    author: str
    subject: str
    when: datetime
    thread: str
    proposed_by: str


@router.get("")
async def drafts(draft: DraftDep, request: Request, who: CurrentPerson) -> Response:
    folders = [await _workspace_row(draft, workspace) for workspace in draft.thread_queries.workspaces()]
    unread = len(draft.notifications.of_person(who.id, unread=True))
    return page_response(request, "draft/workspaces.html", folders=folders, unread=unread, you=clean_line(who.name))


@router.get(_ONE + "/documents/{path:path}")
@open_to_guests(document_in_path)
async def document(
    characters: CharactersDep,
    draft: DraftDep,
    feed: FeedDep,
    names: NamesDep,
    request: Request,
    who: CurrentPerson,
    workspace: str,
    path: str,
    branch: str = "",
    thread: str = "",
) -> Response:
    at = feed.last_id()
    share = guest_share(request)
    sheet = await draft.documents.live_document(workspace, path, branch or None)
    branches = await asyncio.to_thread(draft.workspaces.repository(workspace).branches)
    waiting, decided = proposal_cards(draft, names, workspace, sheet.branch, path)
    nonce = secrets.token_urlsafe(16)
    shown = await asyncio.to_thread(
        page_response,
        request,
        "draft/document.html",
        workspace=workspace,
        folder=clean_line(draft.thread_queries.workspaces()[workspace][0]),
        sheet=sheet,
        title=clean_line(sheet.title),
        branches=branches,
        waiting=waiting,
        decided=decided,
        # A guest sees only the characters that are in the document's threads.
        characters=characters.all() if share is None else _known_characters(draft, characters, sheet, workspace),
        role=share.role if share is not None else "owner",
        thread=thread,
        at=at,
        channel=channel_name(workspace, sheet.branch, path),
        nonce=nonce,
        you=clean_line(who.name),
        watching=who.id in draft.notifications.watchers(workspace, path),
        unread=len(draft.notifications.of_person(who.id, unread=True)),
        here="/draft",
    )
    # The editor adds its style sheet to the page; the nonce allows that one and no other.
    shown.headers["Content-Security-Policy"] = content_security_policy(nonce)
    return shown


@router.get(_ONE + "/sidebar/{path:path}")
@open_to_guests(document_in_path)
async def sidebar(
    draft: DraftDep, names: NamesDep, workspace: str, path: str, branch: str, thread: str = ""
) -> Response:
    sheet = await draft.documents.live_document_unsynced(workspace, path, branch)
    waiting, decided = proposal_cards(draft, names, workspace, branch, path)
    listed = thread_rows(draft, workspace, branch, path, sheet)
    data: dict[str, Any] = {
        "epoch": sheet.epoch,
        "version": sheet.saved_version,
        "marks": proposal_marks(draft, names, workspace, sheet),
        "anchors": thread_anchors(draft, workspace, sheet),
        "waiting": len(waiting),
        "cards": render("draft/proposals.html", waiting=waiting, decided=decided),
        "threads": render("draft/threads.html", threads=listed, chosen=thread),
    }
    return JSONResponse(data, headers={"Cache-Control": "no-store", "Vary": "Accept"})


@router.get(_ONE + "/history/{path:path}")
@open_to_guests(document_in_path)
async def history_fragment(draft: DraftDep, workspace: str, path: str, branch: str) -> Response:
    text = draft.workspaces.repository(workspace)
    commits = await asyncio.to_thread(text.history, branch, 200, path)
    return fragment_response("draft/history.html", past=[_commit_row(one) for one in commits])


@router.get(_ONE + "/compare")
async def compare(
    characters: CharactersDep, draft: DraftDep, request: Request, workspace: str, source: str = "", target: str = ""
) -> Response:
    text = draft.workspaces.repository(workspace)
    branches = await asyncio.to_thread(text.branches)
    target = target or text.main_branch
    source = source or next((one for one in branches if one != target), target)
    diffs = await asyncio.to_thread(text.compare, source, target) if source != target else []
    hunks = await asyncio.to_thread(lambda: [(one.path, *_lines(one.patch)) for one in diffs])
    name = clean_line(draft.thread_queries.workspaces()[workspace][0])
    context: dict[str, Any] = {
        "branches": branches,
        "source": source,
        "target": target,
        "hunks": hunks,
        "characters": characters.all(),
    }
    render_page = partial(page_response, request, "draft/compare.html", workspace=workspace, folder=name, here="/draft")
    return await asyncio.to_thread(render_page, **context)


@router.get("/threads/{thread}")
@open_to_guests(document_of_thread)
async def to_thread(draft: DraftDep, thread: str) -> Response:
    """Redirect to the document with the thread open."""
    draft_thread = draft.thread_queries.thread(f"room:{thread}")
    return RedirectResponse(_address(draft_thread), 303)


@router.get("/threads/{thread}/messages")
@open_to_guests(document_of_thread)
async def thread_fragment(draft: DraftDep, names: NamesDep, request: Request, thread: str) -> Response:
    draft_thread = draft.thread_queries.thread(f"room:{thread}")
    members = [(one.bot, names[one.bot], clean_line(one.brief)) for one in draft_thread.members]
    return fragment_response(
        "draft/thread.html",
        thread=draft_thread,
        said=thread_messages(draft, names, draft_thread),
        members=members,
        guest=guest_share(request) is not None,
    )


@router.get("/inbox")
async def inbox(draft: DraftDep, names: NamesDep, request: Request, who: CurrentPerson) -> Response:
    rows = []
    for notice in draft.notifications.of_person(who.id)[:200]:
        thread = draft.thread_queries.thread(notice.room)
        message = next(
            (one for one in thread_messages(draft, names, thread) if one.id == notice.message),
            None,
        )
        title = clean_line(thread.title)
        by, text = (message.name, excerpt(message.text, 200)) if message else (names[""], "")
        rows.append((notice, thread.id, title, by, text, message.at if message else None))
    return page_response(
        request, "draft/inbox.html", notices=rows, here="/draft", unread=any(not one[0].read for one in rows)
    )


def _known_characters(
    draft: DraftService, characters: Characters, sheet: LiveDocument, workspace: str
) -> list[Character]:
    known = {member.bot for member in draft.thread_queries.members(workspace, sheet.document, sheet.branch)}
    return [character for character in characters.all() if character.id in known]


async def _workspace_row(draft: DraftService, workspace: str) -> WorkspaceRow:
    name, where = draft.thread_queries.workspaces()[workspace]
    try:
        text = draft.workspaces.repository(workspace)
        branch = text.main_branch
        documents = await asyncio.to_thread(text.documents, branch)
    except DraftError as error:
        return WorkspaceRow(workspace, clean_line(name), str(where), "", [], error.what)
    waiting = [
        (path, clean_line(title), len(draft.proposal_queries.of_document(workspace, branch, path, "pending")))
        for path, title in documents
    ]
    return WorkspaceRow(workspace, clean_line(name), str(where), branch, waiting)


def _address(thread: Thread) -> str:
    branch = quote(thread.branch, safe="")
    return f"/draft/workspaces/{thread.workspace}/documents/{quote(thread.document)}?branch={branch}&thread={thread.id}"


def _commit_row(revision: Revision) -> CommitRow:
    return CommitRow(
        revision.id,
        clean_line(revision.author),
        clean_line(revision.subject),
        from_timestamp(revision.when),
        revision.thread,
        clean_line(revision.trailers.get("Proposed-by", "")),
    )


def _lines(patch: str) -> tuple[list[tuple[str, str]], int]:
    """The first lines of a patch without file headers, each with its mark, and how many more there are; `@` separates
    hunks."""
    body = patch[patch.find("\n@@") + 1 :].splitlines() if "\n@@" in patch else []
    lines = [line for line in body if not line.startswith("\\")]
    shown = [("@" if line.startswith("@@") else line[:1] or " ", line[1:]) for line in lines[:_MAX_DIFF_LINES]]
    return shown, max(len(lines) - _MAX_DIFF_LINES, 0)
