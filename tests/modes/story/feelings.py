"""Giving and reading feelings, for the tests that take things back."""

from __future__ import annotations

from coterie.cast.roster import YOU
from coterie.modes.story.events import MAIN, Edge
from tests.modes.story.conftest import Script, Stage


def feels(script: Script, affinity: int, *facts: str, of: str = "Mara") -> None:
    pair = {"of": of, "toward": "Ana", "affinity_delta": affinity, "knowledge_facts": list(facts)}
    script.shapes["StateUpdate"] = {"pairs": [pair]}


def edge(stage: Stage, bot: str, world: str = MAIN) -> Edge:
    return stage.story.edges.edge(world, bot, YOU)


def state(stage: Stage) -> dict[str, str]:
    """What is shown, by hash; what was spent is not taken back."""
    return {view: value for view, value in stage.store.hashes().items() if view != "llm_usage"}
