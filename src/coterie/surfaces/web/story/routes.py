"""The API for stories: chats, turns, rewind and fork, chat details, and search."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response, status

from coterie.base.redaction import redact
from coterie.base.values import Int64
from coterie.modes.story import (
    EDITABLE_FIELDS,
    Bookmark,
    ChatDetails,
    ChatRewindImpact,
    ChatSearchHit,
    PromptQueries,
    QuickReply,
    ReadMarks,
    StartedTurn,
    StoryService,
)
from coterie.surfaces.web.shared.dependencies import FILE_BODY, PicturesDep, StoreDep, StoryDep, read_upload
from coterie.surfaces.web.shared.errors import ERROR_RESPONSES
from coterie.surfaces.web.story.schemas import (
    AddReplyRequest,
    AlternativeReply,
    BookmarkRequest,
    ChangedTurns,
    ChatResponse,
    ChooseReplyRequest,
    DeletedChatResponse,
    DoneResponse,
    EditsRequest,
    EditTurnRequest,
    ForkRequest,
    HideRequest,
    InviteRequest,
    LastRewind,
    MessageRequest,
    OrganiseChatRequest,
    PersonaChoice,
    PictureResponse,
    PinRequest,
    PromptResponse,
    QuickReplies,
    QuickReplyResponse,
    RegenerateRequest,
    ReplyResponse,
    RestoreTurnsRequest,
    RewindRequest,
    SuggestionRequest,
    SuggestionResponse,
    TurnPage,
    TurnRangeRequest,
    TurnResponse,
)

router = APIRouter(prefix="/chats", tags=["chats"], responses=ERROR_RESPONSES)


@router.get("", summary="All chats that are not archived, newest first")
async def chats(store: StoreDep, story: StoryDep, archived: bool = False) -> list[ChatResponse]:
    """With `archived`, those that are."""
    hidden = story.chat_list.archived()
    listed = [chat for chat in story.chats.chats() if (chat.room in hidden) is archived]
    return [ChatResponse.of(store, story, chat) for chat in listed]


@router.get("/deleted", summary="Deleted chats, which can be restored")
async def deleted_chats(story: StoryDep) -> list[DeletedChatResponse]:
    return [DeletedChatResponse(id=one.id, title=one.title, at=one.at) for one in story.chat_list.deleted()]


@router.patch("/{chat}", summary="Rename, archive, pin or tag a chat")
async def organise(store: StoreDep, story: StoryDep, chat: str, body: OrganiseChatRequest) -> ChatResponse:
    room, chats = f"room:{chat}", story.chat_list
    story.chats.chat(room)
    if body.title is not None:
        await chats.rename(room, body.title)
    if body.archived is not None:
        await chats.archive(room, body.archived)
    if body.pinned is not None:
        await chats.pin(room, body.pinned)
    if body.tags is not None:
        await chats.tag(room, body.tags)
    return ChatResponse.of(store, story, story.chats.chat(room))


@router.post("/{chat}/duplicate", summary="Duplicate a chat", status_code=status.HTTP_201_CREATED)
async def duplicate(store: StoreDep, story: StoryDep, chat: str) -> ChatResponse:
    return ChatResponse.of(store, story, await story.chat_list.duplicate(f"room:{chat}"))


@router.delete("/{chat}", summary="Delete a chat, with what its characters remember of it; it can be restored")
async def delete(story: StoryDep, chat: str) -> DoneResponse:
    await story.chat_list.delete(f"room:{chat}")
    return DoneResponse()


@router.post("/{chat}/restore", summary="Restore a deleted chat")
async def restore(store: StoreDep, story: StoryDep, chat: str) -> ChatResponse:
    return ChatResponse.of(store, story, await story.chat_list.restore(f"room:{chat}"))


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


@router.put("/{chat}/persona", summary="Choose as whom the owner speaks from here on")
async def choose_persona(store: StoreDep, story: StoryDep, chat: str, body: PersonaChoice) -> ChatResponse:
    await story.choose_persona(f"room:{chat}", body.persona)
    return ChatResponse.of(store, story, story.chats.chat(f"room:{chat}"))


@router.post("/{chat}/guests", summary="Invite a second character", status_code=status.HTTP_201_CREATED)
async def invite(store: StoreDep, story: StoryDep, chat: str, body: InviteRequest) -> ChatResponse:
    await story.invite(f"room:{chat}", body.character)
    return ChatResponse.of(store, story, story.chats.chat(f"room:{chat}"))


@router.delete("/{chat}/guests/{character_id}", summary="Remove a guest")
async def remove_guest(store: StoreDep, story: StoryDep, chat: str, character_id: str) -> ChatResponse:
    await story.remove_guest(f"room:{chat}", character_id)
    return ChatResponse.of(store, story, story.chats.chat(f"room:{chat}"))


@router.post("/{chat}/scene/close", summary="End the scene: it is summarised and a new one begins")
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


@router.get("/{chat}/last-rewind", summary="Where to fork to get back what was rewound last")
async def last_rewind(story: StoryDep, chat: str) -> LastRewind:
    return LastRewind(turn=await story.turn_before_rewind(f"room:{chat}"))


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


# Bookmarks of all chats, and quick replies


shortcuts_router = APIRouter(tags=["chats"], responses=ERROR_RESPONSES)


@shortcuts_router.get("/bookmarks", summary="The bookmarked turns of all chats")
async def all_bookmarks(story: StoryDep) -> list[Bookmark]:
    return story.bookmarks.all()


@shortcuts_router.get("/quick-replies", summary="The texts that are sent with one click")
async def quick_replies(story: StoryDep) -> list[QuickReplyResponse]:
    return [QuickReplyResponse(**reply.model_dump()) for reply in story.bookmarks.quick_replies()]


@shortcuts_router.put("/quick-replies", summary="Change the quick replies")
async def set_quick_replies(story: StoryDep, body: QuickReplies) -> list[QuickReplyResponse]:
    await story.bookmarks.set_quick_replies(
        [QuickReply.model_validate(redact.value(reply.model_dump())) for reply in body.replies]
    )
    return await quick_replies(story)


@router.post("/{chat}/restart", summary="Begin a chat that a reset emptied again, with its opening")
async def restart(store: StoreDep, story: StoryDep, chat: str) -> ChatResponse:
    return ChatResponse.of(store, story, await story.restart(f"room:{chat}"))


# Turns


turns_router = APIRouter(prefix="/chats/{chat}", tags=["turns"], responses=ERROR_RESPONSES)
Wait = Annotated[bool, Query(description="Return only when the reply has ended, with its text.")]
_ACCEPTED = status.HTTP_202_ACCEPTED
_WAITED: dict[int | str, dict[str, Any]] = {
    200: {"model": ReplyResponse, "description": "With `wait=true`: the reply, complete or truncated."}
}


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
        turns=[
            TurnResponse.of(turn, names, name=story.participants.turn_name(story_chat, names, turn)) for turn in page
        ],
        before=page[0].seq if len(page) == limit else None,
    )


@turns_router.post(
    "/turns",
    summary="Send a message. It is stored before a model is called",
    status_code=_ACCEPTED,
    responses=_WAITED,
)
async def say(
    story: StoryDep, chat: str, body: MessageRequest, response: Response, wait: Wait = False
) -> ReplyResponse:
    started = await story.send_message(
        f"room:{chat}",
        body.text,
        speaker=body.speaker,
        to=body.to,
        key=body.key,
        reply=body.reply,
        pictures=body.pictures,
    )
    return await _reply_response(story, chat, started, response, wait)


@turns_router.post(
    "/picture", summary="Upload a picture for a message: PNG, JPEG or WebP", openapi_extra=FILE_BODY, status_code=201
)
async def upload_picture(story: StoryDep, pictures: PicturesDep, chat: str, request: Request) -> PictureResponse:
    story.chats.chat(f"room:{chat}")
    return PictureResponse(id=await asyncio.to_thread(pictures.save, await read_upload(request)))


@turns_router.post(
    "/regenerate",
    summary="Regenerate the reply to the last message, which may be edited",
    status_code=_ACCEPTED,
    responses=_WAITED,
)
async def regenerate(
    story: StoryDep, chat: str, response: Response, body: RegenerateRequest | None = None, wait: Wait = False
) -> ReplyResponse:
    body = body or RegenerateRequest()
    started = await story.regenerate(f"room:{chat}", text=body.text, speaker=body.speaker)
    return await _reply_response(story, chat, started, response, wait)


@turns_router.post("/continue", summary="Continue the last reply", status_code=_ACCEPTED, responses=_WAITED)
async def continue_reply(story: StoryDep, chat: str, response: Response, wait: Wait = False) -> ReplyResponse:
    return await _reply_response(story, chat, await story.continue_reply(f"room:{chat}"), response, wait)


@turns_router.post(
    "/reply", summary="Let a character reply after the last turn", status_code=_ACCEPTED, responses=_WAITED
)
async def add_reply(
    story: StoryDep, chat: str, response: Response, body: AddReplyRequest | None = None, wait: Wait = False
) -> ReplyResponse:
    speaker = body.speaker if body is not None else None
    return await _reply_response(story, chat, await story.add_reply(f"room:{chat}", speaker), response, wait)


@turns_router.post("/suggestion", summary="A draft of your next message, written by the model; nothing is stored")
async def suggest(story: StoryDep, chat: str, body: SuggestionRequest | None = None) -> SuggestionResponse:
    beginning = body.beginning if body is not None else ""
    return SuggestionResponse(text=await story.suggest_message(_room_of(story, chat), beginning=beginning))


@turns_router.get("/turns/deleted", summary="The deleted turns, which can be restored")
async def deleted_turns(story: StoryDep, chat: str) -> list[TurnResponse]:
    story_chat = story.chats.chat(f"room:{chat}")
    names = story.participants.names(story_chat)
    return [TurnResponse.of(turn, names) for turn in story.timeline.deleted(story_chat.room)]


@turns_router.post("/turns/delete", summary="Delete a turn, or all from one to another")
async def delete_turns(story: StoryDep, chat: str, body: TurnRangeRequest) -> ChangedTurns:
    room = _room_of(story, chat)
    return ChangedTurns(turns=await story.delete_turns(room, story.turns_between(room, body.first, body.last)))


@turns_router.post("/turns/restore", summary="Bring deleted turns back")
async def restore_turns(story: StoryDep, chat: str, body: RestoreTurnsRequest) -> ChangedTurns:
    return ChangedTurns(turns=await story.restore_turns(_room_of(story, chat), body.turns))


@turns_router.post("/turns/hide", summary="Leave turns out of prompts and memories, or let them count again")
async def hide_turns(story: StoryDep, chat: str, body: HideRequest) -> ChangedTurns:
    room = _room_of(story, chat)
    turns = story.turns_between(room, body.first, body.last)
    return ChangedTurns(turns=await story.hide_turns(room, turns, body.hidden))


@turns_router.post(
    "/turns/{turn}/analysis", summary="Update memories and relationships from an exchange again", status_code=202
)
async def analyse_turn_again(story: StoryDep, chat: str, turn: str) -> None:
    await story.analyse_again(_room_of(story, chat), turn)


@turns_router.patch("/turns/{turn}", summary="Edit a turn; a changed last reply becomes another alternative")
async def edit_turn(story: StoryDep, chat: str, turn: str, body: EditTurnRequest) -> TurnResponse:
    room = _room_of(story, chat)
    changed = await story.edit_turn(room, turn, body.text)
    return TurnResponse.of(story.timeline.turn(room, changed), story.participants.names(story.chats.chat(room)))


@turns_router.get("/turns/{turn}/versions", summary="The texts that a turn had, the present one last")
async def turn_versions(story: StoryDep, chat: str, turn: str) -> list[str]:
    return await story.turn_versions(_room_of(story, chat), turn)


@turns_router.put("/turns/{turn}/bookmark", summary="Bookmark a turn, or remove its bookmark")
async def bookmark(story: StoryDep, chat: str, turn: str, body: BookmarkRequest) -> list[Bookmark]:
    room = _room_of(story, chat)
    await story.bookmark(room, turn, body.bookmarked, body.name)
    return story.bookmarks.all(room)


@turns_router.get("/bookmarks", summary="The bookmarks of a chat")
async def bookmarks(story: StoryDep, chat: str) -> list[Bookmark]:
    return story.bookmarks.all(_room_of(story, chat))


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
