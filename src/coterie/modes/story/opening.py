"""The opening of a chat: proposed from the character's prose, corrected by the person, recorded in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from random import Random
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from coterie.base.clock import Clock
from coterie.base.ids import new_id
from coterie.base.values import EARLIEST, clamp_time, parse_time
from coterie.characters import OWNER, Character, Macros, OwnerProfile, opening_for
from coterie.conversation import AssistantTurn, AssistantTurnStarted
from coterie.eventstore import AnyEvent, NewEvent, Payload, Reset, Rewound
from coterie.llm import Caller, Models, Prompt, classify
from coterie.modes.story.chat_context import ChatContext, supersede
from coterie.modes.story.events import (
    DELETED_KEY_PREFIX,
    MAIN_WORLD,
    Activity,
    ActivityChange,
    ChatCreated,
    ChatPersonaChosen,
    ContainerCreated,
    RelationshipUpdated,
    SceneOpened,
)
from coterie.modes.story.queries import Chat

_MAX_OPENING_EVENTS = 9


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
    """What the character says first; if empty, the person speaks first."""

    def start_time(self, fallback: datetime) -> datetime:
        """When it begins; the fallback if no time is given, or none that can be used."""
        return parse_start(self.time, fallback.date()) or fallback


def parse_start(text: str, day: date) -> datetime | None:
    """A moment, or an hour of the given day; None if it is neither, or out of the supported range."""
    if len(text) != len("17:40"):
        return parse_time(text)
    try:
        return datetime.combine(day, time.fromisoformat(text), tzinfo=UTC)
    except ValueError:
        return None


class OpeningProposal(BaseModel):
    """The form a person sees. If the classifier fails, it is empty and has a notice."""

    opening: Opening
    notice: str = ""


async def propose_opening(models: Models, character: Character, person: OwnerProfile) -> OpeningProposal:
    """Read the character's kickoff prose with the classifier."""
    identity = character.identity
    greeting = character.card.data.first_mes if character.card else ""
    if not (identity.kickoff or identity.initial_relationship):
        return OpeningProposal(
            opening=Opening(greeting=greeting),
            notice=f"{identity.name} has no kickoff prose yet. Fill in what you like; everything may stay empty.",
        )
    if (prepared := opening_for(identity.kickoff)) is not None:
        texts = {"greeting": greeting or identity.kickoff, "relationship": identity.initial_relationship}
        return OpeningProposal(opening=Opening.model_validate({**prepared, **texts}))
    if not models.catalogue.supports_analysis():
        return OpeningProposal(
            opening=Opening(greeting=greeting or identity.kickoff, relationship=identity.initial_relationship),
            notice="The demo model cannot read the scene from the opening prose. Fill in what you like; everything may "
            "stay empty.",
        )
    prompt = Prompt.of(
        f"Character: {identity.name}\nPersona: {identity.persona}\nThe person: {person.name}. {person.persona}\n"
        f"Their relationship: {identity.initial_relationship}\n\nOpening prose:\n{identity.kickoff}",
        system=(
            "Read the opening of a story and give its structure as JSON: a short title, the place, the time as ISO "
            "8601, the weather, what the person (you) and the character are doing (posture, action, holding), how the "
            "character sees the person, and facts it knows about them. As greeting, write what the character does and "
            "says first, to the person, as prose in the present scene. Leave out what the prose does not say."
        ),
    )
    result = await classify(models, Opening, prompt, caller=Caller(character=character.id))
    written = result.value.greeting.strip() if result.ok else ""
    opening = result.value.model_copy(update={"greeting": greeting or written or identity.kickoff})
    if parse_start(opening.time, EARLIEST.date()) is None:  # a model writes anything, such as "at dusk" or the year 0
        opening = opening.model_copy(update={"time": ""})
    if result.ok:
        return OpeningProposal(opening=opening)
    why = result.error.what if result.error is not None else "The model's answer could not be used."
    return OpeningProposal(
        opening=opening, notice=f"The opening could not be read from the prose. {why} Fill it in by hand."
    )


