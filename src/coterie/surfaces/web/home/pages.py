"""The home page, the about page and the style guide."""

from __future__ import annotations

import asyncio
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.resources import files
from textwrap import shorten
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Depends, Request, Response, status
from fastapi.responses import RedirectResponse

from coterie.base.redaction import redact
from coterie.characters import OWNER, People, VisitEnd, Workspaces
from coterie.conversation import Turn, TurnQueries
from coterie.eventstore import Store
from coterie.llm import BUNDLED_LICENCE, UsageQueries
from coterie.modes.crowd import CrowdRoom, CrowdService
from coterie.modes.desk import DeskChat, DeskService, Process
from coterie.modes.draft import Contributor, DraftError, DraftService, PendingDocument
from coterie.modes.story import Chat, ReadMarks, StoryService
from coterie.surfaces.web.characters.routes import portrait_url
from coterie.surfaces.web.draft.pages import from_timestamp, thread_messages
from coterie.surfaces.web.shared.access import CurrentPerson
from coterie.surfaces.web.shared.dependencies import (
    CharactersDep,
    CrowdDep,
    DeskDep,
    DraftDep,
    PeopleDep,
    StoreDep,
    StoryDep,
    Summary,
    VisitsDep,
    WorkspacesDep,
)
from coterie.surfaces.web.shared.labels import NameCache, NamesDep, job_label, reply_error, surface_label
from coterie.surfaces.web.shared.messages import N_, gettext, ngettext
from coterie.surfaces.web.shared.prose import clean_line, excerpt
from coterie.surfaces.web.shared.templates import page_response
from coterie.surfaces.web.story.live import Swipes, TurnView

# What the home page shows: the latest items of each mode, and the inbox.


ITEMS_SHOWN = 4
_TURNS_READ = 10
_LONG_AGO = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True)
class RecentItem:
    """A chat, document or room that can be opened."""

    title: str
    href: str
    who: str = ""
    """The character whose accent colour the item has."""
    at: datetime | None = None
    snippet: str = ""
    mark: str = ""
    """Its status."""
    unread: int = 0


@dataclass(frozen=True)
class ModeOverview:
    label: str
    path: str
    icon: str
    teaches: str
    """Shown while there are no items."""
    begins: tuple[str, str]
    """Label and address of the button that starts something new."""
    things: list[RecentItem] = field(default_factory=list)
    more: int = 0
    """Number of items that are not shown."""


class RecentActivity:
    """The most recently changed items of each mode."""

    def __init__(
        self,
        store: Store,
        story: StoryService,
        draft: DraftService,
        crowd: CrowdService,
        desk: DeskService,
        names: NameCache,
    ) -> None:
        self._store = store
        self._story = story
        self._draft = draft
        self._crowd = crowd
        self._desk = desk
        self._names = names

    async def modes(self) -> list[ModeOverview]:
        return [self.stories(), await self.drafts(), await self.crowds(), self.desks()]

    def stories(self) -> ModeOverview:
        items = [self._story_item(chat) for chat in self._story.chat_list.listed()]
        return _mode(
            ModeOverview(
                N_("Stories"),
                "/chats",
                "book-open",
                N_("Chat with a character that remembers, in a scene with a place and a clock."),
                (N_("New chat"), "/characters"),
            ),
            items,
        )

    async def drafts(self) -> ModeOverview:
        items = [
            thing
            for workspace in self._draft.thread_queries.workspaces()
            for thing in await self._recent_documents(workspace)
        ]
        return _mode(
            ModeOverview(
                N_("Drafts"),
                "/draft",
                "file-text",
                N_("Write documents with a character that proposes changes. Accept them with one key."),
                (N_("New folder"), "/draft"),
            ),
            items,
        )

    async def crowds(self) -> ModeOverview:
        opened = [await self._crowd.room(name) for name in self._crowd.configs.rooms()]
        items = [_room(room) for room in opened if room.gateway.admission.last_number or room.state != "quiet"]
        return _mode(
            ModeOverview(
                N_("Crowd"),
                "/crowd",
                "radio",
                N_("Chat rooms of AI viewers around a stream. You can join in."),
                (N_("Open rooms"), "/crowd"),
            ),
            items,
        )

    def desks(self) -> ModeOverview:
        names = self._names
        items = [desk_item(self._store, self._desk, chat, names[chat.character]) for chat in self._desk.queries.chats()]
        return _mode(
            ModeOverview(
                N_("Desk"),
                "/desk",
                "lamp-desk",
                N_("Give a character a task. It works in the background, reports, and asks before sending anything."),
                (N_("New task"), "/desk"),
            ),
            items,
        )

    def _story_item(self, chat: Chat) -> RecentItem:
        latest = TurnQueries(self._store).last_with_text(chat.room)
        return RecentItem(
            title=clean_line(chat.title),
            href=f"/chats/{chat.id}",
            who=clean_line(self._story.participants.names(chat)[chat.host]),
            at=latest.at if latest else None,
            snippet=excerpt(latest.text) if latest else "",
            mark=gettext("speaking") if self._story.replies.is_running(chat.room) else "",
            unread=ReadMarks(self._store).unread(chat.room),
        )

    async def _recent_documents(self, workspace: str) -> list[RecentItem]:
        name = clean_line(self._draft.thread_queries.workspaces()[workspace][0])
        try:
            text = self._draft.workspaces.repository(workspace)
            branch = text.main_branch
            documents = await asyncio.to_thread(text.recent, branch, ITEMS_SHOWN)
        except DraftError:
            return []  # the list of workspaces shows the error
        waiting = [
            len(self._draft.proposal_queries.of_document(workspace, branch, one.path, "pending")) for one in documents
        ]
        return [
            RecentItem(
                title=clean_line(one.title),
                href=document_url(workspace, one.path),
                at=from_timestamp(one.changed_at),
                snippet=f"{name} · {clean_line(one.path)}",
                mark=proposals(count) if count else "",
            )
            for one, count in zip(documents, waiting, strict=True)
        ]


