"""The crowd's projections: drift snapshots of personas, and their relationships to people."""

from __future__ import annotations

import json

from coterie.eventstore import Event, Projection, Rows, on
from coterie.modes.crowd import events
from coterie.modes.crowd.events import CrowdDrifted, CrowdDriftFrozen, CrowdDriftReverted, CrowdRelated

__all__ = ["DriftProjection", "PersonaRelationshipProjection", "crowd_projections", "events"]


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


class PersonaRelationshipProjection(Projection):
    name = "crowd_relationships"
    stream_column = "room"
    schema = """
    CREATE TABLE crowd_relationship(room TEXT, persona TEXT, person TEXT, value REAL, why TEXT, evidence TEXT,
        PRIMARY KEY(room, persona, person));
    """

    @on(CrowdRelated)
    def related(self, rows: Rows, event: Event[CrowdRelated]) -> None:
        changed = event.payload
        rows.run(
            "INSERT INTO crowd_relationship VALUES (?1, ?2, ?3, ?4, ?5, ?6)"
            " ON CONFLICT(room, persona, person) DO UPDATE SET value = ?4, why = ?5, evidence = ?6",
            (event.stream, changed.persona, changed.person, changed.value, changed.why, " ".join(changed.evidence)),
        )


def crowd_projections() -> list[Projection]:
    return [DriftProjection(), PersonaRelationshipProjection()]
