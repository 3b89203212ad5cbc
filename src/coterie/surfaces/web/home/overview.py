"""What there is in each mode, the latest of it first: for a page that shows the whole house at once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from textwrap import shorten
from typing import Literal
from urllib.parse import quote

from coterie.base.redaction import redact
from coterie.characters import OWNER, VisitEnd
from coterie.conversation import Turn, TurnQueries
from coterie.llm import UsageQueries
from coterie.modes.crowd import CrowdRoom
from coterie.modes.desk import DeskChat, Process
from coterie.modes.draft import Contributor, DraftError, PendingDocument
from coterie.modes.story import Chat, ReadMarks
from coterie.surfaces.web.draft.pages import NameCache, from_timestamp, thread_messages
from coterie.surfaces.web.shared.dependencies import House
from coterie.surfaces.web.shared.labels import job_label
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
        thing
        for workspace in house.draft.thread_queries.workspaces()
        for thing in await _recent_documents(house, workspace)
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


async def _recent_documents(house: House, workspace: str) -> list[RecentItem]:
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


# What happened while somebody was away, and what waits for them: each as one line that leads to its place.
#
# What waits (an unread reply, a proposal, a question, somebody at the door, work that was given up) is told until it is
# dealt with. What only happened (money spent, what a crowd said) is told when it came after the last visit.


InboxPriority = Literal["asks", "told", "trouble", "aside"]
_ORDER: tuple[InboxPriority, ...] = ("asks", "told", "trouble", "aside")
_DETAIL_LENGTH = 160


@dataclass(frozen=True)
class InboxItem:
    weight: InboxPriority
    text: str
    href: str
    icon: str
    who: str = ""
    """A character's name: its mark stands for the icon."""
    where: str = ""
    detail: str = ""
    at: datetime | None = None
    count: int = 0


async def inbox_items(house: House, who: Contributor, since: VisitEnd | None) -> list[InboxItem]:
    """What asks for an answer first, then what was said, newest first, then what went wrong, then the rest."""
    told: list[InboxItem] = [*await _documents(house), *_threads(house, who)]
    if who.id == OWNER:
        told += [*_access_requests(house), *_desks(house, since), *_replies(house), *await _failed_jobs(house)]
    if since is not None:
        told += [*await _crowds(house, since), *_spent(house, since)]
    newest = sorted(told, key=lambda one: one.at.timestamp() if one.at else 0.0, reverse=True)
    return sorted(newest, key=lambda one: _ORDER.index(one.weight))


def _access_requests(house: House) -> Iterator[InboxItem]:
    for asking in house.people.open_pairing_requests():
        name = clean_line(asking.name) or clean_line(asking.account)
        yield InboxItem("asks", f"{name} asks for access", "/settings#people", "hand", where=clean_line(asking.surface))


def _desks(house: House, since: VisitEnd | None) -> Iterator[InboxItem]:
    names = NameCache(house)
    for chat in house.desk.queries.chats():
        name = names[chat.character]
        processes = house.desk.queries.status_processes(chat.room)
        yield from (_question(chat, name, each) for each in processes if each.state == "waiting")
        unread = ReadMarks(house.store).unread(chat.room)
        told = replies_beside_questions(house, chat.room, unread)
        finished = _finished(processes, _unseen_since(house, chat, unread, since))
        if told or finished:
            yield _from_the_desk(chat, name, told, finished)


def _unseen_since(house: House, chat: DeskChat, unread: int, since: VisitEnd | None) -> datetime | None:
    """From when on work is news: after the last words that were read; with nothing new said, after the last visit."""
    turns = TurnQueries(house.store).latest(chat.room, unread + 1)
    read = turns[0].at if turns else None
    if unread:
        return read
    return max(since.at, read or since.at) if since is not None else None


def _question(chat: DeskChat, name: str, process: Process) -> InboxItem:
    asks = "asks for your approval" if process.needs_confirmation else "asks a question"
    detail = shorten(clean_line(redact(process.result).replace("\n", " ")), _DETAIL_LENGTH, placeholder=" …")
    where = clean_line(chat.title)
    return InboxItem(
        "asks", f"{name} {asks}", _desk_address(chat), "circle-help", name, where, detail, process.last_activity
    )


def _finished(processes: Iterable[Process], since: datetime | None) -> list[Process]:
    if since is None:
        return []
    return [one for one in processes if one.kind == "worker" and one.ended is not None and one.ended > since]


def _from_the_desk(chat: DeskChat, name: str, told: list[Turn], finished: list[Process]) -> InboxItem:
    failed = [each for each in finished if each.state == "failed"]
    text = f"{name} has news"
    if failed:
        text = f"{name} could not finish {_things(len(failed))}"
    elif finished:
        text = f"{name} finished {_things(len(finished))}"
    detail, at = (told[-1].text, told[-1].at) if told else (redact(finished[-1].result), finished[-1].ended)
    where = clean_line(chat.title)
    return InboxItem(
        "told", text, _desk_address(chat), "lamp-desk", name, where, excerpt(detail, _DETAIL_LENGTH), at, len(told)
    )