def turns_without_questions(store: Store, desk: DeskService, room: str, many: int) -> list[Turn]:
    """The newest turns of a desk conversation, without the questions of waiting workers, which are listed separately.

    Such a turn contains the worker's id, by which the person answers.
    """
    waiting = [one.id for one in desk.queries.status_processes(room) if one.state == "waiting"]
    turns = TurnQueries(store).latest(room, many) if many else []
    return [turn for turn in turns if not any(one in turn.text for one in waiting)]


def desk_item(store: Store, desk: DeskService, chat: DeskChat, name: str) -> RecentItem:
    turns = turns_without_questions(store, desk, chat.room, _TURNS_READ)
    latest = turns[-1] if turns else None
    processes = [one for one in desk.queries.status_processes(chat.room) if one.active]
    asks = sum(one.state == "waiting" for one in processes)
    busy = len(processes) - asks
    mark = ngettext("%(count)s running", "%(count)s running", busy) if busy else ""
    if asks:
        mark = gettext("needs an answer")
    return RecentItem(
        title=clean_line(chat.title) or name,
        href=f"/desk/{chat.room.removeprefix('room:')}",
        who=name,
        at=latest.at if latest else None,
        snippet=excerpt(latest.text) if latest else "",
        mark=mark,
        unread=ReadMarks(store).unread(chat.room),
    )


def document_url(workspace: str, path: str, branch: str = "") -> str:
    on = f"?branch={quote(branch, safe='')}" if branch else ""
    return f"/draft/workspaces/{workspace}/documents/{quote(path)}{on}"


def _mode(mode: ModeOverview, items: list[RecentItem]) -> ModeOverview:
    newest = sorted(items, key=lambda thing: thing.at or _LONG_AGO, reverse=True)
    return ModeOverview(**{**mode.__dict__, "things": newest[:ITEMS_SHOWN], "more": max(0, len(newest) - ITEMS_SHOWN)})


def proposals(count: int) -> str:
    return ngettext("%(count)s proposal", "%(count)s proposals", count)


