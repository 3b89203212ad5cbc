"""A scripted model that repeats everything it is told, so that whatever leaks into one prompt is seen in the next.

Every message and reply holds a code word of its own. Classifiers, summaries and scene closings hand on each code word
that they were shown, as a good model would hand on what was said.
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
"""`zq` is something that was said, `zn` a note to the player, which nobody may ever see."""
_SPEAKER = re.compile(r"You are (\w+)\. You write only")
_CLOSING = re.compile(r"Summarise this scene as (\w+) would")


def codes(text: str) -> list[str]:
    return list(dict.fromkeys(CODE.findall(text)))


def words(request: CompletionRequest) -> str:
    return "\n".join(message.text for message in request.prompt.messages)


def shape_of(request: CompletionRequest) -> str:
    return request.prompt.output_schema.name if request.prompt.output_schema else ""


def speaker_of(request: CompletionRequest) -> str:
    """The name of who is to speak, or whose scene is closed."""
    found = (_CLOSING if shape_of(request) == "SceneSummary" else _SPEAKER).search(words(request))
    assert found is not None, words(request)
    return found[1]


def pairs_of(request: CompletionRequest) -> list[tuple[str, str]]:
    """Whose feelings toward whom were asked for."""
    asked = words(request).rpartition("Pairs: ")[2]
    return [(of, toward) for of, _, toward in (pair.partition(" toward ") for pair in asked.split("; "))]


@dataclass
class EchoModel(ScriptedModel):
    chance: random.Random = field(default_factory=random.Random)
    sent: list[CompletionRequest] = field(default_factory=list)
    """Everything any model was asked since it was last looked at."""
    next_reply: str = "Yes."

    def answer(self, request: CompletionRequest) -> RecordedCall:
        self.sent.append(request)
        shape = shape_of(request)
        return RecordedCall(say=json.dumps(self._shaped(shape, request)) if shape else self.next_reply)

    def _shaped(self, shape: str, request: CompletionRequest) -> object:
        told = codes(words(request))
        match shape:
            case "StateUpdate":
                facts = [f"Learned the word {code}" for code in told]
                return {
                    "pairs": [
                        {"of": of, "toward": toward, "affinity_delta": self.chance.randint(-9, 9), "trust_delta": 1}
                        | {"knowledge_facts": facts}
                        for of, toward in pairs_of(request)
                    ]
                }
            case "SceneSummary":
                # What it thought of the person before is no part of the scene, nor of what it came to.
                told = codes(words(request).partition("\n\nHow ")[0])
                summary = f"There was talk of {' and '.join(told) or 'nothing'}"
                return {"summary": summary, "significance": self.chance.randint(0, 3), "relationship": summary}
            case "DialogueSummary":
                return {"summary": f"So far: {' '.join(told)}"}
            case "Significance":
                return {"significance": self.chance.choice([0, 1, 1, 2, 3])}
            case "SceneCheck":
                return {"closed": self.chance.random() < 0.1, "why": "done", "minutes": 3}
            case "ClassifiedSegments":
                return {"segments": [{"kind": "action", "text": request.prompt.messages[-1].text}]}
            case _:
                return {}
