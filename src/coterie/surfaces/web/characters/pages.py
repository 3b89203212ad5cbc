"""Pages about characters: the gallery, one character with its activity and versions, the forms, the opening scene."""

from __future__ import annotations

import asyncio
import difflib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from textwrap import shorten
from typing import Annotated

from fastapi import Depends, Request, Response

from coterie.base.errors import CoterieError
from coterie.base.redaction import redact
from coterie.characters import (
    EXPRESSION_NAMES,
    STARTER_NAMES,
    Character,
    Characters,
    Identity,
    Macros,
    starter_character,
    starter_summary,
)
from coterie.conversation import TurnQueries
from coterie.eventstore import Store
from coterie.memory import Memory
from coterie.modes.crowd import CrowdService, character_id
from coterie.modes.desk import DeskService
from coterie.modes.draft import DraftService, Thread
from coterie.modes.story import Chat, Opening, OpeningProposal, ReadMarks, StoryService
from coterie.surfaces.web.characters.routes import portrait_url
from coterie.surfaces.web.crowd.pages import MemberView, member_view
from coterie.surfaces.web.home.pages import RecentItem, desk_item
from coterie.surfaces.web.shared.dependencies import (
    CharacterPicturesDep,
    CharactersDep,
    CrowdDep,
    DeskDep,
    DraftDep,
    MemoryDep,
    StoreDep,
    StoryDep,
    WorkspacesDep,
)
from coterie.surfaces.web.shared.messages import N_, gettext
from coterie.surfaces.web.shared.prose import clean_line, excerpt
from coterie.surfaces.web.shared.templates import PageRouter, fragment_response, page_response

# Where a character takes part


_REMEMBERED = 6


@dataclass(frozen=True)
class StoryActivity:
    """A story with the character."""

    id: str
    title: str
    turns: int
    snippet: str
    others: list[str]
    at: datetime | None
    unread: int


@dataclass(frozen=True)
class ThreadActivity:
    """A thread about a document that the character answers in."""

    id: str
    title: str
    document: str
    folder: str
    at: datetime | None
    waiting: int


@dataclass(frozen=True)
class CrowdActivity:
    """A crowd room that the character is a member of."""

    name: str
    title: str
    live: bool
    member: MemberView


@dataclass(frozen=True)
class DeskActivity:
    """A desk conversation and its running tasks."""

    desk: RecentItem
    running: list[tuple[str, str]]
    """Task and status of each."""


@dataclass(frozen=True)
class CharacterActivity:
    stories: list[StoryActivity]
    drafts: list[ThreadActivity]
    crowds: list[CrowdActivity]
    joinable_rooms: list[tuple[str, str]]
    """Crowd rooms that it can join, by name and title."""
    desks: list[DeskActivity]
    memories: int
    remembered: list[str]
    """Its newest memories."""

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

    async def of(self, character: str) -> CharacterActivity:
        crowds = await self._attended(character)
        there = {one.name for one in crowds}
        rooms = self._crowd.configs.rooms().values()
        return CharacterActivity(
            stories=[
                self._played(character, chat) for chat in self._story.chats.chats() if character in chat.characters
            ],
            drafts=[self._written(character, thread) for thread in self._draft.thread_queries.of_character(character)],
            crowds=crowds,
            joinable_rooms=[(room.name, clean_line(room.title)) for room in rooms if room.name not in there],
            desks=self._worked(character),
            memories=self._memory.count(character),
            remembered=[excerpt(one.text, 240) for one in self._memory.page(owner=character, limit=_REMEMBERED)],
        )

    def _played(self, character: str, chat: Chat) -> StoryActivity:
        names = self._story.participants.names(chat)
        latest = self._story.timeline.last_with_text(chat.room)
        return StoryActivity(
            id=chat.id,
            title=clean_line(chat.title),
            turns=self._story.timeline.count(chat.room),
            snippet=excerpt(latest.text) if latest else "",
            others=[clean_line(names[other]) for other in chat.characters if other != character],
            at=latest.at if latest else None,
            unread=ReadMarks(self._store).unread(chat.room),
        )

    def _written(self, character: str, thread: Thread) -> ThreadActivity:
        folder = self._draft.thread_queries.workspaces().get(thread.workspace)
        latest = TurnQueries(self._store).last_with_text(thread.room)
        pending = [one for one in self._draft.proposal_queries.of_thread(thread.room) if one.state == "pending"]
        return ThreadActivity(
            id=thread.id,
            title=clean_line(thread.title) or clean_line(thread.document),
            document=clean_line(thread.document),
            folder=clean_line(folder[0]) if folder else "",
            at=latest.at if latest else None,
            waiting=sum(one.author == character for one in pending),
        )

    async def _attended(self, character: str) -> list[CrowdActivity]:
        roster = self._crowd.configs
        names = {name for name, persona in roster.personas().items() if character_id(persona) == character}
        rows = []
        for room in roster.rooms().values():
            persona = next((one for one in roster.personas_in(room) if one.name in names), None)
            if persona is not None:
                opened = await self._crowd.room(room.name)
                title = clean_line(room.title)
                rows.append(CrowdActivity(room.name, title, opened.state == "live", member_view(opened, persona)))
        return rows

    def _worked(self, character: str) -> list[DeskActivity]:
        name = clean_line(self._characters.get(character).name)
        rows = []
        for chat in self._desk.queries.chats():
            if chat.character == character:
                busy = [one for one in self._desk.queries.status_processes(chat.room) if one.active]
                running = [(excerpt(redact(one.task)), clean_line(one.status) or one.state) for one in busy]
                rows.append(DeskActivity(desk_item(self._store, self._desk, chat, name), running))
        return rows


