"""What a chat begins with: a place, what both are doing there, a scene, what one feels, and perhaps a first word. S8"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from random import Random
from typing import Any

from coterie.base.ids import new_id
from coterie.cast.cards.macros import Macros
from coterie.cast.roster import OWNER, Character, OwnerProfile
from coterie.engine.events import AssistantTurn, AssistantTurnStarted
from coterie.kernel import AnyEvent, NewEvent, Payload
from coterie.modes.story import kickoff
from coterie.modes.story.events import (
    MAIN_WORLD,
    ActivityChange,
    ChatCreated,
    ContainerCreated,
    RelationshipUpdated,
    SceneOpened,
)


def opening_events(
    room: str,
    character: Character,
    you: OwnerProfile,
    opening: kickoff.Opening,
    *,
    starts: datetime,
    acquainted: bool,
    person: str = OWNER,
) -> list[NewEvent]:
    """To be recorded in one transaction. Somebody one knows already is not met for the first time."""
    place, scene = new_id(), new_id()
    first_summary, facts = None, tuple[str, ...]()
    if person == OWNER:  # what a character was given to feel and know was meant for its author
        facts = tuple(fact.strip() for fact in opening.facts if fact.strip())
        if not acquainted:
            first_summary = opening.relationship.strip() or character.identity.initial_relationship or None
    payloads: list[Payload] = [
        ChatCreated(
            host=character.id,
            bot_version=character.version,
            title=opening.title.strip() or character.name,
            clock=starts,
            weather=opening.weather,
            anchor=opening.anchor,
            person=person,
        ),
        ContainerCreated(
            container=place,
            name=opening.place.name.strip() or "somewhere",
            type=opening.place.type,
            public=opening.place.public,
            moving=opening.place.moving,
        ),
        ActivityChange(entity=person, activity=opening.you.model_copy(update={"container": place})),
        ActivityChange(entity=character.id, activity=opening.character.model_copy(update={"container": place})),
        SceneOpened(scene=scene, container=place, participants=(person, character.id), starts=starts),
        RelationshipUpdated(
            world=MAIN_WORLD,
            of=character.id,
            toward=person,
            knowledge=facts,
            summary=first_summary,
            chat=room,
            when=starts,
        ),
    ]
    drafts = [NewEvent(room, payload, person) for payload in payloads]
    if opening.greeting.strip():
        reply = new_id()
        text = _greeting(character, you, opening.greeting)
        drafts += [
            NewEvent(
                room,
                AssistantTurnStarted(reply=reply, speaker=character.id, present=(person, character.id)),
                character.id,
                turn=reply,
            ),
            NewEvent(room, AssistantTurn(reply=reply, text=text), character.id, turn=reply),
        ]
    return drafts


def confirmed_opening(events: Sequence[AnyEvent]) -> kickoff.Opening:
    """The opening that a person confirmed for a chat, from the first events of its stream."""
    found: dict[str, Any] = {}
    person = OWNER
    for event in events:
        match event.payload:
            case ChatCreated() as it:
                person = it.person
                found |= {"title": it.title, "time": it.clock.isoformat(), "weather": it.weather, "anchor": it.anchor}
            case ContainerCreated() as it:
                found["place"] = kickoff.OpeningPlace(name=it.name, type=it.type, public=it.public, moving=it.moving)
            case ActivityChange() as it:
                found.setdefault("you" if it.entity == person else "character", it.activity)
            case RelationshipUpdated() as it:
                found |= {"relationship": it.summary or "", "facts": list(it.knowledge)}
            case AssistantTurn() as it:
                found["greeting"] = it.text
            case SceneOpened() | AssistantTurnStarted():
                continue
            case _:
                break
    return kickoff.Opening(**found)


def _greeting(bot: Character, you: OwnerProfile, text: str) -> str:
    char = (bot.card.data.nickname if bot.card else "") or bot.name
    return Macros(char=char, user=you.name, rng=Random(bot.id)).expand(text, "display")  # noqa: S311
