"""Documents as people see them: the list, one document with what stands beside it, its past, branches, the inbox.

F1, F2, F9, F11, F12, F14. What changes anything goes through the API; these routes only show.
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote

from fastapi import Request, Response
from fastapi.responses import JSONResponse, RedirectResponse

from coterie.modes.draft import DraftError, Revision, Thread
from coterie.surfaces.web.draft import sidebar as beside
from coterie.surfaces.web.draft.live import channel_name
from coterie.surfaces.web.shared.dependencies import CurrentPerson, Here, House
from coterie.surfaces.web.shared.prose import clean_line, excerpt
from coterie.surfaces.web.shared.security import content_security_policy
from coterie.surfaces.web.shared.templates import PageRouter, fragment_response, page_response, render

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
    """Path, title, and how many proposals wait."""
    trouble: str = ""


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
async def drafts(house: Here, request: Request, who: CurrentPerson) -> Response:
    folders = [await _workspace_row(house, workspace) for workspace in house.draft.thread_queries.workspaces()]
    unread = len(house.draft.notifications.of_person(who.id, unread=True))
    return page_response(request, "draft/workspaces.html", folders=folders, unread=unread, you=clean_line(who.name))


@router.get(_ONE + "/documents/{path:path}")
async def document(
    house: Here, request: Request, who: CurrentPerson, workspace: str, path: str, branch: str = "", thread: str = ""
) -> Response:
    at = house.feed.last_id()
    sheet = await house.draft.documents.live_document(workspace, path, branch or None)
    branches = await asyncio.to_thread(house.draft.workspaces.repository(workspace).branches)
    waiting, decided = beside.proposal_cards(house, workspace, sheet.branch, path)
    nonce = secrets.token_urlsafe(16)
    shown = page_response(
        request,
        "draft/document.html",
        workspace=workspace,
        folder=clean_line(house.draft.thread_queries.workspaces()[workspace][0]),
        sheet=sheet,
        title=clean_line(sheet.title),
        branches=branches,
        waiting=waiting,
        decided=decided,
        bots=house.characters.all(),
        thread=thread,
        at=at,
        channel=channel_name(workspace, sheet.branch, path),
        nonce=nonce,
        you=clean_line(who.name),
        watching=who.id in house.draft.notifications.watchers(workspace, path),
        unread=len(house.draft.notifications.of_person(who.id, unread=True)),
        here="/draft",
    )
    # The editor makes its style sheet in the page; with a nonce that one may, and nothing else.
    shown.headers["Content-Security-Policy"] = content_security_policy(nonce)
    return shown


@router.get(_ONE + "/sidebar/{path:path}")
async def sidebar(house: Here, workspace: str, path: str, branch: str, thread: str = "") -> Response:
    sheet = await house.draft.documents.live_document_unsynced(workspace, path, branch)
    waiting, decided = beside.proposal_cards(house, workspace, branch, path)
    listed = beside.thread_rows(house, workspace, branch, path, sheet)
    told: dict[str, Any] = {
        "epoch": sheet.epoch,
        "version": sheet.saved_version,
        "marks": beside.proposal_marks(house, workspace, sheet),
        "anchors": beside.thread_anchors(house, workspace, sheet),
        "waiting": len(waiting),
        "cards": render("draft/proposals.html", waiting=waiting, decided=decided),
        "threads": render("draft/threads.html", threads=listed, chosen=thread),
    }
    return JSONResponse(told, headers={"Cache-Control": "no-store", "Vary": "Accept"})


@router.get(_ONE + "/history/{path:path}")
async def history_fragment(house: Here, workspace: str, path: str, branch: str) -> Response:
    text = house.draft.workspaces.repository(workspace)
    found = await asyncio.to_thread(text.history, branch, 200, path)
    return fragment_response("draft/history.html", past=[_commit_row(one) for one in found])


@router.get(_ONE + "/compare")
async def compare(house: Here, request: Request, workspace: str, source: str = "", target: str = "") -> Response:
    text = house.draft.workspaces.repository(workspace)
    branches = await asyncio.to_thread(text.branches)
    target = target or text.main_branch
    source = source or next((one for one in branches if one != target), target)
    found = await asyncio.to_thread(text.compare, source, target) if source != target else []
    hunks = [(one.path, _lines(one.patch)) for one in found]
    name = clean_line(house.draft.thread_queries.workspaces()[workspace][0])
    told: dict[str, Any] = {
        "branches": branches,
        "source": source,
        "target": target,
        "hunks": hunks,
        "bots": house.characters.all(),
    }
    return page_response(request, "draft/compare.html", workspace=workspace, folder=name, here="/draft", **told)


@router.get("/threads/{thread}")
async def to_thread(house: Here, thread: str) -> Response:
    """Where a thread is shown: beside its document."""
    found = house.draft.thread_queries.thread(f"room:{thread}")
    return RedirectResponse(_address(found), 303)


@router.get("/threads/{thread}/messages")
async def thread_fragment(house: Here, thread: str) -> Response:
    found = house.draft.thread_queries.thread(f"room:{thread}")
    names = beside.NameCache(house)
    members = [(one.bot, names[one.bot], clean_line(one.brief)) for one in found.members]
    return fragment_response(
        "draft/thread.html", thread=found, said=beside.thread_messages(house, found), members=members
    )


@router.get("/inbox")
async def inbox(house: Here, request: Request, who: CurrentPerson) -> Response:
    names = beside.NameCache(house)
    told = []
    for notice in house.draft.notifications.of_person(who.id)[:200]:
        thread = house.draft.thread_queries.thread(notice.room)
        message = next(
            (one for one in beside.thread_messages(house, thread) if one.id == notice.message),
            None,
        )
        title = clean_line(thread.title)
        by, text = (message.name, excerpt(message.text, 200)) if message else (names[""], "")
        told.append((notice, thread.id, title, by, text, message.at if message else None))
    return page_response(
        request, "draft/inbox.html", notices=told, here="/draft", unread=any(not one[0].read for one in told)
    )


async def _workspace_row(house: House, workspace: str) -> WorkspaceRow:
    name, where = house.draft.thread_queries.workspaces()[workspace]
    try:
        text = house.draft.workspaces.repository(workspace)
        branch = text.main_branch
        found = await asyncio.to_thread(text.documents, branch)
    except DraftError as error:
        return WorkspaceRow(workspace, clean_line(name), str(where), "", [], error.what)
    waiting = [
        (path, clean_line(title), len(house.draft.proposal_queries.of_document(workspace, branch, path, "pending")))
        for path, title in found
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
        beside.from_timestamp(revision.when),
        revision.thread,
        clean_line(revision.trailers.get("Proposed-by", "")),
    )


def _lines(patch: str) -> list[tuple[str, str]]:
    """A patch's lines without what Git says of files; hunks are parted by their place."""
    body = patch[patch.find("\n@@") + 1 :].splitlines() if "\n@@" in patch else []
    return [("@" if line.startswith("@@") else line[:1] or " ", line[1:]) for line in body if not line.startswith("\\")]
