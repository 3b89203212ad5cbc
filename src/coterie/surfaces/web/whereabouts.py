"""Where a character is to be found: its stories, the threads it writes in, its crowds, its desks, its memory."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from coterie.base.masking import mask
from coterie.engine.turns import Timeline
from coterie.modes.crowd import character_id
from coterie.modes.draft import Thread
from coterie.modes.story import Bookmarks, Chat
from coterie.surfaces.web.crowd_regulars import Regular, regular
from coterie.surfaces.web.house import House
from coterie.surfaces.web.latest import Thing, desk
from coterie.surfaces.web.typeset import harmless, inline

_REMEMBERED = 6


@dataclass(frozen=True)
class Played:
    """A story it is in."""

    id: str
    title: str
    turns: int
    snippet: str
    others: list[str]
    at: datetime | None
    unread: int


@dataclass(frozen=True)
class Written:
    """A thread it answers in, beside a document."""

    id: str
    title: str
    document: str
    folder: str
    at: datetime | None
    waiting: int


@dataclass(frozen=True)
class Attended:
    """A room of the crowd where it is a regular."""

    name: str
    title: str
    live: bool
    regular: Regular


@dataclass(frozen=True)
class Worked:
    """A conversation at the desk, and what is being done in it."""

    desk: Thing
    running: list[tuple[str, str]]
    """Each task, and how it stands."""


@dataclass(frozen=True)
class Whereabouts:
    stories: list[Played]
    drafts: list[Written]
    crowds: list[Attended]
    seats: list[tuple[str, str]]
    """Rooms in which it could sit, by name and title."""
    desks: list[Worked]
    memories: int
    remembered: list[str]
    """What it took to mind last."""

    @property
    def places(self) -> int:
        return len(self.stories) + len(self.drafts) + len(self.crowds) + len(self.desks)


async def whereabouts(house: House, bot: str) -> Whereabouts:
    crowds = await _attended(house, bot)
    there = {one.name for one in crowds}
    rooms = house.crowd.roster.rooms().values()
    return Whereabouts(
        stories=[_played(house, bot, chat) for chat in house.story.chats.chats() if bot in chat.characters],
        drafts=[_written(house, bot, thread) for thread in house.draft.threads.of_member(bot)],
        crowds=crowds,
        seats=[(room.name, harmless(room.title)) for room in rooms if room.name not in there],
        desks=_worked(house, bot),
        memories=house.memory.count(bot),
        remembered=[inline(one.text, 240) for one in house.memory.page(owner=bot, limit=_REMEMBERED)],
    )


def _played(house: House, bot: str, chat: Chat) -> Played:
    names = house.story.prompter.names(chat)
    latest = house.story.timeline.last_said(chat.room)
    return Played(
        id=chat.id,
        title=harmless(chat.title),
        turns=house.story.timeline.count(chat.room),
        snippet=inline(latest.text) if latest else "",
        others=[harmless(names[other]) for other in chat.characters if other != bot],
        at=latest.at if latest else None,
        unread=Bookmarks(house.store).unread(chat.room),
    )


def _written(house: House, bot: str, thread: Thread) -> Written:
    folder = house.draft.threads.workspaces().get(thread.workspace)
    latest = Timeline(house.store).last_said(thread.room)
    pending = [one for one in house.draft.changes.of_thread(thread.room) if one.state == "pending"]
    return Written(
        id=thread.id,
        title=harmless(thread.title) or harmless(thread.document),
        document=harmless(thread.document),
        folder=harmless(folder[0]) if folder else "",
        at=latest.at if latest else None,
        waiting=sum(one.author == bot for one in pending),
    )


async def _attended(house: House, bot: str) -> list[Attended]:
    roster = house.crowd.roster
    names = {name for name, persona in roster.personas().items() if character_id(persona) == bot}
    found = []
    for room in roster.rooms().values():
        persona = next((one for one in roster.of(room) if one.name in names), None)
        if persona is not None:
            opened = await house.crowd.room(room.name)
            title = harmless(room.title)
            found.append(Attended(room.name, title, opened.state == "live", regular(opened, persona)))
    return found


def _worked(house: House, bot: str) -> list[Worked]:
    name = harmless(house.roster.bot(bot).name)
    found = []
    for chat in house.desk.book.chats():
        if chat.character == bot:
            busy = [one for one in house.desk.book.processes_of_note(chat.room) if one.busy]
            running = [(inline(mask(one.task)), harmless(one.status) or one.state) for one in busy]
            found.append(Worked(desk(house, chat, name), running))
    return found