FIELDS = {
    "name": N_("Name"),
    "persona": N_("Persona"),
    "traits": N_("Traits"),
    "backstory": N_("Backstory"),
    "initial_relationship": N_("How you know each other"),
    "voice_samples": N_("Voice samples"),
    "kickoff": N_("Opening prose"),
}


@dataclass(frozen=True)
class FieldChange:
    label: str
    lines: list[tuple[str, str]]
    """Each with `+`, `-` or a space before it."""


@dataclass(frozen=True)
class CharacterVersion:
    number: int
    identity: Identity
    written: datetime | None
    changes: list[FieldChange]
    """Compared with the version before; empty for the first."""


def version_history(versions: Sequence[Character], written: Mapping[int, datetime]) -> list[CharacterVersion]:
    """Newest first."""
    made = []
    before: Identity | None = None
    for character in versions:
        changes = _changes(before, character.identity) if before is not None else []
        made.append(CharacterVersion(character.version, character.identity, written.get(character.version), changes))
        before = character.identity
    return made[::-1]


def _changes(before: Identity, after: Identity) -> list[FieldChange]:
    changes = []
    for name, label in FIELDS.items():
        old, new = _lines(getattr(before, name)), _lines(getattr(after, name))
        if old != new:
            # `?` lines point at characters within a line, which only works in a terminal.
            marked = [line for line in difflib.ndiff(old, new) if not line.startswith("?")]
            changes.append(FieldChange(label, [(line[0], line[2:]) for line in marked]))
    return changes


def _lines(value: str | list[str]) -> list[str]:
    return value.splitlines() if isinstance(value, str) else [line for item in value for line in item.splitlines()]


# Pages


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
    chats = Counter(character for chat in story.chats.chats() for character in chat.characters)
    cards = [
        CharacterCard(
            character.id,
            character.name,
            one_line_description(character.identity),
            portrait_url(workspaces, character.id),
            chats[character.id],
        )
        for character in characters.all()
    ]
    return page_response(request, "characters/characters.html", characters=cards, ready=_ready())


@router.get("/new")
async def new(characters: CharactersDep, request: Request) -> Response:
    first = not characters.all()
    return page_response(request, "characters/new.html", ready=_ready(), first=first, identity=None)


