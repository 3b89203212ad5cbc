"""Helpers of tests that change relationships and undo the changes."""

from __future__ import annotations

from coterie.characters.service import OWNER
from coterie.modes.story.events import MAIN_WORLD, Relationship
from tests.modes.story.conftest import ScriptedModel, StoryHarness


def set_relationship_update(
    script: ScriptedModel, affinity: int, *facts: str, of: str = "Mara", **more: object
) -> None:
    """`more` are other fields of the analysis of the next turns."""
    pair = {"of": of, "toward": "Ana", "affinity_delta": affinity, "knowledge_facts": list(facts)}
    script.shapes["TurnAnalysis"] = {"pairs": [pair], **more}


def relationship(harness: StoryHarness, character: str, world: str = MAIN_WORLD) -> Relationship:
    return harness.story.relationships.get(world, character, OWNER)


def state(harness: StoryHarness) -> dict[str, str]:
    """The hashes of all projections except usage, which is not rewound."""
    return {view: value for view, value in harness.store.hashes().items() if view != "llm_usage"}
