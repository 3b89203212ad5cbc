"""Pages of the crowd: the rooms, one room with its stream and chat, its members, and the overlay for a broadcast."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from coterie.base.values import Int64, parse_int64
from coterie.eventstore import Store
from coterie.modes.crowd import (
    MAX_TOTAL_DRIFT,
    TRAITS,
    ChatIdentity,
    ChatMessage,
    CrowdRoom,
    DriftSnapshot,
    LineSource,
    Persona,
    PersonaRelationship,
    Trait,
    audit_records,
    find_decision,
    latency_stages,
    model_lines_from_thread,
    replay_with_change,
)
from coterie.surfaces.web.crowd.routes import CrowdRoomResponse, check_overlay_token, owner_chat_name
from coterie.surfaces.web.shared.dependencies import CharactersDep, CrowdDep, ModelsDep, StoreDep
from coterie.surfaces.web.shared.templates import PageRouter, fragment_response, hue_class, page_response
from coterie.surfaces.web.story.schemas import RequestModel


@dataclass(frozen=True)
class MemberView:
    """A member of a room with its present traits and activity."""

    persona: Persona
    history: list[DriftSnapshot]
    now: DriftSnapshot
    mood: str
    """`away`, `asleep`, `watching` or `typing`."""
    relationships: list[PersonaRelationship]
    """To people, the strongest first."""

    @property
    def changed(self) -> float:
        """The sum of the changes of all traits."""
        now, written = self.now.traits.model_dump(), self.persona.traits.model_dump()
        return float(sum(abs(now[trait] - written[trait]) for trait in TRAITS))

    @property
    def drifted(self) -> list[tuple[str, float, float]]:
        """The changed traits with their written and present value."""
        now, written = self.now.traits.model_dump(), self.persona.traits.model_dump()
        return [(trait, written[trait], now[trait]) for trait in TRAITS if now[trait] != written[trait]]


def member_view(room: CrowdRoom, persona: Persona) -> MemberView:
    mood = "away"
    if room.live is not None:
        mind = room.live.session.deciders.get(persona.name)
        at_ms = room.gateway.now_ms()
        if mind is not None:
            mood = "typing" if mind.typing else "asleep" if persona.is_asleep(at_ms) else "watching"
    return MemberView(
        persona, room.drift.history(persona), room.drift.current(persona), mood, room.relationships.of(persona.name)
    )


router = PageRouter(prefix="/crowd")
crowd_fragments = APIRouter(prefix="/crowd", include_in_schema=False)
_AUDITS = 60
_OVERLAY_DAYS = 3_650
_THOUGHTS = 8
_SHOWN = 200
_MODEL_LINES = 12
"""So many lines of a replay may be asked of the model; the page waits for them."""


@router.get("")
async def rooms(crowd: CrowdDep, request: Request) -> Response:
    rooms = [CrowdRoomResponse.of(await crowd.room(name)) for name in crowd.configs.rooms()]
    problems = [str(problem) for problem in crowd.configs.problems().values()]
    return page_response(request, "crowd/rooms.html", rooms=rooms, problems=problems)


@router.get("/{room}")
async def room(store: StoreDep, characters: CharactersDep, crowd: CrowdDep, request: Request, room: str) -> Response:
    opened = await crowd.room(room)
    return page_response(
        request,
        "crowd/room.html",
        room=CrowdRoomResponse.of(opened),
        rules=opened.rules,
        hues={persona.name: hue_class(persona.name) for persona in opened.authored_personas},
        emotes=sorted({*opened.rules.emotes, *(emote for one in opened.authored_personas for emote in one.emotes)}),
        you=owner_chat_name(characters),
        people=[(persona.name, persona.name) for persona in opened.authored_personas],
        traits={
            persona.name: persona.traits.model_dump()
            for persona in opened.drift.apply_current(opened.authored_personas)
        },
        rulings=opened.gateway.admission.moderation_state,
        voices={persona.name: persona.voice for persona in opened.authored_personas},
        model_lines=_MODEL_LINES,
        streams=["sample", *crowd.configs.streams()],
        streams_folder=str(crowd.streams_folder),
        **_audit(store, opened),
    )


@crowd_fragments.get("/{room}/overlay")
async def overlay_form(crowd: CrowdDep, request: Request, room: str) -> Response:
    """A form that builds the overlay's address."""
    opened = await crowd.room(room)
    token = crowd.tokens.issue(room, ChatIdentity("overlay", "reader"), _OVERLAY_DAYS)
    address = f"{request.base_url}overlay/{room}"
    return page_response(
        request, "crowd/overlay_form.html", room=CrowdRoomResponse.of(opened), address=address, token=token
    )


overlay_pages = APIRouter(prefix="/overlay", include_in_schema=False)


