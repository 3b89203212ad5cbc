"""The API for crowd rooms: messages, sessions, members, moderation, and the live stream of a room."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

import anyio
from fastapi import APIRouter, Header, Query
from pydantic import Field
from sse_starlette import EventSourceResponse, ServerSentEvent

from coterie.base.ids import new_id
from coterie.base.supervisor import run_once
from coterie.base.values import Count, Int64, parse_int64
from coterie.characters import Characters
from coterie.eventstore import Store, WhenSlow
from coterie.modes.crowd import (
    MAX_OUTSTANDING_BYTES,
    SAMPLE,
    AuditRecord,
    ChatIdentity,
    ChatMessage,
    CrowdRoom,
    CrowdRuled,
    CrowdService,
    Encoding,
    IdentityRefused,
    LineSource,
    Persona,
    RoomConfig,
    Ruling,
    SenderPost,
    StreamContext,
    Trends,
    audit_records,
    character_from_persona,
)
from coterie.surfaces.web.shared.access import Confirmed
from coterie.surfaces.web.shared.dependencies import CharacterImporterDep, CharactersDep, CrowdDep, StoreDep
from coterie.surfaces.web.shared.errors import ERROR_RESPONSES
from coterie.surfaces.web.story.schemas import CharacterResponse, DoneResponse, RequestModel, ResponseModel

router = APIRouter(prefix="/crowd", tags=["crowd"], responses=ERROR_RESPONSES)
_MAX_LISTED = 500


class CrowdRoomResponse(ResponseModel):
    name: str
    title: str
    about: str
    personas: list[str]
    state: str
    """`quiet`, `waking` (the model is being loaded) or `live`."""
    stream: str
    speaking: str
    error: str
    """Why the last session ended early, or what a running one lacks; empty if nothing is wrong."""
    config_error: str
    """What is wrong with the room's files; their last valid version is in use."""
    readers: int
    last: int
    """The number of the room's last message."""

    @classmethod
    def of(cls, room: CrowdRoom) -> CrowdRoomResponse:
        return cls(
            name=room.rules.name,
            title=room.rules.title,
            about=room.rules.about,
            personas=[persona.name for persona in room.authored_personas],
            state=room.state,
            stream=room.stream,
            speaking=room.line_source,
            error=" ".join(filter(None, [room.problem, room.gateway.problem])),
            config_error=room.config_problem,
            readers=room.fanout.readers,
            last=room.gateway.admission.last_number,
        )


class StartSessionRequest(RequestModel):
    stream: str = Field(default=SAMPLE, max_length=2_000)
    """`sample`, the name of a file in the folder `configs/streams` (script, subtitles, text, audio), or an address that
    `crowd.stream_addresses` allows. Any other file or address needs a confirmation."""
    speaking: LineSource = "model"


class ChatLineRequest(RequestModel):
    text: str = Field(min_length=1, max_length=4_000)
    reply_to: str | None = Field(default=None, max_length=64, pattern=r"^[!-~]+$")
    id: str | None = Field(default=None, max_length=64, pattern=r"^[!-~]+$")
    """Chosen by the client; a repeated id is the same message."""


class ModerationRequest(RequestModel):
    what: Ruling
    who: str = Field(default="", max_length=40, pattern=r"^[^\x00-\x1f\x7f@\u2028\u2029]*$")
    seconds: float | None = Field(default=None, ge=0, le=10_000_000)
    on: bool = True
    reason: str = Field(default="", max_length=300)
    message: str = Field(default="", max_length=64, pattern=r"^[!-~]*$")
    """The id of the message to delete."""


class RevertRequest(RequestModel):
    to: Count


class FreezeRequest(RequestModel):
    frozen: bool


class AddMemberRequest(RequestModel):
    character: str = Field(min_length=1, max_length=200)
    """By id or name."""


class TempoRequest(RequestModel):
    lines_per_minute: float = Field(gt=0, le=10_000)
    rest_s: float = Field(ge=0, le=86_400)
    stand_in: bool


