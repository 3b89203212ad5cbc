"""What happens in a story, beside the turns: a world, scenes, what people do, and how they feel about each other."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from coterie.characters.service import OWNER
from coterie.eventstore import Payload

MAIN_WORLD = "main"
"""The world that all chats share which are not forks."""


class _StoryValue(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Action(_StoryValue):
    verb: str = ""
    interruptible: bool = True
    attention: Literal["low", "medium", "high"] = "low"
    """How much of it the action needs."""
    minutes: float | None = Field(default=None, ge=0)
    """How long it is expected to take."""


class Activity(_StoryValue):
    """What somebody is doing, and where."""

    container: str = ""
    slot: str = ""
    posture: str = ""
    action: Action = Action()
    attention: str = ""
    """What they attend to."""
    holding: tuple[str, ...] = ()
    status: str = ""


class ChatCreated(Payload, kind="chat_created"):
    """A chat began. S5"""

    host: str
    """The character it is with, by id."""
    bot_version: int
    """Which version of the character, counted from 1."""
    title: str
    """From the opening, else the character's name."""
    clock: datetime
    """What time it is in the fiction."""
    weather: str = ""
    """In a few words; empty where nobody said."""
    anchor: str = ""
    """What day one is: "Day 1 = the morning after the storm"."""
    world: str = MAIN_WORLD
    """The world whose feelings it shares; a fork gets one of its own."""
    person: str = OWNER
    """Whose chat it is."""


class ChatForkOpened(Payload, kind="chat_line_opened"):
    """A fork of a chat has its own title, and a world of its own in which nothing else happens."""

    title: str
    """The name it was given, else the parent's with `(fork)`."""
    world: str
    """The fork's own stream."""
    forked_from: str
    """The stream of the chat it comes from."""


class ContainerCreated(Payload, kind="container_created"):
    """A place. S5"""

    container: str
    """The place's id."""
    name: str
    """What it is called; `somewhere`, where nobody said."""
    type: str = "place"
    """What kind of place it is, in a word."""
    parent: str | None = None
    """The id of the place it is in; None for none."""
    moving: bool = False
    """It moves: a train, a boat."""
    public: bool = False
    """Others may walk in."""
    audible: str = "room"
    """How far one is heard: `room`, `near`, `far`."""


class ActivityChange(Payload, kind="activity_change"):
    """What somebody is doing, and where."""

    entity: str
    """Who: a character's or a person's id."""
    activity: Activity
    """All of it, in place of what was noted before."""


class SceneOpened(Payload, kind="scene_opened"):
    """A scene began."""

    scene: str
    """The scene's id."""
    container: str
    """The id of the place where it is."""
    participants: tuple[str, ...]
    """Who is there, by id: people and characters."""
    starts: datetime
    """When, in the fiction."""
    versions: dict[str, int] = Field(default_factory=dict)
    """Of its characters: who has been written anew is so from this scene on. S1"""


class SceneClosed(Payload, kind="scene_closed"):
    """A scene ended."""

    scene: str
    """The scene's id."""
    ends: datetime
    """When, in the fiction."""
    why: str = ""
    """`place`, `done`, `time` or `by hand`; empty where the model gave no reason."""
    by_hand: bool = False
    """A person closed it."""


class SceneSummarised(Payload, kind="scene_summarised"):
    """What a scene was to one who witnessed it; it stands for that scene's small memories from now on. S15"""

    scene: str
    """The scene's id."""
    owner: str
    """Who saw it: a character's id."""
    summary: str
    """From their point of view."""
    significance: int = Field(ge=0, le=3)
    """0 trivial, 1 ordinary, 2 important, 3 life-changing."""


class DialogueSummarised(Payload, kind="dialogue_summarised"):
    """What was said up to a point, in short, for prompts that have no room for all of it. S13"""

    upto: int
    """The stream's number of the first turn that it does not cover."""
    summary: str
    """What was said aloud until then, with what the summary before told."""


