"""What a chat begins with: a place, what both are doing there, a scene, what one feels, and perhaps a first word. S8"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, time
from random import Random
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from coterie.base.ids import new_id
from coterie.characters.cards.macros import Macros
from coterie.characters.service import OWNER, Character, OwnerProfile
from coterie.characters.starter_characters import opening_for
from coterie.conversation.events import AssistantTurn, AssistantTurnStarted
from coterie.eventstore import AnyEvent, NewEvent, Payload
from coterie.llm.messages import Prompt
from coterie.llm.router import Caller, Models
from coterie.llm.structured import classify
from coterie.modes.story.events import (
    MAIN_WORLD,
    Activity,
    ActivityChange,
    ChatCreated,
    ContainerCreated,
    RelationshipUpdated,
    SceneOpened,
)

# From prose to an opening scene: a classifier reads it, a person corrects it, one transaction begins the chat. S8


class OpeningPlace(BaseModel):
    model_config = ConfigDict(extra="ignore")

    name: str = ""
    type: str = "place"
    public: bool = False
    moving: bool = False


class Opening(BaseModel):
    """The opening scene, as the form shows it."""

    model_config = ConfigDict(extra="ignore")

    title: str = ""
    place: OpeningPlace = OpeningPlace()
    time: str = ""
    """ISO 8601, UTC: a moment, or an hour of the day on which it begins."""
    weather: str = ""
    anchor: str = ""
    you: Activity = Activity()
    character: Activity = Activity()
    relationship: str = Field(default="", description="How the character sees the person, in a sentence or two.")
    facts: list[str] = Field(default_factory=list, description="What the character knows of the person.")
    greeting: str = ""
    """What the character says first; empty leaves the first word to the person."""

    def start_time(self, fallback: datetime) -> datetime:
        try:
            if len(self.time) == len("17:40"):
                return datetime.combine(fallback.date(), time.fromisoformat(self.time), tzinfo=UTC)
            moment = datetime.fromisoformat(self.time)
        except ValueError:
            return fallback
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


class OpeningProposal(BaseModel):
    """What the person sees and may change. A classifier that fails leaves the form empty, with a notice."""

    opening: Opening
    notice: str = ""


async def propose_opening(models: Models, character: Character, person: OwnerProfile) -> OpeningProposal:
    who = character.identity
    greeting = character.card.data.first_mes if character.card else ""
    if not (who.kickoff or who.initial_relationship):
        return OpeningProposal(
            opening=Opening(greeting=greeting),
            notice=f"{who.name} has no kickoff prose yet. Fill in what you like; everything may stay empty.",
        )
    if (read := opening_for(who.kickoff)) is not None:
        here = {"greeting": greeting or who.kickoff, "relationship": who.initial_relationship}
        return OpeningProposal(opening=Opening.model_validate({**read, **here}))
    prompt = Prompt.of(
        f"Character: {who.name}\nPersona: {who.persona}\nThe person: {person.name}. {person.persona}\n"
        f"Their relationship: {who.initial_relationship}\n\nOpening prose:\n{who.kickoff}",
        system=(
            "Read the opening of a story and give its structure as JSON: a short title, the place, the time as ISO "
            "8601, the weather, what the person (you) and the character are doing (posture, action, holding), how the "
            "character sees the person, and facts it knows about them. Leave out what the prose does not say."
        ),
    )
    caller = Caller(character=character.id)
    found = await classify(models, Opening, prompt, caller=caller)
    opening = found.value.model_copy(update={"greeting": greeting or who.kickoff})
    if found.ok:
        return OpeningProposal(opening=opening)
    why = found.error.what if found.error is not None else "What the model answered could not be used."
    return OpeningProposal(
        opening=opening, notice=f"The opening could not be read from the prose. {why} Fill it in by hand."
    )


def opening_events(
    room: str,
    character: Character,
    you: OwnerProfile,
    opening: Opening,
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


def confirmed_opening(events: Sequence[AnyEvent]) -> Opening:
    """The opening that a person confirmed for a chat, from the first events of its stream."""
    found: dict[str, Any] = {}
    person = OWNER
    for event in events:
        match event.payload:
            case ChatCreated() as it:
                person = it.person
                found |= {"title": it.title, "time": it.clock.isoformat(), "weather": it.weather, "anchor": it.anchor}
            case ContainerCreated() as it:
                found["place"] = OpeningPlace(name=it.name, type=it.type, public=it.public, moving=it.moving)
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
    return Opening(**found)


def _greeting(bot: Character, you: OwnerProfile, text: str) -> str:
    char = (bot.card.data.nickname if bot.card else "") or bot.name
    return Macros(char=char, user=you.name, rng=Random(bot.id)).expand(text, "display")  # noqa: S311
