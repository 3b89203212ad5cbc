"""Where everybody stands: a snapshot for each session, with its reasons, to look at, go back to, or freeze. C14"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from coterie.kernel import Draft, Event, Rows, Store, View, on
from coterie.modes.crowd.drift.reflection import Change, Happened, reflect
from coterie.modes.crowd.errors import DriftRefused
from coterie.modes.crowd.events import CrowdDrifted, CrowdDriftFrozen, CrowdDriftReverted, stream
from coterie.modes.crowd.personas import Persona, Traits


@dataclass(frozen=True)
class Snapshot:
    number: int
    traits: Traits
    interests: tuple[str, ...]
    changes: tuple[dict[str, Any], ...]


class Drifts(View):
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
        self._stand(rows, event.stream, drift.persona, drift.number)

    @on(CrowdDriftReverted)
    def reverted(self, rows: Rows, event: Event[CrowdDriftReverted]) -> None:
        self._stand(rows, event.stream, event.payload.persona, event.payload.to)

    @on(CrowdDriftFrozen)
    def frozen(self, rows: Rows, event: Event[CrowdDriftFrozen]) -> None:
        rows.run(
            "INSERT INTO crowd_drift_now VALUES (?1, ?2, 0, ?3) ON CONFLICT(room, persona) DO UPDATE SET frozen = ?3",
            (event.stream, event.payload.persona, int(event.payload.frozen)),
        )

    def _stand(self, rows: Rows, room: str, persona: str, number: int) -> None:
        rows.run(
            "INSERT INTO crowd_drift_now VALUES (?1, ?2, ?3, 0) ON CONFLICT(room, persona) DO UPDATE SET number = ?3",
            (room, persona, number),
        )


class DriftBook:
    """Reads and writes the snapshots of a room's personas. Number 0 is who they were written as."""

    def __init__(self, store: Store, room: str) -> None:
        self._store = store
        self._stream = stream(room)

    def now(self, persona: Persona) -> Snapshot:
        return self._at(persona, self._standing(persona)[0])

    def history(self, persona: Persona) -> list[Snapshot]:
        rows = self._store.query(
            "SELECT number FROM crowd_drift WHERE room = ? AND persona = ? ORDER BY number",
            (self._stream, persona.name),
        )
        return [self._at(persona, number) for number in (0, *(row[0] for row in rows))]

    async def look_back(self, persona: Persona, happened: Happened) -> list[Change]:
        """At a session's end. A frozen persona stays as it is."""
        number, frozen = self._standing(persona)
        if frozen:
            return []
        now = self._at(persona, number)
        traits, interests, changes = reflect(persona, now.traits, now.interests, happened)
        if not changes:
            return []
        state = {"traits": traits.model_dump(), "interests": list(interests)}
        told = tuple(asdict(change) for change in changes)
        last = self.history(persona)[-1].number
        payload = CrowdDrifted(persona=persona.name, number=last + 1, after=number, state=state, changes=told)
        await self._store.append([Draft(self._stream, payload, "crowd")])
        return changes

    async def revert(self, persona: Persona, to: int, *, actor: str = "person") -> Snapshot:
        """Back to a snapshot, exactly; later ones stay readable."""
        known = [snapshot.number for snapshot in self.history(persona)]
        if to not in known:
            raise DriftRefused(
                f"{persona.name} has no snapshot {to}.", f"There are: {', '.join(map(str, known))}; 0 is as authored."
            )
        await self._store.append([Draft(self._stream, CrowdDriftReverted(persona=persona.name, to=to), actor)])
        return self.now(persona)

    async def freeze(self, persona: Persona, frozen: bool = True, *, actor: str = "person") -> None:
        await self._store.append([Draft(self._stream, CrowdDriftFrozen(persona=persona.name, frozen=frozen), actor)])

    def drifted(self, personas: Sequence[Persona]) -> list[Persona]:
        """Everybody as they are by now, for a session that begins."""
        return [
            persona.model_copy(update={"traits": now.traits, "interests": now.interests})
            for persona in personas
            for now in [self.now(persona)]
        ]

    def _standing(self, persona: Persona) -> tuple[int, bool]:
        rows = self._store.query(
            "SELECT number, frozen FROM crowd_drift_now WHERE room = ? AND persona = ?", (self._stream, persona.name)
        )
        return (int(rows[0][0]), bool(rows[0][1])) if rows else (0, False)

    def _at(self, persona: Persona, number: int) -> Snapshot:
        if number == 0:
            return Snapshot(0, persona.traits, persona.interests, ())
        ((state, changes),) = self._store.query(
            "SELECT state, changes FROM crowd_drift WHERE room = ? AND persona = ? AND number = ?",
            (self._stream, persona.name, number),
        )
        told = json.loads(state)
        return Snapshot(number, Traits(**told["traits"]), tuple(told["interests"]), tuple(json.loads(changes)))
