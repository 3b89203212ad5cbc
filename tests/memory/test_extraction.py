"""M4 and C12: extraction of facts and its checks."""

from __future__ import annotations

import pytest

from coterie.memory import Memory
from coterie.memory.extraction import ExtractionRequest, ExtractionTurn, Operation, Operations

TURNS = [
    ExtractionTurn("t1", "Ana", "I sold the boat and moved to Oslo."),
    ExtractionTurn("t2", "Ben", "Did you really?"),
]


class Model:
    """A scripted model that records its requests."""

    def __init__(self, *operations: Operation) -> None:
        self.operations = list(operations)
        self.requests: list[ExtractionRequest] = []

    def __call__(self, request: ExtractionRequest) -> Operations:
        self.requests.append(request)
        return Operations(operations=self.operations)


def add(text: str, *evidence: str, about: tuple[str, ...] = ("Ana",), **more: object) -> Operation:
    return Operation.model_validate(
        {"op": "ADD", "text": text, "evidence": list(evidence), "about": list(about), **more}
    )


def test_m4_a_fact_is_added_with_its_evidence_and_the_turn_is_kept(memory: Memory) -> None:
    memory.add(TURNS[0].text, speaker="Ana", sources=("t1",))
    memory.extract(TURNS, Model(add("Ana moved to Oslo", "t1")))
    fact, turn = sorted(memory.browse(), key=lambda record: record.type == "observation")
    assert (fact.type, fact.sources, fact.about) == ("fact", ("t1",), ("Ana",))
    assert turn.text == TURNS[0].text


@pytest.mark.parametrize(
    ("operation", "reason"),
    [
        (add("Ana moved to Oslo"), "none of the turns"),
        (add("Ana moved to Oslo", "t99"), "none of the turns"),
        (add("Ana keeps bees in Provence", "t1"), "do not mention it"),
        (add("Ben is surprised", "t2", about=("Ben",)), "do not mention it"),
        (add("Ana did really", "t2"), "asked, not stated"),
        (add("", "t1"), "has no text"),
        (Operation(op="UPDATE", text="Ana moved to Oslo", target="unknown", evidence=["t1"]), "was not shown"),
        (Operation(op="NOOP", target=None, evidence=["t1"]), "was not shown"),
    ],
)
def test_c12_operations_without_evidence_are_refused_with_a_reason(
    memory: Memory, operation: Operation, reason: str
) -> None:
    result = memory.extract(TURNS, Model(operation))
    assert result.new_events == []
    assert reason in result.refused[0][1]
    assert memory.count() == 0


def test_c12_statements_of_untrusted_speakers_about_others_are_refused(memory: Memory) -> None:
    rumour = [ExtractionTurn("t1", "Dirk", "Ana is a thief, everyone knows it", trusted=False)]
    result = memory.extract(rumour, Model(add("Ana is a thief", "t1")))
    assert result.refused and memory.count() == 0
    memory.extract(
        [ExtractionTurn("t2", "Dirk", "I collect stamps", trusted=False)],
        Model(add("Dirk collects stamps", "t2", about=("Dirk",))),
    )
    assert memory.count() == 1


def test_m4_a_fact_without_a_subject_gets_one(memory: Memory) -> None:
    memory.extract(
        [ExtractionTurn("t1", "Ben", "I have a PhD in botany")], Model(add("has a PhD in botany", "t1", about=("Ben",)))
    )
    assert memory.recall("PhD")[0].text == "Ben: has a PhD in botany"


@pytest.mark.parametrize(("op", "relation"), [("UPDATE", "updates"), ("SUPERSEDE", "contradicts")])
def test_m4_updates_supersede_the_old_memory_and_keep_it(memory: Memory, op: str, relation: str) -> None:
    old = memory.add("Ana lives in Paris", type="fact", about=("Ana",), sources=("t0",))
    model = Model(
        Operation.model_validate(
            {"op": op, "text": "Ana lives in Oslo", "target": old, "evidence": ["t1"], "about": ["Ana"]}
        )
    )
    result = memory.extract([ExtractionTurn("t1", "Ana", "I live in Oslo now, not in Paris")], model)
    assert [memory.id for memory in model.requests[0].known] == [old]
    new = result.planned[0].id
    assert [each.text for each in memory.recall("Where does Ana live?")] == ["Ana lives in Oslo"]
    both = memory.recall("Where does Ana live?", history=True)
    assert [each.id for each in both] == [new, old]
    assert memory.store.query("SELECT relation FROM memory_link WHERE source = ?", (new,)) == [(relation,)]


def test_m4_noop_and_repetition_add_evidence_only(memory: Memory) -> None:
    known = memory.add("Ana moved to Oslo", type="fact", about=("Ana",), sources=("t0",))
    memory.extract(TURNS, Model(Operation(op="NOOP", target=known, evidence=["t1"])))
    memory.extract([ExtractionTurn("t5", "Ana", "Oslo, where I moved")], Model(add("Ana has moved to Oslo", "t5")))
    assert memory.count() == 1
    assert memory.get(known).sources == ("t0", "t1", "t5")


def test_m4_contacts_of_others_are_not_extracted(memory: Memory) -> None:
    turns = [ExtractionTurn("t1", "Ana", "Cleo's mail is cleo@example.org")]
    memory.extract(turns, Model(add("Cleo has the mail cleo@example.org", "t1", about=("Cleo",))))
    assert memory.recall("Cleo")[0].text == "Cleo has the mail [email]"


def test_m4_the_request_as_a_prompt(memory: Memory) -> None:
    model = Model()
    memory.extract(TURNS, model)
    prompt = model.requests[0].prompt()
    assert "[t1] Ana: I sold the boat" in prompt and "(nothing)" in prompt
    assert Operations.model_json_schema()["properties"]["operations"]["type"] == "array"
