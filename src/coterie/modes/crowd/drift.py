"""Drift: small changes of a persona's traits and interests after each session.

A trait moves by at most 0.05 per session and stays within 0.25 of its authored value. Every change is stored with its
reason and the messages behind it; spam never counts. Each session makes a snapshot that can be reverted to.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from coterie.eventstore import NewEvent, Store
from coterie.modes.crowd.decisions import ChatEntry
from coterie.modes.crowd.errors import DriftRefused
from coterie.modes.crowd.events import CrowdDrifted, CrowdDriftFrozen, CrowdDriftReverted, room_stream
from coterie.modes.crowd.personas import Persona, Traits
from coterie.modes.crowd.relationships import Relationships, message_tone

MAX_STEP_PER_SESSION = 0.05
MAX_TOTAL_DRIFT = 0.25
_MAX_INTERESTS = 8
_MAX_ACQUIRED = 3
"""A persona may always have this many beyond its authored interests."""
_MIN_TOPIC_MESSAGES = 3
_MAX_EVIDENCE = 5
_MAX_COUNTED = 2_000
"""More messages of a kind do not change a persona further."""
_NOTICEABLE = 0.04
"""A trait that changed by this much is mentioned in the prompt."""
_DECIMALS = 4

_TENDENCIES = {
    "talkativeness": ("talk more than you used to", "talk less than you used to"),
    "meme_level": ("join in with the chat's jokes more", "keep out of the chat's jokes more"),
    "helpfulness": ("help people more", "help people less"),
    "contrarian": ("contradict more", "contradict less"),
    "warmth": ("are warmer", "are cooler"),
}
TRAITS = ("talkativeness", "meme_level", "helpfulness", "contrarian", "warmth")


@dataclass
class SessionActivity:
    """What happened to a persona during a session."""

    lines_said: int = 0
    answered: list[ChatEntry] = field(default_factory=list)
    """Messages of people that it answered."""
    mentioned_in: list[ChatEntry] = field(default_factory=list)
    """Messages of people that mention it."""
    reactions: int = 0
    """Its lines that were caused by an event or a trend."""
    tones: dict[str, list[tuple[float, str]]] = field(default_factory=dict)
    """Person → tone and id of each message to the persona."""

    @classmethod
    def from_history(cls, name: str, history: Iterable[ChatEntry]) -> SessionActivity:
        tracker = ActivityTracker([name])
        by_id: dict[str, ChatEntry] = {}
        for entry in history:
            by_id[entry.message.id] = entry
            tracker.add(entry, by_id.get(entry.message.reply_to or ""))
        return tracker.activities[name]


class ActivityTracker:
    """What happens to each persona during a session, message by message, so that long sessions count as a whole."""

    def __init__(self, names: Iterable[str]) -> None:
        self.activities = {name: SessionActivity() for name in names}
        self.messages = 0

    def join(self, name: str) -> None:
        self.activities.setdefault(name, SessionActivity())

    def add(self, entry: ChatEntry, replied_to: ChatEntry | None) -> None:
        """Count a message; `replied_to` is the one that it answers."""
        self.messages += 1
        message = entry.message
        if (own := self.activities.get(message.author.name)) is not None and not entry.from_person:
            own.lines_said += 1
            own.reactions += message.trace is not None and message.trace.because in ("event", "trend")
            if replied_to is not None and replied_to.from_person and not replied_to.spam_verdict.is_spam:
                _append(own.answered, replied_to)
            return
        if not entry.from_person or entry.spam_verdict.is_spam:
            return
        answered = replied_to.message.author.name if replied_to is not None and not replied_to.from_person else ""
        for name in {*message.mentions, answered} & self.activities.keys():
            activity = self.activities[name]
            if name in message.mentions:
                _append(activity.mentioned_in, entry)
            if message.author.kind == "human":
                _append(activity.tones.setdefault(message.author.name, []), (message_tone(message.text), message.id))


T = TypeVar("T")


def _append(items: list[T], item: T) -> None:
    if len(items) < _MAX_COUNTED:
        items.append(item)


@dataclass(frozen=True)
class DriftChange:
    what: str
    before: float | str
    after: float | str
    why: str
    evidence: tuple[str, ...] = ()


def compute_drift(
    authored: Persona, traits: Traits, interests: tuple[str, ...], activity: SessionActivity
) -> tuple[Traits, tuple[str, ...], list[DriftChange]]:
    """Return the new traits and interests, and the changes with their reasons."""
    if not activity.lines_said and not activity.mentioned_in:
        return traits, interests, []
    changes: list[DriftChange] = []
    questions = [entry for entry in activity.answered if "?" in entry.message.text]
    answered, mentioned = len(activity.answered), len(activity.mentioned_in)
    deltas: dict[str, tuple[float, str, list[ChatEntry]]] = {
        "talkativeness": (
            0.01 * mentioned - 0.01 * (not mentioned),
            "how often people spoke to them",
            activity.mentioned_in,
        ),
        "meme_level": (
            0.005 * activity.reactions - 0.01 * (not activity.reactions),
            "how often they joined in with the room",
            [],
        ),
        "helpfulness": (0.01 * len(questions), "people asked them", questions),
        "contrarian": (0.005 * (not answered) - 0.005 * answered, "how often they answered people", activity.answered),
        "warmth": (0.01 * answered, "they talked with people", activity.answered),
    }
    values = {}
    for name in TRAITS:
        delta, why, evidence = deltas[name]
        before = getattr(traits, name)
        values[name] = bound_trait(getattr(authored.traits, name), before, delta)
        if values[name] != before:
            ids = tuple(entry.message.id for entry in evidence[:_MAX_EVIDENCE])
            changes.append(DriftChange(name, before, values[name], why, ids))
    return Traits(**values), _update_interests(authored, interests, activity, changes), changes


def bound_trait(authored: float, before: float, delta: float) -> float:
    """Apply a delta, limited per session, in total from the authored value, and to 0–1."""
    step = max(-MAX_STEP_PER_SESSION, min(MAX_STEP_PER_SESSION, delta))
    low, high = max(0.0, authored - MAX_TOTAL_DRIFT), min(1.0, authored + MAX_TOTAL_DRIFT)
    return round(max(low, min(high, before + step)), _DECIMALS)


def _update_interests(
    authored: Persona, interests: tuple[str, ...], activity: SessionActivity, changes: list[DriftChange]
) -> tuple[str, ...]:
    """Add what several people talked about with the persona; beyond the limit the oldest acquired one is dropped."""
    answered = activity.answered
    counts = Counter(word for entry in answered for word in entry.words)
    authors = {word: {entry.message.author.name for entry in answered if word in entry.words} for word in counts}
    names = {entry.message.author.name for entry in answered} | {authored.name}
    kept = list(interests)
    for word in sorted(
        word for word, times in counts.items() if times >= _MIN_TOPIC_MESSAGES and len(authors[word]) > 1
    ):
        if word in kept or word in names:
            continue
        if len(kept) >= max(_MAX_INTERESTS, len(authored.interests) + _MAX_ACQUIRED):
            acquired = [interest for interest in interests if interest in kept and interest not in authored.interests]
            if not acquired:
                break
            kept.remove(acquired[0])
            changes.append(DriftChange("interest", acquired[0], "", "replaced by a newer one"))
        ids = tuple(entry.message.id for entry in answered if word in entry.words)[:_MAX_EVIDENCE]
        kept.append(word)
        changes.append(DriftChange("interest", "", word, "several people talked with them about it", ids))
    return tuple(kept)


@dataclass(frozen=True)
class DriftSnapshot:
    number: int
    traits: Traits
    interests: tuple[str, ...]
    changes: tuple[dict[str, Any], ...]


class PersonaDrift:
    """Reads and writes the drift snapshots of a room's personas. Snapshot 0 is the persona as authored."""

    def __init__(self, store: Store, room: str) -> None:
        self._store = store
        self._stream = room_stream(room)

    def current(self, persona: Persona) -> DriftSnapshot:
        return self._snapshot(persona, self._current_number(persona)[0])

    def history(self, persona: Persona) -> list[DriftSnapshot]:
        rows = self._store.query(
            "SELECT number FROM crowd_drift WHERE room = ? AND persona = ? ORDER BY number",
            (self._stream, persona.name),
        )
        return [self._snapshot(persona, number) for number in (0, *(row[0] for row in rows))]

    async def apply_session(
        self, persona: Persona, activity: SessionActivity, base: DriftSnapshot | None = None
    ) -> list[DriftChange]:
        """Store the drift of a session. A frozen persona does not change.

        `base` is the persona at the session's beginning, if part of the session's drift may be stored already.
        """
        number, frozen = self._current_number(persona)
        if frozen:
            return []
        current = self._snapshot(persona, number)
        base = base or current
        traits, interests, changes = compute_drift(persona, base.traits, base.interests, activity)
        if not changes or (traits, interests) == (current.traits, current.interests):
            return []
        state = {"traits": traits.model_dump(), "interests": list(interests)}
        number = base.number
        stored = tuple(asdict(change) for change in changes)
        last = self.history(persona)[-1].number
        payload = CrowdDrifted(persona=persona.name, number=last + 1, after=number, state=state, changes=stored)
        await self._store.append([NewEvent(self._stream, payload, "crowd")])
        return changes

    async def revert(self, persona: Persona, to: int, *, actor: str = "person") -> DriftSnapshot:
        """Return to a snapshot. Later snapshots are kept."""
        known = [snapshot.number for snapshot in self.history(persona)]
        if to not in known:
            raise DriftRefused(
                f"{persona.name} has no snapshot {to}.", f"There are: {', '.join(map(str, known))}; 0 is as authored."
            )
        await self._store.append([NewEvent(self._stream, CrowdDriftReverted(persona=persona.name, to=to), actor)])
        return self.current(persona)

    async def freeze(self, persona: Persona, frozen: bool = True, *, actor: str = "person") -> None:
        await self._store.append([NewEvent(self._stream, CrowdDriftFrozen(persona=persona.name, frozen=frozen), actor)])

    def apply_current(self, personas: Sequence[Persona]) -> list[Persona]:
        """Return the personas with their current traits and interests, and what changed in words."""
        return [
            persona.model_copy(
                update={"traits": now.traits, "interests": now.interests, "tendencies": describe_drift(persona, now)}
            )
            for persona in personas
            for now in [self.current(persona)]
        ]

    def _current_number(self, persona: Persona) -> tuple[int, bool]:
        rows = self._store.query(
            "SELECT number, frozen FROM crowd_drift_now WHERE room = ? AND persona = ?", (self._stream, persona.name)
        )
        return (int(rows[0][0]), bool(rows[0][1])) if rows else (0, False)

    def _snapshot(self, persona: Persona, number: int) -> DriftSnapshot:
        if number == 0:
            return DriftSnapshot(0, persona.traits, persona.interests, ())
        ((state, changes),) = self._store.query(
            "SELECT state, changes FROM crowd_drift WHERE room = ? AND persona = ? AND number = ?",
            (self._stream, persona.name, number),
        )
        parsed = json.loads(state)
        return DriftSnapshot(number, Traits(**parsed["traits"]), tuple(parsed["interests"]), tuple(json.loads(changes)))


