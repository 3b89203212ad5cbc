"""Live updates of a story chat: the API's event stream, and HTML updates for open pages.

The API's stream sends a `snapshot`, then a `change` for each event and a `token` for each piece of a reply. A client
that reconnects with Last-Event-ID gets the events it missed. `token` carries the offset of its text in the reply, so
a client that joins late can tell what it already has.

Page updates are idempotent: a turn in its present form, the latest turns after something was taken back, the blocks of
a reply from a number on. A page may receive an update twice, or join late, and shows the same as every other page.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Annotated, Any

import anyio
from fastapi import APIRouter, Depends, Header
from sse_starlette import EventSourceResponse, ServerSentEvent

from coterie.base.redaction import redact
from coterie.base.supervisor import run_once
from coterie.base.values import parse_int64
from coterie.characters import OWNER, Characters, People, Workspaces
from coterie.conversation import (
    AssistantTurn,
    AssistantTurnStarted,
    Feed,
    FeedItem,
    FeedSubscription,
    LiveText,
    NoSuchRoom,
    NoSuchTurn,
    PictureDescribed,
    ReplyEdited,
    State,
    Turn,
    TurnDeleted,
    TurnHidden,
    TurnPicture,
    UserTurn,
    UserTurnEdit,
    turn_begun_by,
)
from coterie.eventstore import AnyEvent, JobDied, Reset, Rewound, Store, Superseded
from coterie.modes.story import (
    CastChange,
    Chat,
    ExchangeAnalysed,
    GuestJoined,
    GuestLeft,
    PersonJoined,
    PersonLeft,
    StoryService,
)
from coterie.surfaces.web.characters.routes import portrait_url
from coterie.surfaces.web.shared.dependencies import (
    CharactersDep,
    FeedDep,
    PeopleDep,
    StoreDep,
    StoryDep,
    WorkspacesDep,
)
from coterie.surfaces.web.shared.errors import ERROR_RESPONSES
from coterie.surfaces.web.shared.labels import ReplyError, reply_error
from coterie.surfaces.web.shared.messages import N_, current_language, gettext
from coterie.surfaces.web.shared.prose import NOTE_MARKER, clean_line, render_block, split_blocks
from coterie.surfaces.web.shared.templates import render
from coterie.surfaces.web.story.schemas import ChatResponse, TurnResponse

PAGE_TURNS = 50
"""How many turns a page begins with."""
INSTANCE = "instance"
"""The channel of what concerns no single chat."""
_MAX_MISSED = 5_000
"""After this many events a fresh start is less to read than what was missed."""
_HEARTBEAT_S = 15
_LONG_TEXT = 20_000
"""Characters of a turn. The HTML of longer ones is not cached: it would fill the memory."""


def can_resume(feed: Feed, after: int) -> bool:
    """Whether a client that has every event up to `after` gets the missed ones instead of a fresh start."""
    return feed.last_id() - _MAX_MISSED <= after <= feed.last_id()


# Turns as HTML


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
    """A turn as the page shows it: names instead of ids, the reason it broke off as an error text."""

    id: str
    seq: int
    name: str
    text: str
    by_person: bool
    state: State
    portrait: str = ""
    whispered_to: str = ""
    error: ReplyError | None = None
    swipes: Swipes | None = None
    marker: str = NOTE_MARKER
    hidden: bool = False
    edited: bool = False
    bookmarked: bool = False
    not_analysed: str = ""
    """Why the model could not analyse the exchange that this turn ends; empty if it could."""
    pictures: tuple[TurnPicture, ...] = ()

    def html(self) -> str:
        return _cached_html(self, current_language()) if len(self.text) <= _LONG_TEXT else _html(self)


def _html(turn: TurnView) -> str:
    return render("story/turn.html", turn=turn)


@lru_cache(maxsize=4_096)
def _cached_html(turn: TurnView, _language: str) -> str:
    """Most turns never change again, and every tab and reload asks for the same ones."""
    return _html(turn)


@dataclass(frozen=True)
class Speakers:
    """Names and portraits in one chat."""

    chat: Chat
    names: dict[str, str]
    portraits: dict[str, str] = field(default_factory=dict)
    bookmarks: frozenset[str] = frozenset()
    """The bookmarked turns."""
    failed_analyses: Mapping[str, str] = field(default_factory=dict)
    """Turn → why the exchange that it ends could not be analysed."""


_FAILED_ANALYSES = {
    "refused": N_("the model refused to answer"),
    "not_json": N_("the model did not answer in the right form"),
    "not_the_schema": N_("the model did not answer in the right form"),
    "unavailable": N_("no model answered"),
}


class TurnRenderer:
    """Renders turns of story chats as HTML."""

    def __init__(
        self, feed: Feed, story: StoryService, characters: Characters, people: People, workspaces: Workspaces
    ) -> None:
        self._feed = feed
        self._story = story
        self._characters = characters
        self._people = people
        self._workspaces = workspaces

    @property
    def note_marker(self) -> str:
        return self._story.ooc_marker

    def stored_turn(self, room: str, turn_id: str) -> Turn:
        return self._story.timeline.turn(room, turn_id)

    def speakers(self, room: str) -> Speakers:
        known, key = self._feed.shared.current(), ("speakers", room, current_language())
        if key not in known:
            known[key] = self._read_speakers(room)
        found: Speakers = known[key]
        # Portraits are files, and names of those who left are added as they are needed.
        return replace(found, names=dict(found.names), portraits={})

    def _read_speakers(self, room: str) -> Speakers:
        chat = self._story.chats.chat(room)
        names = self._story.participants.names(chat)
        bookmarks = frozenset(bookmark.turn for bookmark in self._story.bookmarks.all(room))
        return Speakers(
            chat,
            {entity: clean_line(name) for entity, name in names.items()},
            bookmarks=bookmarks,
            failed_analyses=self._story.chats.failed_analyses(room),
        )

    async def html(self, turn: Turn, speakers: Speakers, *, last: bool) -> str:
        """The last turn comes with the number of its alternatives."""
        swipes = await self.swipes(turn) if last else None
        if len(turn.text) > _LONG_TEXT:
            await asyncio.sleep(0)  # a page may have many such turns: others are answered in between
        return self._view(turn, speakers, swipes).html()

    async def latest_turns(self, room: str, before: int | None = None) -> tuple[int, str, int | None]:
        """The event they are true of, their HTML, and the seq of the turn before them, if there is one."""
        while True:
            at = self._feed.last_id()
            turns = self._story.timeline.latest(room, PAGE_TURNS + 1, before)
            speakers = self.speakers(room)
            partial = self._story.replies.partial(room)
            page = turns[-PAGE_TURNS:]
            parts: list[tuple[int, str]] = []
            for turn in page:
                if partial is not None and partial.reply == turn.id:
                    turn = replace(turn, text=partial.text)
                html = await self.html(turn, speakers, last=turn.id == page[-1].id and before is None)
                parts.append((turn.seq, html))
            first = page[0].seq if len(turns) > PAGE_TURNS else 0
            changes = self._story.chats.cast_changes(room, first, (before or 1 << 62) - 1)
            parts += [(change.seq, self.notice(change, speakers)) for change in changes]
            if self._feed.last_id() == at or before is not None:
                html = "".join(html for _, html in sorted(parts))
                return at, html, turns[0].seq if len(turns) > PAGE_TURNS else None

    def notice(self, change: CastChange, speakers: Speakers) -> str:
        """A line of the timeline that says who joined or left."""
        return render("story/notice.html", change=change, name=self._name(change.who, speakers))

    async def swipes(self, turn: Turn) -> Swipes | None:
        if turn.by_person or turn.state == "open":
            return None
        known, key = self._feed.shared.current(), ("alternatives", turn.room, turn.id)
        try:
            if key not in known:
                known[key] = tuple(one.reply for one in await self._story.alternatives(turn.room, turn.id))
        except NoSuchTurn:
            return None  # taken back since it was read
        replies: tuple[str, ...] = known[key]
        return Swipes(replies, turn.id) if turn.id in replies else None

    def _view(self, turn: Turn, speakers: Speakers, swipes: Swipes | None) -> TurnView:
        recipients = [self._name(one, speakers) for one in turn.to if one not in (OWNER, turn.speaker)]
        return TurnView(
            id=turn.id,
            seq=turn.seq,
            name=self._turn_name(turn, speakers),
            text=turn.text,
            by_person=turn.by_person,
            state=turn.state,
            portrait="" if turn.by_person else self._portrait(turn.speaker, speakers),
            whispered_to=", ".join(recipients),
            error=_turn_error(turn) if turn.state == "truncated" else None,
            swipes=swipes,
            marker=self.note_marker,
            hidden=turn.hidden,
            edited=turn.edited,
            bookmarked=turn.id in speakers.bookmarks,
            not_analysed=_FAILED_ANALYSES.get(speakers.failed_analyses.get(turn.id, ""), ""),
            pictures=turn.pictures,
        )

    def _portrait(self, character: str, speakers: Speakers) -> str:
        if character not in speakers.portraits:
            speakers.portraits[character] = portrait_url(self._workspaces, character)
        return speakers.portraits[character]

    def _turn_name(self, turn: Turn, speakers: Speakers) -> str:
        name = self._name(turn.speaker, speakers)
        if turn.speaker == OWNER:  # as whom they spoke then
            name = clean_line(self._story.participants.turn_name(speakers.chat, speakers.names, turn))
        return name

    def _name(self, entity: str, speakers: Speakers) -> str:
        if entity not in speakers.names:
            # A participant who left is still named where they spoke.
            characters = {character.id: character.name for character in self._characters.all()}
            people = {person.id: person.name for person in self._people.all()}
            speakers.names[entity] = clean_line({**people, **characters}.get(entity, gettext("Somebody")))
        return speakers.names[entity]


def _turn_error(turn: Turn) -> ReplyError:
    return reply_error(redact(turn.why), turn.status, has_text=bool(turn.text.strip()), retry_at=turn.retry_at)


async def _turn_renderer(
    feed: FeedDep, story: StoryDep, characters: CharactersDep, people: PeopleDep, workspaces: WorkspacesDep
) -> TurnRenderer:
    return TurnRenderer(feed, story, characters, people, workspaces)


TurnRendererDep = Annotated[TurnRenderer, Depends(_turn_renderer)]


# Updates of an open page


@dataclass(frozen=True)
class LiveUpdate:
    """One message to a page, and the event up to which the page is then current."""

    name: str
    data: dict[str, Any]
    event_id: int


class ChatUpdates:
    """The updates of one page that shows one chat.

    Turns and text are taken from the feed; the service is asked only for what the feed does not carry: the start of a
    reply that began before this subscription, alternatives, and the timeline after something was taken back.
    """

    def __init__(self, feed: Feed, renderer: TurnRenderer, room: str, after: int) -> None:
        self._feed = feed
        self._renderer = renderer
        self._room = room
        self._after = after
        self._speakers: Speakers | None = None
        self._open: dict[str, Turn] = {}
        """Replies that began since this page follows, and have not ended."""
        self._reply = ""
        self._text = ""
        self._finished_blocks = 0

    async def updates(self) -> AsyncIterator[LiveUpdate]:
        fresh = not can_resume(self._feed, self._after)
        async with self._feed.follow(self._room, None if fresh else self._after) as subscription:
            if fresh:
                yield LiveUpdate("timeline", await self._timeline(), subscription.after)
            else:
                yield LiveUpdate("caught-up", {}, subscription.after)
            self._after = subscription.after
            async for batch in subscription.batches():
                # A page that leaves between two of these gets them all again, so only the last advances its position.
                updates = [LiveUpdate(name, data, self._after) async for name, data in self._batch_updates(batch)]
                self._after = subscription.after
                for update in updates[:-1]:
                    yield update
                for update in updates[-1:]:
                    yield replace(update, event_id=subscription.after)

    async def _batch_updates(self, batch: list[FeedItem]) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Each changed turn once, or the latest turns instead if something was taken back; then everything else."""
        turns: dict[str, Turn] = {}
        others: dict[str, str] = {}
        changed: set[str] = set()
        """Turns that a person changed, wherever they stand."""
        removed: list[str] = []
        notices: list[CastChange] = []
        taken_back = False
        for item in batch:
            if isinstance(item, LiveText):
                continue
            match item.payload:
                case UserTurn() | UserTurnEdit() | AssistantTurnStarted() | AssistantTurn():
                    if (turn := self._turn_after(item, turns)) is not None:
                        turns[turn.id] = turn
                        if isinstance(item.payload, UserTurnEdit) and item.turn == turn.id:
                            changed.add(turn.id)
                case ReplyEdited(reply=turn_id) | TurnHidden(turn=turn_id) | PictureDescribed(message=turn_id):
                    if (stored := self._stored(turn_id)) is not None:
                        turns[turn_id] = stored
                        changed.add(turn_id)
                case ExchangeAnalysed(reply=turn_id):
                    self._speakers = None
                    if (stored := self._stored(turn_id)) is not None:
                        turns[turn_id] = stored
                        changed.add(turn_id)
                case TurnDeleted(turn=turn_id):
                    turns.pop(turn_id, None)
                    removed.append(turn_id)
                case Superseded() | Rewound() | Reset():
                    taken_back = True
                case GuestJoined(guest=who) | GuestLeft(guest=who) | PersonJoined(person=who) | PersonLeft(person=who):
                    joined = isinstance(item.payload, GuestJoined | PersonJoined)
                    notices.append(CastChange(item.seq, who, joined))
                    others[item.kind] = ""
                case other:
                    others[item.kind] = getattr(other, "model", "")
        if others or taken_back:
            self._speakers = None
        if taken_back:
            yield "timeline", await self._timeline()
        for turn_id in removed:
            yield "removed", {"id": turn_id}
        # After something was taken back, the timeline has the latest turns; earlier ones may have been changed.
        shown = [turn for turn in turns.values() if not taken_back or turn.id in changed]
        for turn in shown:
            current = self._stored(turn.id) if taken_back else turn
            if current is not None and (data := await self._turn_data(current)) is not None:
                yield "turn", data
        for change in notices if not taken_back else ():
            if (speakers := self._known_speakers()) is not None:
                yield "notice", {"seq": change.seq, "html": self._renderer.notice(change, speakers)}
        for kind, model in others.items():
            yield "changed", {"kind": kind, "model": model}
        if isinstance(batch[-1], LiveText):
            yield "words", self._words_data(batch[-1])

    def _turn_after(self, event: AnyEvent, changed: dict[str, Turn]) -> Turn | None:
        """The turn as it is after an event; None if it was taken back since."""
        match event.payload:
            case AssistantTurn(reply=reply) as ended:
                if ended.retry_after_s is not None and (stored := self._stored(reply)) is not None:
                    self._open.pop(reply, None)
                    return stored
                turn = self._open.pop(reply, None) or self._stored(reply)
                state: State = "truncated" if ended.truncated else "done"
                return turn and replace(
                    turn, text=ended.text, state=state, why=ended.why, status=ended.status, model=ended.model
                )
            case UserTurnEdit(turn=turn_id) if event.turn == turn_id:
                return self._stored(turn_id)
            case UserTurnEdit(turn=turn_id) as edit:
                turn = changed.get(turn_id) or self._stored(turn_id)
                return turn and replace(turn, text=edit.text, segments=edit.segments)
        turn = turn_begun_by(event)
        if turn is not None and not turn.by_person:
            self._open[turn.id] = turn
        return turn

    def _stored(self, turn_id: str) -> Turn | None:
        try:
            return self._renderer.stored_turn(self._room, turn_id)
        except NoSuchTurn:
            return None

    async def _turn_data(self, turn: Turn) -> dict[str, Any] | None:
        if (speakers := self._known_speakers()) is None:
            return None
        html = await self._renderer.html(turn, speakers, last=True)
        return {"id": turn.id, "seq": turn.seq, "state": turn.state, "html": html}

    def _known_speakers(self) -> Speakers | None:
        try:
            self._speakers = self._speakers or self._renderer.speakers(self._room)
        except NoSuchRoom:
            return None
        return self._speakers

    async def _timeline(self) -> dict[str, Any]:
        """The latest turns, and which one comes before them."""
        try:
            _, html, before = await self._renderer.latest_turns(self._room)
        except NoSuchRoom:
            return {"html": "", "before": None, "gone": True}
        return {"html": html, "before": before, "gone": False}

    def _words_data(self, words: LiveText) -> dict[str, Any]:
        """The blocks of the running reply from the first one that may still have changed."""
        if words.reply != self._reply:
            self._reply, self._text, self._finished_blocks = words.reply, "", 0
        self._text = self._text[: words.offset] + words.text
        blocks = split_blocks(self._text)
        start = self._finished_blocks
        self._finished_blocks = max(start, len(blocks) - 1)
        html = [render_block(block, self._renderer.note_marker) for block in blocks[start:]]
        return {"reply": words.reply, "from": start, "blocks": html}


