"""What the API takes and gives, as JSON. Words of people and models are data in it and nothing else."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from coterie.base.masking import mask
from coterie.cast.roster import Bot, You
from coterie.engine.events import Segment
from coterie.engine.turns import Turn
from coterie.modes.story import Begun, Bookmarks, Chat, Edit, Inspected, Story
from coterie.surfaces.web.house import House

Prose = Annotated[str, StringConstraints(max_length=200_000)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=200, strip_whitespace=True)]
_SNIPPET = 140


class Taken(BaseModel):
    """What a request may hold; a misspelt field is an error, not nothing."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class Given(BaseModel):
    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


class YouShape(Given):
    name: str
    pronouns: str
    persona: str
    authored: bool
    """Whether anybody has said yet who they are."""

    @classmethod
    def of(cls, you: You, authored: bool) -> YouShape:
        return cls(name=you.name, pronouns=you.pronouns, persona=you.persona, authored=authored)


class YouTaken(Taken):
    name: Name
    pronouns: Prose = ""
    persona: Prose = ""


class BotTaken(Taken):
    name: Name
    persona: Prose = ""
    voice_samples: list[Prose] = []
    traits: list[Prose] = []
    backstory: Prose = ""
    initial_relationship: Prose = ""
    kickoff: Prose = ""
    """Prose from which the opening scene is made."""


class BotShape(BotTaken):
    id: str
    version: int
    has_card: bool

    @classmethod
    def of(cls, bot: Bot) -> BotShape:
        return cls(**bot.identity.model_dump(), version=bot.version, has_card=bot.card is not None)


class BotWithVersions(BotShape):
    versions: list[BotShape]
    """Every version there was, oldest first."""


class Imported(Given):
    bot: BotShape
    notes: list[str]
    """What was odd about the file."""


class Entity(Given):
    id: str
    name: str


class ChatShape(Given):
    id: str
    title: str
    host: Entity
    guests: list[Entity]
    clock: datetime
    """In the fiction."""
    weather: str
    anchor: str
    scene: str | None
    forked: bool
    turns: int
    snippet: str
    """How the latest reply begins."""
    unread: int
    """Replies since it was last read."""
    speaking: bool
    """Whether a reply is being given."""

    @classmethod
    def of(cls, house: House, chat: Chat) -> ChatShape:
        story = house.story
        names = story.prompter.names(chat)
        latest = story.timeline.latest_reply(chat.room)
        return cls(
            id=chat.id,
            title=chat.title,
            host=Entity(id=chat.host, name=names[chat.host]),
            guests=[Entity(id=guest, name=names[guest]) for guest in chat.guests],
            clock=chat.clock,
            weather=chat.weather,
            anchor=chat.anchor,
            scene=chat.scene,
            forked=chat.world == chat.room,
            turns=story.timeline.count(chat.room),
            snippet=latest.text[:_SNIPPET] if latest else "",
            unread=Bookmarks(house.store).unread(chat.room),
            speaking=story.replies.speaking(chat.room),
        )


class TurnShape(Given):
    id: str
    seq: int
    """Its place; `before` of the next page."""
    speaker: str
    name: str
    by_person: bool
    text: str
    segments: list[Segment]
    state: Literal["open", "done", "truncated"]
    why: str
    """Why it broke off, if it did."""
    status: int | None
    """What the provider refused it with, if that was why."""
    answers: str | None
    to: list[str]
    """Who heard it, if it was whispered."""
    model: str
    at: datetime
    """When it was said, in an imported chat too."""

    @classmethod
    def of(cls, turn: Turn, names: dict[str, str], text: str | None = None) -> TurnShape:
        return cls(
            id=turn.id,
            seq=turn.seq,
            speaker=turn.speaker,
            name=names.get(turn.speaker, turn.speaker),
            by_person=turn.by_person,
            text=turn.text if text is None else text,
            segments=list(turn.segments),
            state=turn.state,
            why=mask(turn.why),
            status=turn.status,
            answers=turn.answers,
            to=list(turn.to),
            model=turn.model,
            at=turn.shown_at,
        )


