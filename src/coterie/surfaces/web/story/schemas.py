"""Requests and responses of the API for stories and characters, and the base classes of all others."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator

from coterie.base.redaction import redact
from coterie.base.values import EARLIEST, Name, Prose, Text
from coterie.characters import Character, IdentityFields, OwnerProfile
from coterie.conversation import Segment, Turn
from coterie.eventstore import Store
from coterie.modes.story import (
    Chat,
    FieldEdit,
    InspectedPrompt,
    Opening,
    OpeningPlace,
    ReadMarks,
    StartedTurn,
    StoryService,
    parse_start,
)

_ShortText = Annotated[Text, StringConstraints(max_length=500)]
_SNIPPET = 140


class RequestModel(BaseModel):
    """Base of request bodies; unknown fields are an error."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class ResponseModel(BaseModel):
    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


class OwnerResponse(ResponseModel):
    name: str
    pronouns: str
    persona: str
    authored: bool
    """Whether the owner has set a profile."""

    @classmethod
    def of(cls, you: OwnerProfile, authored: bool) -> OwnerResponse:
        return cls(name=you.name, pronouns=you.pronouns, persona=you.persona, authored=authored)


class OwnerRequest(RequestModel):
    name: Name
    pronouns: Prose = ""
    persona: Prose = ""


class CharacterRequest(IdentityFields, RequestModel):
    pass


class CharacterResponse(ResponseModel):
    id: str
    name: str
    persona: str
    voice_samples: list[str]
    traits: list[str]
    backstory: str
    initial_relationship: str
    kickoff: str
    """Prose from which the opening scene is proposed."""
    version: int
    has_card: bool

    @classmethod
    def of(cls, character: Character) -> CharacterResponse:
        return cls(**character.identity.model_dump(), version=character.version, has_card=character.card is not None)


class CharacterWithVersions(CharacterResponse):
    versions: list[CharacterResponse]
    """All versions, oldest first."""


class OpeningPlaceRequest(OpeningPlace):
    name: _ShortText = ""
    type: _ShortText = "place"


class OpeningRequest(Opening):
    """An opening scene as a person confirms it."""

    title: Annotated[Text, StringConstraints(max_length=200)] = ""
    place: OpeningPlaceRequest = OpeningPlaceRequest()
    weather: _ShortText = ""
    anchor: _ShortText = ""
    relationship: Prose = ""
    facts: Annotated[list[Prose], Field(max_length=1_000)] = Field(default_factory=list)
    greeting: Prose = ""

    @field_validator("time")
    @classmethod
    def _check_time(cls, value: str) -> str:
        if value and parse_start(value, EARLIEST.date()) is None:
            raise ValueError(f"it must be a time such as 2026-05-01T17:40, of a year from {EARLIEST.year}")
        return value


class ImportResponse(ResponseModel):
    character: CharacterResponse
    notes: list[str]
    """Warnings about the file."""


class NamedReference(ResponseModel):
    id: str
    name: str


class ChatResponse(ResponseModel):
    id: str
    title: str
    host: NamedReference
    guests: list[NamedReference]
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
    """Unread replies."""
    speaking: bool
    """Whether a reply is running."""

    @classmethod
    def of(cls, store: Store, story: StoryService, chat: Chat) -> ChatResponse:
        names = story.participants.names(chat)
        latest = story.timeline.latest_reply(chat.room)
        return cls(
            id=chat.id,
            title=chat.title,
            host=NamedReference(id=chat.host, name=names[chat.host]),
            guests=[NamedReference(id=guest, name=names[guest]) for guest in chat.guests],
            clock=chat.clock,
            weather=chat.weather,
            anchor=chat.anchor,
            scene=chat.scene,
            forked=chat.world == chat.room,
            turns=story.timeline.count(chat.room),
            snippet=latest.text[:_SNIPPET] if latest else "",
            unread=ReadMarks(store).unread(chat.room),
            speaking=story.replies.is_running(chat.room),
        )


class TurnResponse(ResponseModel):
    id: str
    seq: int
    """Its position; `before` of the next page."""
    speaker: str
    name: str
    by_person: bool
    text: str
    segments: list[Segment]
    state: Literal["open", "done", "truncated"]
    why: str
    """Why it was truncated, if it was."""
    status: int | None
    """The provider's HTTP status, if that was why."""
    answers: str | None
    to: list[str]
    """The recipients of a whisper."""
    model: str
    at: datetime
    """When it was said, in an imported chat too."""

    @classmethod
    def of(cls, turn: Turn, names: dict[str, str], text: str | None = None) -> TurnResponse:
        return cls(
            id=turn.id,
            seq=turn.seq,
            speaker=turn.speaker,
            name=names.get(turn.speaker, turn.speaker),
            by_person=turn.by_person,
            text=turn.text if text is None else text,
            segments=list(turn.segments),
            state=turn.state,
            why=redact(turn.why),
            status=turn.status,
            answers=turn.answers,
            to=list(turn.to),
            model=turn.model,
            at=turn.shown_at,
        )


