"""What happened while somebody was away, and what waits for them: each as one line that leads to its place.

What waits (an unread reply, a proposal, a question, somebody at the door, work that was given up) is told until it is
dealt with. What only happened (money spent, what a crowd said) is told when it came after the last visit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from textwrap import shorten
from typing import Literal

from coterie.base.masking import mask
from coterie.cast.roster import YOU
from coterie.cast.visits import LastThere
from coterie.engine.turns import Timeline, Turn
from coterie.llm.usage import UsageBook
from coterie.modes.desk import DeskChat, Process
from coterie.modes.draft import DraftError, Person, Waiting
from coterie.modes.story import Bookmarks, Chat
from coterie.surfaces.web.draft_beside import Names, talk
from coterie.surfaces.web.house import House
from coterie.surfaces.web.latest import document_address, proposals, replies_beside_questions
from coterie.surfaces.web.reasons import work
from coterie.surfaces.web.typeset import harmless, inline

Weight = Literal["asks", "told", "trouble", "aside"]
_ORDER: tuple[Weight, ...] = ("asks", "told", "trouble", "aside")
_QUOTED = 160


@dataclass(frozen=True)
class News:
    weight: Weight
    text: str
    href: str
    icon: str
    who: str = ""
    """A character's name: its mark stands for the icon."""
    where: str = ""
    detail: str = ""
    at: datetime | None = None
    count: int = 0


async def news(house: House, who: Person, since: LastThere | None) -> list[News]:
    """What asks for an answer first, then what was said, newest first, then what went wrong, then the rest."""
    told: list[News] = [*await _documents(house), *_threads(house, who)]
    if who.id == YOU:
        told += [*_strangers(house), *_desks(house, since), *_replies(house), *await _given_up(house)]
    if since is not None:
        told += [*await _crowds(house, since), *_spent(house, since)]
    newest = sorted(told, key=lambda one: one.at.timestamp() if one.at else 0.0, reverse=True)
    return sorted(newest, key=lambda one: _ORDER.index(one.weight))


def _strangers(house: House) -> Iterator[News]:
    for asking in house.people.waiting():
        name = harmless(asking.name) or harmless(asking.account)
        yield News("asks", f"{name} would like to come in", "/settings#people", "hand", where=harmless(asking.surface))


def _desks(house: House, since: LastThere | None) -> Iterator[News]:
    names = Names(house)
    for chat in house.desk.book.chats():
        name = names[chat.character]
        processes = house.desk.book.processes_of_note(chat.room)
        yield from (_question(chat, name, each) for each in processes if each.state == "waiting")
        unread = Bookmarks(house.store).unread(chat.room)
        told = replies_beside_questions(house, chat.room, unread)
        finished = _finished(processes, _news_from(house, chat, unread, since))
        if told or finished:
            yield _from_the_desk(chat, name, told, finished)


def _news_from(house: House, chat: DeskChat, unread: int, since: LastThere | None) -> datetime | None:
    """From when on work is news: after the last words that were read; with nothing new said, after the last visit."""
    turns = Timeline(house.store).latest(chat.room, unread + 1)
    read = turns[0].at if turns else None
    if unread:
        return read
    return max(since.at, read or since.at) if since is not None else None


def _question(chat: DeskChat, name: str, process: Process) -> News:
    asks = "asks for your yes or no" if process.needs_yes else "waits for your answer"
    detail = shorten(harmless(mask(process.result).replace("\n", " ")), _QUOTED, placeholder=" …")
    where = harmless(chat.title)
    return News("asks", f"{name} {asks}", _desk_address(chat), "circle-help", name, where, detail, process.heard)


def _finished(processes: Iterable[Process], since: datetime | None) -> list[Process]:
    if since is None:
        return []
    return [one for one in processes if one.kind == "worker" and one.ended is not None and one.ended > since]


def _from_the_desk(chat: DeskChat, name: str, told: list[Turn], finished: list[Process]) -> News:
    failed = [each for each in finished if each.state == "failed"]
    text = f"{name} has something to tell"
    if failed:
        text = f"{name} could not finish {_things(len(failed))}"
    elif finished:
        text = f"{name} finished {_things(len(finished))}"
    detail, at = (told[-1].text, told[-1].at) if told else (mask(finished[-1].result), finished[-1].ended)
    where = harmless(chat.title)
    return News("told", text, _desk_address(chat), "lamp-desk", name, where, inline(detail, _QUOTED), at, len(told))


