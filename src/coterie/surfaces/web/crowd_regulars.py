"""Somebody of a room of the crowd, as they are by now: what they are up to, and how far they have drifted. C14"""

from __future__ import annotations

from dataclasses import dataclass

from coterie.modes.crowd import TRAITS, CrowdRoom, DriftSnapshot, Persona


@dataclass(frozen=True)
class MemberView:
    """Somebody of a room, as they are by now."""

    persona: Persona
    history: list[DriftSnapshot]
    now: DriftSnapshot
    mood: str
    """What they are up to."""

    @property
    def changed(self) -> float:
        """How far they have drifted, all traits together."""
        now, written = self.now.traits.model_dump(), self.persona.traits.model_dump()
        return float(sum(abs(now[trait] - written[trait]) for trait in TRAITS))

    @property
    def drifted(self) -> list[tuple[str, float, float]]:
        """The traits that are not as written: what they were, and are."""
        now, written = self.now.traits.model_dump(), self.persona.traits.model_dump()
        return [(trait, written[trait], now[trait]) for trait in TRAITS if now[trait] != written[trait]]


def member_view(room: CrowdRoom, persona: Persona) -> MemberView:
    mood = "away"
    if room.live is not None:
        mind = room.live.session.deciders.get(persona.name)
        at_ms = room.gateway.now_ms()
        if mind is not None:
            mood = "typing" if mind.typing else "asleep" if persona.is_asleep(at_ms) else "watching"
    return MemberView(persona, room.drift.history(persona), room.drift.current(persona), mood)
