"""Paraphrases are merged, maintenance is idempotent, and forgotten facts stay forgotten."""

from __future__ import annotations

from coterie.memory import Memory
from coterie.memory.extraction import ExtractionRequest, ExtractionTurn, Operation, Operations

FACTS = [
    ["Ana is allergic to walnuts", "Ana has a walnut allergy", "Ana has an allergy to walnuts"],
    [
        "Ben plays the cello in a quartet",
        "In a quartet, Ben plays the cello",
        "Ben is playing the cello in his quartet",
    ],
    ["Cleo works at the lighthouse", "Cleo has a job at the lighthouse", "The lighthouse is where Cleo works"],
    ["The boat is called Heron", "Heron is the name of the boat", "The name of the boat is Heron"],
    ["Ana moved to Oslo last spring", "Last spring Ana moved to Oslo", "Ana has moved to Oslo in spring, last spring"],
]


def test_hygiene_fifteen_paraphrases_of_five_facts_become_at_most_six_memories(memory: Memory) -> None:
    for round_ in range(3):
        for number, fact in enumerate(FACTS):
            memory.add(fact[round_], type="fact", sources=(f"t{round_}{number}",))
    memory.maintain()
    kept = memory.recall("Ana Ben Cleo Heron", k=50)
    assert 5 <= len(kept) <= 6
    assert {source for recalled in kept for source in recalled.sources} == {
        f"t{r}{n}" for r in range(3) for n in range(5)
    }


def test_hygiene_repetitions_are_one_memory(memory: Memory) -> None:
    ids = {memory.add("the harbour is closed on Sundays", sources=(f"t{number % 7}",)) for number in range(200)}
    assert len(ids) == memory.count() == 1


def test_hygiene_maintenance_is_idempotent(memory: Memory) -> None:
    from coterie.memory.writer import NewMemory

    memory.add_many(
        [
            NewMemory(text, "me", "room:main")
            for text in ("the mast of the boat is broken", "broken is the mast of the boat", "Ben is late")
        ]
    )
    assert memory.count() == 3
    assert memory.maintain() == 1
    once = (memory.store.hashes(), [(each.id, each.score) for each in memory.recall("mast")])
    assert sum(memory.maintain() for _ in range(23)) == 0
    assert (memory.store.hashes(), [(each.id, each.score) for each in memory.recall("mast")]) == once
    assert memory.recall("mast of the boat")[0].text == "the mast of the boat is broken"
    assert "broken is the mast of the boat" not in [each.text for each in memory.recall("mast of the boat")]


def test_hygiene_a_forgotten_fact_is_not_extracted_again(memory: Memory) -> None:
    turns = [ExtractionTurn("t1", "Ana", "By the way, I am allergic to walnuts.")]

    def model(request: ExtractionRequest) -> Operations:
        return Operations(
            operations=[Operation(op="ADD", text="Ana is allergic to walnuts", evidence=["t1"], about=["Ana"])]
        )

    memory.extract(turns, model)
    (recalled,) = memory.recall("walnuts")
    memory.forget(recalled.id)
    result = memory.extract(turns, model)
    assert [plan.verdict for plan in result.planned] == ["forgotten"]
    assert memory.recall("walnuts") == []