class ChatOpenings:
    """Begins chats, and begins them again after a reset."""

    def __init__(self, context: ChatContext, models: Models, clock: Clock) -> None:
        self._context = context
        self._models = models
        self._clock = clock

    async def propose(self, character_id: str, person: str) -> OpeningProposal:
        character = self._context.characters.get(character_id)
        return await propose_opening(self._models, character, self._context.participants.person(person))

    async def begin(self, character_id: str, opening: Opening) -> Chat:
        room = f"room:{new_id()}"
        await self._context.store.append(self.events(room, self._context.characters.get(character_id), opening))
        return self._context.chats.chat(room)

    def events(
        self, room: str, character: Character, opening: Opening, person: str = OWNER, *, head: int = 0
    ) -> list[NewEvent]:
        """Everything a chat begins with, to be appended in one transaction; `head` is the stream's last seq."""
        persona = self._context.participants.default_persona() if person == OWNER else ""
        acquainted = bool(self._context.relationships.get(MAIN_WORLD, character.id, person).summary)
        return opening_events(
            room,
            character,
            self._context.participants.profile_of(persona) if persona else self._context.participants.person(person),
            opening,
            starts=opening.start_time(self._clock.now()),
            acquainted=acquainted,
            person=person,
            head=head,
            persona=persona,
        )

    async def restart_after_reset(self, room: str) -> Chat:
        """The chat. If a reset emptied it, it first begins again with the opening that was confirmed for it."""
        store = self._context.store
        if not self._context.chats.exists(room):
            first = await store.read(self._context.root_room(room), limit=_MAX_OPENING_EVENTS)
            last = await store.read(room, kinds=[Reset.kind, Rewound.kind], newest_first=True, limit=1)
            deleted = last and (last[0].key or "").startswith(DELETED_KEY_PREFIX)
            if (
                last
                and not deleted
                and isinstance(last[0].payload, Reset)
                and isinstance(created := first[0].payload, ChatCreated)
            ):
                host = self._context.characters.get(created.host)
                opening = confirmed_opening(first)
                await store.append(self.events(room, host, opening, created.person, head=store.reader.head(room)))
        return self._context.chats.chat(room)


def opening_events(
    room: str,
    character: Character,
    profile: OwnerProfile,
    opening: Opening,
    *,
    starts: datetime,
    acquainted: bool,
    person: str = OWNER,
    head: int = 0,
    persona: str = "",
) -> list[NewEvent]:
    """The events of a new chat, whose stream has `head` events so far.

    `acquainted` says that the character knows the person already: their relationship then keeps its summary. The other
    greetings of the character's card are alternatives to the first one.
    """
    place, scene = new_id(), new_id()
    first_summary, facts = None, tuple[str, ...]()
    if person == OWNER:  # the card's relationship and facts are about the owner
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
    if persona:
        payloads.append(ChatPersonaChosen(persona=persona))
    new_events = [NewEvent(room, payload, person) for payload in payloads]
    if opening.greeting.strip():
        greetings = _greetings(character, profile, opening.greeting)
        for text in greetings:
            reply = new_id()
            started = AssistantTurnStarted(reply=reply, speaker=character.id, present=(person, character.id))
            greeting = AssistantTurn(reply=reply, text=text)
            new_events += [NewEvent(room, payload, character.id, turn=reply) for payload in (started, greeting)]
        if others := range(head + len(payloads) + 3, head + len(new_events) + 1):
            new_events.append(NewEvent(room, supersede(others), person))
    return new_events


def confirmed_opening(events: Sequence[AnyEvent]) -> Opening:
    """The opening that a person confirmed for a chat, read from the first events of its stream."""
    fields: dict[str, Any] = {}
    person = OWNER
    for event in events:
        match event.payload:
            case ChatCreated() as data:
                person = data.person
                fields |= {"title": data.title, "time": clamp_time(data.clock).isoformat()}
                fields |= {"weather": data.weather, "anchor": data.anchor}
            case ContainerCreated() as data:
                fields["place"] = OpeningPlace(name=data.name, type=data.type, public=data.public, moving=data.moving)
            case ActivityChange() as data:
                fields.setdefault("you" if data.entity == person else "character", data.activity)
            case RelationshipUpdated() as data:
                fields |= {"relationship": data.summary or "", "facts": list(data.knowledge)}
            case AssistantTurn() as data:
                fields["greeting"] = data.text
            case SceneOpened() | AssistantTurnStarted() | ChatPersonaChosen():
                continue
            case _:
                break
    return Opening(**fields)


def _greetings(character: Character, profile: OwnerProfile, chosen: str) -> list[str]:
    """The chosen greeting, then the others of the character's card."""
    card = character.card.data if character.card else None
    char = (card.nickname if card else "") or character.name
    macros = Macros(char=char, user=profile.name, rng=Random(character.id))  # noqa: S311
    texts = [chosen, *((card.first_mes, *card.alternate_greetings) if card else ())]
    return list(dict.fromkeys(text for one in texts if (text := macros.expand(one, "display")).strip()))
