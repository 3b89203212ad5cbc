"""Chats: which there are, how they stand, who is there, and where they branch. S5, S6, S15, S23, S24"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response, status

from coterie.modes.story import (
    EDITABLE_FIELDS,
    ChatDetails,
    ChatRewindImpact,
    ChatSearchHit,
    PromptQueries,
    ReadMarks,
    StartedTurn,
)
from coterie.surfaces.web.shared.dependencies import Here, House
from coterie.surfaces.web.shared.errors import ERROR_RESPONSES
from coterie.surfaces.web.story.schemas import (
    AlternativeReply,
    ChatResponse,
    ChooseReplyRequest,
    DoneResponse,
    EditsRequest,
    ForkRequest,
    InviteRequest,
    MessageRequest,
    PinRequest,
    PromptResponse,
    RegenerateRequest,
    ReplyResponse,
    RewindRequest,
    TurnPage,
    TurnResponse,
)

router = APIRouter(prefix="/chats", tags=["chats"], responses=ERROR_RESPONSES)


@router.get("", summary="All chats, newest first")
async def chats(house: Here) -> list[ChatResponse]:
    return [ChatResponse.of(house, chat) for chat in house.story.chats.chats()]


@router.get("/{chat}", summary="A chat as it stands")
async def show(house: Here, chat: str) -> ChatResponse:
    return ChatResponse.of(house, house.story.chats.chat(f"room:{chat}"))


@router.post("/{chat}/read", summary="All of it has been read: nothing in it is new")
async def mark_read(house: Here, chat: str) -> ChatResponse:
    found = house.story.chats.chat(f"room:{chat}")
    await ReadMarks(house.store).mark_read(found.room)
    return ChatResponse.of(house, found)


@router.get("/{chat}/prompt/{reply}", summary="Exactly what a model was told for a reply")
async def prompt(house: Here, chat: str, reply: str) -> PromptResponse:
    return PromptResponse.of(PromptQueries(house.store).inspect(f"room:{chat}", reply))


@router.post("/{chat}/guests", summary="Invite a second character", status_code=status.HTTP_201_CREATED)
async def invite(house: Here, chat: str, guest: InviteRequest) -> ChatResponse:
    await house.story.invite(f"room:{chat}", guest.bot)
    return ChatResponse.of(house, house.story.chats.chat(f"room:{chat}"))


@router.delete("/{chat}/guests/{bot}", summary="Let a guest leave")
async def remove_guest(house: Here, chat: str, bot: str) -> ChatResponse:
    await house.story.remove_guest(f"room:{chat}", bot)
    return ChatResponse.of(house, house.story.chats.chat(f"room:{chat}"))


@router.post("/{chat}/scene/close", summary="Close the scene: it is summarised, and the next one begins")
async def close_scene(house: Here, chat: str) -> ChatResponse:
    await house.story.close_scene(f"room:{chat}")
    return ChatResponse.of(house, house.story.chats.chat(f"room:{chat}"))


@router.get("/{chat}/rewind/{turn}", summary="What a rewind to this turn would take back")
async def preview(house: Here, chat: str, turn: str) -> ChatRewindImpact:
    return await house.story.preview_rewind(f"room:{chat}", turn)


@router.post("/{chat}/rewind", summary="Back to how things were right after a turn")
async def rewind(house: Here, chat: str, at: RewindRequest) -> ChatResponse:
    await house.story.rewind(f"room:{chat}", at.turn)
    return ChatResponse.of(house, house.story.chats.chat(f"room:{chat}"))


@router.post("/{chat}/undo", summary="Undo the last rewind, as long as nothing new was said")
async def undo(house: Here, chat: str) -> ChatResponse:
    await house.story.undo_rewind(f"room:{chat}")
    return ChatResponse.of(house, house.story.chats.chat(f"room:{chat}"))


@router.post(
    "/{chat}/fork", summary="A new chat that shares the past up to a turn", status_code=status.HTTP_201_CREATED
)
async def fork(house: Here, chat: str, at: ForkRequest) -> ChatResponse:
    return ChatResponse.of(house, await house.story.fork(f"room:{chat}", at.turn, at.title))


@router.post("/{chat}/stop", summary="Stop whoever is speaking; what was said is kept")
async def stop(house: Here, chat: str) -> DoneResponse:
    return DoneResponse(done=await house.story.stop(f"room:{chat}"))


# The drawer beside a chat: looked into, and corrected by hand. S21


drawer_router = APIRouter(prefix="/chats/{chat}", tags=["drawer"], responses=ERROR_RESPONSES)


@drawer_router.get("/drawer", summary="Scene, place, activities, feelings both ways, memories, pins, clock")
async def drawer(house: Here, chat: str) -> ChatDetails:
    return _drawer(house, chat)


@drawer_router.patch(
    "/drawer",
    summary="Correct what the drawer shows; each correction is kept with what stood there before",
    description=f"Fields: {', '.join(f'`{field}`' for field in EDITABLE_FIELDS)}. WHO is `you` or a character's id.",
)
async def correct(house: Here, chat: str, told: EditsRequest) -> ChatDetails:
    await house.story.edit(f"room:{chat}", told.edits)
    return _drawer(house, chat)


@drawer_router.put(
    "/memories/{memory}/pin", summary="Pin a memory, or no longer; at most eight of a character are pinned"
)
async def pin(house: Here, chat: str, memory: str, told: PinRequest) -> ChatDetails:
    await house.story.pin(f"room:{chat}", memory, told.pinned)
    return _drawer(house, chat)


@drawer_router.delete(
    "/memories/{memory}", summary="Forget a memory for good: it does not come back, nor what says the same"
)
async def forget(house: Here, chat: str, memory: str) -> ChatDetails:
    await house.story.forget(f"room:{chat}", memory)
    return _drawer(house, chat)


def _drawer(house: House, chat: str) -> ChatDetails:
    return house.story.details(f"room:{chat}")


# Looking for what was said, in every chat. S17


search_router = APIRouter(tags=["search"], responses=ERROR_RESPONSES)


@search_router.get("/search", summary="What was said in any chat, the best match first")
async def find(
    house: Here,
    q: Annotated[str, Query(max_length=1_000, description="Every word must occur, or one that begins with it.")],
    chat: Annotated[str | None, Query(description="Only in this chat.")] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
) -> list[ChatSearchHit]:
    room = house.story.chats.chat(f"room:{chat}").room if chat is not None else None
    return house.story.search(q, room=room, limit=limit, offset=offset)


# Turns: saying something, being answered, and being answered differently. S11, S12, S22


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