class ModerationPolicyRequest(RequestModel):
    mild: Literal["allow", "flag", "refuse"]
    coarse: Literal["allow", "flag", "refuse"]
    links: Literal["allow", "listed", "none"]


class TwitchChannelRequest(RequestModel):
    channel: str = Field(max_length=25, pattern=r"^\w*$")
    """The channel whose chat is shown in the room; empty for none."""
    send: Literal["nothing", "answers", "all"] = "nothing"
    """Which lines of personas are sent to it."""


class RoomRulesRequest(RequestModel):
    """They apply at once."""

    tempo: TempoRequest
    moderation: ModerationPolicyRequest
    twitch: TwitchChannelRequest | None = None


def owner_chat_name(characters: Characters) -> str:
    """The owner's name in the chat: one line, without characters that would make it a mention."""
    name = "".join(letter for letter in characters.owner().name if letter.isprintable() and letter != "@")
    return name.strip()[:40] or "You"


@router.get("", summary="All rooms, and whether a session runs in each")
async def rooms(crowd: CrowdDep) -> list[CrowdRoomResponse]:
    return [CrowdRoomResponse.of(await crowd.room(name)) for name in crowd.configs.rooms()]


@router.get("/personas", summary="All personas that can be in a room")
async def personas(crowd: CrowdDep) -> list[Persona]:
    return list(crowd.configs.personas().values())


@router.post("/personas/{name}/meet", summary="Add a persona as a character, for stories")
async def meet(
    characters: CharactersDep, crowd: CrowdDep, character_importer: CharacterImporterDep, name: str
) -> CharacterResponse:
    persona = crowd.configs.persona(name)
    if persona.character:  # they came from there
        return CharacterResponse.of(characters.get(persona.character))
    return CharacterResponse.of(await character_importer.author(character_from_persona(persona)))


@router.get("/{room}", summary="One room")
async def one(crowd: CrowdDep, room: str) -> CrowdRoomResponse:
    return CrowdRoomResponse.of(await crowd.room(room))


@router.get("/{room}/rules", summary="The room's configuration: tempo, limits, moderation, decision parameters")
async def rules(crowd: CrowdDep, room: str) -> RoomConfig:
    return crowd.configs.room(room)


@router.put(
    "/{room}/rules", summary="Change the room's tempo, moderation and Twitch channel; stored as a file of your own"
)
async def change_rules(crowd: CrowdDep, room: str, body: RoomRulesRequest) -> RoomConfig:
    return (await crowd.change_rules(room, body.model_dump(exclude_none=True))).rules


@router.get("/{room}/messages", summary="Messages, oldest first")
async def messages(
    crowd: CrowdDep,
    room: str,
    before: Annotated[Int64 | None, Query(ge=1)] = None,
    limit: Annotated[int, Query(ge=1, le=_MAX_LISTED)] = 100,
) -> list[ChatMessage]:
    gateway = (await crowd.room(room)).gateway
    if before is None:
        return gateway.latest(limit)
    messages = await gateway.after(max(0, before - 1 - limit), limit)
    return [message for message in messages if message.number < before]


@router.post("/{room}/messages", summary="Send a message as the owner")
async def say(characters: CharactersDep, crowd: CrowdDep, room: str, body: ChatLineRequest) -> ChatMessage:
    gateway = (await crowd.room(room)).gateway
    sent = SenderPost(id=body.id or new_id(), room=room, text=body.text, reply_to=body.reply_to)
    return await gateway.post_from(ChatIdentity(owner_chat_name(characters), "owner"), sent)


@router.post("/{room}/people", summary="Add a character to a room, from the next session on")
async def add_member(characters: CharactersDep, crowd: CrowdDep, room: str, body: AddMemberRequest) -> Persona:
    return await crowd.add_member(room, characters.find(body.character).identity)


@router.post("/{room}/start", summary="Start a session around a stream")
async def start(crowd: CrowdDep, confirmed: Confirmed, room: str, body: StartSessionRequest) -> CrowdRoomResponse:
    stream = body.stream.strip() or SAMPLE
    stream = stream if confirmed else crowd.allowed_stream(stream)
    return CrowdRoomResponse.of(await crowd.start(room, stream, line_source=body.speaking))