def _things(count: int) -> str:
    return "some work" if count == 1 else f"{count} pieces of work"


def _desk_address(chat: DeskChat) -> str:
    return f"/desk/{chat.room.removeprefix('room:')}"


def _replies(house: House) -> Iterator[InboxItem]:
    for chat in house.story.chats.chats():
        unread = ReadMarks(house.store).unread(chat.room) if OWNER in chat.people else 0
        if unread and (latest := house.story.timeline.latest_reply(chat.room)):
            yield _reply(house, chat, latest, unread)


def _reply(house: House, chat: Chat, latest: Turn, unread: int) -> InboxItem:
    names = house.story.participants.names(chat)
    name = clean_line(house.story.participants.name(names, latest.speaker))
    detail = excerpt(latest.text, _DETAIL_LENGTH)
    href = f"/chats/{chat.id}"
    return InboxItem(
        "told", f"{name} answered", href, "book-open", name, clean_line(chat.title), detail, latest.at, count=unread
    )


async def _documents(house: House) -> list[InboxItem]:
    names = NameCache(house)
    folders = house.draft.thread_queries.workspaces()
    return [
        _proposed(
            one,
            await asyncio.to_thread(_title, house, one),
            [names[author] for author in one.authors],
            clean_line(folders[one.workspace][0]),
        )
        for one in house.draft.proposal_queries.pending_documents()
        if one.workspace in folders
    ]


def _title(house: House, one: PendingDocument) -> str:
    try:
        return clean_line(house.draft.workspaces.repository(one.workspace).read(one.document, one.branch).title)
    except DraftError:
        return clean_line(one.document)


def _proposed(one: PendingDocument, title: str, authors: list[str], folder: str) -> InboxItem:
    text = f"{' and '.join(authors)} left {proposals(one.count)} for {title}"
    href = document_url(one.workspace, one.document, one.branch)
    return InboxItem("asks", text, href, "file-text", authors[0], folder, at=one.latest)


def _threads(house: House, who: Contributor) -> Iterator[InboxItem]:
    """What was said where one wrote, or about what one watches; proposals are told of by themselves."""
    proposed = {(one.workspace, one.branch, one.document) for one in house.draft.proposal_queries.pending_documents()}
    seen: set[str] = set()
    for notice in house.draft.notifications.of_person(who.id, unread=True):
        thread = house.draft.thread_queries.thread(notice.room)
        if notice.room in seen or (thread.workspace, thread.branch, thread.document) in proposed:
            continue
        seen.add(notice.room)
        said = next((one for one in thread_messages(house, thread) if one.id == notice.message), None)
        if said is not None:
            yield InboxItem(
                weight="told",
                text=f"{said.name} answered",
                href=f"/draft/threads/{thread.id}",
                icon="file-text",
                who="" if said.by_person else said.name,
                where=clean_line(thread.title),
                detail=excerpt(said.text, _DETAIL_LENGTH),
                at=said.at,
            )


async def _failed_jobs(house: House) -> Iterator[InboxItem]:
    dead = await house.store.jobs.find(state="dead", limit=100)
    if not dead:
        return iter(())
    first = job_label(dead[0].kind)
    text = f"Failed: {clean_line(first)}" if len(dead) == 1 else f"{len(dead)} background jobs failed"
    detail = excerpt(redact(dead[0].error or ""), _DETAIL_LENGTH)
    return iter([InboxItem("trouble", text, "/ops", "triangle-alert", where="System status", detail=detail)])


async def _crowds(house: House, since: VisitEnd) -> list[InboxItem]:
    told = []
    for name in house.crowd.configs.rooms():
        room = await house.crowd.room(name)
        said = [one for one in room.gateway.latest(1_000) if one.ts > since.at.timestamp() * 1_000]
        if said:
            count = f"{len(said)} message{'' if len(said) == 1 else 's'}" if len(said) < 1_000 else "1,000 and more"
            text = f"{count} in {clean_line(room.rules.title)}"
            told.append(InboxItem("aside", text, f"/crowd/{name}", "radio"))
    return told


def _spent(house: House, since: VisitEnd) -> Iterator[InboxItem]:
    calls, usd = UsageQueries(house.store).total_since(since.event)
    if usd > 0:
        amount = f"${usd:.2f}" if usd >= 0.01 else "Less than a cent"
        text = f"{amount} spent on {calls} call{'' if calls == 1 else 's'} to models"
        yield InboxItem("aside", text, "/ops", "coins")
