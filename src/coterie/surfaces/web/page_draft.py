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
from coterie.surfaces.web import draft_beside as beside
from coterie.surfaces.web.draft_person import Who
from coterie.surfaces.web.draft_telling import channel
from coterie.surfaces.web.guard import policy
from coterie.surfaces.web.house import Here, House
from coterie.surfaces.web.negotiation import Pages
from coterie.surfaces.web.paper import fragment, page, render
from coterie.surfaces.web.typeset import harmless, inline

router = Pages(prefix="/draft")
_ONE = "/workspaces/{workspace}"


@dataclass(frozen=True)
class Folder:
    """A workspace as the list shows it."""

    id: str
    name: str
    folder: str
    branch: str
    documents: list[tuple[str, str, int]]
    """Path, title, and how many proposals wait."""
    trouble: str = ""


@dataclass(frozen=True)
class Past:
    """A commit as history shows it."""

    id: str
    author: str
    subject: str
    when: datetime
    thread: str
    proposed_by: str


@router.get("")
async def drafts(house: Here, request: Request, who: Who) -> Response:
    folders = [await _folder(house, workspace) for workspace in house.draft.threads.workspaces()]
    unread = len(house.draft.inbox.of(who.id, unread=True))
    return page(request, "drafts.html", folders=folders, unread=unread, you=harmless(who.name))


@router.get(_ONE + "/documents/{path:path}")
async def document(
    house: Here, request: Request, who: Who, workspace: str, path: str, branch: str = "", thread: str = ""
) -> Response:
    at = house.feed.last_id()
    sheet = await house.draft.sheet(workspace, path, branch or None)
    branches = await asyncio.to_thread(house.draft.workspace(workspace).branches)
    waiting, decided = beside.cards(house, workspace, sheet.branch, path)
    nonce = secrets.token_urlsafe(16)
    shown = page(
        request,
        "document.html",
        workspace=workspace,
        folder=harmless(house.draft.threads.workspaces()[workspace][0]),
        sheet=sheet,
        title=harmless(house.draft.title(sheet)),
        branches=branches,
        waiting=waiting,
        decided=decided,
        bots=house.roster.bots(),
        thread=thread,
        at=at,
        channel=channel(workspace, sheet.branch, path),
        nonce=nonce,
        you=harmless(who.name),
        watching=who.id in house.draft.inbox.watchers(workspace, path),
        unread=len(house.draft.inbox.of(who.id, unread=True)),
        here="/draft",
    )
    # The editor makes its style sheet in the page; with a nonce that one may, and nothing else.
    shown.headers["Content-Security-Policy"] = policy(nonce)
    return shown


@router.get(_ONE + "/beside/{path:path}")
async def what_stands_beside(house: Here, workspace: str, path: str, branch: str, thread: str = "") -> Response:
    sheet = await house.draft.sheet_as_it_is(workspace, path, branch)
    waiting, decided = beside.cards(house, workspace, branch, path)
    listed = beside.threads(house, workspace, branch, path, sheet)
    told: dict[str, Any] = {
        "epoch": sheet.epoch,
        "version": sheet.settled,
        "marks": beside.marks(house, workspace, sheet),
        "anchors": beside.anchors(house, workspace, sheet),
        "waiting": len(waiting),
        "cards": render("draft_cards.html", waiting=waiting, decided=decided),
        "threads": render("draft_threads.html", threads=listed, chosen=thread),
    }
    return JSONResponse(told, headers={"Cache-Control": "no-store", "Vary": "Accept"})


@router.get(_ONE + "/past/{path:path}")
async def past(house: Here, workspace: str, path: str, branch: str) -> Response:
    text = house.draft.workspace(workspace)
    found = await asyncio.to_thread(text.history, branch, 200, path)
    return fragment("draft_past.html", past=[_past(one) for one in found])


@router.get(_ONE + "/compare")
async def compare(house: Here, request: Request, workspace: str, source: str = "", target: str = "") -> Response:
    text = house.draft.workspace(workspace)
    branches = await asyncio.to_thread(text.branches)
    target = target or text.main_branch
    source = source or next((one for one in branches if one != target), target)
    found = await asyncio.to_thread(text.compare, source, target) if source != target else []
    hunks = [(one.path, _lines(one.patch)) for one in found]
    name = harmless(house.draft.threads.workspaces()[workspace][0])
    told: dict[str, Any] = {
        "branches": branches,
        "source": source,
        "target": target,
        "hunks": hunks,
        "bots": house.roster.bots(),
    }
    return page(request, "compare.html", workspace=workspace, folder=name, here="/draft", **told)


@router.get("/threads/{thread}")
async def to_thread(house: Here, thread: str) -> Response:
    """Where a thread is shown: beside its document."""
    found = house.draft.threads.thread(f"room:{thread}")
    return RedirectResponse(_address(found), 303)


@router.get("/threads/{thread}/talk")
async def talk(house: Here, thread: str) -> Response:
    found = house.draft.threads.thread(f"room:{thread}")
    names = beside.Names(house)
    members = [(one.bot, names[one.bot], harmless(one.brief)) for one in found.members]
    return fragment("draft_talk.html", thread=found, said=beside.talk(house, found), members=members)


@router.get("/inbox")
async def inbox(house: Here, request: Request, who: Who) -> Response:
    names = beside.Names(house)
    told = []
    for notice in house.draft.inbox.of(who.id)[:200]:
        thread = house.draft.threads.thread(notice.room)
        message = next(
            (one for one in beside.talk(house, thread) if one.id == notice.message),
            None,
        )
        title = harmless(thread.title)
        by, text = (message.name, inline(message.text, 200)) if message else (names[""], "")
        told.append((notice, thread.id, title, by, text, message.at if message else None))
    return page(request, "inbox.html", notices=told, here="/draft", unread=any(not one[0].read for one in told))


async def _folder(house: House, workspace: str) -> Folder:
    name, where = house.draft.threads.workspaces()[workspace]
    try:
        text = house.draft.workspace(workspace)
        branch = text.main_branch
        found = await asyncio.to_thread(text.documents, branch)
    except DraftError as error:
        return Folder(workspace, harmless(name), str(where), "", [], error.what)
    waiting = [
        (path, harmless(title), len(house.draft.changes.of_document(workspace, branch, path, "pending")))
        for path, title in found
    ]
    return Folder(workspace, harmless(name), str(where), branch, waiting)


def _address(thread: Thread) -> str:
    branch = quote(thread.branch, safe="")
    return f"/draft/workspaces/{thread.workspace}/documents/{quote(thread.document)}?branch={branch}&thread={thread.id}"


def _past(revision: Revision) -> Past:
    return Past(
        revision.id,
        harmless(revision.author),
        harmless(revision.subject),
        beside.when(revision.when),
        revision.thread,
        harmless(revision.trailers.get("Proposed-by", "")),
    )


def _lines(patch: str) -> list[tuple[str, str]]:
    """A patch's lines without what Git says of files; hunks are parted by their place."""
    body = patch[patch.find("\n@@") + 1 :].splitlines() if "\n@@" in patch else []
    return [("@" if line.startswith("@@") else line[:1] or " ", line[1:]) for line in body if not line.startswith("\\")]