@overlay_pages.get("/{room}")
async def overlay(
    crowd: CrowdDep, request: Request, room: str, token: Annotated[str, Query(max_length=1_000)] = ""
) -> Response:
    """The chat on a transparent background, for OBS. Its options are read by the page from its address."""
    check_overlay_token(crowd, room, token)
    opened = await crowd.room(room)
    hues = {persona.name: hue_class(persona.name) for persona in opened.authored_personas}
    return page_response(request, "crowd/overlay.html", room=CrowdRoomResponse.of(opened), hues=hues)


@crowd_fragments.get("/{room}/people")
async def people(crowd: CrowdDep, room: str) -> Response:
    opened = await crowd.room(room)
    members = [member_view(opened, persona) for persona in opened.authored_personas]
    return fragment_response("crowd/members.html", room=opened.rules, members=members, traits=TRAITS)


@crowd_fragments.get("/{room}/people/{name}")
async def person(crowd: CrowdDep, room: str, name: str) -> Response:
    opened = await crowd.room(room)
    member = member_view(opened, opened.persona(name))
    thoughts = list(opened.live.session.recent_decisions[name])[-_THOUGHTS:] if opened.live is not None else []
    return fragment_response(
        "crowd/member.html",
        room=opened.rules,
        one=member,
        traits=TRAITS,
        for_life=MAX_TOTAL_DRIFT,
        thoughts=thoughts[::-1],
    )


@crowd_fragments.get("/{room}/messages/{number}")
async def said(store: StoreDep, crowd: CrowdDep, room: str, number: Int64) -> Response:
    """One message: its latency by stage, the decision behind it, and moderation actions."""
    opened = await crowd.room(room)
    messages = [message for message in await opened.gateway.after(number - 1, 1) if message.number == number]
    message = messages[0] if messages else None
    decided = None
    if message is not None and message.trace is not None and message.trace.decision is not None:
        decided = find_decision(store, opened.rules.name, message.trace.decision)
    answers = await _answered(opened, message)
    return fragment_response(
        "crowd/message.html",
        room=opened.rules,
        message=message,
        stages=latency_stages(message) if message is not None else [],
        decided=decided,
        answers=answers,
    )


@crowd_fragments.get("/{room}/audit/rows")
async def audit_rows(store: StoreDep, crowd: CrowdDep, room: str) -> Response:
    return fragment_response("crowd/moderation_log.html", **_audit(store, await crowd.room(room)))


class WhatIfRequest(RequestModel):
    persona: str = Field(max_length=40)
    talkativeness: Trait
    meme_level: Trait
    helpfulness: Trait
    contrarian: Trait
    warmth: Trait
    voice: str = Field(default="", max_length=400)
    """How the persona writes; empty for its file's."""
    speaking: LineSource = "phrasebook"
    """What writes lines that are not in the recording."""


@crowd_fragments.post("/{room}/what-if")
async def what_if_replay(
    store: StoreDep, crowd: CrowdDep, models: ModelsDep, room: str, body: WhatIfRequest
) -> Response:
    """Replay the last session with a changed persona."""
    opened = await crowd.room(room)
    authored = opened.persona(body.persona)
    traits = authored.traits.model_copy(update=body.model_dump(include=set(TRAITS)))
    changed = authored.model_copy(update={"traits": traits, "voice": body.voice.strip() or authored.voice})
    moderator = crowd.configs.moderator(opened.rules)
    lines = None
    if body.speaking == "model":
        loop = asyncio.get_running_loop()
        lines = model_lines_from_thread(models, opened.rules.name, loop, most=_MODEL_LINES)
    replayed = await asyncio.to_thread(replay_with_change, store.reader, opened.rules.name, moderator, changed, lines)
    gone, come = replayed.only_recorded(), replayed.only_replayed()
    return fragment_response(
        "crowd/what_if.html",
        replayed=replayed,
        gone=len(gone),
        come=len(come),
        lines=[
            (mark, f"{message.author.name}: {message.text}")
            for _, mark, message in sorted(
                [(each.ts, "-", each) for each in gone] + [(each.ts, "+", each) for each in come],
                key=lambda one: one[:2],
            )
        ][:_SHOWN],
    )


async def _answered(room: CrowdRoom, message: ChatMessage | None) -> ChatMessage | None:
    number = parse_int64((message.reply_to or "").rpartition("-")[2]) if message is not None else None
    if number is None:
        return None
    messages = await room.gateway.after(number - 1, 1)
    return messages[0] if messages and messages[0].number == number else None


def _audit(store: Store, room: CrowdRoom) -> dict[str, Any]:
    return {"audit": audit_records(store, room.rules.name, _AUDITS)}