class ReplyResponse(ResponseModel):
    turn: str
    """The id of the message."""
    reply: str
    """The id of the reply."""
    speaker: str
    text: str | None = None
    """With `wait=true`: the reply's text."""
    state: Literal["open", "done", "truncated"] = "open"
    why: str = ""
    status: int | None = None
    """The provider's HTTP status, if it refused."""

    @classmethod
    def of(cls, begun: StartedTurn) -> ReplyResponse:
        return cls(turn=begun.turn, reply=begun.reply, speaker=begun.speaker)

    @classmethod
    async def finished(cls, story: StoryService, room: str, begun: StartedTurn) -> ReplyResponse:
        await story.replies.wait(room)
        said = story.timeline.turn(room, begun.reply)
        return cls(
            turn=begun.turn,
            reply=begun.reply,
            speaker=begun.speaker,
            text=said.text,
            state=said.state,
            why=redact(said.why),
            status=said.status,
        )


class PromptPartResponse(ResponseModel):
    name: str
    tier: Literal["must", "should", "nice"]
    role: Literal["system", "user", "assistant"]
    tokens: int
    text: str


class RecalledMemoryResponse(ResponseModel):
    """A memory that was recalled for a reply, with its score."""

    memory: str
    text: str
    """As in the prompt; empty if it was left out."""
    score: float
    parts: dict[str, float]
    """The parts of the score, which sum to it."""
    included: bool
    """Whether it is in the prompt."""


class PromptResponse(ResponseModel):
    reply: str
    model: str
    tokens: int
    soft: int
    hard: int
    parts: list[PromptPartResponse]
    trimmed: list[str]
    """What was left out, and why."""
    recalled: dict[str, dict[str, float]]
    """Memory id → the parts of its score."""
    why: list[RecalledMemoryResponse]
    """The same, best first, with the text in the prompt."""

    @classmethod
    def of(cls, seen: InspectedPrompt) -> PromptResponse:
        sent = seen.sent
        return cls(
            reply=sent.reply,
            model=sent.model,
            tokens=sent.tokens,
            soft=sent.soft,
            hard=sent.hard,
            parts=[
                PromptPartResponse(
                    name=part.name, tier=part.tier, role=part.role, tokens=part.tokens, text=redact(part.text)
                )
                for part in seen.parts
            ],
            trimmed=list(sent.trimmed),
            recalled=sent.recalled,
            why=[_why(memory, parts, seen) for memory, parts in sent.recalled.items()],
        )


def _why(memory: str, parts: dict[str, float], seen: InspectedPrompt) -> RecalledMemoryResponse:
    names = (f"memory {memory}", f"pinned {memory}")
    text = next((part.text for part in seen.parts if part.name in names), None)
    return RecalledMemoryResponse(
        memory=memory, text=redact(text or ""), score=sum(parts.values()), parts=parts, included=text is not None
    )


class TurnPage(ResponseModel):
    turns: list[TurnResponse]
    """Oldest first."""
    before: int | None
    """`before` of the request for older turns; null at the beginning."""


class AlternativeReply(ResponseModel):
    reply: str
    text: str
    truncated: bool
    chosen: bool


class ReadyMadeCharacter(ResponseModel):
    name: str
    in_short: str


class MessageRequest(RequestModel):
    text: Annotated[Prose, Field(min_length=1)]
    speaker: str | None = None
    """Who answers, by id or name; chosen automatically otherwise."""
    to: list[str] = []
    """Whisper to these only."""
    key: str | None = Field(default=None, max_length=200)
    """A repeated key is the same message."""


class RegenerateRequest(RequestModel):
    text: Prose | None = None
    """The edited message."""
    speaker: str | None = None


class ChooseReplyRequest(RequestModel):
    reply: str


class RewindRequest(RequestModel):
    turn: str


class ForkRequest(RewindRequest):
    title: str | None = Field(default=None, max_length=200)


class ConfirmRequest(RequestModel):
    confirm: str
    """The character's name, typed exactly."""


class InviteRequest(RequestModel):
    character: str


class EditsRequest(RequestModel):
    edits: list[FieldEdit] = Field(min_length=1, max_length=100)
    """All are applied, or none."""


class PinRequest(RequestModel):
    pinned: bool


class DoneResponse(ResponseModel):
    done: bool = True
