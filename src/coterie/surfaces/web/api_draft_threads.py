"""Threads and their proposals: asking, being answered as a stream, deciding. F4, F7, F8, F10, F15"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter
from fastapi.responses import StreamingResponse
from sse_starlette import EventSourceResponse, ServerSentEvent

from coterie.engine.replies import LiveText
from coterie.modes.draft import Contributor, ReplyText, StartedTurn, Thread, parser_for, sse_frames
from coterie.surfaces.web.draft_person import CurrentPerson
from coterie.surfaces.web.draft_route import DraftRoute, LastEventId
from coterie.surfaces.web.draft_shapes import (
    AcceptRequest,
    DeclineRequest,
    ProposalResponse,
    StartedTurnResponse,
    ThreadDetailResponse,
    ThreadMessageRequest,
)
from coterie.surfaces.web.errors import ERROR_RESPONSES
from coterie.surfaces.web.house import Here, House
from coterie.surfaces.web.shapes import DoneResponse

threads_router = APIRouter(prefix="/draft", tags=["draft"], responses=ERROR_RESPONSES, route_class=DraftRoute)
_THREAD, _CHANGE = "/threads/{thread}", "/changes/{change}"


@threads_router.get(_THREAD, summary="A thread with its messages, notes and proposals")
async def show(house: Here, thread: str) -> ThreadDetailResponse:
    return ThreadDetailResponse.of(house.draft, house.draft.thread_queries.thread(f"room:{thread}"))


@threads_router.post(
    _THREAD + "/turns",
    summary="Say something; the answer is an event stream: chunks in base64, `changes`, `DONE`",
    response_class=StreamingResponse,
)
async def send_message(
    house: Here, who: CurrentPerson, thread: str, taken: ThreadMessageRequest, after: LastEventId
) -> StreamingResponse:
    """With the same `key` again, and `Last-Event-ID`, it goes on after that event."""
    asked = await _start_turn(house, who, thread, taken)
    return _stream(house, house.draft.thread_queries.thread(f"room:{thread}"), asked.reply, after)


@threads_router.post(_THREAD + "/messages", summary="The same, answered at once: the reply is heard on the live stream")
async def send_message_async(
    house: Here, who: CurrentPerson, thread: str, taken: ThreadMessageRequest
) -> StartedTurnResponse:
    return StartedTurnResponse.of(await _start_turn(house, who, thread, taken))


@threads_router.get(
    _THREAD + "/turns/{reply}",
    summary="The same stream of a reply, from `Last-Event-ID` on",
    response_class=StreamingResponse,
)
async def reply_stream(house: Here, thread: str, reply: str, after: LastEventId) -> StreamingResponse:
    found = house.draft.thread_queries.thread(f"room:{thread}")
    house.draft.timeline.turn(found.room, reply)
    return _stream(house, found, reply, after)


@threads_router.get(
    _THREAD + "/events",
    summary="The live stream for a page: `snapshot`, then `change` and `token` events as JSON",
    response_class=EventSourceResponse,
)
async def events(house: Here, thread: str, after: LastEventId) -> EventSourceResponse:
    found = house.draft.thread_queries.thread(f"room:{thread}")
    return EventSourceResponse(_live(house, found, after), sep="\n", ping=15, send_timeout=60)


@threads_router.post(_THREAD + "/stop", summary="Stop the reply; what it said and proposed is kept")
async def stop(house: Here, thread: str) -> DoneResponse:
    return DoneResponse(done=await house.draft.stop_reply(f"room:{thread}"))


@threads_router.post(
    _THREAD + "/accept", summary="Accept every fresh proposal, one commit each, in the document's order"
)
async def accept_all(house: Here, who: CurrentPerson, thread: str) -> list[ProposalResponse]:
    return [ProposalResponse.of(one) for one in await house.draft.accept_all(f"room:{thread}", who)]


@threads_router.get(_CHANGE, summary="A proposal as it stands")
async def change_shown(house: Here, change: str) -> ProposalResponse:
    return ProposalResponse.of(house.draft.proposal_queries.proposal(change))


@threads_router.post(_CHANGE + "/accept", summary="Accept a proposal, as it is or edited: one commit")
async def accept(house: Here, who: CurrentPerson, change: str, taken: AcceptRequest | None = None) -> ProposalResponse:
    return ProposalResponse.of(await house.draft.accept(change, who, text=taken.text if taken else None))


@threads_router.post(_CHANGE + "/decline", summary="Decline a proposal, with a comment that the model will know")
async def decline(
    house: Here, who: CurrentPerson, change: str, taken: DeclineRequest | None = None
) -> ProposalResponse:
    return ProposalResponse.of(await house.draft.decline(change, who, taken.comment if taken else ""))


@threads_router.post(_CHANGE + "/withdraw", summary="Take a proposal back")
async def withdraw(house: Here, who: CurrentPerson, change: str) -> ProposalResponse:
    return ProposalResponse.of(await house.draft.withdraw(change, who.id))


@threads_router.post(_CHANGE + "/undo", summary="Take an accepted proposal back: a commit, and it is pending again")
async def undo(house: Here, who: CurrentPerson, change: str) -> ProposalResponse:
    return ProposalResponse.of(await house.draft.undo(change, who))


@threads_router.post(_CHANGE + "/repropose", summary="A stale proposal made anew for the text as it is")
async def repropose(house: Here, who: CurrentPerson, change: str) -> ProposalResponse:
    return ProposalResponse.of(await house.draft.repropose(change, who))


async def _start_turn(house: House, who: Contributor, thread: str, taken: ThreadMessageRequest) -> StartedTurn:
    selection = taken.selection.span() if taken.selection else None
    exact = taken.selection.exact if taken.selection else ""
    room = f"room:{thread}"
    return await house.draft.send_message(
        room, taken.text, who, to=taken.to, selection=selection, exact=exact, key=taken.key
    )


def _stream(house: House, thread: Thread, reply: str, after: int | None) -> StreamingResponse:
    draft = house.draft
    parser = parser_for(thread.member(draft.timeline.turn(thread.room, reply).speaker).format)
    return StreamingResponse(
        sse_frames(draft.feed, draft.timeline, thread.room, reply, parser, after or 0),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


async def _live(house: House, thread: Thread, after: int | None) -> AsyncIterator[ServerSentEvent]:
    draft = house.draft
    async with draft.feed.follow(thread.room, after) as following:
        if after is None:
            following.after = draft.feed.last_id()
            whole = ThreadDetailResponse.of(draft, thread).model_dump(mode="json")
            yield _event("snapshot", whole, following.after)
        reply, offset, parser = "", 0, parser_for("tags")
        async for news in following:
            if not isinstance(news, LiveText):
                told = {"id": news.id, "kind": news.kind, "actor": news.actor, "turn": news.turn}
                payload = news.payload.model_dump(mode="json")
                yield _event("change", {**told, "at": news.ts.isoformat(), "payload": payload}, news.id)
                continue
            if news.reply != reply:
                speaker = draft.timeline.turn(thread.room, news.reply).speaker
                reply, offset, parser = news.reply, 0, parser_for(thread.member(speaker).format)
            text = "".join(piece.text for piece in parser.feed(news.text) if isinstance(piece, ReplyText))
            if text:
                yield _event("token", {"reply": reply, "offset": offset, "text": text})
                offset += len(text)


def _event(name: str, told: dict[str, Any], event_id: int | None = None) -> ServerSentEvent:
    data = json.dumps(told, ensure_ascii=True)
    return ServerSentEvent(data, event=name, id=None if event_id is None else str(event_id), sep="\n")
