"""M1 and M3: recall, its modes, the parts of scores, and a stable order."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.base.clock import ManualClock
from coterie.memory import Memory, recall
from coterie.memory.ranking import FusionMode, Ranked, Ranking, RankingTrees
from coterie.memory.records import MemoryRecord
from coterie.memory.signals import Floats
from coterie.memory.writer import NewMemory

CONVERSATION = [
    ("Ana", "I finally bought a sailing boat, she is called Heron."),
    ("Ben", "Wow! Where do you keep her?"),
    ("Ana", "In the old harbour, next to the lighthouse."),
    ("Ben", "My sister Cleo works at the lighthouse as a keeper."),
    ("Ana", "I did not know that. I am allergic to walnuts by the way, so no cake for me."),
    ("Ben", "Noted. I play the cello in a quartet on Thursdays."),
    ("Ana", "We painted the cabin green last weekend."),
    ("Ben", "Green suits her."),
]


@pytest.fixture
def conversation(memory: Memory) -> Memory:
    memory.add_many(
        [
            NewMemory(
                text,
                "mara",
                "room:1",
                speaker=speaker,
                witnesses=("mara", "Ana", "Ben"),
                sources=(f"t{number}",),
                scene="s1",
            )
            for number, (speaker, text) in enumerate(CONVERSATION)
        ]
    )
    return memory


def best(memory: Memory, question: str, **options: object) -> str:
    return memory.recall(question, owner="mara", k=1, **options)[0].text  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("What can Ana not eat?", 4),
        ("What is the name of the boat?", 0),
        ("Which instrument does Ben play?", 5),
        ("Where is the boat moored?", 2),
        ("What colour is the cabin?", 6),
        ("What does Cleo do for a living?", 3),
    ],
)
def test_m3_the_answer_is_among_the_first_three(conversation: Memory, question: str, answer: int) -> None:
    found = [each.text for each in conversation.recall(question, owner="mara", k=3)]
    assert CONVERSATION[answer][1] in found


def test_m1_recalled_memories_have_their_sources(conversation: Memory) -> None:
    (found,) = conversation.recall("walnuts", owner="mara", k=1)
    assert found.sources == ("t4",)
    assert found.memory.speaker == "Ana"
    assert found.memory.witnesses == ("Ana", "Ben", "mara")


@pytest.mark.parametrize("fuse", ["learned", "graph", "rrf"])
def test_m3_the_parts_of_a_score_sum_to_the_score(conversation: Memory, fuse: str) -> None:
    for found in conversation.recall("Where does Ana keep the boat?", owner="mara", fuse=fuse):  # type: ignore[arg-type]
        assert sum(found.parts.values()) == pytest.approx(found.score, abs=1e-4)
        assert {"words", "vectors", "recency", "significance", "pins", "time"} <= set(found.parts)


def test_m3_scores_have_parts_for_neighbours_session_and_speaker(conversation: Memory) -> None:
    found = conversation.recall("Where does Ana keep the boat?", owner="mara")[0]
    assert {"neighbours", "session", "speaker", "maxsim"} <= set(found.parts)


def test_m3_the_order_does_not_depend_on_the_batches_of_storing(tmp_path: Path) -> None:
    """Stores filled in batches of different sizes give exactly the same scores."""
    orders = []
    for size in (1, 3, 8):
        with Memory(tmp_path / f"{size}.db", clock=ManualClock()) as memory:
            for start in range(0, len(CONVERSATION), size):
                memory.add_many(
                    [
                        NewMemory(
                            text,
                            "mara",
                            "room:1",
                            speaker=speaker,
                            witnesses=("mara", "Ana", "Ben"),
                            id=f"m{start + offset}",
                        )
                        for offset, (speaker, text) in enumerate(CONVERSATION[start : start + size])
                    ]
                )
            orders.append([(each.id, each.score) for each in memory.recall("the boat in the harbour", owner="mara")])
    assert orders[0] == orders[1] == orders[2]


def test_m3_modes(conversation: Memory, clock: ManualClock) -> None:
    clock.advance(3_600)
    todo = conversation.add("buy rope for the boat", owner="mara", room="room:1", type="todo")
    identity = conversation.add("I am Mara, keeper of the log", owner="mara", room="room:1", type="identity")
    assert conversation.recall(owner="mara", mode="recent", k=2)[0].id in (todo, identity)
    assert [each.id for each in conversation.recall(owner="mara", mode="important", k=2)] == [identity, todo]
    assert [each.id for each in conversation.recall("boat", owner="mara", mode="typed", types=["todo"])] == [todo]


def test_m3_memories_of_the_named_time_are_boosted(memory: Memory) -> None:
    for month in (3, 5, 7):
        memory.add(f"we went to the lake, trip {month}", happened=datetime(2025, month, 3, tzinfo=UTC))
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert memory.recall("what did we do at the lake in May?", now=now)[0].text.endswith("5")
    assert memory.recall("what did we do at the lake last summer?", now=now)[0].text.endswith("7")
    found = memory.recall("what did we do at the lake in May?", now=now)[0]
    assert found.parts["time"] > 0


def test_m3_pins_significance_and_recency_are_boosted(memory: Memory, clock: ManualClock) -> None:
    plain = memory.add("the boat sails at dawn on Mondays")
    important = memory.add("the boat sails at dusk on Tuesdays", significance=3)
    first = {each.id: each.parts for each in memory.recall("when does the boat sail?")}
    assert first[important]["significance"] > first[plain]["significance"]
    memory.pin(plain)
    assert {each.id: each.parts for each in memory.recall("when does the boat sail?")}[plain]["pins"] > 0
    clock.advance(90 * 86_400)
    late = memory.add("the boat sails at noon on Fridays")
    parts = {each.id: each.parts for each in memory.recall("when does the boat sail?")}
    assert parts[late]["recency"] > parts[plain]["recency"]


def test_d7_an_update_always_outranks_what_it_updates(memory: Memory) -> None:
    old = memory.add("Ana lives in Paris, near the river", speaker="Ana")
    new = memory.add("Ana moved house: Oslo it is", speaker="Ana")
    memory.supersede(old, new)
    for question in ("Where does Ana live?", "Paris river", "Does Ana live near the river in Paris?"):
        assert old not in [each.id for each in memory.recall(question)]
        ordered = [each.id for each in memory.recall(question, history=True)]
        assert ordered.index(new) < ordered.index(old)
    (found,) = [each for each in memory.recall("Paris", history=True) if each.id == old]
    assert found.memory.superseded_by == new


def test_d6_links_pass_on_scores_to_depth_two(memory: Memory) -> None:
    boat = memory.add("Heron is a sailing boat")
    storm = memory.add("a gale broke something on Friday")
    bill = memory.add("the invoice came to nine hundred")
    for number in range(30):
        memory.add(f"an unrelated remark about topic {number}")
    assert not any(each.parts.get("links") for each in memory.recall("Heron the sailing boat", k=5))
    memory.link(storm, "related_to", boat)
    memory.link(bill, "part_of", storm)
    found = {each.id: each for each in memory.recall("Heron the sailing boat", k=5)}
    assert found[storm].parts["links"] > found[bill].parts["links"] > 0


def test_c13_people_rank_before_characters_and_named_people_are_boosted(memory: Memory) -> None:
    by_person = memory.add("the regatta starts at nine", speaker="Ana", owner="bot:mara")
    by_character = memory.add("the regatta starts at nine sharp I guess", speaker="bot:teo", owner="bot:mara")
    parts = {each.id: each.parts["people"] for each in memory.recall("when does the regatta start?", owner="bot:mara")}
    assert parts[by_person] > parts[by_character]
    about = memory.add("loves liquorice", owner="bot:mara", about=("Cleo",))
    found = {each.id: each.parts["people"] for each in memory.recall("what does Cleo like?", owner="bot:mara")}
    assert found[about] > 0


def test_s15_insignificant_memories_are_not_recalled(memory: Memory) -> None:
    dull = memory.add("the boat rocked a little")
    memory.edit(dull, significance=0)
    assert memory.recall("boat") == []
    assert [each.id for each in memory.recall("boat", archived=True)] == [dull]


def test_m3_duplicates_are_not_recalled_together(memory: Memory) -> None:
    for room in ("room:1", "room:2"):
        memory.add("the harbour is closed on Sundays", room=room, disclosure="room" if room == "room:1" else "people")
    assert memory.count() == 2
    assert len(memory.recall("harbour", room="room:1")) == 1


@pytest.mark.parametrize("fuse", ["learned", "graph", "rrf"])
@pytest.mark.parametrize("window", [0, 1])
def test_chosen_memories_have_the_scores_and_reasons_that_they_have_among_all(
    conversation: Memory, monkeypatch: pytest.MonkeyPatch, fuse: FusionMode, window: int
) -> None:
    """The reasons are computed only for what is returned."""
    explained: list[int] = []
    reasons = recall._reasons

    def noted(ranked: Ranked, chosen: list[int]) -> dict[str, Floats]:
        explained.append(len(chosen))
        return reasons(ranked, chosen)

    monkeypatch.setattr(recall, "_reasons", noted)
    question, k = "Where is Ana's boat?", 5
    everything = conversation.recall(question, owner="mara", k=k, fuse=fuse, window=window)
    seen: list[list[MemoryRecord]] = []

    def choose(records: Sequence[MemoryRecord]) -> Sequence[MemoryRecord]:
        seen.append([*records])
        return records[1::2]

    chosen = conversation.recall(question, owner="mara", k=k, fuse=fuse, window=window, choose=choose)
    assert seen == [[each.memory for each in everything]]
    assert chosen == everything[1::2]
    assert explained == [5, 2]


def test_recall_for_an_unknown_owner_is_empty(memory: Memory) -> None:
    assert memory.recall("anything", owner="unknown") == []


def test_contributions_of_the_trees_sum_to_the_score() -> None:
    trees = Ranking.bundled()._plain
    assert isinstance(trees, RankingTrees)
    table = np.random.default_rng(3).random((40, len(trees.features)))
    start = trees.value[trees.roots].sum()
    assert np.allclose(trees.scores(table), start + trees.contributions(table).sum(1))


@settings(max_examples=15)
@given(st.integers(0, 2**32))
def test_m3_law_results_are_distinct_stored_memories_in_order_of_score(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    rng = random.Random(seed)
    with Memory(tmp_path_factory.mktemp("law") / "m.db", clock=ManualClock()) as memory:
        kept = {}
        for number in range(rng.randrange(1, 25)):
            text = (
                " ".join(rng.choice(["boat", "harbour", "Ana", "lamp", "cello", "rain"]) for _ in range(5))
                + f" {number}"
            )
            kept[
                memory.add(
                    text,
                    speaker=rng.choice(["Ana", "Ben", None]),
                    happened=datetime(2026, 1, 1, tzinfo=UTC) - timedelta(days=number),
                )
            ] = text
        k = rng.randrange(1, 12)
        found = memory.recall("Ana and the boat", k=k)
        assert len(found) == min(k, len(kept)) or len(found) <= k
        assert len({each.id for each in found}) == len(found)
        assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)
        assert all(kept[each.id] == each.text for each in found)