@router.post("/{room}/stop", summary="End the session; members store what they remember")
async def stop(crowd: CrowdDep, room: str) -> CrowdRoomResponse:
    return CrowdRoomResponse.of(await crowd.stop(room))


@router.post(
    "/{room}/rulings", summary="Time out, ban, lift both, slow down, followers only, switch off, delete a message"
)
async def rule(characters: CharactersDep, crowd: CrowdDep, room: str, body: ModerationRequest) -> DoneResponse:
    gateway = (await crowd.room(room)).gateway
    await gateway.moderate(CrowdRuled(at_ms=gateway.now_ms(), by=owner_chat_name(characters), **body.model_dump()))
    return DoneResponse()


@router.get("/{room}/audit", summary="The moderation log, newest first")
async def audit(
    store: StoreDep, crowd: CrowdDep, room: str, limit: Annotated[int, Query(ge=1, le=_MAX_LISTED)] = 100
) -> list[AuditRecord]:
    return audit_records(store, (await crowd.room(room)).rules.name, limit)


@router.post("/{room}/people/{name}/revert", summary="Revert a member's traits to an earlier snapshot")
async def revert(crowd: CrowdDep, room: str, name: str, body: RevertRequest) -> DoneResponse:
    opened = await crowd.room(room)
    await opened.drift.revert(opened.persona(name), body.to)
    return DoneResponse()


@router.post("/{room}/people/{name}/freeze", summary="Freeze or unfreeze a member's traits")
async def freeze(crowd: CrowdDep, room: str, name: str, body: FreezeRequest) -> DoneResponse:
    opened = await crowd.room(room)
    await opened.drift.freeze(opened.persona(name), body.frozen)
    return DoneResponse()


# The live stream of a room, for its page and the overlay. A `frame` holds the messages of one tick, or a snapshot for a
# page that cannot keep up; a client resumes by the number of the last message.


events_router = APIRouter(tags=["crowd"], responses=ERROR_RESPONSES)
_HEARTBEAT_S = 15
_MAX_QUEUED = 500
_MAX_MISSED = 1_000
"""A page that missed more gets a snapshot."""
_Outgoing = tuple[str, str, int | None]
_PART = frozenset(["deleted"])
"""What the overlay shows beside the messages."""
_EVENT_NAMES: dict[type[Any], str] = {StreamContext: "context", Trends: "trends", AuditRecord: "audit"}


class _PageReader:
    """A page as a reader of the fan-out; bytes queued and not yet written count as outstanding."""

    encoding: Encoding = "text"

    def __init__(self, room: CrowdRoom) -> None:
        self._room = room
        self._waiting = 0
        self.outgoing: asyncio.Queue[_Outgoing | None] = asyncio.Queue()

    def write(self, data: bytes) -> None:
        self._waiting += len(data)
        self.outgoing.put_nowait(("frame", data.decode(), self._room.fanout.last_sent))
        if self._waiting > MAX_OUTSTANDING_BYTES:
            self._room.fanout.pause(self)

    def written(self, data: str) -> None:
        self._waiting -= len(data.encode())
        if not self._waiting:
            self._room.fanout.resume(self)


@events_router.get(
    "/crowd/{room}/live",
    summary="The live stream of a room: `frame`, `deleted`, `context`, `trends`, `audit`, `state` (text/event-stream)",
    response_class=EventSourceResponse,
)
async def live(
    store: StoreDep,
    crowd: CrowdDep,
    room: str,
    after: Annotated[Int64 | None, Query(ge=0)] = None,
    last_event_id: Annotated[str | None, Header()] = None,
) -> EventSourceResponse:
    return _live_response(store, await crowd.room(room), after, last_event_id)


overlay_router = APIRouter(prefix="/overlay", tags=["crowd"], responses=ERROR_RESPONSES)


