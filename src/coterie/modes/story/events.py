"""Events of the story mode besides turns: chats, places, scenes, activities, relationships, prompts, read marks."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from itertools import accumulate
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from coterie.characters import OWNER
from coterie.eventstore import Payload

MAIN_WORLD = "main"
"""The world of all chats that are not forks."""


DELETED_KEY_PREFIX = "delete:"
"""Begins the keys of events that delete a chat."""


class _StoryValue(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Action(_StoryValue):
    verb: str = ""
    interruptible: bool = True
    attention: Literal["low", "medium", "high"] = "low"
    """How much attention the action needs."""
    minutes: float | None = Field(default=None, ge=0)
    """How long it is expected to take."""


class Activity(_StoryValue):
    """What a participant is doing, and where."""

    container: str = ""
    slot: str = ""
    posture: str = ""
    action: Action = Action()
    attention: str = ""
    """What the participant attends to."""
    holding: tuple[str, ...] = ()
    status: str = ""


class ChatCreated(Payload, kind="chat_created"):
    """A chat was created."""

    host: str
    """The id of the character the chat is with."""
    bot_version: int
    """Which version of the character, counted from 1."""
    title: str
    """From the opening, else the character's name."""
    clock: datetime
    """The time in the fiction."""
    weather: str = ""
    """In a few words; empty if unknown."""
    anchor: str = ""
    """What the first day is, such as "Day 1 = the morning after the storm"."""
    world: str = MAIN_WORLD
    """The world whose relationships it uses; a fork gets its own."""
    person: str = OWNER
    """The id of the person whose chat it is."""


class ChatForkOpened(Payload, kind="chat_line_opened"):
    """A fork of a chat was opened, with its own title and world."""

    title: str
    """The title that was given, else the parent's with `(fork)`."""
    world: str
    """The fork's own stream."""
    forked_from: str
    """The stream of the chat it comes from."""


class ContainerCreated(Payload, kind="container_created"):
    """A place was created."""

    container: str
    """The place's id."""
    name: str
    """Its name; `somewhere` if none was given."""
    type: str = "place"
    """The kind of place, in a word."""
    parent: str | None = None
    """The id of the place that contains it."""
    moving: bool = False
    """It moves, such as a train."""
    public: bool = False
    """Other people may be there."""
    audible: str = "room"
    """How far sounds carry: `room`, `near`, `far`."""


class ActivityChange(Payload, kind="activity_change"):
    """The activity of a participant changed."""

    entity: str
    """A character's or a person's id."""
    activity: Activity
    """Replaces the former activity."""


class SceneOpened(Payload, kind="scene_opened"):
    """A scene was opened."""

    scene: str
    """The scene's id."""
    container: str
    """The id of its place."""
    participants: tuple[str, ...]
    """The ids of the people and characters present."""
    starts: datetime
    """The time in the fiction."""
    versions: dict[str, int] = Field(default_factory=dict)
    """Character id → version, for characters that were edited since the last scene."""


class SceneClosed(Payload, kind="scene_closed"):
    """A scene was closed."""

    scene: str
    """The scene's id."""
    ends: datetime
    """The time in the fiction."""
    why: str = ""
    """`place`, `done`, `time` or `by hand`; empty if the model gave no reason."""
    by_hand: bool = False
    """A person closed it."""


class SceneSummarised(Payload, kind="scene_summarised"):
    """A scene was summarised from the point of view of one witness; the summary stands for its minor memories."""

    scene: str
    """The scene's id."""
    owner: str
    """The id of the character whose point of view it is."""
    summary: str
    """What happened, as the owner saw it."""
    significance: int = Field(ge=0, le=3)
    """0 trivial, 1 ordinary, 2 important, 3 life-changing."""


class DialogueSummarised(Payload, kind="dialogue_summarised"):
    """The dialogue up to a turn was summarised, for prompts that cannot hold all of it."""

    upto: int
    """The seq of the first turn that it does not cover."""
    summary: str
    """Includes what the previous summary covered; without whispers."""