@router.get("/{character_id}")
async def show(
    characters: CharactersDep,
    workspaces: WorkspacesDep,
    pictures: CharacterPicturesDep,
    story: StoryDep,
    activity: ActivityDep,
    request: Request,
    character_id: str,
) -> Response:
    character = characters.get(character_id)
    versions = version_history(characters.versions(character_id), characters.version_dates(character_id))
    return page_response(
        request,
        "characters/character.html",
        of=shown_identity(character, characters.owner().name),
        character=character,
        portrait=portrait_url(workspaces, character_id),
        versions=versions,
        where=await activity.of(character_id),
        expressions=await asyncio.to_thread(pictures.all, character_id, "expression"),
        undoable_reset=await story.can_undo_reset(character_id),
        gallery=pictures.all(character_id, "gallery"),
        expression_names=EXPRESSION_NAMES,
    )


@router.get("/{character_id}/edit")
async def edit(characters: CharactersDep, request: Request, character_id: str) -> Response:
    character = characters.get(character_id)
    return page_response(request, "characters/edit.html", character=character, identity=character.identity)


@router.get("/{character_id}/kickoff")
async def kickoff(
    characters: CharactersDep, workspaces: WorkspacesDep, request: Request, character_id: str
) -> Response:
    """Shown at once; the form, which waits for the classifier, is loaded into it."""
    character = characters.get(character_id)
    greeting = _by_hand(character).opening.greeting
    return page_response(
        request,
        "characters/opening.html",
        character=character,
        portrait=portrait_url(workspaces, character_id),
        greeting=greeting,
        prose=_macros(character, characters.owner().name).expand(greeting, "display"),
    )


@router.get("/{character_id}/kickoff/form")
async def kickoff_form(characters: CharactersDep, story: StoryDep, character_id: str, empty: bool = False) -> Response:
    character = characters.get(character_id)
    proposal = _by_hand(character) if empty else await _proposal(story, character)
    opening = proposal.opening
    starts = f"{opening.start_time(datetime.now(UTC)):%Y-%m-%dT%H:%M}" if opening.time else ""
    return fragment_response(
        "characters/opening_form.html",
        character=character,
        you=characters.owner(),
        opening=opening,
        notice=proposal.notice,
        starts=starts,
    )


async def _proposal(story: StoryService, character: Character) -> OpeningProposal:
    """The proposed opening, or an empty form if the model fails."""
    try:
        return await story.propose_opening(character.id)
    except CoterieError as error:
        empty = _by_hand(character)
        return empty.model_copy(
            update={"notice": gettext("%(problem)s Fill in what you like by hand.", problem=error.what)}
        )


def _by_hand(character: Character) -> OpeningProposal:
    greeting = (character.card.data.first_mes if character.card else "") or character.identity.kickoff
    return OpeningProposal(opening=Opening(greeting=greeting))


def shown_identity(character: Character, owner: str) -> Identity:
    """A character's texts with their macros expanded, as the owner reads them."""
    identity = character.identity
    macros = _macros(character, owner)
    texts = {name: macros.expand(getattr(identity, name), "display") for name in _TEXTS_WITH_MACROS}
    samples = [macros.expand(sample, "display") for sample in identity.voice_samples]
    return identity.model_copy(update={**texts, "voice_samples": samples})


def _macros(character: Character, owner: str) -> Macros:
    nickname = character.card.data.nickname if character.card else ""
    return Macros(char=nickname or character.name, user=owner, rng=Random(character.id))  # noqa: S311


def one_line_description(identity: Identity) -> str:
    """The first sentence of the persona, or the traits."""
    macros = Macros(char=identity.name, user="you", rng=Random(identity.id))  # noqa: S311
    text = excerpt(macros.expand(identity.persona, "display"), 400)
    end = next((at + 1 for at, c in enumerate(text) if c in ".!?" and text[at + 1 : at + 2] in ("", " ")), len(text))
    return shorten(text[:end], _SNIPPET, placeholder=" …") or ", ".join(identity.traits[:5])


_TEXTS_WITH_MACROS = ("persona", "backstory", "initial_relationship", "kickoff")


def _ready() -> list[tuple[str, str, str]]:
    return [(name, starter_character(name).name, starter_summary(name)) for name in STARTER_NAMES]
