"""C14: changes are small, bounded for life, have reasons; snapshots revert exactly; the frozen stay as they are."""

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
    bounded_trait,
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
    with opened.reader.connections.snapshot() as rows:
        assert opened.hashes() == {view.name: replayed_hash(view, rows) for view in opened.projections}
    opened.close()


@pytest.fixture
def nonna(roster: CrowdConfigs) -> Persona:
    return roster.personas()["nonna_exe"]


def talk(count: int, text: str = "@nonna_exe how do you cook risotto with saffron?", who: int = 3) -> list[ChatEntry]:
    """So many questions by a few people, each answered."""
    hearing, heard = ChatHistory(), []
    for number in range(count):
        asked = {"id": f"den-{2 * number + 1}", "number": 2 * number + 1, "text": text, "mentions": ["nonna_exe"]}
        said = {"id": f"den-{2 * number + 2}", "number": 2 * number + 2, "text": "eat", "reply_to": asked["id"]}
        person, persona = (
            ChatAuthor(name=f"p{number % who}", kind="human"),
            ChatAuthor(name="nonna_exe", kind="persona"),
        )
        for told, author in ((asked, person), (said, persona)):
            message = ChatMessage.model_validate({**told, "room": "den", "author": author, "ts": number * 40_000})
            heard.append(hearing.add(message))
    return heard


@given(
    authored=st.floats(0, 1),
    deltas=st.lists(st.floats(-10, 10, allow_nan=False), max_size=60),
)
def test_c14_no_chat_pushes_a_trait_out_of_its_bounds(authored: float, deltas: list[float]) -> None:
    authored = round(authored, 2)
    value = authored
    for delta in deltas:
        after = bounded_trait(authored, value, delta)
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


def test_c14_one_persons_obsession_or_spam_is_not_taken_up(nonna: Persona) -> None:
    _, interests, _ = compute_drift(
        nonna, nonna.traits, nonna.interests, SessionActivity.from_history("nonna_exe", talk(6, who=1))
    )
    assert interests == nonna.interests
    spam = SessionActivity.from_history("nonna_exe", talk(6, "@nonna_exe check out my channel saffron"))
    assert (spam.answered, spam.mentioned_in) == ([], [])


def test_c14_a_session_in_which_nothing_happened_changes_nobody(nonna: Persona) -> None:
    assert compute_drift(nonna, nonna.traits, nonna.interests, SessionActivity()) == (nonna.traits, nonna.interests, [])


async def test_c14_snapshots_revert_exactly_and_the_frozen_stay(store: Store, nonna: Persona) -> None:
    book = PersonaDrift(store, "den")
    happened = SessionActivity.from_history("nonna_exe", talk(5))
    states = [book.current(nonna)]
    for _ in range(4):
        assert await book.apply_session(nonna, happened)
        states.append(book.current(nonna))
    assert [snapshot.number for snapshot in book.history(nonna)] == [0, 1, 2, 3, 4]
    for number in (2, 4, 0, 3):
        assert await book.revert(nonna, number) == states[number]
    assert book.apply_current([nonna])[0].traits == states[3].traits
    await book.freeze(nonna)
    assert await book.apply_session(nonna, happened) == []
    assert book.current(nonna) == states[3]
    await book.freeze(nonna, False)
    await book.apply_session(nonna, happened)
    assert book.current(nonna).number == 5
    with pytest.raises(DriftRefused, match="0, 1, 2, 3, 4, 5"):
        await book.revert(nonna, 9)


async def test_c14_over_twenty_sessions_they_change_within_bounds_and_stay_who_they_are(
    store: Store, roster: CrowdConfigs, play: Play
) -> None:
    room = roster.room("kitchen-radio")
    authored = {persona.name: persona for persona in roster.personas_in(room)}
    book = PersonaDrift(store, room.name)
    for session in range(20):
        now = book.apply_current(list(authored.values()))
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
            await book.apply_session(persona, SessionActivity.from_history(name, simulation.session.history.recent))
    moved = 0.0
    for name, persona in authored.items():
        traits = book.current(persona).traits
        shift = [abs(getattr(traits, trait) - getattr(persona.traits, trait)) for trait in TRAITS]
        moved += sum(shift)
        assert max(shift) <= 0.25 + 1e-9, name
        interests = set(book.current(persona).interests)

        def far(other: Persona, traits: Traits = traits, interests: set[str] = interests) -> float:
            apart = sum((getattr(traits, trait) - getattr(other.traits, trait)) ** 2 for trait in TRAITS)
            return float(apart) - len(interests & set(other.interests))

        nearest = min(authored.values(), key=far)
        assert nearest.name == name
    assert moved > 1
