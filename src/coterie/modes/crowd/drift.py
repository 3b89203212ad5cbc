"""Drift: small changes of a persona's traits and interests after each session.

A trait moves by at most 0.05 per session and stays within 0.25 of its authored value. Every change is stored with its
reason and the messages behind it; spam never counts. Each session makes a snapshot that can be reverted to.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from coterie.eventstore import NewEvent, Store
from coterie.modes.crowd.decisions import ChatEntry
from coterie.modes.crowd.errors import DriftRefused
from coterie.modes.crowd.events import CrowdDrifted, CrowdDriftFrozen, CrowdDriftReverted, room_stream
from coterie.modes.crowd.personas import Persona, Traits

MAX_STEP_PER_SESSION = 0.05
MAX_TOTAL_DRIFT = 0.25
_MAX_INTERESTS = 8
_MAX_ACQUIRED = 3
"""A persona may always have this many beyond its authored interests."""
_MIN_TOPIC_MESSAGES = 3
_MAX_EVIDENCE = 5
_DECIMALS = 4

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

    @classmethod
    def from_history(cls, name: str, history: Iterable[ChatEntry]) -> SessionActivity:
        entries = list(history)
        by_id = {entry.message.id: entry for entry in entries}
        activity = cls()
        for entry in entries:
            if entry.message.author.name == name:
                activity.lines_said += 1
                trace = entry.message.trace
                activity.reactions += trace is not None and trace.because in ("event", "trend")
                replied_to = by_id.get(entry.message.reply_to or "")
                if replied_to is not None and replied_to.from_person and not replied_to.spam_verdict.is_spam:
                    activity.answered.append(replied_to)
            elif entry.from_person and not entry.spam_verdict.is_spam and name in entry.message.mentions:
                activity.mentioned_in.append(entry)
        return activity


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

    async def apply_session(self, persona: Persona, activity: SessionActivity) -> list[DriftChange]:
        """Store the drift of a finished session. A frozen persona does not change."""
        number, frozen = self._current_number(persona)
        if frozen:
            return []
        current = self._snapshot(persona, number)
        traits, interests, changes = compute_drift(persona, current.traits, current.interests, activity)
        if not changes:
            return []
        state = {"traits": traits.model_dump(), "interests": list(interests)}
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
        """Return the personas with their current traits and interests."""
        return [
            persona.model_copy(update={"traits": now.traits, "interests": now.interests})
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
