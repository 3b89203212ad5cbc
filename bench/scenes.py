"""How well the end of a scene, a change of place and a skip in time are detected in labelled turns.

The turns in `bench/lib/scene_turns.txt` were written before the rules. They are played with the rules alone, and
with a scripted classifier that answers with the label wherever the rules leave an exchange open.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from bench.lib.report import arguments, finish, log
from coterie.modes.story.analysis.scene_rules import SceneChange, detect_scene_change
from coterie.modes.story.analysis.turn_analysis import TurnAnalysis, combine_scene_change

_TURNS = Path(__file__).parent / "lib" / "scene_turns.txt"
_NEUTRAL = ("*Mara nods.*", '"I see," she says.', "*She waits.*", '"Mm."')


@dataclass(frozen=True)
class LabelledTurn:
    label: str
    place: str
    message: str
    reply: str

    @property
    def texts(self) -> list[str]:
        return [self.message, self.reply]


def read_turns(path: Path = _TURNS) -> list[LabelledTurn]:
    turns: list[LabelledTurn] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            label, place, message, reply = (part.strip() for part in line.split("|"))
            turns.append(LabelledTurn(label, place, message, reply or _NEUTRAL[len(turns) % len(_NEUTRAL)]))
    return turns


def scripted_answer(turn: LabelledTurn) -> TurnAnalysis:
    """What a good classifier says about a turn."""
    if turn.label == "none":
        return TurnAnalysis(minutes=2)
    return TurnAnalysis.model_validate(
        {"scene_end": turn.label, "place": turn.place, "evidence": turn.message, "minutes": 2}
    )


def score(turns: list[LabelledTurn], found: list[SceneChange]) -> dict[str, float]:
    counts: Counter[str] = Counter()
    for turn, change in zip(turns, found, strict=True):
        end = change.end or "none"
        correct = end == turn.label and (turn.label != "place" or _same_place(turn.place, change.place))
        counts["right" if correct and end != "none" else "wrong" if end != "none" else "silent"] += 1
        counts["closed look-alikes"] += turn.label == "none" and end != "none"
        if not correct:
            log(f"{turn.label} {turn.place!r} but {end} {change.place!r}: {turn.message} / {turn.reply}")
    positives = sum(turn.label != "none" for turn in turns)
    return {
        "precision": round(counts["right"] / max(1, counts["right"] + counts["wrong"]), 4),
        "recall": round(counts["right"] / max(1, positives), 4),
        "false_close": round(counts["closed look-alikes"] / max(1, len(turns) - positives), 4),
    }


def _same_place(expected: str, found: str) -> bool:
    return expected.lower().removeprefix("the ") == found.lower().removeprefix("the ")


def main() -> None:
    arguments(__doc__).parse_args()
    turns = read_turns()
    log("rules alone:")
    rules = score(turns, [detect_scene_change(turn.texts) for turn in turns])
    log("with a scripted classifier:")
    both = score(turns, [combine_scene_change(turn.texts, scripted_answer(turn)) for turn in turns])
    finish({"turns": len(turns), **both, "rules": rules})


if __name__ == "__main__":
    main()