def _things(count: int) -> str:
    return "some work" if count == 1 else f"{count} pieces of work"


def _desk_address(chat: DeskChat) -> str:
    return f"/desk/{chat.room.removeprefix('room:')}"


def _replies(house: House) -> Iterator[News]:
    for chat in house.story.chats.chats():
        unread = Bookmarks(house.store).unread(chat.room) if YOU in chat.people else 0
        if unread and (latest := house.story.timeline.latest_reply(chat.room)):
            yield _reply(house, chat, latest, unread)


def _reply(house: House, chat: Chat, latest: Turn, unread: int) -> News:
    names = house.story.prompter.names(chat)
    name = harmless(house.story.prompter.name(names, latest.speaker))
    detail = inline(latest.text, _QUOTED)
    href = f"/chats/{chat.id}"
    return News(
        "told", f"{name} answered", href, "book-open", name, harmless(chat.title), detail, latest.at, count=unread
    )


async def _documents(house: House) -> list[News]:
    names = Names(house)
    folders = house.draft.threads.workspaces()
    return [
        _proposed(
            one,
            await asyncio.to_thread(_title, house, one),
            [names[author] for author in one.authors],
            harmless(folders[one.workspace][0]),
        )
        for one in house.draft.changes.waiting()
        if one.workspace in folders
    ]


def _title(house: House, one: Waiting) -> str:
    try:
        return harmless(house.draft.workspace(one.workspace).read(one.document, one.branch).title)
    except DraftError:
        return harmless(one.document)


def _proposed(one: Waiting, title: str, authors: list[str], folder: str) -> News:
    text = f"{' and '.join(authors)} left {proposals(one.count)} for {title}"
    href = document_address(one.workspace, one.document, one.branch)
    return News("asks", text, href, "file-text", authors[0], folder, at=one.latest)


def _threads(house: House, who: Person) -> Iterator[News]:
    """What was said where one wrote, or about what one watches; proposals are told of by themselves."""
    proposed = {(one.workspace, one.branch, one.document) for one in house.draft.changes.waiting()}
    seen: set[str] = set()
    for notice in house.draft.inbox.of(who.id, unread=True):
        thread = house.draft.threads.thread(notice.room)
        if notice.room in seen or (thread.workspace, thread.branch, thread.document) in proposed:
            continue
        seen.add(notice.room)
        said = next((one for one in talk(house, thread) if one.id == notice.message), None)
        if said is not None:
            yield News(
                weight="told",
                text=f"{said.name} answered",
                href=f"/draft/threads/{thread.id}",
                icon="file-text",
                who="" if said.by_person else said.name,
                where=harmless(thread.title),
                detail=inline(said.text, _QUOTED),
                at=said.at,
            )


async def _given_up(house: House) -> Iterator[News]:
    dead = await house.store.jobs.find(state="dead", limit=100)
    if not dead:
        return iter(())
    first = work(dead[0].kind)
    text = f"Given up: {harmless(first)}" if len(dead) == 1 else f"{len(dead)} things were given up in the background"
    detail = inline(mask(dead[0].error or ""), _QUOTED)
    return iter([News("trouble", text, "/ops", "triangle-alert", where="Workshop", detail=detail)])


async def _crowds(house: House, since: LastThere) -> list[News]:
    told = []
    for name in house.crowd.roster.rooms():
        room = await house.crowd.room(name)
        said = [one for one in room.gateway.latest(1_000) if one.ts > since.at.timestamp() * 1_000]
        if said:
            count = f"{len(said)} message{'' if len(said) == 1 else 's'}" if len(said) < 1_000 else "1,000 and more"
            text = f"{count} in {harmless(room.rules.title)}"
            told.append(News("aside", text, f"/crowd/{name}", "radio"))
    return told


def _spent(house: House, since: LastThere) -> Iterator[News]:
    calls, usd = UsageBook(house.store).since(since.event)
    if usd > 0:
        amount = f"${usd:.2f}" if usd >= 0.01 else "Less than a cent"
        text = f"{amount} spent on {calls} call{'' if calls == 1 else 's'} to models"
        yield News("aside", text, "/ops", "coins")
