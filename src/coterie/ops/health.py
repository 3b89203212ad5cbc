"""The health of the running server: whether the database can be used, and which background tasks have a problem."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from coterie.base.errors import CoterieError
from coterie.base.logging import get_logger
from coterie.base.supervisor import Supervisor, TaskState, describe
from coterie.eventstore import Store

HealthStatus = Literal["ok", "degraded", "failing"]
_log = get_logger(__name__)


@dataclass(frozen=True)
class Health:
    status: HealthStatus
    """ok: everything works; degraded: a part does not; failing: the database cannot be read or written."""
    problems: Sequence[TaskState] = ()
    tasks: Sequence[TaskState] = ()
    """All background tasks, with or without a problem."""

    @property
    def rows(self) -> list[TaskState]:
        """All background tasks, those with a problem first."""
        return [*self.problems, *(state for state in self.tasks if state.healthy)]

    def public(self) -> dict[str, Any]:
        """What anybody may know: which parts have a problem."""
        parts = sorted({(state.part, state.status) for state in self.problems})
        return self._with_parts([{"name": part, "status": status} for part, status in parts])

    def details(self) -> dict[str, Any]:
        """What the owner may know. Secrets are redacted."""
        return self._with_parts(
            [
                {
                    "name": state.name,
                    "status": state.status,
                    "error": state.error,
                    "fix": state.fix,
                    "failures": state.failures,
                    "since": state.since.isoformat() if state.since is not None else None,
                }
                for state in self.problems
            ]
        )

    def _with_parts(self, parts: list[dict[str, Any]]) -> dict[str, Any]:
        return {"status": self.status, "parts": parts} if parts else {"status": self.status}


def check_health(store: Store, supervisor: Supervisor) -> Health:
    tasks, problems = supervisor.states(), supervisor.problems()
    if (failure := _database_failure(store)) is not None:
        _log.error("unhealthy", error=failure.error)
        return Health("failing", [failure, *problems], tasks)
    return Health("degraded" if problems else "ok", problems, tasks)


def _database_failure(store: Store) -> TaskState | None:
    try:
        store.query("SELECT 1")
    except CoterieError as error:
        return TaskState("database", "failed", 0, *describe(error))
    if not store.is_writable:
        what, fix = "The database cannot be written.", "Free some space, or check the disk, then restart the server."
        return TaskState("database", "failed", 0, what, fix)
    return None