class RelationshipUpdated(Payload, kind="edge_update"):
    """A relationship changed. The levels that result from the deltas are clamped to 0..100."""

    world: str
    """`main`, or the stream of a fork."""
    of: str
    """The id of the one who feels it."""
    toward: str
    """The id of the character or person it is about."""
    affinity_delta: int = Field(default=0, ge=-100, le=100)
    """Change of affinity; at most 10 per exchange."""
    trust_delta: int = Field(default=0, ge=-100, le=100)
    """Change of trust; at most 10 per exchange."""
    knowledge: tuple[str, ...] = ()
    """What `of` learned about `toward`, as sentences."""
    summary: str | None = None
    """Only when a relationship begins; later it is rewritten when a scene closes."""
    chat: str = ""
    """The stream of the chat it happened in; empty for an imported relationship."""
    when: datetime | None = None
    """The time in the fiction."""


class RelationshipSummaryRewritten(Payload, kind="edge_summary_rewritten"):
    """The summary of a relationship was rewritten when a scene closed."""

    world: str
    """`main`, or the stream of a fork."""
    of: str
    """The id of the one who feels it."""
    toward: str
    """The id of the character or person it is about."""
    summary: str
    """One or two sentences."""
    rewrites: str = ""
    """The hash of the summary that it replaces; the event has no effect if the current summary is another."""


class Relationship(_StoryValue):
    of: str
    toward: str
    affinity: int = 50
    trust: int = 50
    summary: str = ""
    knowledge: tuple[str, ...] = ()
    chat: str = ""
    when: datetime | None = None


class RelationshipsSet(Payload, kind="edges_set"):
    """A fork began with the relationships of that point."""

    world: str
    """The fork's own stream."""
    edges: tuple[Relationship, ...]
    """All relationships of that world."""


class RelationshipsCleared(Payload, kind="edges_cleared"):
    """A reset set relationships back to their defaults."""

    pairs: tuple[tuple[str, str, str], ...]
    """World, who, toward whom."""


class ClockMoved(Payload, kind="clock_moved"):
    """Time passed in the fiction. A duration, so that concurrent jobs add up in any order."""

    minutes: int = Field(ge=0)
    """How much time passed."""
    why: str = ""
    """How a scene ended with it: `place`, `done` or `time`; usually empty."""


class GuestJoined(Payload, kind="guest_joined"):
    """A character joined a chat as a guest."""

    guest: str
    """The character's id."""
    bot_version: int
    """Which version of the character, counted from 1."""


class GuestLeft(Payload, kind="guest_left"):
    """A guest left a chat."""

    guest: str
    """The character's id."""


class PersonJoined(Payload, kind="person_joined"):
    """Another person joined a chat."""

    person: str
    """The person's id; `you` is the owner."""


class PersonLeft(Payload, kind="person_left"):
    """A person who had joined left a chat."""

    person: str
    """The person's id; `you` is the owner."""


class ChatPersonaChosen(Payload, kind="chat_persona_chosen"):
    """The owner speaks as another persona in this chat from here on."""

    persona: str
    """The persona's id; empty for the owner's profile."""


class ManualEdit(Payload, kind="manual_edit"):
    """A person corrected a field of a chat's details."""

    what: str
    """A path such as `clock`, `weather`, `activity.you.posture`, `edge.main.mara.you.affinity`."""
    value: Any
    """The new value."""
    prior: Any
    """The value before."""


Tier = Literal["must", "should", "nice"]


class SentPromptPart(_StoryValue):
    """One part of a prompt."""

    name: str
    tier: Tier
    role: Literal["system", "user", "assistant"]
    tokens: int
    text: str


class LoreUsed(_StoryValue):
    """A lorebook entry that went into a prompt."""

    part: str
    """The name of its part of the prompt."""
    book: str
    """The lorebook's id."""
    entry: str
    """The entry's key in it."""
    why: str
    messages: int | None = None
    """How many messages the chat had, if the entry's stickiness or cooldown counts from here."""


