"""What there is in each mode, the latest of it first: for a page that shows the whole house at once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import quote

from coterie.engine.turns import Timeline, Turn
from coterie.modes.crowd import OpenRoom
from coterie.modes.desk import DeskChat
from coterie.modes.draft import DraftError
from coterie.modes.story import Bookmarks, Chat
from coterie.surfaces.web.draft_beside import Names, when
from coterie.surfaces.web.house import House
from coterie.surfaces.web.typeset import harmless, inline

SHOWN = 4
_A_FEW = 10
_LONG_AGO = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True)
class Thing:
    """A chat, a document, a room: whatever can be opened."""

    title: str
    href: str
    who: str = ""
    """A character's name: the thing bears its accent."""
    at: datetime | None = None
    snippet: str = ""
    mark: str = ""
    """A word about how it stands."""
    unread: int = 0


@dataclass(frozen=True)
class Mode:
    label: str
    path: str
    icon: str
    teaches: str
    """One line, for whoever has nothing there yet."""
    begins: tuple[str, str]
    """How one begins: what the button says, and where it leads."""
    things: list[Thing] = field(default_factory=list)
    more: int = 0
    """How many there are beyond those shown."""


async def modes(house: House) -> list[Mode]:
    return [stories(house), await drafts(house), await crowds(house), desks(house)]


def stories(house: House) -> Mode:
    found = [_story(house, chat) for chat in house.story.chats.chats()]
    return _mode(
        Mode(
            "Stories",
            "/chats",
            "book-open",
            "A place, a clock, and somebody who remembers. Choose who, look over how it begins, and say something.",
            ("New chat", "/bots"),
        ),
        found,
    )


async def drafts(house: House) -> Mode:
    found = [thing for workspace in house.draft.threads.workspaces() for thing in await _documents(house, workspace)]
    return _mode(
        Mode(
            "Drafts",
            "/draft",
            "file-text",
            "A document, and somebody beside it who proposes. You accept with one key, and nothing is lost.",
            ("Begin a folder", "/draft"),
        ),
        found,
    )


async def crowds(house: House) -> Mode:
    opened = [await house.crowd.room(name) for name in house.crowd.roster.rooms()]
    found = [_room(room) for room in opened if room.gateway.door.number or room.state != "quiet"]
    return _mode(
        Mode(
            "Crowd",
            "/crowd",
            "radio",
            "A room full of regulars around a stream. Each of them decides alone whether to speak; you can join in.",
            ("Look in", "/crowd"),
        ),
        found,
    )


def desks(house: House) -> Mode:
    names = Names(house)
    found = [desk(house, chat, names[chat.character]) for chat in house.desk.book.chats()]
    return _mode(
        Mode(
            "Desk",
            "/desk",
            "lamp-desk",
            "Say what should be done. They work on it, talk while they work, and ask before anything is sent.",
            ("Give some work", "/desk"),
        ),
        found,
    )


def replies_beside_questions(house: House, room: str, many: int) -> list[Turn]:
    """The newest that was said at a desk, without what only asks for a worker's yes or no: that is shown as a question.

    A worker's question is told in the conversation with its id, so that it can be answered in words.
    """
    waiting = [one.id for one in house.desk.book.processes_of_note(room) if one.state == "waiting"]
    said = Timeline(house.store).latest(room, many) if many else []
    return [turn for turn in said if not any(one in turn.text for one in waiting)]


def desk(house: House, chat: DeskChat, name: str) -> Thing:
    said = replies_beside_questions(house, chat.room, _A_FEW)
    latest = said[-1] if said else None
    processes = [one for one in house.desk.book.processes_of_note(chat.room) if one.busy]
    asks = sum(one.state == "waiting" for one in processes)
    busy = len(processes) - asks
    return Thing(
        title=harmless(chat.title) or name,
        href=f"/desk/{chat.room.removeprefix('room:')}",
        who=name,
        at=latest.at if latest else None,
        snippet=inline(latest.text) if latest else "",
        mark="asks you" if asks else f"{busy} at work" if busy else "",
        unread=Bookmarks(house.store).unread(chat.room),
    )


def document_address(workspace: str, path: str, branch: str = "") -> str:
    on = f"?branch={quote(branch, safe='')}" if branch else ""
    return f"/draft/workspaces/{workspace}/documents/{quote(path)}{on}"


def _mode(mode: Mode, found: list[Thing]) -> Mode:
    newest = sorted(found, key=lambda thing: thing.at or _LONG_AGO, reverse=True)
    return Mode(**{**mode.__dict__, "things": newest[:SHOWN], "more": max(0, len(newest) - SHOWN)})


def _story(house: House, chat: Chat) -> Thing:
    latest = Timeline(house.store).last_said(chat.room)
    return Thing(
        title=harmless(chat.title),
        href=f"/chats/{chat.id}",
        who=harmless(house.story.prompter.names(chat)[chat.host]),
        at=latest.at if latest else None,
        snippet=inline(latest.text) if latest else "",
        mark="speaking" if house.story.replies.speaking(chat.room) else "",
        unread=Bookmarks(house.store).unread(chat.room),
    )


async def _documents(house: House, workspace: str) -> list[Thing]:
    name = harmless(house.draft.threads.workspaces()[workspace][0])
    try:
        text = house.draft.workspace(workspace)
        branch = text.main_branch
        found = await asyncio.to_thread(text.latest, branch, SHOWN)
    except DraftError:
        return []  # the list of folders says what is wrong with it
    waiting = [len(house.draft.changes.of_document(workspace, branch, one.path, "pending")) for one in found]
    return [
        Thing(
            title=harmless(one.title),
            href=document_address(workspace, one.path),
            at=when(one.when),
            snippet=f"{name} · {harmless(one.path)}",
            mark=proposals(count) if count else "",
        )
        for one, count in zip(found, waiting, strict=True)
    ]


def proposals(count: int) -> str:
    return "1 proposal" if count == 1 else f"{count} proposals"


def _room(room: OpenRoom) -> Thing:
    latest = room.gateway.latest(1)
    said = latest[0] if latest else None
    return Thing(
        title=harmless(room.rules.title),
        href=f"/crowd/{room.rules.name}",
        at=when(said.ts // 1_000) if said else None,
        snippet=f"{harmless(said.author.name)}: {inline(said.text)}" if said else "",
        mark={"live": "live", "waking": "waking up"}.get(room.state, ""),
    )
