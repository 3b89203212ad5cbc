"""What happens in a story, beside the turns: a world, scenes, what people do, and how they feel about each other."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from coterie.cast.roster import YOU
from coterie.kernel import Payload

MAIN = "main"
"""The world that all chats share which are not forks."""


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Action(_Value):
    verb: str = ""
    interruptible: bool = True
    attention: Literal["low", "medium", "high"] = "low"
    """How much of it the action needs."""
    minutes: float | None = Field(default=None, ge=0)
    """How long it is expected to take."""


class Activity(_Value):
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
    bot_version: int
    title: str
    clock: datetime
    weather: str = ""
    anchor: str = ""
    """What day one is: "Day 1 = the morning after the storm"."""
    world: str = MAIN
    person: str = YOU
    """Whose chat it is."""


class ChatLineOpened(Payload, kind="chat_line_opened"):
    """A fork of a chat has its own title, and a world of its own in which nothing else happens."""

    title: str
    world: str
    forked_from: str


class ContainerCreated(Payload, kind="container_created"):
    """A place. S5"""

    container: str
    name: str
    type: str = "place"
    parent: str | None = None
    moving: bool = False
    public: bool = False
    audible: str = "room"
    """How far one is heard: `room`, `near`, `far`."""


class ActivityChange(Payload, kind="activity_change"):
    """What somebody is doing, and where."""

    entity: str
    activity: Activity


class SceneOpened(Payload, kind="scene_opened"):
    """A scene began."""

    scene: str
    container: str
    participants: tuple[str, ...]
    starts: datetime
    versions: dict[str, int] = Field(default_factory=dict)
    """Of its characters: who has been written anew is so from this scene on. S1"""


class SceneClosed(Payload, kind="scene_closed"):
    """A scene ended."""

    scene: str
    ends: datetime
    why: str = ""
    by_hand: bool = False


class SceneSummarised(Payload, kind="scene_summarised"):
    """What a scene was to one who witnessed it; it stands for that scene's small memories from now on. S15"""

    scene: str
    owner: str
    summary: str
    significance: int = Field(ge=0, le=3)


class DialogueSummarised(Payload, kind="dialogue_summarised"):
    """What was said up to a point, in short, for prompts that have no room for all of it. S13"""

    upto: int
    """The stream's number of the first turn that it does not cover."""
    summary: str


class EdgeUpdate(Payload, kind="edge_update"):
    """How one feels about another changed. Deltas are clamped to 0..100 when they are folded. S3"""

    world: str
    of: str
    toward: str
    affinity_delta: int = Field(default=0, ge=-100, le=100)
    trust_delta: int = Field(default=0, ge=-100, le=100)
    knowledge: tuple[str, ...] = ()
    summary: str | None = None
    """Only where a relationship begins; later it is rewritten at scene close."""
    chat: str = ""
    when: datetime | None = None


class EdgeSummaryRewritten(Payload, kind="edge_summary_rewritten"):
    """How one sees another, in words, rewritten at scene close."""

    world: str
    of: str
    toward: str
    summary: str
    rewrites: str = ""
    """The fingerprint of the sentence it was made from: if that was never so, neither was this."""


class Edge(_Value):
    of: str
    toward: str
    affinity: int = 50
    trust: int = 50
    summary: str = ""
    knowledge: tuple[str, ...] = ()
    chat: str = ""
    when: datetime | None = None


class EdgesSet(Payload, kind="edges_set"):
    """A forked line begins with feelings as they were at that moment."""

    world: str
    edges: tuple[Edge, ...]


class EdgesCleared(Payload, kind="edges_cleared"):
    """These feelings start over. S25"""

    pairs: tuple[tuple[str, str, str], ...]
    """World, who, toward whom."""


class ClockMoved(Payload, kind="clock_moved"):
    """Time went by. Told as a stretch, so that what two exchanges took adds up in whatever order it is found out."""

    minutes: int = Field(ge=0)
    why: str = ""


class WeatherChanged(Payload, kind="weather_changed"):
    """The weather in the fiction."""

    weather: str


class GuestJoined(Payload, kind="guest_joined"):
    """A second character came into a chat."""

    guest: str
    bot_version: int


class GuestLeft(Payload, kind="guest_left"):
    """A guest left."""

    guest: str


class PersonJoined(Payload, kind="person_joined"):
    """Somebody else talks along in a chat from now on. P3"""

    person: str


class PersonLeft(Payload, kind="person_left"):
    """Somebody who talked along does not any more."""

    person: str


class ManualEdit(Payload, kind="manual_edit"):
    """A person corrected something in the drawer; `prior` is what stood there. S21"""

    what: str
    """A path such as `clock`, `weather`, `activity.you.posture`, `edge.main.mara.you.affinity`."""
    value: Any
    prior: Any


class Part(_Value):
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
    model: str
    tokens: int
    soft: int
    hard: int
    parts: tuple[Part, ...]
    texts: dict[str, str]
    trimmed: tuple[str, ...] = ()
    """What was left out, and why, in words."""
    recalled: dict[str, dict[str, float]] = Field(default_factory=dict)
    """Memory → what its score was made of."""
