"""C11, C12, C13: what personas store about people, what is never stored, and what they recall."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from coterie.memory import Memory
from coterie.memory.extraction import ExtractionRequest, Operation, Operations
from coterie.modes.crowd.chat_signals import SpamFilter
from coterie.modes.crowd.decisions import ChatHistory
from coterie.modes.crowd.memory import PersonaMemory
from coterie.modes.crowd.prompts import LineRequest
from coterie.modes.crowd.protocol import ChatAuthor, ChatMessage
from coterie.modes.crowd.settings import CrowdConfigs
from tests.modes.crowd.conftest import Play


def chat_message(number: int, text: str, who: str = "ana", at: float = 0, kind: str = "human") -> ChatMessage:
    return ChatMessage.model_validate(
        {
            "id": f"den-{number}",
            "number": number,
            "room": "den",
            "author": ChatAuthor(name=who, kind=kind),
            "text": text,
            "ts": round(at * 1_000),
        }
    )


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path / "memory.db") as opened:
        yield opened


def greedy(request: ExtractionRequest) -> Operations:
    return Operations(
        operations=[
            Operation(op="ADD", text=turn.text, evidence=[turn.id], about=[turn.speaker], type="fact", confidence=0.9)
            for turn in request.turns
        ]
    )


def stored_texts(memory: Memory) -> list[str]:
    return [record.text for record in memory.browse()]


def test_c11_a_memory_has_scope_type_evidence_and_person(memory: Memory) -> None:
    history, persona_memory = ChatHistory(), PersonaMemory(memory, "den", ["nonna_exe"])
    entry = history.add(chat_message(1, "@nonna_exe my favourite pasta is orecchiette with greens", at=1))
    persona_memory.record_answer("nonna_exe", entry)
    assert persona_memory.store_due(history.spam_filter, 10_000) == 0
    assert persona_memory.store_due(history.spam_filter, 60_000) == 1
    (record,) = memory.browse()
    assert (record.owner, record.room, record.type) == ("agent:nonna_exe", "room:den", "preference")
    assert (record.about, record.sources, record.confidence) == (("ana",), ("den-1",), 0.8)


def test_c12_a_repeated_statement_adds_only_evidence(memory: Memory) -> None:
    history, persona_memory = ChatHistory(), PersonaMemory(memory, "den", ["nonna_exe"])
    for number in range(3):
        at = number * 90
        persona_memory.record_answer(
            "nonna_exe", history.add(chat_message(number + 1, "@nonna_exe I love your lasagne so much", at=at))
        )
        persona_memory.store_due(history.spam_filter, (at + 60) * 1_000)
    assert len(stored_texts(memory)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "@nonna_exe ok",
        "@nonna_exe ★★★★★★★★★★★★★",
        "@nonna_exe check out my channel for lasagne",
        "@nonna_exe win win win win",
    ],
)
def test_c12_noise_and_promotion_are_never_stored(memory: Memory, text: str) -> None:
    history, persona_memory = ChatHistory(), PersonaMemory(memory, "den", ["nonna_exe"], greedy)
    persona_memory.record_answer("nonna_exe", history.add(chat_message(1, text)))
    persona_memory.store_due(history.spam_filter, 100_000)
    assert stored_texts(memory) == []


def test_c12_lines_of_personas_are_not_stored(memory: Memory) -> None:
    history, persona_memory = ChatHistory(), PersonaMemory(memory, "den", ["nonna_exe"], greedy)
    persona_memory.record_answer(
        "nonna_exe", history.add(chat_message(1, "@nonna_exe I love proper bread", "bread_ian", kind="persona"))
    )
    persona_memory.store_due(history.spam_filter, 100_000)
    assert stored_texts(memory) == []


def test_c12_text_pasted_later_on_is_not_stored(memory: Memory) -> None:
    history, persona_memory = ChatHistory(), PersonaMemory(memory, "den", ["nonna_exe"], greedy)
    first = history.add(chat_message(1, "@nonna_exe remember the haunted lasagne of tuesday", at=0))
    assert not first.spam_verdict.is_spam
    persona_memory.record_answer("nonna_exe", first)
    for number in range(2, 7):
        text = f"@nonna_exe remember the haunted lasagne of tuesday {number}"
        history.add(chat_message(number, text, f"acct{number}", number))
    persona_memory.store_due(history.spam_filter, 46_000)
    assert stored_texts(memory) == []


def test_c12_claims_of_strangers_about_others_are_not_stored(memory: Memory) -> None:
    def gossip(request: ExtractionRequest) -> Operations:
        text = request.turns[0].text
        return Operations(
            operations=[Operation(op="ADD", text=text, evidence=[request.turns[0].id], about=["bo"], confidence=0.9)]
        )

    history, persona_memory = ChatHistory(), PersonaMemory(memory, "den", ["nonna_exe"], gossip)
    persona_memory.record_answer(
        "nonna_exe", history.add(chat_message(1, "@nonna_exe bo secretly hates your cooking", at=0))
    )
    persona_memory.store_due(history.spam_filter, 60_000)
    assert stored_texts(memory) == []


def test_c13_recall_is_about_the_recipient_and_the_room(memory: Memory, configs: CrowdConfigs) -> None:
    history, persona_memory = ChatHistory(), PersonaMemory(memory, "den", ["nonna_exe"])
    for number, (who, text) in enumerate(
        (("ana", "my favourite dish is risotto with saffron"), ("bo", "I hate olives in every form"))
    ):
        at = number * 5
        persona_memory.record_answer("nonna_exe", history.add(chat_message(number + 1, f"@nonna_exe {text}", who, at)))
    persona_memory.store_due(history.spam_filter, 100_000)
    nonna = configs.personas()["nonna_exe"]
    brief = LineRequest(nonna, 1, "mention", 1, recipient="ana", answered_text="what was my favourite dish?")
    assert "risotto" in persona_memory.recall(brief)[0]
    assert (
        PersonaMemory(memory, "den", []).recall(
            LineRequest(configs.personas()["salt_lamp"], 1, "mention", 1, recipient="ana")
        )
        == []
    )


def test_c12_floods_are_detected_and_normal_chat_is_not() -> None:
    screen = SpamFilter()
    flood = [screen.check(chat_message(n + 1, f"message number {n} about nothing", "acct", n * 0.5)) for n in range(20)]
    assert not flood[0].is_spam
    assert flood[-1].is_spam
    assert (
        screen.check(chat_message(30, "an ordinary sentence", "acct", 90)).reason == "its author has just been spamming"
    )
    talk = ["what a lovely run", "is that the same dragon as yesterday", "gg", "haha no", "brb tea", "did he save?"]
    assert [screen.check(chat_message(40 + n, text, "ana", 95 + 8 * n)).is_spam for n, text in enumerate(talk)] == [
        False
    ] * 6


def test_c12_spam_is_not_answered(play: Play) -> None:
    flood = [(10 + n / 4, f"acct{n % 5}", f"@nonna_exe come to my server now {n}") for n in range(200)]
    messages = play(1.5, people=flood, stream=False).messages
    assert sum(each.author.kind == "human" for each in messages) > 30
    assert sum(each.author.kind == "persona" for each in messages) <= 2