def _room(room: CrowdRoom) -> RecentItem:
    latest = room.gateway.latest(1)
    message = latest[0] if latest else None
    return RecentItem(
        title=clean_line(room.rules.title),
        href=f"/crowd/{room.rules.name}",
        at=from_timestamp(message.ts // 1_000) if message else None,
        snippet=f"{clean_line(message.author.name)}: {excerpt(message.text)}" if message else "",
        mark={"live": "live", "waking": "loading"}.get(room.state, ""),
    )


# The inbox. What needs attention (unread replies, proposals, questions, access requests, failed jobs) is listed until
# it is dealt with; what only happened (spending, crowd messages) if it came after the last visit.


InboxPriority = Literal["question", "reply", "failure", "info"]
_ORDER: tuple[InboxPriority, ...] = ("question", "reply", "failure", "info")
_DETAIL_LENGTH = 160


@dataclass(frozen=True)
class InboxItem:
    priority: InboxPriority
    text: str
    href: str
    icon: str
    who: str = ""
    """The character whose portrait replaces the icon."""
    where: str = ""
    detail: str = ""
    at: datetime | None = None
    count: int = 0


class InboxOverview:
    """What happened while a person was away, and what waits for their answer."""

    def __init__(
        self,
        store: Store,
        people: People,
        story: StoryService,
        draft: DraftService,
        crowd: CrowdService,
        desk: DeskService,
        names: NameCache,
    ) -> None:
        self._store = store
        self._people = people
        self._story = story
        self._draft = draft
        self._crowd = crowd
        self._desk = desk
        self._names = names

    async def items(self, who: Contributor, since: VisitEnd | None) -> list[InboxItem]:
        """By priority: questions, replies, failures, information; newest first within each."""
        items: list[InboxItem] = [*await self._documents(), *self._threads(who)]
        if who.id == OWNER:
            items += [*self._access_requests(), *self._desks(since), *self._replies(), *await self._failed_jobs()]
        if since is not None:
            items += [*await self._crowds(since), *self._spent(since)]
        newest = sorted(items, key=lambda one: one.at.timestamp() if one.at else 0.0, reverse=True)
        return sorted(newest, key=lambda one: _ORDER.index(one.priority))

    def _access_requests(self) -> Iterator[InboxItem]:
        for asking in self._people.open_pairing_requests():
            name = clean_line(asking.name) or clean_line(asking.account)
            yield InboxItem(
                "question",
                gettext("%(name)s asks for access", name=name),
                "/settings#people",
                "hand",
                where=surface_label(asking.surface),
            )

    def _desks(self, since: VisitEnd | None) -> Iterator[InboxItem]:
        names = self._names
        for chat in self._desk.queries.chats():
            name = names[chat.character]
            processes = self._desk.queries.status_processes(chat.room)
            yield from (_question(chat, name, each) for each in processes if each.state == "waiting")
            unread = ReadMarks(self._store).unread(chat.room)
            turns = turns_without_questions(self._store, self._desk, chat.room, unread)
            finished = _finished(processes, self._unseen_since(chat, unread, since))
            if turns or finished:
                yield _desk_result(chat, name, turns, finished)

    def _unseen_since(self, chat: DeskChat, unread: int, since: VisitEnd | None) -> datetime | None:
        """Work that ended later is shown: after the last read turn, or with nothing unread, after the last visit."""
        turns = TurnQueries(self._store).latest(chat.room, unread + 1)
        read = turns[0].at if turns else None
        if unread:
            return read
        return max(since.at, read or since.at) if since is not None else None

    def _replies(self) -> Iterator[InboxItem]:
        for chat in self._story.chat_list.listed():
            unread = ReadMarks(self._store).unread(chat.room) if OWNER in chat.people else 0
            if unread and (latest := self._story.timeline.latest_reply(chat.room)):
                yield self._reply(chat, latest, unread)

    def _reply(self, chat: Chat, latest: Turn, unread: int) -> InboxItem:
        names = self._story.participants.names(chat)
        name = clean_line(self._story.participants.name(names, latest.speaker))
        detail = excerpt(latest.text, _DETAIL_LENGTH)
        href = f"/chats/{chat.id}"
        return InboxItem(
            "reply",
            gettext("%(name)s answered", name=name),
            href,
            "book-open",
            name,
            clean_line(chat.title),
            detail,
            latest.at,
            count=unread,
        )

    async def _documents(self) -> list[InboxItem]:
        names = self._names
        folders = self._draft.thread_queries.workspaces()
        return [
            _proposed(
                one,
                await asyncio.to_thread(self._title, one),
                [names[author] for author in one.authors],
                clean_line(folders[one.workspace][0]),
            )
            for one in self._draft.proposal_queries.pending_documents()
            if one.workspace in folders
        ]

    def _title(self, one: PendingDocument) -> str:
        try:
            repository = self._draft.workspaces.repository(one.workspace)
            return clean_line(repository.read(one.document, one.branch).title)
        except DraftError:
            return clean_line(one.document)

    def _threads(self, who: Contributor) -> Iterator[InboxItem]:
        """Unread notifications, one per thread; documents with pending proposals are listed separately."""
        proposed = {
            (one.workspace, one.branch, one.document) for one in self._draft.proposal_queries.pending_documents()
        }
        seen: set[str] = set()
        for notice in self._draft.notifications.of_person(who.id, unread=True):
            thread = self._draft.thread_queries.thread(notice.room)
            if notice.room in seen or (thread.workspace, thread.branch, thread.document) in proposed:
                continue
            seen.add(notice.room)
            message = next(
                (one for one in thread_messages(self._draft, self._names, thread) if one.id == notice.message), None
            )
            if message is not None:
                yield InboxItem(
                    priority="reply",
                    text=gettext("%(name)s answered", name=message.name),
                    href=f"/draft/threads/{thread.id}",
                    icon="file-text",
                    who="" if message.by_person else message.name,
                    where=clean_line(thread.title),
                    detail=excerpt(message.text, _DETAIL_LENGTH),
                    at=message.at,
                )

    async def _failed_jobs(self) -> Iterator[InboxItem]:
        dead = await self._store.jobs.find(state="dead", limit=100)
        if not dead:
            return iter(())
        first = job_label(dead[0].kind)
        if len(dead) == 1:
            text = gettext("Failed: %(job)s", job=clean_line(first))
        else:
            text = ngettext("%(count)s background jobs failed", "%(count)s background jobs failed", len(dead))
        detail = excerpt(redact(dead[0].error or ""), _DETAIL_LENGTH)
        where = gettext("Status & costs")
        return iter([InboxItem("failure", text, "/ops", "triangle-alert", where=where, detail=detail)])

    async def _crowds(self, since: VisitEnd) -> list[InboxItem]:
        items = []
        for name in self._crowd.configs.rooms():
            room = await self._crowd.room(name)
            messages = [one for one in room.gateway.latest(1_000) if one.ts > since.at.timestamp() * 1_000]
            if messages:
                title = clean_line(room.rules.title)
                if len(messages) < 1_000:
                    text = ngettext(
                        "%(count)s message in %(room)s", "%(count)s messages in %(room)s", len(messages), room=title
                    )
                else:
                    text = gettext("1,000 and more in %(room)s", room=title)
                items.append(InboxItem("info", text, f"/crowd/{name}", "radio"))
        return items

    def _spent(self, since: VisitEnd) -> Iterator[InboxItem]:
        calls, usd = UsageQueries(self._store).total_since(since.event)
        if usd > 0:
            amount = f"${usd:.2f}" if usd >= 0.01 else gettext("Less than a cent")
            text = ngettext(
                "%(amount)s spent on %(count)s call to models",
                "%(amount)s spent on %(count)s calls to models",
                calls,
                amount=amount,
            )
            yield InboxItem("info", text, "/ops", "coins")


def _question(chat: DeskChat, name: str, process: Process) -> InboxItem:
    if process.needs_confirmation:
        text = gettext("%(name)s asks for your approval", name=name)
    else:
        text = gettext("%(name)s asks a question", name=name)
    detail = shorten(clean_line(redact(process.result).replace("\n", " ")), _DETAIL_LENGTH, placeholder=" …")
    where = clean_line(chat.title)
    return InboxItem("question", text, _desk_address(chat), "circle-help", name, where, detail, process.last_activity)


def _finished(processes: Iterable[Process], since: datetime | None) -> list[Process]:
    if since is None:
        return []
    return [one for one in processes if one.kind == "worker" and one.ended is not None and one.ended > since]


def _desk_result(chat: DeskChat, name: str, turns: list[Turn], finished: list[Process]) -> InboxItem:
    failed = [each for each in finished if each.state == "failed"]
    text = gettext("%(name)s replied", name=name)
    if failed:
        text = (
            gettext("%(name)s could not finish some work", name=name)
            if len(failed) == 1
            else ngettext(
                "%(name)s could not finish %(count)s pieces of work",
                "%(name)s could not finish %(count)s pieces of work",
                len(failed),
                name=name,
            )
        )
    elif finished:
        text = (
            gettext("%(name)s finished some work", name=name)
            if len(finished) == 1
            else ngettext(
                "%(name)s finished %(count)s pieces of work",
                "%(name)s finished %(count)s pieces of work",
                len(finished),
                name=name,
            )
        )
    detail, at = (turns[-1].text, turns[-1].at) if turns else (redact(finished[-1].result), finished[-1].ended)
    where = clean_line(chat.title)
    return InboxItem(
        "reply", text, _desk_address(chat), "lamp-desk", name, where, excerpt(detail, _DETAIL_LENGTH), at, len(turns)
    )


def _desk_address(chat: DeskChat) -> str:
    return f"/desk/{chat.room.removeprefix('room:')}"


def _proposed(one: PendingDocument, title: str, authors: list[str], folder: str) -> InboxItem:
    text = ngettext(
        "%(names)s left %(count)s proposal for %(title)s",
        "%(names)s left %(count)s proposals for %(title)s",
        one.count,
        names=gettext(" and ").join(authors),
        title=title,
    )
    href = document_url(one.workspace, one.document, one.branch)
    return InboxItem("question", text, href, "file-text", authors[0], folder, at=one.latest)


async def _inbox(
    store: StoreDep,
    people: PeopleDep,
    story: StoryDep,
    draft: DraftDep,
    crowd: CrowdDep,
    desk: DeskDep,
    names: NamesDep,
) -> InboxOverview:
    return InboxOverview(store, people, story, draft, crowd, desk, names)


async def _recent_activity(
    store: StoreDep, story: StoryDep, draft: DraftDep, crowd: CrowdDep, desk: DeskDep, names: NamesDep
) -> RecentActivity:
    return RecentActivity(store, story, draft, crowd, desk, names)


InboxDep = Annotated[InboxOverview, Depends(_inbox)]
RecentActivityDep = Annotated[RecentActivity, Depends(_recent_activity)]


router = APIRouter(include_in_schema=False)
_FACES = 12


@dataclass(frozen=True)
class CharacterLink:
    id: str
    name: str
    portrait: str


@router.head("/")
@router.get("/")
async def home(
    characters: CharactersDep,
    visits: VisitsDep,
    workspaces: WorkspacesDep,
    inbox: InboxDep,
    recent: RecentActivityDep,
    request: Request,
    who: CurrentPerson,
) -> Response:
    """A new owner is sent to the profile first, then to the first character."""
    if not characters.has_owner_profile():
        return RedirectResponse("/settings", status.HTTP_303_SEE_OTHER)
    known = characters.all()
    if not known:
        return RedirectResponse("/characters/new", status.HTTP_303_SEE_OTHER)
    since = visits.previous_visit_end(who.id)
    return page_response(
        request,
        "home/home.html",
        you=clean_line(who.name),
        since=since,
        inbox=await inbox.items(who, since),
        modes=await recent.modes(),
        faces=[_character_link(workspaces, character.id, character.name) for character in known[:_FACES]],
        others=max(0, len(known) - _FACES),
    )


def _character_link(workspaces: Workspaces, character_id: str, name: str) -> CharacterLink:
    return CharacterLink(character_id, clean_line(name), portrait_url(workspaces, character_id))


# Sample data for the style guide: every state of a component once.


_OPENING = (
    "*The lamp turns once, and the rain shows for a moment like a curtain of wire.*\n\n"
    '"You came up all those stairs without a light," Maren says. "That was brave, or it was foolish."\n\n'
    "> The sea keeps no diary. That is what the keeper is for."
)


def styleguide_samples() -> dict[str, Any]:
    turns = [
        TurnView(
            "sample-1",
            1,
            "Maren",
            _OPENING,
            by_person=False,
            state="done",
            swipes=Swipes(("a", "sample-1"), "sample-1"),
        ),
        TurnView(
            "sample-2",
            2,
            "You",
            '*shakes off the rain* "A bit of both." ((keep it slow))',
            by_person=True,
            state="done",
        ),
        TurnView("sample-3", 3, "Teodor", "He looks up from the", by_person=False, state="open"),
        TurnView(
            "sample-4",
            4,
            "Io",
            "Before the second bell",
            by_person=False,
            state="truncated",
            error=reply_error("The model is limiting how often it may be asked. Wait a little.", 429),
        ),
    ]
    return {
        "turns": turns,
        "moment": datetime(2026, 6, 1, 21, 40, tzinfo=UTC),
        "parts": [("identity", 820, "must"), ("last turns", 1900, "must"), ("edges", 310, "should"),
                  ("memories", 640, "should"), ("older dialogue", 1450, "nice")],
        "spend": [0.02, 0.05, 0.01, 0.0, 0.08, 0.11, 0.04, 0.06, 0.02, 0.09, 0.13, 0.07],
        "drift": [12, 14, 13, 18, 17, 21, 19, 24, 23, 22, 26],
        "changes": [(" ", "Keeps a lighthouse."), ("-", "Says little."), ("+", "Says little, and means it.")],
    }  # fmt: skip


# About and style guide


about_router = APIRouter(include_in_schema=False)


@about_router.head("/about")
@about_router.get("/about")
async def about(summary: Summary, request: Request) -> Response:
    vendored = tomllib.loads(files("coterie.surfaces.web").joinpath("vendor.toml").read_text(encoding="utf-8"))
    return page_response(request, "home/about.html", rows=summary(), vendored=vendored, demo_model=BUNDLED_LICENCE)


@about_router.get("/styleguide")
async def styleguide(request: Request) -> Response:
    return page_response(request, "home/styleguide.html", **styleguide_samples())
