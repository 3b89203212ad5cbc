"""What there is in each mode, the latest of it first: for a page that shows the whole house at once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import quote

from coterie.conversation.turns import Turn, TurnQueries
from coterie.modes.crowd import CrowdRoom
from coterie.modes.desk import DeskChat
from coterie.modes.draft import DraftError
from coterie.modes.story import Chat, ReadMarks
from coterie.surfaces.web.draft.sidebar import NameCache, from_timestamp
from coterie.surfaces.web.shared.dependencies import House
from coterie.surfaces.web.shared.prose import clean_line, excerpt

ITEMS_SHOWN = 4
_TURNS_READ = 10
_LONG_AGO = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True)
class RecentItem:
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
class ModeOverview:
    label: str
    path: str
    icon: str
    teaches: str
    """One line, for whoever has nothing there yet."""
    begins: tuple[str, str]
    """How one begins: what the button says, and where it leads."""
    things: list[RecentItem] = field(default_factory=list)
    more: int = 0
    """How many there are beyond those shown."""


async def mode_overviews(house: House) -> list[ModeOverview]:
    return [stories(house), await drafts(house), await crowds(house), desks(house)]


def stories(house: House) -> ModeOverview:
    found = [_story(house, chat) for chat in house.story.chats.chats()]
    return _mode(
        ModeOverview(
            "Stories",
            "/chats",
            "book-open",
            "Chat with a character that remembers, in a scene with a place and a clock.",
            ("New chat", "/characters"),
        ),
        found,
    )


async def drafts(house: House) -> ModeOverview:
    found = [
        thing for workspace in house.draft.thread_queries.workspaces() for thing in await _documents(house, workspace)
    ]
    return _mode(
        ModeOverview(
            "Drafts",
            "/draft",
            "file-text",
            "Write documents with a character that proposes changes. Accept them with one key.",
            ("New folder", "/draft"),
        ),
        found,
    )


async def crowds(house: House) -> ModeOverview:
    opened = [await house.crowd.room(name) for name in house.crowd.configs.rooms()]
    found = [_room(room) for room in opened if room.gateway.admission.last_number or room.state != "quiet"]
    return _mode(
        ModeOverview(
            "Crowd",
            "/crowd",
            "radio",
            "Chat rooms of AI viewers around a stream. You can join in.",
            ("Open rooms", "/crowd"),
        ),
        found,
    )


def desks(house: House) -> ModeOverview:
    names = NameCache(house)
    found = [desk_item(house, chat, names[chat.character]) for chat in house.desk.queries.chats()]
    return _mode(
        ModeOverview(
            "Desk",
            "/desk",
            "lamp-desk",
            "Give a character a task. It works in the background, reports, and asks before sending anything.",
            ("New task", "/desk"),
        ),
        found,
    )


def replies_beside_questions(house: House, room: str, many: int) -> list[Turn]:
    """The newest that was said at a desk, without what only asks for a worker's yes or no: that is shown as a question.

    A worker's question is told in the conversation with its id, so that it can be answered in words.
    """
    waiting = [one.id for one in house.desk.queries.status_processes(room) if one.state == "waiting"]
    said = TurnQueries(house.store).latest(room, many) if many else []
    return [turn for turn in said if not any(one in turn.text for one in waiting)]


def desk_item(house: House, chat: DeskChat, name: str) -> RecentItem:
    said = replies_beside_questions(house, chat.room, _TURNS_READ)
    latest = said[-1] if said else None
    processes = [one for one in house.desk.queries.status_processes(chat.room) if one.active]
    asks = sum(one.state == "waiting" for one in processes)
    busy = len(processes) - asks
    return RecentItem(
        title=clean_line(chat.title) or name,
        href=f"/desk/{chat.room.removeprefix('room:')}",
        who=name,
        at=latest.at if latest else None,
        snippet=excerpt(latest.text) if latest else "",
        mark="needs an answer" if asks else f"{busy} running" if busy else "",
        unread=ReadMarks(house.store).unread(chat.room),
    )


def document_url(workspace: str, path: str, branch: str = "") -> str:
    on = f"?branch={quote(branch, safe='')}" if branch else ""
    return f"/draft/workspaces/{workspace}/documents/{quote(path)}{on}"


def _mode(mode: ModeOverview, found: list[RecentItem]) -> ModeOverview:
    newest = sorted(found, key=lambda thing: thing.at or _LONG_AGO, reverse=True)
    return ModeOverview(**{**mode.__dict__, "things": newest[:ITEMS_SHOWN], "more": max(0, len(newest) - ITEMS_SHOWN)})


def _story(house: House, chat: Chat) -> RecentItem:
    latest = TurnQueries(house.store).last_with_text(chat.room)
    return RecentItem(
        title=clean_line(chat.title),
        href=f"/chats/{chat.id}",
        who=clean_line(house.story.participants.names(chat)[chat.host]),
        at=latest.at if latest else None,
        snippet=excerpt(latest.text) if latest else "",
        mark="speaking" if house.story.replies.is_running(chat.room) else "",
        unread=ReadMarks(house.store).unread(chat.room),
    )


async def _documents(house: House, workspace: str) -> list[RecentItem]:
    name = clean_line(house.draft.thread_queries.workspaces()[workspace][0])
    try:
        text = house.draft.workspaces.repository(workspace)
        branch = text.main_branch
        found = await asyncio.to_thread(text.recent, branch, ITEMS_SHOWN)
    except DraftError:
        return []  # the list of folders says what is wrong with it
    waiting = [len(house.draft.proposal_queries.of_document(workspace, branch, one.path, "pending")) for one in found]
    return [
        RecentItem(
            title=clean_line(one.title),
            href=document_url(workspace, one.path),
            at=from_timestamp(one.changed_at),
            snippet=f"{name} · {clean_line(one.path)}",
            mark=proposals(count) if count else "",
        )
        for one, count in zip(found, waiting, strict=True)
    ]


def proposals(count: int) -> str:
    return "1 proposal" if count == 1 else f"{count} proposals"


def _room(room: CrowdRoom) -> RecentItem:
    latest = room.gateway.latest(1)
    said = latest[0] if latest else None
    return RecentItem(
        title=clean_line(room.rules.title),
        href=f"/crowd/{room.rules.name}",
        at=from_timestamp(said.ts // 1_000) if said else None,
        snippet=f"{clean_line(said.author.name)}: {excerpt(said.text)}" if said else "",
        mark={"live": "live", "waking": "loading"}.get(room.state, ""),
    )
