"""How personas change from session to session: a little, within bounds, with reasons, and never beyond recall. C14"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from coterie.eventstore import Event, NewEvent, Projection, Rows, Store, on
from coterie.modes.crowd.decisions import ChatEntry
from coterie.modes.crowd.errors import DriftRefused
from coterie.modes.crowd.events import CrowdDrifted, CrowdDriftFrozen, CrowdDriftReverted, room_stream
from coterie.modes.crowd.personas import Persona, Traits

# Looking back at a session: what it did to somebody's traits and interests, in bounds that no chat can push. C14
#
# Each trait moves by at most 0.05 a session and stays within 0.25 of what was authored, for life. Every change has its
# reason and the messages it comes from; nothing that the screen took for spam counts.


MAX_STEP_PER_SESSION = 0.05
MAX_TOTAL_DRIFT = 0.25
_MAX_INTERESTS = 8
_MAX_ACQUIRED = 3
"""So many beyond the authored ones, at least."""
_MIN_TOPIC_MESSAGES = 3
_MAX_EVIDENCE = 5
_DECIMALS = 4

TRAITS = ("talkativeness", "meme_level", "helpfulness", "contrarian", "warmth")


@dataclass
class SessionActivity:
    """What a persona lived through in a session."""

    lines_said: int = 0
    answered: list[ChatEntry] = field(default_factory=list)
    """People's messages that it answered."""
    mentioned_in: list[ChatEntry] = field(default_factory=list)
    """People's messages that named it."""
    reactions: int = 0
    """Lines it said because something happened or everybody else spoke."""

    @classmethod
    def from_history(cls, name: str, history: Iterable[ChatEntry]) -> SessionActivity:
        told = list(history)
        by_id = {each.message.id: each for each in told}
        found = cls()
        for each in told:
            if each.message.author.name == name:
                found.lines_said += 1
                trace = each.message.trace
                found.reactions += trace is not None and trace.because in ("event", "trend")
                before = by_id.get(each.message.reply_to or "")
                if before is not None and before.human and not before.spam_verdict.is_spam:
                    found.answered.append(before)
            elif each.human and not each.spam_verdict.is_spam and name in each.message.mentions:
                found.mentioned_in.append(each)
        return found


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
    """Traits and interests as they are from now on, and what changed and why."""
    if not activity.lines_said and not activity.mentioned_in:
        return traits, interests, []
    changes: list[DriftChange] = []
    asked = [each for each in activity.answered if "?" in each.message.text]
    met, called = len(activity.answered), len(activity.mentioned_in)
    wanted: dict[str, tuple[float, str, list[ChatEntry]]] = {
        "talkativeness": (0.01 * called - 0.01 * (not called), "how often people spoke to them", activity.mentioned_in),
        "meme_level": (
            0.005 * activity.reactions - 0.01 * (not activity.reactions),
            "how they went along with the room",
            [],
        ),
        "helpfulness": (0.01 * len(asked), "people asked them", asked),
        "contrarian": (0.005 * (not met) - 0.005 * met, "how often they met people halfway", activity.answered),
        "warmth": (0.01 * met, "they talked with people", activity.answered),
    }
    values = {}
    for name in TRAITS:
        delta, why, evidence = wanted[name]
        before = getattr(traits, name)
        values[name] = bounded_trait(getattr(authored.traits, name), before, delta)
        if values[name] != before:
            ids = tuple(each.message.id for each in evidence[:_MAX_EVIDENCE])
            changes.append(DriftChange(name, before, values[name], why, ids))
    return Traits(**values), _interests(authored, interests, activity, changes), changes


def bounded_trait(authored: float, before: float, delta: float) -> float:
    """A trait after a session: no step above 0.05, never farther than 0.25 from the authored value, within 0 and 1."""
    step = max(-MAX_STEP_PER_SESSION, min(MAX_STEP_PER_SESSION, delta))
    low, high = max(0.0, authored - MAX_TOTAL_DRIFT), min(1.0, authored + MAX_TOTAL_DRIFT)
    return round(max(low, min(high, before + step)), _DECIMALS)


