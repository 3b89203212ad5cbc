"""What the style guide shows its components with: every state once."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from coterie.surfaces.web.timeline import Swipes, TurnView
from coterie.surfaces.web.trouble import reply_error

_OPENING = (
    "*The lamp turns once, and the rain shows for a moment like a curtain of wire.*\n\n"
    '"You came up all those stairs without a light," Maren says. "That was brave, or it was foolish."\n\n'
    "> The sea keeps no diary. That is what the keeper is for."
)


def styleguide_samples() -> dict[str, Any]:
    turns = [
        TurnView(
            "sample-1",
            1,
            "Maren",
            _OPENING,
            by_person=False,
            state="done",
            swipes=Swipes(("a", "sample-1"), "sample-1"),
        ),
        TurnView(
            "sample-2",
            2,
            "You",
            '*shakes off the rain* "A bit of both." ((keep it slow))',
            by_person=True,
            state="done",
        ),
        TurnView("sample-3", 3, "Teodor", "He looks up from the", by_person=False, state="open"),
        TurnView(
            "sample-4",
            4,
            "Io",
            "Before the second bell",
            by_person=False,
            state="truncated",
            trouble=reply_error("The model is limiting how often it may be asked. Wait a little.", 429),
        ),
    ]
    return {
        "turns": turns,
        "moment": datetime(2026, 6, 1, 21, 40, tzinfo=UTC),
        "parts": [("identity", 820, "must"), ("last turns", 1900, "must"), ("edges", 310, "should"),
                  ("memories", 640, "should"), ("older dialogue", 1450, "nice")],
        "spend": [0.02, 0.05, 0.01, 0.0, 0.08, 0.11, 0.04, 0.06, 0.02, 0.09, 0.13, 0.07],
        "drift": [12, 14, 13, 18, 17, 21, 19, 24, 23, 22, 26],
        "changes": [(" ", "Keeps a lighthouse."), ("-", "Says little."), ("+", "Says little, and means it.")],
    }  # fmt: skip