def describe_drift(authored: Persona, now: DriftSnapshot) -> tuple[str, ...]:
    """How a persona differs from its file, in words for its prompt."""
    words = []
    for trait in TRAITS:
        change = getattr(now.traits, trait) - getattr(authored.traits, trait)
        if abs(change) >= _NOTICEABLE:
            words.append(_TENDENCIES[trait][change < 0])
    if acquired := [interest for interest in now.interests if interest not in authored.interests]:
        words.append(f"like to talk about {', '.join(acquired)}")
    return tuple(words)


class SessionReflection:
    """Stores what a session changes in its personas and their relationships, as often as it is called.

    Every call counts the whole session so far from its beginning, so the limits of a session hold for all of them.
    """

    def __init__(self, drift: PersonaDrift, relationships: Relationships, authored: Sequence[Persona]) -> None:
        self._drift = drift
        self._relationships = relationships
        self._authored = authored
        self._before = {persona.name: drift.current(persona) for persona in authored}
        self._stored = {name: snapshot.number for name, snapshot in self._before.items()}
        self._relationships_before = relationships.current()

    async def store(self, tracker: ActivityTracker) -> None:
        # At the same time, so that they are in one transaction.
        await asyncio.gather(*(self._store_drift(persona, tracker) for persona in self._authored))
        heard = {name: activity.tones for name, activity in tracker.activities.items()}
        await self._relationships.store(self._relationships_before, heard)

    async def _store_drift(self, persona: Persona, tracker: ActivityTracker) -> None:
        activity = tracker.activities.get(persona.name)
        if activity is None or self._drift.current(persona).number != self._stored[persona.name]:
            return  # somebody reverted it meanwhile
        if await self._drift.apply_session(persona, activity, self._before[persona.name]):
            self._stored[persona.name] = self._drift.current(persona).number
