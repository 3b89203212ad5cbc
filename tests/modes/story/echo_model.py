"""A scripted model that repeats the code words of its prompt, so that a leak into one prompt shows in later ones.

Every message and reply contains its own code word. Results of classifiers and summaries contain each code word of their
prompt, as those of a good model would.
"""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass, field

from coterie.llm.messages import CompletionRequest
from coterie.llm.recording import RecordedCall
from tests.modes.story.conftest import ScriptedModel

CODE = re.compile(r"z[qn]\d{5}x")
"""`zq` is in a message or reply, `zn` in an out-of-character note, which no prompt may contain."""
_SPEAKER = re.compile(r"You are (\w+)\. You write only")
_CLOSING = re.compile(r"Summarise this scene as (\w+) would")


def codes(text: str) -> list[str]:
    return list(dict.fromkeys(CODE.findall(text)))


def words(request: CompletionRequest) -> str:
    return "\n".join(message.text for message in request.prompt.messages)


def shape_of(request: CompletionRequest) -> str:
    return request.prompt.output_schema.name if request.prompt.output_schema else ""


def speaker_of(request: CompletionRequest) -> str:
    """The name of the character that is to speak, or for which a scene is summarised."""
    found = (_CLOSING if shape_of(request) == "SceneSummary" else _SPEAKER).search(words(request))
    assert found is not None, words(request)
    return found[1]


def pairs_of(request: CompletionRequest) -> list[tuple[str, str]]:
    """The pairs whose relationships were asked for."""
    asked = words(request).rpartition("Pairs: ")[2]
    return [(of, toward) for of, _, toward in (pair.partition(" toward ") for pair in asked.split("; "))]


@dataclass
class EchoModel(ScriptedModel):
    chance: random.Random = field(default_factory=random.Random)
    sent: list[CompletionRequest] = field(default_factory=list)
    """Every request since the last check."""
    next_reply: str = "Yes."

    def answer(self, request: CompletionRequest) -> RecordedCall:
        self.sent.append(request)
        shape = shape_of(request)
        return RecordedCall(say=json.dumps(self._shaped(shape, request)) if shape else self.next_reply)

    def _shaped(self, shape: str, request: CompletionRequest) -> object:
        found = codes(words(request))
        match shape:
            case "TurnAnalysis":
                facts = [f"Learned the word {code}" for code in found]
                return {
                    "pairs": [
                        {"of": of, "toward": toward, "affinity_delta": self.chance.randint(-9, 9), "trust_delta": 1}
                        | {"knowledge_facts": facts}
                        for of, toward in pairs_of(request)
                    ],
                    "significance": self.chance.choice([0, 1, 1, 2, 3]),
                    "scene_end": "done" if self.chance.random() < 0.1 else "",
                    "evidence": found[-1] if found else "",
                    "minutes": 3,
                    "memories": [{"text": f"Somebody said {code}"} for code in found],
                    "activities": [{"who": of, "posture": f"{of} sits"} for of, _ in pairs_of(request)],
                }
            case "SceneSummary":
                # The earlier relationship summary is no part of the scene.
                found = codes(words(request).partition("\n\nHow ")[0])
                summary = f"There was talk of {' and '.join(found) or 'nothing'}"
                return {"summary": summary, "significance": self.chance.randint(0, 3), "relationship": summary}
            case "DialogueSummary":
                return {"summary": f"So far: {' '.join(found)}"}
            case "ClassifiedSegments":
                return {"segments": [{"kind": "action", "text": request.prompt.messages[-1].text}]}
            case _:
                return {}
