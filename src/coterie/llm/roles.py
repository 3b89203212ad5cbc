"""What models are used for. Each role has a chain of its own in the settings; tasks can override it."""

from __future__ import annotations

from enum import StrEnum

from coterie.llm.messages import Priority


class Role(StrEnum):
    NARRATIVE = "narrative"
    CLASSIFIER = "classifier"
    CHANNEL = "channel"
    BRANCH = "branch"
    WORKER = "worker"
    COMPACTOR = "compactor"
    CORTEX = "cortex"
    CROWD = "crowd"
    DRAFT = "draft"

    @property
    def priority(self) -> Priority:
        """Who waits for it, unless the caller says otherwise."""
        return _PRIORITIES.get(self, Priority.BACKGROUND)

    @property
    def fallback_role(self) -> Role | None:
        """Whose chain is used where this role has none of its own."""
        return _FALLBACK_ROLES.get(self)


_PRIORITIES = {
    Role.NARRATIVE: Priority.PERSON,
    Role.CHANNEL: Priority.PERSON,
    Role.DRAFT: Priority.PERSON,
    Role.BRANCH: Priority.CHARACTER,
    Role.CROWD: Priority.CHARACTER,
}

_FALLBACK_ROLES = {
    Role.CHANNEL: Role.NARRATIVE,
    Role.BRANCH: Role.NARRATIVE,
    Role.WORKER: Role.NARRATIVE,
    Role.CROWD: Role.NARRATIVE,
    Role.DRAFT: Role.NARRATIVE,
    Role.COMPACTOR: Role.CLASSIFIER,
    Role.CORTEX: Role.CLASSIFIER,
}