@overlay_router.get(
    "/{room}/live",
    summary="The messages of a room for its overlay: `frame`, `deleted` (text/event-stream); needs the overlay's token",
    response_class=EventSourceResponse,
)
async def overlay_live(
    store: StoreDep,
    crowd: CrowdDep,
    room: str,
    token: Annotated[str, Query(max_length=1_000)] = "",
    after: Annotated[Int64 | None, Query(ge=0)] = None,
    last_event_id: Annotated[str | None, Header()] = None,
) -> EventSourceResponse:
    check_overlay_token(crowd, room, token)
    return _live_response(store, await crowd.room(room), after, last_event_id, only=_PART)


def check_overlay_token(crowd: CrowdService, room: str, token: str) -> None:
    """Raises `IdentityRefused` unless the token opens the overlay of this room."""
    if crowd.tokens.check(token, room).role != "reader":
        raise IdentityRefused(
            "This token does not open the overlay.", "Copy the overlay's address from the room's page."
        )


def _live_response(
    store: Store, room: CrowdRoom, after: int | None, last_event_id: str | None, only: frozenset[str] | None = None
) -> EventSourceResponse:
    """`only` are the events to send beside the messages; all of them if it is None."""
    if last_event_id is not None and (last := parse_int64(last_event_id)) is not None:
        after = last
    stopping = anyio.Event()
    return EventSourceResponse(
        _stream(store, room, after, stopping, only),
        sep="\n",
        ping=_HEARTBEAT_S,
        send_timeout=60,
        shutdown_event=stopping,
        shutdown_grace_period=2,
    )


async def _stream(
    store: Store, room: CrowdRoom, after: int | None, stopping: anyio.Event, only: frozenset[str] | None
) -> AsyncIterator[ServerSentEvent]:
    reader = _PageReader(room)
    missed = None if after is None else await room.gateway.after(after, _MAX_MISSED + 1)
    if missed is not None and len(missed) > _MAX_MISSED:
        missed = None
    beside = [
        run_once("live updates of a room", _listen(store, room, reader, only)),
        run_once("end of a page's updates", _end_on_shutdown(stopping, reader)),
    ]
    try:
        if only is None:
            yield _event("state", CrowdRoomResponse.of(room).model_dump_json())
            for context in room.contexts:
                yield _event("context", context.to_json())
        room.fanout.join(reader, missed)
        while (item := await reader.outgoing.get()) is not None:
            name, data, number = item
            yield _event(name, data, number)
            if name == "frame":
                reader.written(data)
    finally:
        room.fanout.leave(reader)
        for task in beside:
            task.cancel()


async def _listen(store: Store, room: CrowdRoom, reader: _PageReader, only: frozenset[str] | None) -> None:
    pattern = f"*.*.{room.rules.name}"
    try:
        async with store.bus.subscribe(pattern, limit=10_000, when_slow=WhenSlow.DROP_OLDEST) as messages:
            async for message in messages:
                if isinstance(message.body, AuditRecord) and message.body.action == "deleted":
                    reader.outgoing.put_nowait(("deleted", json.dumps({"id": message.body.message}), None))
                name = _EVENT_NAMES.get(type(message.body))
                if only is not None:
                    continue
                if name is not None:
                    # A page that does not read misses some; the next context or trend replaces them.
                    if reader.outgoing.qsize() < _MAX_QUEUED:
                        reader.outgoing.put_nowait((name, message.body.to_json(), None))
                elif message.subject.startswith("crowd.state."):
                    reader.outgoing.put_nowait(("state", CrowdRoomResponse.of(room).model_dump_json(), None))
    finally:  # end the stream, so that the page connects again
        reader.outgoing.put_nowait(None)


async def _end_on_shutdown(stopping: anyio.Event, reader: _PageReader) -> None:
    await stopping.wait()
    reader.outgoing.put_nowait(None)


def _event(name: str, data: str, number: int | None = None) -> ServerSentEvent:
    # Pydantic's JSON escapes CR and LF; U+2028 ends no line of an event stream.
    return ServerSentEvent(data, event=name, id=None if number is None else str(number), sep="\n")