class RelationshipUpdated(Payload, kind="edge_update"):
    """How one feels about another changed. Deltas are clamped to 0..100 when they are folded. S3"""

    world: str
    """The world it holds in: `main`, or a fork's stream."""
    of: str
    """Who feels it, by id."""
    toward: str
    """Whom it is about: a character's or a person's id."""
    affinity_delta: int = Field(default=0, ge=-100, le=100)
    """How much more they like them, or less; by one exchange 10 at most."""
    trust_delta: int = Field(default=0, ge=-100, le=100)
    """How much more they trust them, or less; by one exchange 10 at most."""
    knowledge: tuple[str, ...] = ()
    """What they learned about them, as sentences."""
    summary: str | None = None
    """Only where a relationship begins; later it is rewritten at scene close."""
    chat: str = ""
    """The stream of the chat it happened in; empty for what came along with a character."""
    when: datetime | None = None
    """In the fiction."""


class RelationshipSummaryRewritten(Payload, kind="edge_summary_rewritten"):
    """How one sees another, in words, rewritten at scene close."""

    world: str
    """The world it holds in: `main`, or a fork's stream."""
    of: str
    """Who feels it, by id."""
    toward: str
    """Whom it is about: a character's or a person's id."""
    summary: str
    """The new sentence or two."""
    rewrites: str = ""
    """The fingerprint of the sentence it was made from: if that was never so, neither was this."""


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
    """A forked line begins with feelings as they were at that moment."""

    world: str
    """The fork's own stream."""
    edges: tuple[Relationship, ...]
    """All there are in that world."""


class RelationshipsCleared(Payload, kind="edges_cleared"):
    """These feelings start over. S25"""

    pairs: tuple[tuple[str, str, str], ...]
    """World, who, toward whom."""


class ClockMoved(Payload, kind="clock_moved"):
    """Time went by. Told as a stretch, so that what two exchanges took adds up in whatever order it is found out."""

    minutes: int = Field(ge=0)
    """By how much it is later in the fiction."""
    why: str = ""
    """How a scene ended with it: `place`, `done` or `time`; as a rule empty."""


class GuestJoined(Payload, kind="guest_joined"):
    """A second character came into a chat."""

    guest: str
    """The character's id."""
    bot_version: int
    """Which version of the character, counted from 1."""


class GuestLeft(Payload, kind="guest_left"):
    """A guest left."""

    guest: str
    """The character's id."""


class PersonJoined(Payload, kind="person_joined"):
    """Somebody else talks along in a chat from now on. P3"""

    person: str
    """The person's id; `you` is the owner."""


class PersonLeft(Payload, kind="person_left"):
    """Somebody who talked along does not any more."""

    person: str
    """The person's id; `you` is the owner."""


class ManualEdit(Payload, kind="manual_edit"):
    """A person corrected something in the drawer; `prior` is what stood there. S21"""

    what: str
    """A path such as `clock`, `weather`, `activity.you.posture`, `edge.main.mara.you.affinity`."""
    value: Any
    """What it says now."""
    prior: Any
    """What it said before."""


class SentPromptPart(_StoryValue):
    """One piece of a prompt."""

    name: str
    tier: Literal["must", "should", "nice"]
    role: Literal["system", "user", "assistant"]
    tokens: int
    sha: str
    """Of its text."""


class PromptSent(Payload, kind="prompt_sent"):
    """Exactly what a model was told for a reply. Texts that this chat has sent before are named by hash only. S13"""

    reply: str
    """The reply it was made for, by id."""
    model: str
    """`provider/model` that was asked first; a fallback may have answered."""
    tokens: int
    """How long it is, as we count."""
    soft: int
    """The budget in tokens: beyond it `nice` parts go first, then `should` ones."""
    hard: int
    """The most tokens it may have, for what must be in it."""
    parts: tuple[SentPromptPart, ...]
    """In the order they were sent."""
    texts: dict[str, str]
    """Hash → text, for parts this chat had not sent before."""
    trimmed: tuple[str, ...] = ()
    """What was left out, and why, in words."""
    recalled: dict[str, dict[str, float]] = Field(default_factory=dict)
    """Memory → what its score was made of."""