def _interests(
    authored: Persona, interests: tuple[str, ...], happened: SessionActivity, changes: list[DriftChange]
) -> tuple[str, ...]:
    """What several people talked about with them is taken up; of what was taken up before, the oldest makes room."""
    talked: Counter[str] = Counter()
    for each in happened.answered:
        talked.update(each.words)
    authors = {word: {each.message.author.name for each in happened.answered if word in each.words} for word in talked}
    names = {each.message.author.name for each in happened.answered} | {authored.name}
    kept = list(interests)
    for word in sorted(
        word for word, times in talked.items() if times >= _MIN_TOPIC_MESSAGES and len(authors[word]) > 1
    ):
        if word in kept or word in names:
            continue
        if len(kept) >= max(_MAX_INTERESTS, len(authored.interests) + _MAX_ACQUIRED):
            acquired = [each for each in interests if each in kept and each not in authored.interests]
            if not acquired:
                break
            kept.remove(acquired[0])
            changes.append(DriftChange("interest", acquired[0], "", "it made room"))
        ids = tuple(each.message.id for each in happened.answered if word in each.words)[:_MAX_EVIDENCE]
        kept.append(word)
        changes.append(DriftChange("interest", "", word, "several people talked with them about it", ids))
    return tuple(kept)


# Where everybody stands: a snapshot for each session, with its reasons, to look at, go back to, or freeze. C14


@dataclass(frozen=True)
class DriftSnapshot:
    number: int
    traits: Traits
    interests: tuple[str, ...]
    changes: tuple[dict[str, Any], ...]


class DriftProjection(Projection):
    name = "crowd_drifts"
    stream_column = "room"
    schema = """
    CREATE TABLE crowd_drift(room TEXT, persona TEXT, number INTEGER, state TEXT, changes TEXT,
        PRIMARY KEY(room, persona, number));
    CREATE TABLE crowd_drift_now(room TEXT, persona TEXT, number INTEGER, frozen INTEGER, PRIMARY KEY(room, persona));
    """

    @on(CrowdDrifted)
    def drifted(self, rows: Rows, event: Event[CrowdDrifted]) -> None:
        drift = event.payload
        rows.run(
            "INSERT INTO crowd_drift VALUES (?, ?, ?, ?, ?)",
            (event.stream, drift.persona, drift.number, json.dumps(drift.state), json.dumps(drift.changes)),
        )
        self._set_current(rows, event.stream, drift.persona, drift.number)

    @on(CrowdDriftReverted)
    def reverted(self, rows: Rows, event: Event[CrowdDriftReverted]) -> None:
        self._set_current(rows, event.stream, event.payload.persona, event.payload.to)

    @on(CrowdDriftFrozen)
    def frozen(self, rows: Rows, event: Event[CrowdDriftFrozen]) -> None:
        rows.run(
            "INSERT INTO crowd_drift_now VALUES (?1, ?2, 0, ?3) ON CONFLICT(room, persona) DO UPDATE SET frozen = ?3",
            (event.stream, event.payload.persona, int(event.payload.frozen)),
        )

    def _set_current(self, rows: Rows, room: str, persona: str, number: int) -> None:
        rows.run(
            "INSERT INTO crowd_drift_now VALUES (?1, ?2, ?3, 0) ON CONFLICT(room, persona) DO UPDATE SET number = ?3",
            (room, persona, number),
        )


class PersonaDrift:
    """Reads and writes the snapshots of a room's personas. Number 0 is who they were written as."""

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
        """At a session's end. A frozen persona stays as it is."""
        number, frozen = self._current_number(persona)
        if frozen:
            return []
        now = self._snapshot(persona, number)
        traits, interests, changes = compute_drift(persona, now.traits, now.interests, activity)
        if not changes:
            return []
        state = {"traits": traits.model_dump(), "interests": list(interests)}
        told = tuple(asdict(change) for change in changes)
        last = self.history(persona)[-1].number
        payload = CrowdDrifted(persona=persona.name, number=last + 1, after=number, state=state, changes=told)
        await self._store.append([NewEvent(self._stream, payload, "crowd")])
        return changes

    async def revert(self, persona: Persona, to: int, *, actor: str = "person") -> DriftSnapshot:
        """Back to a snapshot, exactly; later ones stay readable."""
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
        """Everybody as they are by now, for a session that begins."""
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
        told = json.loads(state)
        return DriftSnapshot(number, Traits(**told["traits"]), tuple(told["interests"]), tuple(json.loads(changes)))


__all__ = [
    "MAX_TOTAL_DRIFT",
    "TRAITS",
    "DriftProjection",
    "DriftSnapshot",
    "PersonaDrift",
    "SessionActivity",
    "compute_drift",
]