class PromptSent(Payload, kind="prompt_sent", version=3):
    """The exact prompt of a reply."""

    shares_texts: ClassVar[bool] = True

    reply: str
    """The id of the reply."""
    model: str
    """`provider/model` that was called first; a fallback may have replied."""
    tokens: int
    """Its length by our own count."""
    soft: int
    """Budget in tokens above which optional parts are dropped: `nice` first, then `should`."""
    hard: int
    """Budget in tokens that must not be exceeded."""
    parts: tuple[SentPromptPart, ...] = ()
    """In the order of sending; empty once the event is stored."""
    shared: tuple[int, ...] = ()
    """The stored parts, as numbers of shared texts: the first number, then the difference of each to the one before."""
    tiers: str = ""
    """The first letter of the tier of each stored part."""
    trimmed: tuple[str, ...] = ()
    """What was left out, and why, as sentences."""
    recalled: dict[str, dict[str, float]] = Field(default_factory=dict)
    """Memory id → the parts of its score."""
    lore: tuple[LoreUsed, ...] = ()
    """The lorebook entries in it, and why they are."""
    sampler: dict[str, Any] = Field(default_factory=dict)
    """How the model was told to pick its words, where that is set."""

    def share_texts(self, number: Callable[[str], int]) -> PromptSent:
        numbers = [number(json.dumps([p.name, p.role, p.tokens, p.text], ensure_ascii=False)) for p in self.parts]
        shared = tuple(one - before for one, before in zip(numbers, (0, *numbers), strict=False))
        tiers = "".join(part.tier[0] for part in self.parts)
        return self.model_copy(update={"parts": (), "shared": shared, "tiers": tiers})

    def shared_numbers(self) -> list[int]:
        return list(accumulate(self.shared))

    def stored_parts(self, texts: Mapping[int, str]) -> list[SentPromptPart]:
        """The parts, given the shared texts; those whose text is missing are left out."""
        parts = []
        for number, tier in zip(self.shared_numbers(), self.tiers, strict=True):
            if number in texts:
                name, role, tokens, text = json.loads(texts[number])
                parts.append(SentPromptPart(name=name, tier=_TIERS[tier], role=role, tokens=tokens, text=text))
        return parts


_TIERS: dict[str, Tier] = {"m": "must", "s": "should", "n": "nice"}


READ_MARKS_STREAM = "reading"
"""Read marks have their own stream, so that a rewind does not affect them and they do not prevent its undo."""


class ChatRead(Payload, kind="chat_read"):
    """A person read a chat up to a turn."""

    chat: str
    """The chat's stream."""
    seq: int
    """The seq of the last turn that was read, in the chat's stream."""


BOOKMARKS_STREAM = "bookmarks"
"""Bookmarks and quick replies have their own stream, so that they do not prevent the undo of a rewind."""


class TurnBookmarked(Payload, kind="turn_bookmarked"):
    """A person bookmarked a turn, or removed its bookmark. Forks that have the turn show it too."""

    turn: str
    """The turn's id."""
    bookmarked: bool = True
    """False removes the bookmark."""
    name: str = ""
    """What the person calls it; empty for the beginning of its text."""


class ExchangeAnalysed(Payload, kind="exchange_analysed"):
    """The model could not analyse an exchange, so that rules alone decided what it changed; or it could, later."""

    reply: str
    """The last turn of the exchange."""
    failure: Literal["", "refused", "not_json", "not_the_schema", "unavailable"] = ""
    """Why there is no analysis; empty if there is one now."""


class QuickReply(_StoryValue):
    """A text that is sent, or put into the message field, with one click."""

    label: str = Field(min_length=1, max_length=40)
    text: str = Field(min_length=1, max_length=2_000)
    send: bool = True
    """Whether it is sent at once."""


class QuickRepliesSet(Payload, kind="quick_replies_set"):
    """A person changed the quick replies."""

    replies: tuple[QuickReply, ...]
    """All of them, in order."""