async def failed_job_updates(feed: Feed, after: int) -> AsyncIterator[LiveUpdate]:
    """Background jobs that failed for good, in any chat."""
    async with feed.follow(INSTANCE, after if can_resume(feed, after) else None) as subscription:
        async for item in subscription:
            if not isinstance(item, LiveText) and isinstance(item.payload, JobDied):
                data = {"kind": item.payload.job_kind, "error": item.payload.error}
                yield LiveUpdate("job-failed", data, item.id)


# The API's event stream


router = APIRouter(tags=["live"], responses=ERROR_RESPONSES)


@router.get(
    "/chats/{chat}/events",
    summary="The live stream: `snapshot`, then `change` and `token` events (text/event-stream)",
    response_class=EventSourceResponse,
)
async def events(
    store: StoreDep, story: StoryDep, feed: FeedDep, chat: str, last_event_id: Annotated[str | None, Header()] = None
) -> EventSourceResponse:
    story_chat = story.chats.chat(f"room:{chat}")
    after = parse_int64(last_event_id or "")
    if after is not None and not can_resume(feed, after):
        after = None
    stopping = anyio.Event()
    # htmx 4 splits an event when CR and LF come in different chunks, hence LF alone.
    return EventSourceResponse(
        _stream(store, story, feed, story_chat, after, stopping),
        sep="\n",
        ping=_HEARTBEAT_S,
        send_timeout=60,
        shutdown_event=stopping,
        shutdown_grace_period=2,
    )


