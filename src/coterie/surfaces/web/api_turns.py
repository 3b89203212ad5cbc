"""Turns: saying something, being answered, and being answered differently. S11, S12, S22"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response, status

from coterie.modes.story import StartedTurn
from coterie.surfaces.web.errors import ERROR_RESPONSES
from coterie.surfaces.web.house import Here, House
from coterie.surfaces.web.shapes import (
    AlternativeReply,
    ChooseReplyRequest,
    MessageRequest,
    RegenerateRequest,
    ReplyResponse,
    TurnPage,
    TurnResponse,
)

turns_router = APIRouter(prefix="/chats/{chat}", tags=["turns"], responses=ERROR_RESPONSES)
Wait = Annotated[bool, Query(description="Answer only when the reply is whole, with its text.")]
_ACCEPTED = status.HTTP_202_ACCEPTED


@turns_router.get("/turns", summary="The newest turns, oldest first; `before` goes further back")
async def turns(
    house: Here,
    chat: str,
    before: Annotated[int | None, Query(ge=1)] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> TurnPage:
    story = house.story
    found = story.chats.chat(f"room:{chat}")
    names = story.participants.names(found)
    page = story.timeline.latest(found.room, limit, before)
    return TurnPage(
        turns=[TurnResponse.of(turn, names) for turn in page], before=page[0].seq if len(page) == limit else None
    )


@turns_router.post(
    "/turns",
    summary="Say something. It is durable before any model is asked",
    status_code=_ACCEPTED,
    responses={200: {"model": ReplyResponse, "description": "With `wait=true`: the reply, whole or broken off."}},
)
async def say(house: Here, chat: str, said: MessageRequest, response: Response, wait: Wait = False) -> ReplyResponse:
    begun = await house.story.say(f"room:{chat}", said.text, speaker=said.speaker, to=said.to, key=said.key)
    return await _reply_response(house, chat, begun, response, wait)


@turns_router.post(
    "/regenerate",
    summary="Another reply to the last message, which may be changed",
    status_code=_ACCEPTED,
    responses={200: {"model": ReplyResponse, "description": "With `wait=true`: the reply, whole or broken off."}},
)
async def regenerate(
    house: Here, chat: str, response: Response, again: RegenerateRequest | None = None, wait: Wait = False
) -> ReplyResponse:
    again = again or RegenerateRequest()
    begun = await house.story.regenerate(f"room:{chat}", text=again.text, speaker=again.speaker)
    return await _reply_response(house, chat, begun, response, wait)


@turns_router.get("/alternatives", summary="Every reply there was to a message; to the last one unless told otherwise")
async def alternatives(house: Here, chat: str, turn: str | None = None) -> list[AlternativeReply]:
    story, room = house.story, _room_of(house, chat)
    if turn is None:
        latest = story.timeline.latest(room, 1)
        if not latest:
            return []
        turn = latest[0].id
    chosen = {one.id for one in story.timeline.latest(room, 500)}
    return [
        AlternativeReply(reply=one.reply, text=one.text, truncated=one.truncated, chosen=one.reply in chosen)
        for one in await story.alternatives(room, turn)
    ]


@turns_router.post("/choose", summary="Swipe to another reply to the last message; what it led to comes back with it")
async def choose(house: Here, chat: str, choice: ChooseReplyRequest) -> TurnResponse:
    room = _room_of(house, chat)
    await house.story.choose(room, choice.reply)
    names = house.story.participants.names(house.story.chats.chat(room))
    return TurnResponse.of(house.story.timeline.turn(room, choice.reply), names)


def _room_of(house: House, chat: str) -> str:
    return house.story.chats.chat(f"room:{chat}").room


async def _reply_response(house: House, chat: str, begun: StartedTurn, response: Response, wait: bool) -> ReplyResponse:
    if not wait:
        return ReplyResponse.of(begun)
    response.status_code = status.HTTP_200_OK
    return await ReplyResponse.finished(house.story, f"room:{chat}", begun)
