"""Finding what is worth remembering without a model: only what somebody says of themselves, or asks to be remembered.

Conservative on purpose. A model may propose more; whoever proposes, the keeper's rules and memory's own apply. C12
"""

from __future__ import annotations

import re

from coterie.memory.extraction import ExtractionRequest, Operation, Operations
from coterie.memory.record import MemoryType

_JOKE = r"(?i)\b(?:running joke|our joke|inside joke|never forget|remember (?:when|the|that|how))\b"
_RELATIONSHIP = r"(?i)\bcall me\b|\bmy name is\b|\bi(?:'m| am) your\b|\bwe (?:are|were) (?:friends|rivals)\b"
_PREFERENCE = (
    r"(?i)\bi (?:really )?(?:like|love|hate|prefer|adore|can't stand|collect|play|cook|grow)\b|\bmy favou?rite\b"
)
_LIFE_EVENT = (
    r"(?i)\bi (?:just |finally )?(?:passed|finished|moved|adopted|won|started|quit)\b|\bmy (?:birthday|exam|wedding)\b"
)
_RULES: tuple[tuple[re.Pattern[str], MemoryType, float], ...] = (
    (re.compile(_JOKE), "running_joke", 0.8),
    (re.compile(_RELATIONSHIP), "relationship", 0.8),
    (re.compile(_PREFERENCE), "preference", 0.8),
    (re.compile(_LIFE_EVENT), "event", 0.7),
)


def extract_by_rules(request: ExtractionRequest) -> Operations:
    found = []
    for turn in request.turns:
        if "?" in turn.text and "remember" not in turn.text.casefold():
            continue
        for pattern, kind, confidence in _RULES:
            if pattern.search(turn.text):
                said = re.sub(r"@\S+\s*", "", turn.text).strip()
                text = f"{turn.speaker}: {said}"
                found.append(
                    Operation(
                        op="ADD", text=text, type=kind, evidence=[turn.id], about=[turn.speaker], confidence=confidence
                    )
                )
                break
    return Operations(operations=found)
