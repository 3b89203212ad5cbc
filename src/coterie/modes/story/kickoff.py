"""From prose to an opening scene: a classifier reads it, a person corrects it, one transaction begins the chat. S8"""

from __future__ import annotations

from datetime import UTC, datetime, time

from pydantic import BaseModel, ConfigDict, Field

from coterie.cast.ready import opening_for
from coterie.cast.roster import Character, OwnerProfile
from coterie.llm.messages import Prompt
from coterie.llm.router import Caller, Models
from coterie.llm.structured import classify
from coterie.modes.story.events import Activity


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
