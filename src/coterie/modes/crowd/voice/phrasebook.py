"""A voice that needs no model: the persona's own lines, chosen by the situation and filled in with what is going on.

It is what a room sounds like offline, what stands in when a model is late or out of order, and what makes a simulated
evening the same everywhere.
"""

from __future__ import annotations

from coterie.modes.crowd.mind.chance import seed_of
from coterie.modes.crowd.personas import Situation
from coterie.modes.crowd.voice.brief import Brief

_NEAR: dict[Situation, tuple[Situation, ...]] = {
    "question": ("topic", "idle"),
    "topic": ("idle",),
    "mention": ("reply", "idle"),
    "reply": ("mention", "idle"),
}
"""Where else to look when the first lines will not do."""


class Phrasebook:
    name = "phrasebook"

    def write(self, brief: Brief, attempt: int = 0) -> str:
        """A line, or nothing if there is none for this. Another attempt is another line."""
        lines: list[str] = []
        for situation in (brief.situation, *_NEAR.get(brief.situation, ("idle",))):
            said = brief.persona.lines.get(situation, ())
            lines += _turned([line for line in said if brief.topics or "{topic}" not in line], brief.seed)
        if attempt >= len(lines):
            return ""
        line = lines[attempt]
        emotes = brief.persona.emotes
        topics = brief.topics or ("",)
        filled = line.format(
            topic=topics[seed_of(brief.seed, "topic") % min(3, len(topics))],
            name=brief.to or "chat",
            emote=emotes[seed_of(brief.seed, attempt, "emote") % len(emotes)] if emotes else "",
        ).strip()
        return f"@{brief.to} {filled}" if brief.to and f"@{brief.to}" not in filled else filled


def _turned(lines: list[str], seed: int) -> list[str]:
    """The same lines, beginning somewhere else."""
    start = seed_of(seed, "phrase") % len(lines) if lines else 0
    return lines[start:] + lines[:start]
