"""How a character was before: every version of it, and what each one changed. S1"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from textwrap import shorten
from typing import Annotated

from fastapi import Depends, Request, Response

from coterie.base.errors import CoterieError
from coterie.base.redaction import redact
from coterie.characters import STARTER_NAMES, Character, Characters, Identity, starter_character, starter_summary
from coterie.conversation import TurnQueries
from coterie.eventstore import Store
from coterie.memory import Memory
from coterie.modes.crowd import CrowdService, character_id
from coterie.modes.desk import DeskService
from coterie.modes.draft import DraftService, Thread
from coterie.modes.story import Chat, Opening, OpeningProposal, ReadMarks, StoryService
from coterie.surfaces.web.characters.routes import portrait_url
from coterie.surfaces.web.crowd.pages import MemberView, member_view
from coterie.surfaces.web.home.overview import RecentItem, desk_item
from coterie.surfaces.web.shared.dependencies import (
    CharactersDep,
    CrowdDep,
    DeskDep,
    DraftDep,
    MemoryDep,
    StoreDep,
    StoryDep,
    WorkspacesDep,
)
from coterie.surfaces.web.shared.prose import clean_line, excerpt
from coterie.surfaces.web.shared.templates import PageRouter, fragment_response, page_response

# Where a character is to be found: its stories, the threads it writes in, its crowds, its desks, its memory.


_REMEMBERED = 6


@dataclass(frozen=True)
class StoryActivity:
    """A story it is in."""

    id: str
    title: str
    turns: int
    snippet: str
    others: list[str]
    at: datetime | None
    unread: int


@dataclass(frozen=True)
class ThreadActivity:
    """A thread it answers in, beside a document."""

    id: str
    title: str
    document: str
    folder: str
    at: datetime | None
    waiting: int


@dataclass(frozen=True)
class CrowdActivity:
    """A room of the crowd where it is a regular."""

    name: str
    title: str
    live: bool
    regular: MemberView


@dataclass(frozen=True)
class DeskActivity:
    """A conversation at the desk, and what is being done in it."""

    desk: RecentItem
    running: list[tuple[str, str]]
    """Each task, and how it stands."""


@dataclass(frozen=True)
class CharacterActivity:
    stories: list[StoryActivity]
    drafts: list[ThreadActivity]
    crowds: list[CrowdActivity]
    seats: list[tuple[str, str]]
    """Rooms in which it could sit, by name and title."""
    desks: list[DeskActivity]
    memories: int
    remembered: list[str]
    """What it took to mind last."""

    @property
    def places(self) -> int:
        return len(self.stories) + len(self.drafts) + len(self.crowds) + len(self.desks)


class ActivityQueries:
    """Where a character takes part: stories, threads, crowd rooms, desk conversations, memories."""

    def __init__(
        self,
        store: Store,
        characters: Characters,
        memory: Memory,
        story: StoryService,
        draft: DraftService,
        crowd: CrowdService,
        desk: DeskService,
    ) -> None:
        self._store = store
        self._characters = characters
        self._memory = memory
        self._story = story
        self._draft = draft
        self._crowd = crowd
        self._desk = desk

    async def of(self, bot: str) -> CharacterActivity:
        crowds = await self._attended(bot)
        there = {one.name for one in crowds}
        rooms = self._crowd.configs.rooms().values()
        return CharacterActivity(
            stories=[self._played(bot, chat) for chat in self._story.chats.chats() if bot in chat.characters],
            drafts=[self._written(bot, thread) for thread in self._draft.thread_queries.of_character(bot)],
            crowds=crowds,
            seats=[(room.name, clean_line(room.title)) for room in rooms if room.name not in there],
            desks=self._worked(bot),
            memories=self._memory.count(bot),
            remembered=[excerpt(one.text, 240) for one in self._memory.page(owner=bot, limit=_REMEMBERED)],
        )

    def _played(self, bot: str, chat: Chat) -> StoryActivity:
        names = self._story.participants.names(chat)
        latest = self._story.timeline.last_with_text(chat.room)
        return StoryActivity(
            id=chat.id,
            title=clean_line(chat.title),
            turns=self._story.timeline.count(chat.room),
            snippet=excerpt(latest.text) if latest else "",
            others=[clean_line(names[other]) for other in chat.characters if other != bot],
            at=latest.at if latest else None,
            unread=ReadMarks(self._store).unread(chat.room),
        )

    def _written(self, bot: str, thread: Thread) -> ThreadActivity:
        folder = self._draft.thread_queries.workspaces().get(thread.workspace)
        latest = TurnQueries(self._store).last_with_text(thread.room)
        pending = [one for one in self._draft.proposal_queries.of_thread(thread.room) if one.state == "pending"]
        return ThreadActivity(
            id=thread.id,
            title=clean_line(thread.title) or clean_line(thread.document),
            document=clean_line(thread.document),
            folder=clean_line(folder[0]) if folder else "",
            at=latest.at if latest else None,
            waiting=sum(one.author == bot for one in pending),
        )

    async def _attended(self, bot: str) -> list[CrowdActivity]:
        roster = self._crowd.configs
        names = {name for name, persona in roster.personas().items() if character_id(persona) == bot}
        found = []
        for room in roster.rooms().values():
            persona = next((one for one in roster.personas_in(room) if one.name in names), None)
            if persona is not None:
                opened = await self._crowd.room(room.name)
                title = clean_line(room.title)
                found.append(CrowdActivity(room.name, title, opened.state == "live", member_view(opened, persona)))
        return found

    def _worked(self, bot: str) -> list[DeskActivity]:
        name = clean_line(self._characters.get(bot).name)
        found = []
        for chat in self._desk.queries.chats():
            if chat.character == bot:
                busy = [one for one in self._desk.queries.status_processes(chat.room) if one.active]
                running = [(excerpt(redact(one.task)), clean_line(one.status) or one.state) for one in busy]
                found.append(DeskActivity(desk_item(self._store, self._desk, chat, name), running))
        return found


FIELDS = {
    "name": "Name",
    "persona": "Persona",
    "traits": "Traits",
    "backstory": "Backstory",
    "initial_relationship": "How you know each other",
    "voice_samples": "Voice samples",
    "kickoff": "Opening prose",
}


@dataclass(frozen=True)
class FieldChange:
    label: str
    lines: list[tuple[str, str]]
    """With the mark `+`, `-` or a space."""


@dataclass(frozen=True)
class CharacterVersion:
    number: int
    identity: Identity
    written: datetime | None
    changes: list[FieldChange]
    """Against the version before; of the first there are none."""


def version_history(bots: Sequence[Character], written: Mapping[int, datetime]) -> list[CharacterVersion]:
    """Newest first."""
    made = []
    before: Identity | None = None
    for bot in bots:
        changes = _changes(before, bot.identity) if before is not None else []
        made.append(CharacterVersion(bot.version, bot.identity, written.get(bot.version), changes))
        before = bot.identity
    return made[::-1]


def _changes(before: Identity, after: Identity) -> list[FieldChange]:
    found = []
    for name, label in FIELDS.items():
        old, new = _lines(getattr(before, name)), _lines(getattr(after, name))
        if old != new:
            # Lines that only hint where in a line something changed are for terminals.
            marked = [line for line in difflib.ndiff(old, new) if not line.startswith("?")]
            found.append(FieldChange(label, [(line[0], line[2:]) for line in marked]))
    return found


def _lines(value: str | list[str]) -> list[str]:
    return value.splitlines() if isinstance(value, str) else [line for item in value for line in item.splitlines()]


# The characters: who there is, who they are, how they are written, and how a chat with one begins. S1, S7–S10, S25


async def _activity_queries(
    store: StoreDep,
    characters: CharactersDep,
    memory: MemoryDep,
    story: StoryDep,
    draft: DraftDep,
    crowd: CrowdDep,
    desk: DeskDep,
) -> ActivityQueries:
    return ActivityQueries(store, characters, memory, story, draft, crowd, desk)


ActivityDep = Annotated[ActivityQueries, Depends(_activity_queries)]


router = PageRouter(prefix="/characters")
_SNIPPET = 120


@dataclass(frozen=True)
class CharacterCard:
    """A character as the gallery shows it."""

    id: str
    name: str
    line: str
    portrait: str
    chats: int


@router.get("")
async def gallery(characters: CharactersDep, story: StoryDep, workspaces: WorkspacesDep, request: Request) -> Response:
    chats = Counter(bot for chat in story.chats.chats() for bot in chat.characters)
    bots = [
        CharacterCard(
            bot.id, bot.name, one_line_description(bot.identity), portrait_url(workspaces, bot.id), chats[bot.id]
        )
        for bot in characters.all()
    ]
    return page_response(request, "characters/characters.html", bots=bots, ready=_ready())


@router.get("/new")
async def new(characters: CharactersDep, request: Request) -> Response:
    first = not characters.all()
    return page_response(request, "characters/new.html", ready=_ready(), first=first, identity=None)


@router.get("/{bot}")
async def show(
    characters: CharactersDep, workspaces: WorkspacesDep, activity: ActivityDep, request: Request, bot: str
) -> Response:
    found = characters.get(bot)
    told = version_history(characters.versions(bot), characters.version_dates(bot))
    return page_response(
        request,
        "characters/character.html",
        bot=found,
        portrait=portrait_url(workspaces, bot),
        versions=told,
        where=await activity.of(bot),
    )


@router.get("/{bot}/edit")
async def edit(characters: CharactersDep, request: Request, bot: str) -> Response:
    found = characters.get(bot)
    return page_response(request, "characters/edit.html", bot=found, identity=found.identity)


@router.get("/{bot}/kickoff")
async def kickoff(characters: CharactersDep, workspaces: WorkspacesDep, request: Request, bot: str) -> Response:
    """The page is there at once; what the classifier reads from the prose comes into it when it is ready."""
    return page_response(
        request, "characters/opening.html", bot=characters.get(bot), portrait=portrait_url(workspaces, bot)
    )


@router.get("/{bot}/kickoff/form")
async def kickoff_form(characters: CharactersDep, story: StoryDep, bot: str, empty: bool = False) -> Response:
    found = characters.get(bot)
    proposal = _by_hand(found) if empty else await _proposal(story, found)
    told = proposal.opening
    starts = f"{told.start_time(datetime.now(UTC)):%Y-%m-%dT%H:%M}" if told.time else ""
    return fragment_response(
        "characters/opening_form.html",
        bot=found,
        you=characters.owner(),
        opening=told,
        notice=proposal.notice,
        starts=starts,
    )


async def _proposal(story: StoryService, bot: Character) -> OpeningProposal:
    """S8: whatever goes wrong, there is a form."""
    try:
        return await story.propose_opening(bot.id)
    except CoterieError as error:
        empty = _by_hand(bot)
        return empty.model_copy(update={"notice": f"{error.what} Fill in what you like by hand."})


def _by_hand(bot: Character) -> OpeningProposal:
    greeting = (bot.card.data.first_mes if bot.card else "") or bot.identity.kickoff
    return OpeningProposal(opening=Opening(greeting=greeting))


def one_line_description(identity: Identity) -> str:
    """The first sentence about somebody, or what they are like."""
    text = excerpt(identity.persona, 400)
    end = next((at + 1 for at, c in enumerate(text) if c in ".!?" and text[at + 1 : at + 2] in ("", " ")), len(text))
    return shorten(text[:end], _SNIPPET, placeholder=" …") or ", ".join(identity.traits[:5])


def _ready() -> list[tuple[str, str, str]]:
    return [(name, starter_character(name).name, starter_summary(name)) for name in STARTER_NAMES]
