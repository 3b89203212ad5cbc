"""A voice that needs no model: the persona's own lines, chosen by the situation and filled in with what is going on.

It is what a room sounds like offline, what stands in when a model is late or out of order, and what makes a simulated
evening the same everywhere.
"""

from __future__ import annotations

from coterie.modes.crowd.mind.chance import derive_seed
from coterie.modes.crowd.personas import Situation
from coterie.modes.crowd.voice.brief import LineRequest

_FALLBACK_SITUATIONS: dict[Situation, tuple[Situation, ...]] = {
    "question": ("topic", "idle"),
    "topic": ("idle",),
    "mention": ("reply", "idle"),
    "reply": ("mention", "idle"),
}
"""Where else to look when the first lines will not do."""


class CannedLines:
    name = "phrasebook"

    def write(self, request: LineRequest, attempt: int = 0) -> str:
        """A line, or nothing if there is none for this. Another attempt is another line."""
        lines: list[str] = []
        for situation in (request.situation, *_FALLBACK_SITUATIONS.get(request.situation, ("idle",))):
            said = request.persona.lines.get(situation, ())
            lines += _rotated([line for line in said if request.topics or "{topic}" not in line], request.seed)
        if attempt >= len(lines):
            return ""
        line = lines[attempt]
        emotes = request.persona.emotes
        topics = request.topics or ("",)
        filled = line.format(
            topic=topics[derive_seed(request.seed, "topic") % min(3, len(topics))],
            name=request.recipient or "chat",
            emote=emotes[derive_seed(request.seed, attempt, "emote") % len(emotes)] if emotes else "",
        ).strip()
        return (
            f"@{request.recipient} {filled}" if request.recipient and f"@{request.recipient}" not in filled else filled
        )


def _rotated(lines: list[str], seed: int) -> list[str]:
    """The same lines, beginning somewhere else."""
    start = derive_seed(seed, "phrase") % len(lines) if lines else 0
    return lines[start:] + lines[:start]
