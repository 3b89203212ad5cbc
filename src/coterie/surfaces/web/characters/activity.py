"""Where a character is to be found: its stories, the threads it writes in, its crowds, its desks, its memory."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from coterie.base.redaction import redact
from coterie.conversation.turns import TurnQueries
from coterie.modes.crowd import character_id
from coterie.modes.draft import Thread
from coterie.modes.story import Chat, ReadMarks
from coterie.surfaces.web.crowd.pages import MemberView, member_view
from coterie.surfaces.web.home.recent import RecentItem, desk_item
from coterie.surfaces.web.shared.dependencies import House
from coterie.surfaces.web.shared.prose import clean_line, excerpt

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


async def character_activity(house: House, bot: str) -> CharacterActivity:
    crowds = await _attended(house, bot)
    there = {one.name for one in crowds}
    rooms = house.crowd.configs.rooms().values()
    return CharacterActivity(
        stories=[_played(house, bot, chat) for chat in house.story.chats.chats() if bot in chat.characters],
        drafts=[_written(house, bot, thread) for thread in house.draft.thread_queries.of_character(bot)],
        crowds=crowds,
        seats=[(room.name, clean_line(room.title)) for room in rooms if room.name not in there],
        desks=_worked(house, bot),
        memories=house.memory.count(bot),
        remembered=[excerpt(one.text, 240) for one in house.memory.page(owner=bot, limit=_REMEMBERED)],
    )


def _played(house: House, bot: str, chat: Chat) -> StoryActivity:
    names = house.story.participants.names(chat)
    latest = house.story.timeline.last_with_text(chat.room)
    return StoryActivity(
        id=chat.id,
        title=clean_line(chat.title),
        turns=house.story.timeline.count(chat.room),
        snippet=excerpt(latest.text) if latest else "",
        others=[clean_line(names[other]) for other in chat.characters if other != bot],
        at=latest.at if latest else None,
        unread=ReadMarks(house.store).unread(chat.room),
    )


def _written(house: House, bot: str, thread: Thread) -> ThreadActivity:
    folder = house.draft.thread_queries.workspaces().get(thread.workspace)
    latest = TurnQueries(house.store).last_with_text(thread.room)
    pending = [one for one in house.draft.proposal_queries.of_thread(thread.room) if one.state == "pending"]
    return ThreadActivity(
        id=thread.id,
        title=clean_line(thread.title) or clean_line(thread.document),
        document=clean_line(thread.document),
        folder=clean_line(folder[0]) if folder else "",
        at=latest.at if latest else None,
        waiting=sum(one.author == bot for one in pending),
    )


async def _attended(house: House, bot: str) -> list[CrowdActivity]:
    roster = house.crowd.configs
    names = {name for name, persona in roster.personas().items() if character_id(persona) == bot}
    found = []
    for room in roster.rooms().values():
        persona = next((one for one in roster.personas_in(room) if one.name in names), None)
        if persona is not None:
            opened = await house.crowd.room(room.name)
            title = clean_line(room.title)
            found.append(CrowdActivity(room.name, title, opened.state == "live", member_view(opened, persona)))
    return found


def _worked(house: House, bot: str) -> list[DeskActivity]:
    name = clean_line(house.characters.get(bot).name)
    found = []
    for chat in house.desk.queries.chats():
        if chat.character == bot:
            busy = [one for one in house.desk.queries.status_processes(chat.room) if one.active]
            running = [(excerpt(redact(one.task)), clean_line(one.status) or one.state) for one in busy]
            found.append(DeskActivity(desk_item(house, chat, name), running))
    return found