async def _stream(
    store: Store, story: StoryService, feed: Feed, chat: Chat, after: int | None, stopping: anyio.Event
) -> AsyncIterator[ServerSentEvent]:
    async with feed.follow(chat.room, after) as subscription:
        ending = run_once("end of a page's updates", _end_on_shutdown(stopping, subscription))
        try:
            if after is None:
                yield _snapshot(store, story, feed, chat.room, subscription)
            async for item in subscription:
                if isinstance(item, LiveText):
                    yield _event("token", {"reply": item.reply, "offset": item.offset, "text": item.text})
                else:
                    yield _event("change", _change_data(item), item.id)
        finally:
            ending.cancel()


async def _end_on_shutdown(stopping: anyio.Event, subscription: FeedSubscription) -> None:
    """End the stream when the server stops; the client reconnects with the last id."""
    await stopping.wait()
    subscription.close()


def _snapshot(
    store: Store, story: StoryService, feed: Feed, room: str, subscription: FeedSubscription
) -> ServerSentEvent:
    """The chat and its latest turns at one event: read again if something happens meanwhile."""
    while True:
        subscription.after = feed.last_id()
        chat = story.chats.chat(room)
        names = story.participants.names(chat)
        turns = story.timeline.latest(room, PAGE_TURNS)
        partial = story.replies.partial(room)
        state = ChatResponse.of(store, story, chat).model_dump(mode="json")
        if feed.last_id() == subscription.after:
            break
    shown: list[dict[str, Any]] = []
    for turn in turns:
        text = None
        if partial is not None and turn.id == partial.reply:
            text = partial.text
            subscription.mark_sent(turn.id, len(text))
        shown.append(
            TurnResponse.of(turn, names, text, story.participants.turn_name(chat, names, turn)).model_dump(mode="json")
        )
    return _event("snapshot", {"chat": state, "turns": shown}, subscription.after)


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


def _event(name: str, data: dict[str, Any], event_id: int | None = None) -> ServerSentEvent:
    # In JSON no text holds a line break, so none can end the event early.
    text = json.dumps(data, ensure_ascii=True)
    return ServerSentEvent(text, event=name, id=None if event_id is None else str(event_id), sep="\n")
