"""C14: changes are small, bounded and have reasons; snapshots revert exactly; frozen personas do not change."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.eventstore import Store
from coterie.eventstore.sqlite.replay import replayed_hash
from coterie.modes.crowd.decisions import ChatEntry, ChatHistory
from coterie.modes.crowd.drift import (
    TRAITS,
    PersonaDrift,
    SessionActivity,
    bound_trait,
    compute_drift,
)
from coterie.modes.crowd.errors import DriftRefused
from coterie.modes.crowd.personas import Persona, Traits
from coterie.modes.crowd.projections import DriftProjection
from coterie.modes.crowd.protocol import ChatAuthor, ChatMessage
from coterie.modes.crowd.settings import CrowdConfigs
from tests.modes.crowd.conftest import Play


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(tmp_path / "coterie.db", projections=[DriftProjection()])
    yield opened
    with opened.reader.connections.read_transaction() as rows:
        assert opened.hashes() == {view.name: replayed_hash(view, rows) for view in opened.projections}
    opened.close()


@pytest.fixture
def nonna(configs: CrowdConfigs) -> Persona:
    return configs.personas()["nonna_exe"]


def talk(count: int, text: str = "@nonna_exe how do you cook risotto with saffron?", who: int = 3) -> list[ChatEntry]:
    """This many questions by a few people, each answered."""
    history, entries = ChatHistory(), []
    for number in range(count):
        question = {"id": f"den-{2 * number + 1}", "number": 2 * number + 1, "text": text, "mentions": ["nonna_exe"]}
        answer = {"id": f"den-{2 * number + 2}", "number": 2 * number + 2, "text": "eat", "reply_to": question["id"]}
        person, persona = (
            ChatAuthor(name=f"p{number % who}", kind="human"),
            ChatAuthor(name="nonna_exe", kind="persona"),
        )
        for fields, author in ((question, person), (answer, persona)):
            message = ChatMessage.model_validate({**fields, "room": "den", "author": author, "ts": number * 40_000})
            entries.append(history.add(message))
    return entries


@given(
    authored=st.floats(0, 1),
    deltas=st.lists(st.floats(-10, 10, allow_nan=False), max_size=60),
)
def test_c14_traits_stay_within_their_bounds(authored: float, deltas: list[float]) -> None:
    authored = round(authored, 2)
    value = authored
    for delta in deltas:
        after = bound_trait(authored, value, delta)
        assert abs(after - value) <= 0.05 + 1e-9
        assert abs(after - authored) <= 0.25 + 1e-9
        assert 0 <= after <= 1
        value = after


def test_c14_changes_have_reasons_and_evidence(nonna: Persona) -> None:
    traits, interests, changes = compute_drift(
        nonna, nonna.traits, nonna.interests, SessionActivity.from_history("nonna_exe", talk(4))
    )
    assert traits.warmth == 0.94
    by_name = {change.what: change for change in changes}
    assert by_name["warmth"].why == "they talked with people"
    assert by_name["warmth"].evidence[0] == "den-1"
    assert {"risotto", "saffron"} <= set(interests)
    assert set(nonna.interests) <= set(interests)


def test_c14_topics_of_one_person_or_spam_are_not_adopted(nonna: Persona) -> None:
    _, interests, _ = compute_drift(
        nonna, nonna.traits, nonna.interests, SessionActivity.from_history("nonna_exe", talk(6, who=1))
    )
    assert interests == nonna.interests
    spam = SessionActivity.from_history("nonna_exe", talk(6, "@nonna_exe check out my channel saffron"))
    assert (spam.answered, spam.mentioned_in) == ([], [])


def test_c14_an_empty_session_changes_nothing(nonna: Persona) -> None:
    assert compute_drift(nonna, nonna.traits, nonna.interests, SessionActivity()) == (nonna.traits, nonna.interests, [])


async def test_c14_snapshots_revert_exactly_and_frozen_personas_stay(store: Store, nonna: Persona) -> None:
    drift = PersonaDrift(store, "den")
    happened = SessionActivity.from_history("nonna_exe", talk(5))
    states = [drift.current(nonna)]
    for _ in range(4):
        assert await drift.apply_session(nonna, happened)
        states.append(drift.current(nonna))
    assert [snapshot.number for snapshot in drift.history(nonna)] == [0, 1, 2, 3, 4]
    for number in (2, 4, 0, 3):
        assert await drift.revert(nonna, number) == states[number]
    assert drift.apply_current([nonna])[0].traits == states[3].traits
    await drift.freeze(nonna)
    assert await drift.apply_session(nonna, happened) == []
    assert drift.current(nonna) == states[3]
    await drift.freeze(nonna, False)
    await drift.apply_session(nonna, happened)
    assert drift.current(nonna).number == 5
    with pytest.raises(DriftRefused, match="0, 1, 2, 3, 4, 5"):
        await drift.revert(nonna, 9)


async def test_c14_twenty_sessions_stay_within_bounds(store: Store, configs: CrowdConfigs, play: Play) -> None:
    room = configs.room("kitchen-radio")
    authored = {persona.name: persona for persona in configs.personas_in(room)}
    drift = PersonaDrift(store, room.name)
    for session in range(20):
        now = drift.apply_current(list(authored.values()))
        people = [
            (
                5 + 9 * n,
                f"p{n % 3}",
                f"@{sorted(authored)[(n + session) % 6]} how is the {('soup', 'garden', 'song')[n % 3]} today?",
            )
            for n in range(12)
        ]
        simulation = play(2, personas=now, rules=room, people=people, seed=session)
        for name, persona in authored.items():
            await drift.apply_session(persona, SessionActivity.from_history(name, simulation.session.history.recent))
    moved = 0.0
    for name, persona in authored.items():
        traits = drift.current(persona).traits
        shift = [abs(getattr(traits, trait) - getattr(persona.traits, trait)) for trait in TRAITS]
        moved += sum(shift)
        assert max(shift) <= 0.25 + 1e-9, name
        interests = set(drift.current(persona).interests)

        def far(other: Persona, traits: Traits = traits, interests: set[str] = interests) -> float:
            apart = sum((getattr(traits, trait) - getattr(other.traits, trait)) ** 2 for trait in TRAITS)
            return float(apart) - len(interests & set(other.interests))

        nearest = min(authored.values(), key=far)
        assert nearest.name == name
    assert moved > 1
