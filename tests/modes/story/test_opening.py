"""The opening of a chat, proposed from prose."""

from __future__ import annotations

from datetime import UTC, datetime, time

import pytest

from coterie.base.errors import CoterieError
from coterie.characters import starter_characters as shelf
from coterie.llm.recording import RecordedCall, RecordedError
from coterie.modes.story.opening import Opening
from tests.modes.story.conftest import ScriptedModel, StoryHarness


async def test_s8_the_classifier_fills_the_form_and_confirming_is_one_transaction(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    mara = await harness.create_character(kickoff="Rain. Mara opens the door.", initial_relationship="A stranger.")
    script.shapes["Opening"] = {"title": "Rain", "place": {"name": "the door"}, "facts": ["Ana is wet"]}
    proposal = await harness.story.propose_opening(mara.id)
    assert (proposal.notice, proposal.opening.title, proposal.opening.place.name) == ("", "Rain", "the door")
    before = harness.store.reader.last_id()
    chat = await harness.story.begin(mara.id, proposal.opening)
    events = await harness.store.read(after=before)
    assert [event.kind for event in events] == [
        "chat_created",
        "container_created",
        "activity_change",
        "activity_change",
        "scene_opened",
        "edge_update",
        "assistant_turn_started",
        "assistant_turn",
    ]
    assert len({event.ts for event in events}) == 1
    assert harness.texts(chat.room) == ["Rain. Mara opens the door."]


@pytest.mark.parametrize("name", shelf.STARTER_NAMES)
async def test_s8_a_ready_made_character_has_its_scene_without_a_model_call(
    harness: StoryHarness, script: ScriptedModel, name: str
) -> None:
    ready = shelf.starter_character(name)
    character = await harness.create_character(
        ready.name, kickoff=ready.kickoff, initial_relationship=ready.initial_relationship
    )
    proposal = await harness.story.propose_opening(character.id)
    assert (proposal.notice, script.classified) == ("", [])
    opening = proposal.opening
    assert opening.title and opening.place.name and opening.weather and opening.you.posture
    assert (opening.greeting, opening.relationship) == (ready.kickoff, ready.initial_relationship)
    now = datetime(2026, 5, 4, 3, 2, tzinfo=UTC)
    assert opening.start_time(now) == datetime.combine(now.date(), time.fromisoformat(opening.time), tzinfo=UTC)


async def test_s8_a_changed_ready_made_opening_is_read_by_the_classifier(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    character = await harness.create_character(
        kickoff=shelf.starter_character("maren").kickoff + " Then the lamp goes out."
    )
    script.shapes["Opening"] = {"title": "Dark"}
    assert (await harness.story.propose_opening(character.id)).opening.title == "Dark"


@pytest.mark.parametrize("time", ["", "soon", "25:00", "tomorrow at noon"])
def test_s8_an_invalid_time_falls_back_to_now(time: str) -> None:
    now = datetime(2026, 5, 4, 3, 2, tzinfo=UTC)
    assert Opening(time=time).start_time(now) == now


async def test_s8_the_opening_is_recorded_whole_or_not_at_all(
    harness: StoryHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    mara = await harness.create_character()
    before = harness.store.reader.last_id()
    view = next(view for view in harness.store.projections if view.name == "story_relationships")
    monkeypatch.setattr(type(view), "updated", _broken)
    harness.store.close()
    harness.open()
    with pytest.raises(RuntimeError):
        await harness.story.begin(mara.id, Opening())
    assert harness.store.reader.last_id() == before
    monkeypatch.undo()
    harness.store.close()
    harness.open()
    assert harness.story.chats.chats() == []


def _broken(*_: object) -> None:
    raise RuntimeError("the disk is gone")


@pytest.mark.parametrize(
    "answer",
    [
        RecordedCall(say="As an AI, I can't help with that."),
        RecordedCall(say="no json at all"),
        RecordedCall(error=RecordedError(kind="KeyRejected", what="The key is wrong.", status=401)),
    ],
)
async def test_s8_a_classifier_that_fails_leaves_an_empty_form_with_a_notice(
    harness: StoryHarness, script: ScriptedModel, answer: RecordedCall
) -> None:
    mara = await harness.create_character(kickoff="Rain.")
    script.shapes["Opening"] = answer
    proposal = await harness.story.propose_opening(mara.id)
    assert "Fill it in by hand" in proposal.notice
    assert proposal.opening == Opening(greeting="Rain.")
    await harness.story.begin(mara.id, proposal.opening)


async def test_s8_an_unknown_character_is_a_clear_error(harness: StoryHarness) -> None:
    with pytest.raises(CoterieError, match="no character"):
        await harness.story.propose_opening("nobody")
