"""The API for stories: chats, turns, rewind and fork, chat details, and search."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response, status

from coterie.base.values import Int64
from coterie.modes.story import (
    EDITABLE_FIELDS,
    ChatDetails,
    ChatRewindImpact,
    ChatSearchHit,
    PromptQueries,
    ReadMarks,
    StartedTurn,
    StoryService,
)
from coterie.surfaces.web.shared.dependencies import StoreDep, StoryDep
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
async def chats(store: StoreDep, story: StoryDep) -> list[ChatResponse]:
    return [ChatResponse.of(store, story, chat) for chat in story.chats.chats()]


@router.get("/{chat}", summary="A chat")
async def show(store: StoreDep, story: StoryDep, chat: str) -> ChatResponse:
    return ChatResponse.of(store, story, story.chats.chat(f"room:{chat}"))


@router.post("/{chat}/read", summary="Mark a chat as read")
async def mark_read(store: StoreDep, story: StoryDep, chat: str) -> ChatResponse:
    story_chat = story.chats.chat(f"room:{chat}")
    await ReadMarks(store).mark_read(story_chat.room)
    return ChatResponse.of(store, story, story_chat)


@router.get("/{chat}/prompt/{reply}", summary="The exact prompt of a reply")
async def prompt(store: StoreDep, chat: str, reply: str) -> PromptResponse:
    return PromptResponse.of(PromptQueries(store).inspect(f"room:{chat}", reply))


@router.post("/{chat}/guests", summary="Invite a second character", status_code=status.HTTP_201_CREATED)
async def invite(store: StoreDep, story: StoryDep, chat: str, body: InviteRequest) -> ChatResponse:
    await story.invite(f"room:{chat}", body.character)
    return ChatResponse.of(store, story, story.chats.chat(f"room:{chat}"))


@router.delete("/{chat}/guests/{character_id}", summary="Remove a guest")
async def remove_guest(store: StoreDep, story: StoryDep, chat: str, character_id: str) -> ChatResponse:
    await story.remove_guest(f"room:{chat}", character_id)
    return ChatResponse.of(store, story, story.chats.chat(f"room:{chat}"))


@router.post("/{chat}/scene/close", summary="Close the scene: it is summarised and a new one begins")
async def close_scene(store: StoreDep, story: StoryDep, chat: str) -> ChatResponse:
    await story.close_scene(f"room:{chat}")
    return ChatResponse.of(store, story, story.chats.chat(f"room:{chat}"))


@router.get("/{chat}/rewind/{turn}", summary="What a rewind to this turn would take back")
async def preview(story: StoryDep, chat: str, turn: str) -> ChatRewindImpact:
    return await story.preview_rewind(f"room:{chat}", turn)


@router.post("/{chat}/rewind", summary="Rewind to the state right after a turn")
async def rewind(store: StoreDep, story: StoryDep, chat: str, body: RewindRequest) -> ChatResponse:
    await story.rewind(f"room:{chat}", body.turn)
    return ChatResponse.of(store, story, story.chats.chat(f"room:{chat}"))


@router.post("/{chat}/undo", summary="Undo the last rewind, if nothing was said since")
async def undo(store: StoreDep, story: StoryDep, chat: str) -> ChatResponse:
    await story.undo_rewind(f"room:{chat}")
    return ChatResponse.of(store, story, story.chats.chat(f"room:{chat}"))


@router.post("/{chat}/fork", summary="Fork a chat at a turn", status_code=status.HTTP_201_CREATED)
async def fork(store: StoreDep, story: StoryDep, chat: str, body: ForkRequest) -> ChatResponse:
    return ChatResponse.of(store, story, await story.fork(f"room:{chat}", body.turn, body.title))


@router.post("/{chat}/stop", summary="Stop the running reply; its text is kept")
async def stop(story: StoryDep, chat: str) -> DoneResponse:
    return DoneResponse(done=await story.stop(f"room:{chat}"))


# The state of a chat, and corrections to it


drawer_router = APIRouter(prefix="/chats/{chat}", tags=["drawer"], responses=ERROR_RESPONSES)


@drawer_router.get("/drawer", summary="Scene, place, activities, relationships, memories, pins, clock")
async def drawer(story: StoryDep, chat: str) -> ChatDetails:
    return _drawer(story, chat)


@drawer_router.patch(
    "/drawer",
    summary="Correct the state; each edit is stored with the previous value",
    description=f"Fields: {', '.join(f'`{field}`' for field in EDITABLE_FIELDS)}. WHO is `you` or a character's id.",
)
async def correct(story: StoryDep, chat: str, body: EditsRequest) -> ChatDetails:
    await story.edit(f"room:{chat}", body.edits)
    return _drawer(story, chat)


@drawer_router.put("/memories/{memory_id}/pin", summary="Pin or unpin a memory; at most eight per character")
async def pin(story: StoryDep, chat: str, memory_id: str, body: PinRequest) -> ChatDetails:
    await story.pin(f"room:{chat}", memory_id, body.pinned)
    return _drawer(story, chat)


@drawer_router.delete("/memories/{memory_id}", summary="Forget a memory permanently, with its duplicates")
async def forget(story: StoryDep, chat: str, memory_id: str) -> ChatDetails:
    await story.forget(f"room:{chat}", memory_id)
    return _drawer(story, chat)


def _drawer(story: StoryService, chat: str) -> ChatDetails:
    return story.details(f"room:{chat}")


# Search


search_router = APIRouter(tags=["search"], responses=ERROR_RESPONSES)


@search_router.get("/search", summary="Turns of all chats that match, best first")
async def find(
    story: StoryDep,
    q: Annotated[str, Query(max_length=1_000, description="All words must occur, at least as prefixes.")],
    chat: Annotated[str | None, Query(description="Only in this chat.")] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
) -> list[ChatSearchHit]:
    room = story.chats.chat(f"room:{chat}").room if chat is not None else None
    return story.search(q, room=room, limit=limit, offset=offset)


# Turns


turns_router = APIRouter(prefix="/chats/{chat}", tags=["turns"], responses=ERROR_RESPONSES)
Wait = Annotated[bool, Query(description="Return only when the reply has ended, with its text.")]
_ACCEPTED = status.HTTP_202_ACCEPTED


@turns_router.get("/turns", summary="The newest turns, oldest first; `before` goes further back")
async def turns(
    story: StoryDep,
    chat: str,
    before: Annotated[Int64 | None, Query(ge=1)] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> TurnPage:
    story_chat = story.chats.chat(f"room:{chat}")
    names = story.participants.names(story_chat)
    page = story.timeline.latest(story_chat.room, limit, before)
    return TurnPage(
        turns=[TurnResponse.of(turn, names) for turn in page], before=page[0].seq if len(page) == limit else None
    )


@turns_router.post(
    "/turns",
    summary="Send a message. It is stored before a model is called",
    status_code=_ACCEPTED,
    responses={200: {"model": ReplyResponse, "description": "With `wait=true`: the reply, complete or truncated."}},
)
async def say(
    story: StoryDep, chat: str, body: MessageRequest, response: Response, wait: Wait = False
) -> ReplyResponse:
    started = await story.send_message(f"room:{chat}", body.text, speaker=body.speaker, to=body.to, key=body.key)
    return await _reply_response(story, chat, started, response, wait)


@turns_router.post(
    "/regenerate",
    summary="Regenerate the reply to the last message, which may be edited",
    status_code=_ACCEPTED,
    responses={200: {"model": ReplyResponse, "description": "With `wait=true`: the reply, complete or truncated."}},
)
async def regenerate(
    story: StoryDep, chat: str, response: Response, body: RegenerateRequest | None = None, wait: Wait = False
) -> ReplyResponse:
    body = body or RegenerateRequest()
    started = await story.regenerate(f"room:{chat}", text=body.text, speaker=body.speaker)
    return await _reply_response(story, chat, started, response, wait)


@turns_router.get("/alternatives", summary="All replies to a message, by default the last")
async def alternatives(story: StoryDep, chat: str, turn: str | None = None) -> list[AlternativeReply]:
    room = _room_of(story, chat)
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


@turns_router.post("/choose", summary="Choose another reply to the last message, with the state it led to")
async def choose(story: StoryDep, chat: str, body: ChooseReplyRequest) -> TurnResponse:
    room = _room_of(story, chat)
    await story.choose(room, body.reply)
    names = story.participants.names(story.chats.chat(room))
    return TurnResponse.of(story.timeline.turn(room, body.reply), names)


def _room_of(story: StoryService, chat: str) -> str:
    return story.chats.chat(f"room:{chat}").room


async def _reply_response(
    story: StoryService, chat: str, begun: StartedTurn, response: Response, wait: bool
) -> ReplyResponse:
    if not wait:
        return ReplyResponse.of(begun)
    response.status_code = status.HTTP_200_OK
    return await ReplyResponse.finished(story, f"room:{chat}", begun)