class ReplyShape(Given):
    turn: str
    """The message."""
    reply: str
    """What answers it."""
    speaker: str
    text: str | None = None
    """With `wait=true`: what was said."""
    state: Literal["open", "done", "truncated"] = "open"
    why: str = ""
    status: int | None = None
    """What the provider refused it with, if it did."""

    @classmethod
    def of(cls, begun: Begun) -> ReplyShape:
        return cls(turn=begun.turn, reply=begun.reply, speaker=begun.speaker)

    @classmethod
    async def finished(cls, story: Story, room: str, begun: Begun) -> ReplyShape:
        await story.replies.wait(room)
        said = story.timeline.turn(room, begun.reply)
        return cls(
            turn=begun.turn,
            reply=begun.reply,
            speaker=begun.speaker,
            text=said.text,
            state=said.state,
            why=mask(said.why),
            status=said.status,
        )


class PartShape(Given):
    name: str
    tier: Literal["must", "should", "nice"]
    role: Literal["system", "user", "assistant"]
    tokens: int
    text: str


class WhyRecalled(Given):
    """S16: a memory that came to mind for a reply, and why."""

    memory: str
    text: str
    """As it was told; empty where it was left out."""
    score: float
    parts: dict[str, float]
    """What the score is made of; the parts sum to it."""
    told: bool
    """Whether there was room for it."""


class PromptShape(Given):
    reply: str
    model: str
    tokens: int
    soft: int
    hard: int
    parts: list[PartShape]
    trimmed: list[str]
    """What was left out, and why."""
    recalled: dict[str, dict[str, float]]
    """Memory → what its score was made of."""
    why: list[WhyRecalled]
    """The same in order, the best first, with what was told."""

    @classmethod
    def of(cls, seen: Inspected) -> PromptShape:
        sent = seen.sent
        return cls(
            reply=sent.reply,
            model=sent.model,
            tokens=sent.tokens,
            soft=sent.soft,
            hard=sent.hard,
            parts=[
                PartShape(name=part.name, tier=part.tier, role=part.role, tokens=part.tokens, text=mask(text))
                for part, text in seen.parts
            ],
            trimmed=list(sent.trimmed),
            recalled=sent.recalled,
            why=[_why(memory, parts, seen) for memory, parts in sent.recalled.items()],
        )


def _why(memory: str, parts: dict[str, float], seen: Inspected) -> WhyRecalled:
    names = (f"memory {memory}", f"pinned {memory}")
    text = next((text for part, text in seen.parts if part.name in names), None)
    return WhyRecalled(
        memory=memory, text=mask(text or ""), score=sum(parts.values()), parts=parts, told=text is not None
    )


class Page(Given):
    turns: list[TurnShape]
    """Oldest first."""
    before: int | None
    """Give this as `before` to go further back; null at the beginning."""


class Alternative(Given):
    reply: str
    text: str
    truncated: bool
    chosen: bool


class Ready(Given):
    name: str
    in_short: str


class Say(Taken):
    text: Prose = Field(min_length=1)
    speaker: str | None = None
    """Who should answer, by id or name; chosen by the story otherwise."""
    to: list[str] = []
    """Whisper to these only."""
    key: str | None = Field(default=None, max_length=200)
    """The same key again is the same message: nothing is said twice."""


class Again(Taken):
    text: Prose | None = None
    """The message, changed."""
    speaker: str | None = None


class Choice(Taken):
    reply: str


class At(Taken):
    turn: str


class ForkAt(At):
    title: str | None = Field(default=None, max_length=200)


class Confirm(Taken):
    confirm: str
    """The character's name, typed exactly."""


class Invite(Taken):
    bot: str


class Edits(Taken):
    edits: list[Edit] = Field(min_length=1, max_length=100)
    """All of them are made, or none."""


class Pinned(Taken):
    pinned: bool


class Done(Given):
    done: bool = True
