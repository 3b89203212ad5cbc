"""Extraction of facts from turns: a model proposes operations, which are checked before they are stored.

Memory does not call models: `prepare` builds the request, the caller asks a model, and `plan` turns the answer into
events. A fact needs evidence in the given turns and a subject, and known facts are not stored twice.
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
_PRONOUNS = frozenset("i you he she they we it me him her them us my your his their our its".split())  # noqa: SIM905


@dataclass(frozen=True)
class ExtractionTurn:
    """A turn from which facts are extracted."""

    id: str
    speaker: str
    text: str
    trusted: bool = True
    """Whether this speaker's statements about others are accepted."""


class Operation(BaseModel):
    """One operation that the model proposes."""

    model_config = ConfigDict(extra="ignore")

    op: Literal["ADD", "UPDATE", "SUPERSEDE", "NOOP"]
    text: str = ""
    type: MemoryType = "fact"
    target: str | None = Field(default=None, description="The id of the known memory this is about.")
    evidence: list[str] = Field(default_factory=list, description="The ids of the turns that say so.")
    about: list[str] = Field(default_factory=list, description="Whom the fact is about.")
    confidence: float = Field(default=0.8, ge=0, le=1)


class Operations(BaseModel):
    """A model's answer; its JSON schema constrains structured output."""

    operations: list[Operation] = Field(default_factory=list)


@dataclass(frozen=True)
class ExtractionRequest:
    """The turns, the owner's related memories, and the circumstances that new memories get."""

    owner: str
    room: str
    turns: tuple[ExtractionTurn, ...]
    known: tuple[MemoryRecord, ...]
    """The owner's memories related to these turns; operations refer to them by id."""
    witnesses: tuple[str, ...]
    scene: str | None = None
    happened: datetime | None = None
    private: bool = False

    def prompt(self) -> str:
        """The request as a prompt."""
        turns = "\n".join(f"[{turn.id}] {turn.speaker}: {turn.text}" for turn in self.turns)
        known = "\n".join(f"[{memory.id}] {memory.text}" for memory in self.known) or "(nothing)"
        return (
            f"What {display_name(self.owner)} already remembers:\n{known}\n\nWhat was just said:\n{turns}\n\n"
            "List what is worth remembering for a long time, as operations. ADD a new fact; UPDATE a known one that "
            "has become more exact; SUPERSEDE a known one that no longer holds; NOOP one that was said again. Write "
            "each fact as a full sentence that names whom it is about. Give as evidence the ids of the turns that say "
            "it. Leave out small talk, and anything nobody said."
        )


class Extractor(Protocol):
    def __call__(self, request: ExtractionRequest) -> Operations: ...


@dataclass(frozen=True)
class ExtractionResult:
    """The planned writes, and the refused operations with their reasons."""

    planned: list[PlannedWrite]
    refused: list[tuple[Operation, str]]

    @property
    def new_events(self) -> list[NewEvent]:
        return [event for plan in self.planned for event in plan.new_events]


class Extraction:
    """Prepares extraction requests and plans their results."""

    def __init__(self, recall: RecallService, writer: MemoryWriter) -> None:
        self._recall = recall
        self._writer = writer

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
        """Decide on each operation; refused ones are returned with the reason."""
        planned: list[PlannedWrite] = []
        refused: list[tuple[Operation, str]] = []
        known = {memory.id: memory for memory in request.known}
        for operation in answer.operations:
            evidence = [source for source in request.turns if source.id in operation.evidence]
            if why := operation_problem(operation, evidence, known):
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
        text = text_with_subject(operation.text.strip(), speaker, operation.about)
        new = NewMemory(
            text=remove_contacts(text) if others else text,
            owner=request.owner,
            room=request.room,
            type=operation.type,
            scene=request.scene,
            witnesses=request.witnesses,
            about=tuple(dict.fromkeys([speaker, *operation.about])),
            sources=tuple(source.id for source in evidence),
            happened=request.happened,
            confidence=operation.confidence,
            private=request.private,
        )
        # An update would always look like a duplicate of what it replaces: compare only additions by meaning.
        (plan,) = self._writer.plan([new], by_meaning=operation.op == "ADD", actor=actor, turn=turn)
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
        sources = tuple(source.id for source in evidence)
        payload = MemoryConfirmed(id=target, owner=request.owner, sources=sources)
        return PlannedWrite(target, "known", [NewEvent(request.room, payload, actor, turn=turn)])


def operation_problem(operation: Operation, evidence: list[ExtractionTurn], known: dict[str, MemoryRecord]) -> str:
    """Why an operation is refused; empty if it is accepted."""
    if not evidence:
        return "it names none of the turns as evidence"
    if operation.op != "ADD" and operation.target not in known:
        return "it refers to a memory that was not shown"
    if operation.op == "NOOP":
        return ""
    if not operation.text.strip():
        return "it has no text"
    names = NameMatcher([*operation.about, *(turn.speaker for turn in evidence)])
    stated = {_stem(word) for word in keywords(names.remove_from(" ".join(turn.text for turn in evidence)))}
    claimed = keywords(names.remove_from(operation.text))
    if claimed and not any(_stem(word) in stated for word in claimed):
        return "the turns it names do not mention it"
    if all(is_question(turn.text) for turn in evidence):
        return "it was asked, not stated"
    speakers = {display_name(turn.speaker) for turn in evidence}
    about_others = [person for person in operation.about if display_name(person) not in speakers]
    if about_others and not any(turn.trusted for turn in evidence):
        return "an untrusted speaker said it about another person"
    return ""


def text_with_subject(text: str, speaker: str, about: Sequence[str]) -> str:
    """Put the subject in front of a sentence that names none, such as "Has a PhD"."""
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
