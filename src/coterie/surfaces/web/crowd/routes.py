"""Rooms of the crowd: what is said in them, who may say it, and the evenings that run. C3, C14, C16, C19"""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import Field

from coterie.base.ids import new_id
from coterie.modes.crowd import (
    SAMPLE,
    AuditRecord,
    ChatAuthor,
    ChatMessage,
    ChatPost,
    CrowdRoom,
    CrowdRuled,
    LineSource,
    Persona,
    RoomConfig,
    Ruling,
    audit_records,
    character_from_persona,
)
from coterie.surfaces.web.shared.dependencies import Here, House
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
    trouble: str
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
            trouble=room.problem,
            readers=room.fanout.readers,
            last=room.gateway.admission.last_number,
        )


class StartSessionRequest(RequestModel):
    stream: str = Field(default=SAMPLE, max_length=2_000)
    """`sample`, a file of this machine (script, subtitles, text, sound), or an address of a stream."""
    speaking: LineSource = "model"


class ChatLineRequest(RequestModel):
    text: str = Field(min_length=1, max_length=4_000)
    reply_to: str | None = Field(default=None, max_length=64)
    id: str | None = Field(default=None, max_length=64, pattern=r"^[!-~]+$")
    """Yours: the same again is the same message."""


class ModerationRequest(RequestModel):
    what: Ruling
    who: str = Field(default="", max_length=40)
    seconds: float | None = Field(default=None, ge=0, le=10_000_000)
    on: bool = True
    reason: str = Field(default="", max_length=300)


class RevertRequest(RequestModel):
    to: int = Field(ge=0)


class FreezeRequest(RequestModel):
    frozen: bool


class AddMemberRequest(RequestModel):
    character: str = Field(min_length=1, max_length=200)
    """Of the cast, by id or name."""


class TempoRequest(RequestModel):
    lines_per_minute: float = Field(gt=0, le=10_000)
    rest_s: float = Field(ge=0, le=86_400)
    stand_in: bool


class ModerationPolicyRequest(RequestModel):
    mild: Literal["allow", "flag", "refuse"]
    coarse: Literal["allow", "flag", "refuse"]
    links: Literal["allow", "listed", "none"]


class RoomRulesRequest(RequestModel):
    """Limits and moderation count at once, the tempo from the next session on."""

    tempo: TempoRequest
    moderation: ModerationPolicyRequest


def owner_chat_name(house: House) -> str:
    """As the chat knows you: one line, no sign that would make it a mention."""
    name = "".join(letter for letter in house.characters.owner().name if letter.isprintable() and letter != "@")
    return name.strip()[:40] or "You"


@router.get("", summary="Every room, and whether an evening runs in it")
async def rooms(house: Here) -> list[CrowdRoomResponse]:
    return [CrowdRoomResponse.of(await house.crowd.room(name)) for name in house.crowd.configs.rooms()]


@router.get("/personas", summary="Everybody who can be in a room")
async def personas(house: Here) -> list[Persona]:
    return list(house.crowd.configs.personas().values())


@router.post("/personas/{name}/meet", summary="Take somebody into the cast, to be met in a story")
async def meet(house: Here, name: str) -> CharacterResponse:
    persona = house.crowd.configs.persona(name)
    if persona.character:  # they came from there
        return CharacterResponse.of(house.characters.get(persona.character))
    return CharacterResponse.of(await house.character_importer.author(character_from_persona(persona)))


@router.get("/{room}", summary="One room")
async def one(house: Here, room: str) -> CrowdRoomResponse:
    return CrowdRoomResponse.of(await house.crowd.room(room))


@router.get("/{room}/rules", summary="The room's file: tempo, limits, moderation, and the numbers behind decisions")
async def rules(house: Here, room: str) -> RoomConfig:
    return house.crowd.configs.room(room)


@router.put("/{room}/rules", summary="Change the room's tempo and moderation; kept as a file of your own")
async def change_rules(house: Here, room: str, told: RoomRulesRequest) -> RoomConfig:
    return (await house.crowd.change_rules(room, told.model_dump())).rules


@router.get("/{room}/messages", summary="What was said, oldest first")
async def messages(
    house: Here,
    room: str,
    before: Annotated[int | None, Query(ge=1)] = None,
    limit: Annotated[int, Query(ge=1, le=_MAX_LISTED)] = 100,
) -> list[ChatMessage]:
    gateway = (await house.crowd.room(room)).gateway
    if before is None:
        return gateway.latest(limit)
    found = await gateway.after(max(0, before - 1 - limit))
    return [message for message in found if message.number < before][-limit:]


@router.post("/{room}/messages", summary="Say something, as yourself")
async def say(house: Here, room: str, told: ChatLineRequest) -> ChatMessage:
    gateway = (await house.crowd.room(room)).gateway
    author = ChatAuthor(name=owner_chat_name(house), kind="human")
    post = ChatPost(id=told.id or new_id(), room=room, author=author, text=told.text, reply_to=told.reply_to)
    return await gateway.post(post)


@router.post("/{room}/seats", summary="Let somebody of the cast sit in a room, from the next session on")
async def seat(house: Here, room: str, told: AddMemberRequest) -> Persona:
    return await house.crowd.add_member(room, house.characters.find(told.character).identity)


@router.post("/{room}/start", summary="Begin an evening around a stream")
async def start(house: Here, room: str, told: StartSessionRequest) -> CrowdRoomResponse:
    return CrowdRoomResponse.of(await house.crowd.start(room, told.stream.strip() or SAMPLE, line_source=told.speaking))


@router.post("/{room}/stop", summary="End the evening; everybody looks back")
async def stop(house: Here, room: str) -> CrowdRoomResponse:
    return CrowdRoomResponse.of(await house.crowd.stop(room))


@router.post("/{room}/rulings", summary="Time out, ban, pardon, slow down, followers only, switch off")
async def rule(house: Here, room: str, told: ModerationRequest) -> DoneResponse:
    gateway = (await house.crowd.room(room)).gateway
    await gateway.moderate(CrowdRuled(at_ms=gateway.now_ms(), by=owner_chat_name(house), **told.model_dump()))
    return DoneResponse()


@router.get("/{room}/audit", summary="What was refused, redacted, noted or ruled, newest first")
async def audit(house: Here, room: str, limit: Annotated[int, Query(ge=1, le=_MAX_LISTED)] = 100) -> list[AuditRecord]:
    return audit_records(house.store, (await house.crowd.room(room)).rules.name, limit)


@router.post("/{room}/people/{name}/revert", summary="Take somebody back to an earlier snapshot, exactly")
async def revert(house: Here, room: str, name: str, told: RevertRequest) -> DoneResponse:
    opened = await house.crowd.room(room)
    await opened.drift.revert(opened.persona(name), told.to)
    return DoneResponse()


@router.post("/{room}/people/{name}/freeze", summary="Forbid somebody to change, or allow it again")
async def freeze(house: Here, room: str, name: str, told: FreezeRequest) -> DoneResponse:
    opened = await house.crowd.room(room)
    await opened.drift.freeze(opened.persona(name), told.frozen)
    return DoneResponse()
