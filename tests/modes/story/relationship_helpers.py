"""Giving and reading feelings, for the tests that take things back."""

from __future__ import annotations

from coterie.characters.service import OWNER
from coterie.modes.story.events import MAIN_WORLD, Relationship
from tests.modes.story.conftest import ScriptedModel, StoryHarness


def set_relationship_update(script: ScriptedModel, affinity: int, *facts: str, of: str = "Mara") -> None:
    pair = {"of": of, "toward": "Ana", "affinity_delta": affinity, "knowledge_facts": list(facts)}
    script.shapes["StateUpdate"] = {"pairs": [pair]}


def relationship(stage: StoryHarness, bot: str, world: str = MAIN_WORLD) -> Relationship:
    return stage.story.relationships.get(world, bot, OWNER)


def state(stage: StoryHarness) -> dict[str, str]:
    """What is shown, by hash; what was spent is not taken back."""
    return {view: value for view, value in stage.store.hashes().items() if view != "llm_usage"}
