"""Turning turns into facts: a model proposes, this decides. The turns themselves stay memories beside the facts.

The model is asked through a port, since this room knows no models: `prepare` gives the request, the caller gets the
answer however it likes, `plan` turns the answer into drafts. Nothing without evidence from the turns at hand is
stored, nothing that is already known is stored twice, and a fact keeps its subject.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

from coterie.eventstore import NewEvent
from coterie.memory.access import Viewpoint
from coterie.memory.events import MemoryConfirmed, MemoryLinked, MemorySuperseded
from coterie.memory.recall import RecallRequest, RecallService
from coterie.memory.records import MemoryRecord, MemoryType, Relation
from coterie.memory.text import NameMatcher, display_name, is_question, keywords, words
from coterie.memory.writer import MemoryWriter, NewMemory, PlannedWrite, remove_contacts

_NEIGHBOURS = 8
_PRONOUNS = frozenset(
    [
        "i",
        "you",
        "he",
        "she",
        "they",
        "we",
        "it",
        "me",
        "him",
        "her",
        "them",
        "us",
        "my",
        "your",
        "his",
        "their",
        "our",
        "its",
    ]
)


@dataclass(frozen=True)
class ExtractionTurn:
    """Something that was said, as extraction sees it."""

    id: str
    speaker: str
    text: str
    trusted: bool = True
    """Whether what this speaker says about others may be taken for true."""


class Operation(BaseModel):
    """One thing the model proposes to do with what it read."""

    model_config = ConfigDict(extra="ignore")

    op: Literal["ADD", "UPDATE", "SUPERSEDE", "NOOP"]
    text: str = ""
    type: MemoryType = "fact"
    target: str | None = Field(default=None, description="The id of the known memory this is about.")
    evidence: list[str] = Field(default_factory=list, description="The ids of the turns that say so.")
    about: list[str] = Field(default_factory=list, description="Whom the fact is about.")
    confidence: float = Field(default=0.8, ge=0, le=1)


class Operations(BaseModel):
    """What a model answers with; its JSON schema is what structured output is constrained by."""

    operations: list[Operation] = Field(default_factory=list)


@dataclass(frozen=True)
class ExtractionRequest:
    owner: str
    room: str
    turns: tuple[ExtractionTurn, ...]
    known: tuple[MemoryRecord, ...]
    """What the owner already remembers near these turns: operations refer to these by id."""
    witnesses: tuple[str, ...]
    scene: str | None = None
    happened: datetime | None = None
    private: bool = False

    def prompt(self) -> str:
        """The request as text, for a model that is given one."""
        said = "\n".join(f"[{turn.id}] {turn.speaker}: {turn.text}" for turn in self.turns)
        known = "\n".join(f"[{memory.id}] {memory.text}" for memory in self.known) or "(nothing)"
        return (
            f"What {display_name(self.owner)} already remembers:\n{known}\n\nWhat was just said:\n{said}\n\n"
            "List what is worth remembering for a long time, as operations. ADD a new fact; UPDATE a known one that "
            "has become more exact; SUPERSEDE a known one that no longer holds; NOOP one that was said again. Write "
            "each fact as a full sentence that names whom it is about. Give as evidence the ids of the turns that say "
            "it. Leave out small talk, and anything nobody said."
        )


class Extractor(Protocol):
    def __call__(self, request: ExtractionRequest) -> Operations: ...


@dataclass(frozen=True)
class ExtractionResult:
    planned: list[PlannedWrite]
    refused: list[tuple[Operation, str]]

    @property
    def new_events(self) -> list[NewEvent]:
        return [draft for plan in self.planned for draft in plan.new_events]


class Extraction:
    def __init__(self, recall: RecallService, writing: MemoryWriter) -> None:
        self._recall = recall
        self._writing = writing

    def prepare(
        self,
        turns: Sequence[ExtractionTurn],
        *,
        owner: str,
        room: str,
        witnesses: Sequence[str],
        now: datetime,
        scene: str | None = None,
        happened: datetime | None = None,
        private: bool = False,
    ) -> ExtractionRequest:
        known: dict[str, MemoryRecord] = {}
        view = Viewpoint.of(owner, room, witnesses)
        for turn in turns:
            for recalled in self._recall.recall(RecallRequest(turn.text, view, k=_NEIGHBOURS), now):
                if recalled.memory.type != "observation":
                    known.setdefault(recalled.id, recalled.memory)
        return ExtractionRequest(
            owner, room, tuple(turns), tuple(known.values()), tuple(witnesses), scene, happened, private
        )

    def plan(
        self, request: ExtractionRequest, answer: Operations, *, actor: str = "system", turn: str | None = None
    ) -> ExtractionResult:
        """Decide on each proposal. Refusals say why, so that they can be shown."""
        planned: list[PlannedWrite] = []
        refused: list[tuple[Operation, str]] = []
        known = {memory.id: memory for memory in request.known}
        for operation in answer.operations:
            evidence = [each for each in request.turns if each.id in operation.evidence]
            if why := _refusal(operation, evidence, known):
                refused.append((operation, why))
                continue
            if operation.op == "NOOP":
                planned.append(self._confirm(request, operation, evidence, actor, turn))
            else:
                planned.append(self._write(request, operation, evidence, actor, turn))
        return ExtractionResult(planned, refused)

    def _write(
        self,
        request: ExtractionRequest,
        operation: Operation,
        evidence: list[ExtractionTurn],
        actor: str,
        turn: str | None,
    ) -> PlannedWrite:
        speaker = evidence[0].speaker
        others = [person for person in operation.about if display_name(person) != display_name(speaker)]
        text = _with_subject(operation.text.strip(), speaker, operation.about)
        new = NewMemory(
            text=remove_contacts(text) if others else text,
            owner=request.owner,
            room=request.room,
            type=operation.type,
            scene=request.scene,
            witnesses=request.witnesses,
            about=tuple(dict.fromkeys([speaker, *operation.about])),
            sources=tuple(each.id for each in evidence),
            happened=request.happened,
            confidence=operation.confidence,
            private=request.private,
        )
        # Against what it replaces it will always look like a repetition: compare by meaning only what is plainly new.
        (plan,) = self._writing.plan([new], by_meaning=operation.op == "ADD", actor=actor, turn=turn)
        if plan.verdict == "added" and operation.target is not None and operation.op != "ADD":
            relation: Relation = "updates" if operation.op == "UPDATE" else "contradicts"
            plan.new_events.append(
                NewEvent(
                    request.room,
                    MemorySuperseded(id=operation.target, by=plan.id, owner=request.owner),
                    actor,
                    turn=turn,
                )
            )
            link = MemoryLinked(source=plan.id, relation=relation, target=operation.target, owner=request.owner)
            plan.new_events.append(NewEvent(request.room, link, actor, turn=turn))
        return plan

    def _confirm(
        self,
        request: ExtractionRequest,
        operation: Operation,
        evidence: list[ExtractionTurn],
        actor: str,
        turn: str | None,
    ) -> PlannedWrite:
        target = operation.target or ""
        sources = tuple(each.id for each in evidence)
        payload = MemoryConfirmed(id=target, owner=request.owner, sources=sources)
        return PlannedWrite(target, "known", [NewEvent(request.room, payload, actor, turn=turn)])


def _refusal(operation: Operation, evidence: list[ExtractionTurn], known: dict[str, MemoryRecord]) -> str:
    """Why a proposal is not followed; empty if it is."""
    if not evidence:
        return "no turn at hand is named as evidence"
    if operation.op != "ADD" and operation.target not in known:
        return "it refers to a memory that was not shown"
    if operation.op == "NOOP":
        return ""
    if not operation.text.strip():
        return "it says nothing"
    names = NameMatcher([*operation.about, *(turn.speaker for turn in evidence)])
    told = set(keywords(names.remove_from(" ".join(turn.text for turn in evidence))))
    claimed = keywords(names.remove_from(operation.text))
    if claimed and not any(_stem(word) in map(_stem, told) for word in claimed):
        return "the turns it names do not speak of it"
    if all(is_question(turn.text) for turn in evidence):
        return "it was asked, not said"
    speakers = {display_name(turn.speaker) for turn in evidence}
    about_others = [person for person in operation.about if display_name(person) not in speakers]
    if about_others and not any(turn.trusted for turn in evidence):
        return "a stranger said it about somebody else"
    return ""


def _with_subject(text: str, speaker: str, about: Sequence[str]) -> str:
    """ "Has a PhD" is nobody's: put whom it is about in front, if the sentence does not say."""
    people = [person for person in (*about, speaker) if person]
    if (
        NameMatcher(people).find_in(text)
        or not _PRONOUNS.isdisjoint(words(text))
        or re.search(r"(?<!^)\b[A-Z][a-z]+\b", text)
    ):
        return text
    return f"{display_name(people[0])}: {text}"


def _stem(word: str) -> str:
    return word[:5]
