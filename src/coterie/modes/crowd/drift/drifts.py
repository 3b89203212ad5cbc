"""Where everybody stands: a snapshot for each session, with its reasons, to look at, go back to, or freeze. C14"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from coterie.kernel import Event, NewEvent, Projection, Rows, Store, on
from coterie.modes.crowd.drift.reflection import DriftChange, SessionActivity, compute_drift
from coterie.modes.crowd.errors import DriftRefused
from coterie.modes.crowd.events import CrowdDrifted, CrowdDriftFrozen, CrowdDriftReverted, room_stream
from coterie.modes.crowd.personas import Persona, Traits


@dataclass(frozen=True)
class DriftSnapshot:
    number: int
    traits: Traits
    interests: tuple[str, ...]
    changes: tuple[dict[str, Any], ...]


class DriftProjection(Projection):
    name = "crowd_drifts"
    line = "room"
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
