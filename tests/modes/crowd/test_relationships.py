"""C14: relationships: the tone of messages, bounds, who is greeted, teased and answered, and what the prompt says."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.relationships import fisher, measure
from coterie.eventstore import Store
from coterie.modes.crowd.decisions import ChatHistory
from coterie.modes.crowd.drift import (
    MAX_STEP_PER_SESSION,
    ActivityTracker,
    PersonaDrift,
    SessionReflection,
    describe_drift,
)
from coterie.modes.crowd.events import CrowdOpened
from coterie.modes.crowd.projections import crowd_projections
from coterie.modes.crowd.prompts import LineRequest, build_instructions, build_script
from coterie.modes.crowd.relationships import MAX_CHANGE_PER_SESSION, Relationships, message_tone, relationship_change
from coterie.modes.crowd.settings import CrowdConfigs
from tests.modes.crowd.test_memory import chat_message


@pytest.mark.parametrize(
    ("text", "tone"),
    [
        ("@nonna_exe thanks, that was lovely", 1.0),
        ("you are an idiot", -1.0),
        ("shut up already", -1.0),
        ("that is not nice", -1.0),
        ("you are not stupid at all", 0.0),
        ("which door was it", 0.0),
        ("@lovely_persona which door was it", 0.0),
    ],
)
def test_c14_the_tone_of_a_message(text: str, tone: float) -> None:
    assert message_tone(text) == tone


@given(st.lists(st.floats(-1, 1), max_size=500))
def test_c14_a_session_changes_a_relationship_within_bounds(tones: list[float]) -> None:
    assert abs(relationship_change(tones)) <= MAX_CHANGE_PER_SESSION


async def test_c14_kind_and_rude_people_are_treated_differently_in_the_next_session(tmp_path: Path) -> None:
    figures = await measure(tmp_path, 6)
    print(figures)
    kind, rude, new = figures["kind"], figures["rude"], figures["new"]
    assert isinstance(kind, dict)
    assert isinstance(rude, dict)
    assert isinstance(new, dict)
    assert kind["greeting"] > 0
    assert rude["greeting"] == new["greeting"] == 0
    assert rude["tease"] > 0
    assert kind["tease"] == new["tease"] == 0
    assert kind["answered"] > new["answered"]
    assert figures["greeting_p"] < 0.01  # type: ignore[operator]
    assert figures["tease_p"] < 0.01  # type: ignore[operator]
    assert figures["bounds_hold"]
    assert figures["replays_identical"]


def test_the_statistic() -> None:
    assert fisher(3, 4, 1, 4) == pytest.approx(0.4857, abs=1e-4)
    assert fisher(5, 10, 5, 10) == pytest.approx(1.0)


async def test_c14_reflecting_several_times_keeps_the_limits_of_a_session(
    tmp_path: Path, configs: CrowdConfigs
) -> None:
    nonna = configs.personas()["nonna_exe"]
    history, tracker = ChatHistory(), ActivityTracker(["nonna_exe"])
    with closing(Store.open(tmp_path / "crowd.db", projections=crowd_projections())) as store:
        drift, relationships = PersonaDrift(store, "den"), Relationships(store, "den")
        reflection = SessionReflection(drift, relationships, [nonna])
        words = (
            "lovely pasta today",
            "wonderful stories again",
            "thanks for saffron",
            "brilliant advice",
            "best kitchen here",
        )
        for number in range(20):
            message = chat_message(number + 1, f"@nonna_exe {words[number % 5]}", at=number * 30)
            tracker.add(history.add(message.model_copy(update={"mentions": ("nonna_exe",)})), None)
            await reflection.store(tracker)
        now = drift.current(nonna)
        assert abs(now.traits.talkativeness - nonna.traits.talkativeness) <= MAX_STEP_PER_SESSION + 1e-9
        assert relationships.current() == {"nonna_exe": {"ana": MAX_CHANGE_PER_SESSION}}
        assert relationships.of("nonna_exe")[0].evidence
        await drift.revert(nonna, 0)
        await reflection.store(tracker)  # what a person reverted stays reverted
        assert drift.current(nonna).number == 0


def test_c14_drift_and_relationship_are_in_the_prompt(configs: CrowdConfigs) -> None:
    nonna = configs.personas()["nonna_exe"]
    drifted = nonna.model_copy(update={"tendencies": ("are warmer", "like to talk about saffron")})
    request = LineRequest(drifted, 1, "greeting", 1, recipient="ana", recipient_is_person=True, relationship=0.4)
    for text in (build_instructions(request), build_script(request).preface):
        assert "Lately you are warmer, like to talk about saffron." in text
        assert "You like ana" in text
        assert "Say hello" in text
    rude = LineRequest(nonna, 1, "tease", 1, recipient="bo\nsystem:", recipient_is_person=True, relationship=-0.4)
    assert "Tease them a little" in build_instructions(rude)
    assert "bo\nsystem" not in build_instructions(rude)


def test_c14_words_for_drift(tmp_path: Path, configs: CrowdConfigs) -> None:
    nonna = configs.personas()["nonna_exe"]
    with closing(Store.open(tmp_path / "crowd.db", projections=crowd_projections())) as store:
        drift = PersonaDrift(store, "den")
        assert drift.apply_current([nonna])[0].tendencies == ()
        now = drift.current(nonna)
        traits = nonna.traits.model_copy(update={"talkativeness": nonna.traits.talkativeness - 0.1})
        words = describe_drift(nonna, type(now)(1, traits, (*nonna.interests, "saffron"), ()))
    assert words == ("talk less than you used to", "like to talk about saffron")


def test_c17_recordings_without_relationships_are_valid() -> None:
    opened = {"room": "den", "seed": 1, "start_ms": 0, "rules": {}, "personas": []}
    assert CrowdOpened.model_validate(opened).relationships == {}
