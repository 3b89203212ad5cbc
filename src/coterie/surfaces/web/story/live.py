"""The live stream of a chat: a snapshot first, then every change, and words as they are spoken. S19

`snapshot` and `change` carry the id of the last event they tell of. A browser that comes back sends it as
Last-Event-ID and is told what it missed. `token` carries the reply and the offset of its text within it: whoever
puts the text there has every word once.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any

import anyio
from fastapi import APIRouter, Header
from sse_starlette import EventSourceResponse, ServerSentEvent

from coterie.base.redaction import redact
from coterie.characters import OWNER
from coterie.conversation import (
    AssistantTurn,
    AssistantTurnStarted,
    Feed,
    FeedSubscription,
    LiveText,
    NoSuchRoom,
    NoSuchTurn,
    State,
    Turn,
    UserTurn,
    UserTurnEdit,
)
from coterie.conversation import FeedItem as Heard
from coterie.eventstore import AnyEvent, JobDied, Reset, Rewound, Superseded
from coterie.modes.story import Chat
from coterie.surfaces.web.characters.routes import portrait_url
from coterie.surfaces.web.shared.dependencies import Here, House
from coterie.surfaces.web.shared.errors import ERROR_RESPONSES
from coterie.surfaces.web.shared.labels import ReplyError, reply_error
from coterie.surfaces.web.shared.prose import NOTE_MARKER, clean_line, render_block, split_blocks
from coterie.surfaces.web.shared.templates import render
from coterie.surfaces.web.story.schemas import ChatResponse, TurnResponse

# A turn as a page shows it: names instead of ids, trouble in words, and the other replies there were.


@dataclass(frozen=True)
class Swipes:
    """Every reply to a message, oldest first, and which of them counts."""

    all: tuple[str, ...]
    chosen: str

    @property
    def at(self) -> int:
        return self.all.index(self.chosen) + 1

    @property
    def previous(self) -> str | None:
        return self.all[self.at - 2] if self.at > 1 else None

    @property
    def next(self) -> str | None:
        return self.all[self.at] if self.at < len(self.all) else None


@dataclass(frozen=True)
class TurnView:
    id: str
    seq: int
    name: str
    text: str
    by_person: bool
    state: State
    portrait: str = ""
    whispered_to: str = ""
    trouble: ReplyError | None = None
    swipes: Swipes | None = None
    marker: str = NOTE_MARKER

    def html(self) -> str:
        return _html(self)


@lru_cache(maxsize=4_096)
def _html(turn: TurnView) -> str:
    """Most turns never change again, and every tab and reload asks for the same ones."""
    return render("story/turn.html", turn=turn)


class TurnRenderer:
    """Turns of one chat, as they are shown."""

    def __init__(self, house: House, chat: Chat) -> None:
        self._house = house
        self._chat = chat
        self._portraits: dict[str, str] = {}
        self._names = {entity: clean_line(name) for entity, name in house.story.participants.names(chat).items()}

    def view(self, turn: Turn, text: str | None = None, swipes: Swipes | None = None) -> TurnView:
        return TurnView(
            id=turn.id,
            seq=turn.seq,
            name=self.name(turn.speaker),
            text=turn.text if text is None else text,
            by_person=turn.by_person,
            state=turn.state,
            portrait="" if turn.by_person else self._portrait(turn.speaker),
            whispered_to=", ".join(self.name(one) for one in turn.to if one not in (OWNER, turn.speaker)),
            trouble=reply_error(redact(turn.why), turn.status) if turn.state == "truncated" else None,
            swipes=swipes,
            marker=self._house.story.ooc_marker,
        )

    def _portrait(self, entity: str) -> str:
        if entity not in self._portraits:
            self._portraits[entity] = portrait_url(self._house, entity)
        return self._portraits[entity]

    def name(self, entity: str) -> str:
        if entity in self._names:
            return self._names[entity]
        # Somebody who left is still named where they spoke.
        bots = {bot.id: bot.name for bot in self._house.characters.all()}
        people = {person.id: person.name for person in self._house.people.all()}
        return clean_line({**people, **bots}.get(entity, "Somebody"))

    async def swipes(self, turn: Turn) -> Swipes | None:
        if turn.by_person or turn.state == "open":
            return None
        try:
            replies = tuple(one.reply for one in await self._house.story.alternatives(self._chat.room, turn.id))
        except NoSuchTurn:
            return None  # taken back since it was read
        return Swipes(replies, turn.id) if turn.id in replies else None


router = APIRouter(tags=["live"], responses=ERROR_RESPONSES)
_SNAPSHOT_TURNS = 50
_HEARTBEAT_S = 15
_MAX_MISSED_EVENTS = 5_000
"""After this many events a fresh snapshot is less to read than what was missed."""


@router.get(
    "/chats/{chat}/events",
    summary="The live stream: `snapshot`, then `change` and `token` events (text/event-stream)",
    response_class=EventSourceResponse,
)
async def events(house: Here, chat: str, last_event_id: Annotated[str | None, Header()] = None) -> EventSourceResponse:
    room = house.story.chats.chat(f"room:{chat}").room
    stopping = anyio.Event()
    # htmx 4 splits an event when CR and LF come in different chunks, hence LF alone.
    return EventSourceResponse(
        _stream(house, room, _resume_position(house.feed, last_event_id), stopping),
        sep="\n",
        ping=_HEARTBEAT_S,
        send_timeout=60,
        shutdown_event=stopping,
        shutdown_grace_period=2,
    )


def _resume_position(feed: Feed, told: str | None) -> int | None:
    if told is None or not told.isdecimal():
        return None
    after, last = int(told), feed.last_id()
    return after if last - _MAX_MISSED_EVENTS <= after <= last else None


async def _stream(house: House, room: str, after: int | None, stopping: anyio.Event) -> AsyncIterator[ServerSentEvent]:
    async with house.feed.follow(room, after) as following:
        ending = asyncio.create_task(_end_on_shutdown(stopping, following))
        try:
            if after is None:
                yield _snapshot(house, room, following)
            async for news in following:
                if isinstance(news, LiveText):
                    yield _event("token", {"reply": news.reply, "offset": news.offset, "text": news.text})
                else:
                    yield _event("change", _change_data(news), news.id)
        finally:
            ending.cancel()


async def _end_on_shutdown(stopping: anyio.Event, following: FeedSubscription) -> None:
    """A server that stops ends its streams in order; whoever listened comes back with the last id."""
    await stopping.wait()
    following.close()


def _snapshot(house: House, room: str, following: FeedSubscription) -> ServerSentEvent:
    """All of it at one moment: if something happens while it is put together, it is put together again."""
    story = house.story
    while True:
        following.after = house.feed.last_id()
        chat = story.chats.chat(room)
        names = story.participants.names(chat)
        turns = story.timeline.latest(room, _SNAPSHOT_TURNS)
        speaking = story.replies.partial(room)
        state = ChatResponse.of(house, chat).model_dump(mode="json")
        if house.feed.last_id() == following.after:
            break
    shown: list[dict[str, Any]] = []
    for turn in turns:
        text = None
        if speaking is not None and turn.id == speaking.reply:
            text = speaking.text
            following.mark_sent(turn.id, len(text))
        shown.append(TurnResponse.of(turn, names, text).model_dump(mode="json"))
    return _event("snapshot", {"chat": state, "turns": shown}, following.after)


def _change_data(event: AnyEvent) -> dict[str, Any]:
    payload = event.payload.model_dump(mode="json")
    if event.kind == "prompt_sent":
        payload = {"reply": payload["reply"], "tokens": payload["tokens"]}  # the inspector shows the rest
    return {
        "id": event.id,
        "seq": event.seq,
        "kind": event.kind,
        "actor": event.actor,
        "turn": event.turn,
        "at": event.ts.isoformat(),
        "payload": payload,
    }


def _event(name: str, told: dict[str, Any], event_id: int | None = None) -> ServerSentEvent:
    # In JSON no text holds a line break, so none can end the event early.
    data = json.dumps(told, ensure_ascii=True)
    return ServerSentEvent(data, event=name, id=None if event_id is None else str(event_id), sep="\n")


# What an open page is told of one chat: turns as they are to be shown, and words as they are spoken. S19
#
# Everything told is idempotent: a turn in its present form, the last turns when something was taken back, the blocks of
# a reply from one on. So a page may be told twice, or join late, and still shows the same as every other.


PAGE_TURNS = 50
"""How many turns a page begins with."""
INSTANCE = "instance"
_MAX_MISSED = 5_000


@dataclass(frozen=True)
class LiveUpdate:
    """One thing that a page is told, and the event up to which it then knows."""

    name: str
    data: dict[str, Any]
    event_id: int


def can_resume(house: House, after: int) -> bool:
    """Whether somebody who knows everything up to an event is better told what came since than all anew."""
    return house.feed.last_id() - _MAX_MISSED <= after <= house.feed.last_id()


class ChatUpdates:
    def __init__(self, house: House, room: str, after: int) -> None:
        self._house = house
        self._room = room
        self._after = after
        self._reply = ""
        self._finished = 0
        """How many blocks of the reply have been told for good."""

    async def updates(self) -> AsyncIterator[LiveUpdate]:
        whole = not can_resume(self._house, self._after)
        async with self._house.feed.follow(self._room, None if whole else self._after) as following:
            if whole:
                yield LiveUpdate("timeline", await self._timeline_update(), following.after)
            else:
                yield LiveUpdate("caught-up", {}, following.after)
            self._after = following.after
            async for look in following.batches():
                # Who leaves between two of these is told all of them again, so only the last says how far it is.
                told = [LiveUpdate(name, what, self._after) async for name, what in self._updates_of(look)]
                self._after = following.after
                for news in told[:-1]:
                    yield news
                for news in told[-1:]:
                    yield LiveUpdate(news.name, news.data, following.after)

    async def _updates_of(self, look: list[Heard]) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """A page shows how things stand, so it is told of each turn once, or of all the last turns instead."""
        turns: dict[str, None] = {}
        asides: dict[str, str] = {}
        taken_back = False
        for news in look:
            if isinstance(news, LiveText):
                continue
            match news.payload:
                case UserTurn(turn=turn) | UserTurnEdit(turn=turn):
                    turns[turn] = None
                case AssistantTurnStarted(reply=reply) | AssistantTurn(reply=reply):
                    turns[reply] = None
                case Superseded() | Rewound() | Reset():
                    taken_back = True
                case other:
                    asides[news.kind] = getattr(other, "model", "")
        if taken_back:
            yield "timeline", await self._timeline_update()
        else:
            for turn in turns:
                if (told := await self._turn_update(turn)) is not None:
                    yield "turn", told
        for kind, model in asides.items():
            yield "changed", {"kind": kind, "model": model}
        if isinstance(look[-1], LiveText) and (words := self._words_update(look[-1].reply)) is not None:
            yield "words", words

    async def _turn_update(self, turn_id: str) -> dict[str, Any] | None:
        story = self._house.story
        try:
            turn = story.timeline.turn(self._room, turn_id)
            setter = TurnRenderer(self._house, story.chats.chat(self._room))
        except (NoSuchTurn, NoSuchRoom):
            return None  # taken back since; that is told next
        return {
            "id": turn.id,
            "seq": turn.seq,
            "state": turn.state,
            "html": await turn_html(self._house, setter, turn, last=True),
        }

    async def _timeline_update(self) -> dict[str, Any]:
        """The last turns, and which one comes before them."""
        try:
            _, html, before = await latest_turns_html(self._house, self._room)
        except NoSuchRoom:
            return {"html": "", "before": None, "gone": True}
        return {"html": html, "before": before, "gone": False}

    def _words_update(self, reply: str) -> dict[str, Any] | None:
        so_far = self._house.story.replies.partial(self._room)
        if so_far is None or so_far.reply != reply:
            return None
        if reply != self._reply:
            self._reply, self._finished = reply, 0
        parts = split_blocks(so_far.text)
        start = self._finished
        self._finished = max(start, len(parts) - 1)
        marker = self._house.story.ooc_marker
        return {"reply": reply, "from": start, "blocks": [render_block(part, marker) for part in parts[start:]]}


async def turn_html(house: House, setter: TurnRenderer, turn: Turn, last: bool) -> str:
    """A turn as HTML; the last one with the other replies there were, and an open one with its words so far."""
    so_far = house.story.replies.partial(turn.room)
    text = so_far.text if so_far is not None and so_far.reply == turn.id else None
    return setter.view(turn, text, await setter.swipes(turn) if last else None).html()


async def latest_turns_html(house: House, room: str, before: int | None = None) -> tuple[int, str, int | None]:
    """The event they are true of, their HTML, and the number of the turn before them, if there is one."""
    story = house.story
    while True:
        at = house.feed.last_id()
        turns = story.timeline.latest(room, PAGE_TURNS + 1, before)
        setter = TurnRenderer(house, story.chats.chat(room))
        page = turns[-PAGE_TURNS:]
        parts = [await turn_html(house, setter, turn, turn is page[-1] and before is None) for turn in page]
        if house.feed.last_id() == at or before is not None:
            return at, "".join(parts), turns[0].seq if len(turns) > PAGE_TURNS else None


async def failed_job_updates(house: House, after: int) -> AsyncIterator[LiveUpdate]:
    """Work in the background that failed for good, in any chat."""
    async with house.feed.follow(INSTANCE, after if can_resume(house, after) else None) as following:
        async for news in following:
            if not isinstance(news, LiveText) and isinstance(news.payload, JobDied):
                told = {"kind": news.payload.job_kind, "error": news.payload.error}
                yield LiveUpdate("job-failed", told, news.id)
