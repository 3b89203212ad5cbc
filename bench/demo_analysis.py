"""What an exchange changes, on labelled exchanges: rules compared with the bundled model, few-shot with a grammar.

The labels are in bench/data/labelled_exchanges.toml. Figures are the share of correct labels: of the affinity's and the
trust's direction, the significance, and the end of the scene. The rules were written with the exchanges of the first
list in sight, so only those of the second list (`fresh`) show how good they are; the model's examples come from the
first. `constant` always gives the most frequent label. Precision counts only what is said to change.
"""

from __future__ import annotations

import asyncio
import time
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from bench.lib.report import arguments, finish, log, median, progress
from coterie.llm.messages import Prompt, PromptMessage
from coterie.llm.router import Models
from coterie.llm.settings import ModelsSettings
from coterie.llm.structured import classify
from coterie.modes.story.analysis.exchange_rules import estimate_exchange
from coterie.modes.story.analysis.scene_rules import detect_scene_change

_EXCHANGES = Path(__file__).parent / "data" / "labelled_exchanges.toml"
_LABELS = ("affinity", "trust", "significance", "scene")
_SHOTS = 8


class Labels(BaseModel):
    affinity: Literal[-1, 0, 1] = 0
    trust: Literal[-1, 0, 1] = 0
    significance: Literal[0, 1, 2, 3] = 1
    scene: Literal["", "place", "done", "time"] = ""


def _exchange_text(exchange: dict[str, Any]) -> str:
    return f"Ana: {exchange['message']}\nMaren: {exchange['reply']}"


def _labels(exchange: dict[str, Any]) -> Labels:
    return Labels.model_validate({label: exchange[label] for label in _LABELS})


def by_rules(exchange: dict[str, Any]) -> Labels:
    found = estimate_exchange(exchange["message"])
    return Labels.model_validate(
        {
            "affinity": (found.affinity_delta > 0) - (found.affinity_delta < 0),
            "trust": (found.trust_delta > 0) - (found.trust_delta < 0),
            "significance": found.significance,
            "scene": detect_scene_change([exchange["message"]]).end,
        }
    )


def few_shot(examples: list[dict[str, Any]], exchange: dict[str, Any]) -> Prompt:
    messages = [PromptMessage(role="system", text="Label how the exchange changes Maren's feelings for Ana.")]
    for example in examples:
        messages.append(PromptMessage(role="user", text=_exchange_text(example)))
        messages.append(PromptMessage(role="assistant", text=_labels(example).model_dump_json()))
    messages.append(PromptMessage(role="user", text=_exchange_text(exchange)))
    return Prompt(messages=tuple(messages), max_tokens=60, temperature=0.0)


def correct(found: list[Labels], exchanges: list[dict[str, Any]]) -> dict[str, float]:
    return {
        label: round(
            sum(getattr(one, label) == exchange[label] for one, exchange in zip(found, exchanges, strict=True))
            / len(exchanges),
            3,
        )
        for label in _LABELS
    }


def precision(found: list[Labels], exchanges: list[dict[str, Any]]) -> dict[str, float | None]:
    """The share of correct labels among those that say that something changes; None if none does."""
    shares: dict[str, float | None] = {}
    for label in ("affinity", "trust", "scene"):
        changed = [(getattr(one, label), exchange[label]) for one, exchange in zip(found, exchanges, strict=True)]
        said = [pair for pair in changed if pair[0]]
        shares[label] = round(sum(a == b for a, b in said) / len(said), 3) if said else None
    return shares


async def by_model(examples: list[dict[str, Any]], exchanges: list[dict[str, Any]]) -> tuple[list[Labels], list[float]]:
    models = Models(ModelsSettings())
    found, seconds = [], []
    for number, exchange in enumerate(exchanges):
        began = time.perf_counter()
        found.append((await classify(models, Labels, few_shot(examples, exchange), timeout_s=120)).value)
        seconds.append(time.perf_counter() - began)
        progress(number + 1, len(exchanges), "exchanges labelled by the model")
    await models.close()
    return found, seconds


def main() -> None:
    options = arguments(__doc__).parse_args()
    data = tomllib.loads(_EXCHANGES.read_text(encoding="utf-8"))
    first, fresh = data["exchange"], data["fresh"]
    exchanges = fresh[:10] if options.quick else fresh
    most = Labels.model_validate(
        {label: Counter(one[label] for one in first).most_common(1)[0][0] for label in _LABELS}
    )
    figures: dict[str, Any] = {
        "exchanges": len(exchanges),
        "constant": correct([most] * len(exchanges), exchanges),
        "rules": correct([by_rules(one) for one in exchanges], exchanges),
        "rules_precision": precision([by_rules(one) for one in exchanges], exchanges),
        "rules_in_sight": correct([by_rules(one) for one in first], first),
    }
    found, seconds = asyncio.run(by_model(first[:: len(first) // _SHOTS], exchanges))
    figures |= {"model": correct(found, exchanges), "model_precision": precision(found, exchanges)}
    figures |= {"model_p50_s": round(median(seconds), 2)}
    for name in ("constant", "rules", "model"):
        log(f"{name}: {figures[name]}")
    finish(figures)


if __name__ == "__main__":
    main()
