"""Turns: saying something, being answered, and being answered differently. S11, S12, S22"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response, status

from coterie.modes.story import Begun
from coterie.surfaces.web.errors import TROUBLES
from coterie.surfaces.web.house import Here, House
from coterie.surfaces.web.shapes import Again, Alternative, Choice, Page, ReplyShape, Say, TurnShape

turns_router = APIRouter(prefix="/chats/{chat}", tags=["turns"], responses=TROUBLES)
Wait = Annotated[bool, Query(description="Answer only when the reply is whole, with its text.")]
_ACCEPTED = status.HTTP_202_ACCEPTED


@turns_router.get("/turns", summary="The newest turns, oldest first; `before` goes further back")
async def turns(
    house: Here,
    chat: str,
    before: Annotated[int | None, Query(ge=1)] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> Page:
    story = house.story
    found = story.chats.chat(f"room:{chat}")
    names = story.prompter.names(found)
    page = story.timeline.latest(found.room, limit, before)
    return Page(turns=[TurnShape.of(turn, names) for turn in page], before=page[0].seq if len(page) == limit else None)


@turns_router.post(
    "/turns",
    summary="Say something. It is durable before any model is asked",
    status_code=_ACCEPTED,
    responses={200: {"model": ReplyShape, "description": "With `wait=true`: the reply, whole or broken off."}},
)
async def say(house: Here, chat: str, said: Say, response: Response, wait: Wait = False) -> ReplyShape:
    begun = await house.story.say(f"room:{chat}", said.text, speaker=said.speaker, to=said.to, key=said.key)
    return await _told(house, chat, begun, response, wait)


@turns_router.post(
    "/regenerate",
    summary="Another reply to the last message, which may be changed",
    status_code=_ACCEPTED,
    responses={200: {"model": ReplyShape, "description": "With `wait=true`: the reply, whole or broken off."}},
)
async def regenerate(
    house: Here, chat: str, response: Response, again: Again | None = None, wait: Wait = False
) -> ReplyShape:
    again = again or Again()
    begun = await house.story.regenerate(f"room:{chat}", text=again.text, speaker=again.speaker)
    return await _told(house, chat, begun, response, wait)


@turns_router.get("/alternatives", summary="Every reply there was to a message; to the last one unless told otherwise")
async def alternatives(house: Here, chat: str, turn: str | None = None) -> list[Alternative]:
    story, room = house.story, story_room(house, chat)
    if turn is None:
        latest = story.timeline.latest(room, 1)
        if not latest:
            return []
        turn = latest[0].id
    chosen = {one.id for one in story.timeline.latest(room, 500)}
    return [
        Alternative(reply=one.reply, text=one.text, truncated=one.truncated, chosen=one.reply in chosen)
        for one in await story.alternatives(room, turn)
    ]


@turns_router.post("/choose", summary="Swipe to another reply to the last message; what it led to comes back with it")
async def choose(house: Here, chat: str, choice: Choice) -> TurnShape:
    room = story_room(house, chat)
    await house.story.choose(room, choice.reply)
    names = house.story.prompter.names(house.story.chats.chat(room))
    return TurnShape.of(house.story.timeline.turn(room, choice.reply), names)


def story_room(house: House, chat: str) -> str:
    return house.story.chats.chat(f"room:{chat}").room


async def _told(house: House, chat: str, begun: Begun, response: Response, wait: bool) -> ReplyShape:
    if not wait:
        return ReplyShape.of(begun)
    response.status_code = status.HTTP_200_OK
    return await ReplyShape.finished(house.story, f"room:{chat}", begun)
