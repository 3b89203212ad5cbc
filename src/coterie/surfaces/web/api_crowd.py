"""Rooms of the crowd: what is said in them, who may say it, and the evenings that run. C3, C14, C16, C19"""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import Field

from coterie.base.ids import new_id
from coterie.modes.crowd import (
    SAMPLE,
    AuditRecord,
    Author,
    ChatMessage,
    ChatPost,
    CrowdRuled,
    OpenRoom,
    Persona,
    RoomFile,
    Ruling,
    Speaking,
    audits,
    character_of,
)
from coterie.surfaces.web.errors import TROUBLES
from coterie.surfaces.web.house import Here, House
from coterie.surfaces.web.shapes import BotShape, Done, Given, Taken

router = APIRouter(prefix="/crowd", tags=["crowd"], responses=TROUBLES)
_MOST = 500


class CrowdShape(Given):
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
    def of(cls, room: OpenRoom) -> CrowdShape:
        return cls(
            name=room.rules.name,
            title=room.rules.title,
            about=room.rules.about,
            personas=[persona.name for persona in room.authored],
            state=room.state,
            stream=room.stream,
            speaking=room.speaking,
            trouble=room.trouble,
            readers=room.fanout.readers,
            last=room.gateway.door.number,
        )


class EveningTaken(Taken):
    stream: str = Field(default=SAMPLE, max_length=2_000)
    """`sample`, a file of this machine (script, subtitles, text, sound), or an address of a stream."""
    speaking: Speaking = "model"


class LineTaken(Taken):
    text: str = Field(min_length=1, max_length=4_000)
    reply_to: str | None = Field(default=None, max_length=64)
    id: str | None = Field(default=None, max_length=64, pattern=r"^[!-~]+$")
    """Yours: the same again is the same message."""


class RulingTaken(Taken):
    what: Ruling
    who: str = Field(default="", max_length=40)
    seconds: float | None = Field(default=None, ge=0, le=10_000_000)
    on: bool = True
    reason: str = Field(default="", max_length=300)


class RevertTaken(Taken):
    to: int = Field(ge=0)


class FreezeTaken(Taken):
    frozen: bool


class SeatTaken(Taken):
    character: str = Field(min_length=1, max_length=200)
    """Of the cast, by id or name."""


class TempoTaken(Taken):
    lines_per_minute: float = Field(gt=0, le=10_000)
    rest_s: float = Field(ge=0, le=86_400)
    stand_in: bool


class PolicyTaken(Taken):
    mild: Literal["allow", "flag", "refuse"]
    coarse: Literal["allow", "flag", "refuse"]
    links: Literal["allow", "listed", "none"]


class RulesTaken(Taken):
    """Limits and moderation count at once, the tempo from the next evening on."""

    tempo: TempoTaken
    moderation: PolicyTaken


def your_name(house: House) -> str:
    """As the chat knows you: one line, no sign that would make it a mention."""
    name = "".join(letter for letter in house.roster.you().name if letter.isprintable() and letter != "@")
    return name.strip()[:40] or "You"


@router.get("", summary="Every room, and whether an evening runs in it")
async def rooms(house: Here) -> list[CrowdShape]:
    return [CrowdShape.of(await house.crowd.room(name)) for name in house.crowd.roster.rooms()]


@router.get("/personas", summary="Everybody who can be in a room")
async def personas(house: Here) -> list[Persona]:
    return list(house.crowd.roster.personas().values())


@router.post("/personas/{name}/meet", summary="Take somebody into the cast, to be met in a story")
async def meet(house: Here, name: str) -> BotShape:
    persona = house.crowd.roster.persona(name)
    if persona.character:  # they came from there
        return BotShape.of(house.roster.bot(persona.character))
    return BotShape.of(await house.arrivals.author(character_of(persona)))


@router.get("/{room}", summary="One room")
async def one(house: Here, room: str) -> CrowdShape:
    return CrowdShape.of(await house.crowd.room(room))


@router.get("/{room}/rules", summary="The room's file: tempo, limits, moderation, and the numbers behind decisions")
async def rules(house: Here, room: str) -> RoomFile:
    return house.crowd.roster.room(room)


@router.put("/{room}/rules", summary="Change the room's tempo and moderation; kept as a file of your own")
async def change_rules(house: Here, room: str, told: RulesTaken) -> RoomFile:
    return (await house.crowd.change_rules(room, told.model_dump())).rules


@router.get("/{room}/messages", summary="What was said, oldest first")
async def messages(
    house: Here,
    room: str,
    before: Annotated[int | None, Query(ge=1)] = None,
    limit: Annotated[int, Query(ge=1, le=_MOST)] = 100,
) -> list[ChatMessage]:
    gateway = (await house.crowd.room(room)).gateway
    if before is None:
        return gateway.latest(limit)
    found = await gateway.after(max(0, before - 1 - limit))
    return [message for message in found if message.number < before][-limit:]


@router.post("/{room}/messages", summary="Say something, as yourself")
async def say(house: Here, room: str, told: LineTaken) -> ChatMessage:
    gateway = (await house.crowd.room(room)).gateway
    author = Author(name=your_name(house), kind="human")
    post = ChatPost(id=told.id or new_id(), room=room, author=author, text=told.text, reply_to=told.reply_to)
    return await gateway.post(post)


@router.post("/{room}/seats", summary="Let somebody of the cast sit in a room, from the next evening on")
async def seat(house: Here, room: str, told: SeatTaken) -> Persona:
    return await house.crowd.seat(room, house.roster.find(told.character).identity)


@router.post("/{room}/start", summary="Begin an evening around a stream")
async def start(house: Here, room: str, told: EveningTaken) -> CrowdShape:
    return CrowdShape.of(await house.crowd.start(room, told.stream.strip() or SAMPLE, speaking=told.speaking))


@router.post("/{room}/stop", summary="End the evening; everybody looks back")
async def stop(house: Here, room: str) -> CrowdShape:
    return CrowdShape.of(await house.crowd.stop(room))


@router.post("/{room}/rulings", summary="Time out, ban, pardon, slow down, followers only, switch off")
async def rule(house: Here, room: str, told: RulingTaken) -> Done:
    gateway = (await house.crowd.room(room)).gateway
    await gateway.rule(CrowdRuled(at_ms=gateway.now_ms(), by=your_name(house), **told.model_dump()))
    return Done()


@router.get("/{room}/audit", summary="What was refused, redacted, noted or ruled, newest first")
async def audit(house: Here, room: str, limit: Annotated[int, Query(ge=1, le=_MOST)] = 100) -> list[AuditRecord]:
    return audits(house.store, (await house.crowd.room(room)).rules.name, limit)


@router.post("/{room}/people/{name}/revert", summary="Take somebody back to an earlier snapshot, exactly")
async def revert(house: Here, room: str, name: str, told: RevertTaken) -> Done:
    opened = await house.crowd.room(room)
    await opened.drift.revert(opened.persona(name), told.to)
    return Done()


@router.post("/{room}/people/{name}/freeze", summary="Forbid somebody to change, or allow it again")
async def freeze(house: Here, room: str, name: str, told: FreezeTaken) -> Done:
    opened = await house.crowd.room(room)
    await opened.drift.freeze(opened.persona(name), told.frozen)
    return Done()
