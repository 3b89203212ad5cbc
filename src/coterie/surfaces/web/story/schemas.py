"""Requests and responses of the API for stories and characters, and the base classes of all others."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator

from coterie.base.redaction import redact
from coterie.base.values import EARLIEST, Key, Name, Prose, Text
from coterie.characters import Character, IdentityFields, OwnerProfile
from coterie.conversation import Segment, Turn
from coterie.eventstore import Store
from coterie.modes.story import (
    MAX_CHANGED_TURNS,
    Action,
    Activity,
    Chat,
    FieldEdit,
    InspectedPrompt,
    Opening,
    OpeningPlace,
    QuickReply,
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


class OrganiseChatRequest(RequestModel):
    """Fields that are left out stay as they are."""

    title: Name | None = None
    archived: bool | None = None
    pinned: bool | None = None
    tags: Annotated[list[Name], Field(max_length=50)] | None = None


class DeletedChatResponse(ResponseModel):
    id: str
    title: str
    at: datetime


class PersonaChoice(RequestModel):
    persona: Annotated[Text, Field(max_length=200)] = ""
    """A persona's id; empty for the owner's profile."""


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


class ActionRequest(Action):
    verb: _ShortText = ""


class ActivityRequest(Activity):
    container: _ShortText = ""
    slot: _ShortText = ""
    posture: _ShortText = ""
    action: ActionRequest = ActionRequest()
    attention: _ShortText = ""
    holding: Annotated[tuple[_ShortText, ...], Field(max_length=100)] = ()
    status: _ShortText = ""


class OpeningRequest(Opening):
    """An opening scene as a person confirms it."""

    title: Annotated[Text, StringConstraints(max_length=200)] = ""
    place: OpeningPlaceRequest = OpeningPlaceRequest()
    time: Annotated[str, Field(max_length=100)] = ""
    weather: _ShortText = ""
    anchor: _ShortText = ""
    you: ActivityRequest = ActivityRequest()
    character: ActivityRequest = ActivityRequest()
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


class PictureResponse(ResponseModel):
    id: str
    """It is shown at `/pictures/{id}`."""
    description: str = ""
    """In the words of a model, for those that cannot see."""


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
    follows: str | None
    """The reply before it, if several characters reply to one message."""
    hidden: bool
    """Left out of prompts and memories."""
    edited: bool
    """A person changed its text after it was written."""
    at: datetime
    """When it was said, in an imported chat too."""
    pictures: list[PictureResponse]

    @classmethod
    def of(cls, turn: Turn, names: dict[str, str], text: str | None = None, name: str = "") -> TurnResponse:
        """`name` is the speaker's, if it is another than now."""
        return cls(
            id=turn.id,
            seq=turn.seq,
            speaker=turn.speaker,
            name=name or names.get(turn.speaker, turn.speaker),
            by_person=turn.by_person,
            text=turn.text if text is None else text,
            segments=list(turn.segments),
            state=turn.state,
            why=redact(turn.why),
            status=turn.status,
            answers=turn.answers,
            to=list(turn.to),
            model=turn.model,
            follows=turn.follows,
            hidden=turn.hidden,
            pictures=[PictureResponse(id=one.id, description=redact(one.description)) for one in turn.pictures],
            edited=turn.edited,
            at=turn.shown_at,
        )


class ReplyResponse(ResponseModel):
    turn: str
    """The id of the message; empty if the reply answers none."""
    reply: str
    """The id of the reply; empty if nobody replies."""
    speaker: str
    text: str | None = None
    """With `wait=true`: the reply's text."""
    state: Literal["open", "done", "truncated"] = "open"
    why: str = ""
    status: int | None = None
    """The provider's HTTP status, if it refused."""

    @classmethod
    def of(cls, begun: StartedTurn) -> ReplyResponse:
        return cls(turn=begun.turn, reply=begun.reply, speaker=begun.speaker, state="open" if begun.reply else "done")

    @classmethod
    async def finished(cls, story: StoryService, room: str, begun: StartedTurn) -> ReplyResponse:
        if not begun.reply:
            return cls(turn=begun.turn, reply="", speaker="", state="done")
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
    sampler: dict[str, Any]
    """How the model was told to pick its words, where that is set."""
    why: list[RecalledMemoryResponse]
    """The same, best first, with the text in the prompt."""
    lore: dict[str, str] = {}
    """The parts that are lorebook entries → why they are included."""

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
            sampler=sent.sampler,
            why=[_why(memory, parts, seen) for memory, parts in sent.recalled.items()],
            lore={used.part: redact(used.why) for used in sent.lore},
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
    text: Prose = ""
    """May be empty if there are pictures."""
    pictures: Annotated[list[Annotated[str, Field(max_length=64)]], Field(max_length=20)] = []
    """The ids of uploaded pictures."""
    speaker: Key | None = None
    """Who answers, by id or name; chosen automatically otherwise."""
    to: Annotated[list[Key], Field(max_length=1_000)] = []
    """Whisper to these only."""
    key: str | None = Field(default=None, max_length=200)
    """A repeated key is the same message."""
    reply: bool = True
    """False only records the message; nobody replies."""


class RegenerateRequest(RequestModel):
    text: Prose | None = None
    """The edited message."""
    speaker: Key | None = None


class ChooseReplyRequest(RequestModel):
    reply: Key


class EditTurnRequest(RequestModel):
    text: Annotated[Prose, Field(min_length=1)]


class TurnRangeRequest(RequestModel):
    first: Key
    """The id of a turn."""
    last: Key | None = None
    """All turns up to this one, too."""


class HideRequest(TurnRangeRequest):
    hidden: bool = True
    """False lets the turns count again."""


class RestoreTurnsRequest(RequestModel):
    turns: Annotated[list[Key], Field(min_length=1, max_length=MAX_CHANGED_TURNS)]


class ChangedTurns(ResponseModel):
    turns: list[str]
    """The ids of the turns that changed."""


class AddReplyRequest(RequestModel):
    speaker: Key | None = None
    """Who replies, by id or name; another character by default."""


class SuggestionRequest(RequestModel):
    beginning: Prose = ""
    """How the message begins already."""


class SuggestionResponse(ResponseModel):
    text: str


class BookmarkRequest(RequestModel):
    bookmarked: bool = True
    name: Annotated[Text, StringConstraints(max_length=200)] = ""
    """What to call it; the beginning of the turn's text by default."""


class QuickReplyResponse(ResponseModel):
    label: str
    text: str
    send: bool


class QuickReplies(RequestModel):
    replies: Annotated[list[QuickReply], Field(max_length=50)]


class LastRewind(ResponseModel):
    turn: str | None
    """The last turn before the last rewind, at which a fork keeps what was rewound; null if nothing was."""


class RewindRequest(RequestModel):
    turn: Key


class ForkRequest(RewindRequest):
    title: str | None = Field(default=None, max_length=200)


class ConfirmRequest(RequestModel):
    confirm: Prose
    """The character's name, typed exactly."""


class InviteRequest(RequestModel):
    character: Key


class EditsRequest(RequestModel):
    edits: list[FieldEdit] = Field(min_length=1, max_length=100)
    """All are applied, or none."""


class PinRequest(RequestModel):
    pinned: bool


class DoneResponse(ResponseModel):
    done: bool = True
