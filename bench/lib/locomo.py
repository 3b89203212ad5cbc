"""The LoCoMo conversations as memories and questions."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from coterie.memory.text import MONTHS
from coterie.memory.writer import NewMemory

OWNER = "reader"
_DATE = re.compile(r"(\d{1,2}):(\d{2})\s*(am|pm) on (\d{1,2}) (\w+),? (\d{4})")


@dataclass(frozen=True)
class LocomoQuestion:
    text: str
    evidence: frozenset[str]
    category: int


@dataclass(frozen=True)
class LocomoConversation:
    id: str
    speakers: tuple[str, ...]
    memories: list[NewMemory]
    questions: list[LocomoQuestion]
    after: datetime
    """The time of the questions: the end of the day of the last turn."""


def read(path: Path) -> list[LocomoConversation]:
    return [_conversation(entry) for entry in json.loads(path.read_text(encoding="utf-8"))]


def recall_at(recalled: Sequence[Sequence[str]], evidence: frozenset[str], k: int) -> float:
    """The share of the evidence among the sources of the first k memories."""
    turns = {turn for sources in recalled[:k] for turn in sources}
    return len(evidence & turns) / len(evidence)


def reciprocal_rank(recalled: Sequence[Sequence[str]], evidence: frozenset[str]) -> float:
    return next((1 / rank for rank, sources in enumerate(recalled, 1) if evidence & set(sources)), 0.0)


def _conversation(entry: dict[str, Any]) -> LocomoConversation:
    speakers = tuple(entry["speakers"])
    memories = [
        NewMemory(
            text=turn["text"],
            owner=OWNER,
            room=f"room:{entry['id']}",
            scene=str(turn["session"]),
            speaker=turn["speaker"],
            witnesses=(OWNER, *speakers),
            sources=(turn["id"],),
            happened=_parse_date(turn.get("date")),
        )
        for turn in entry["turns"]
        if turn["text"].strip()
    ]
    questions = [
        LocomoQuestion(question["question"], frozenset(question["evidence"]), int(question["category"]))
        for question in entry["questions"]
        if question["evidence"]
    ]
    dates = [memory.happened for memory in memories if memory.happened]
    last = max(dates) if dates else datetime(2024, 1, 1, tzinfo=UTC)
    return LocomoConversation(str(entry["id"]), speakers, memories, questions, last.replace(hour=23))


def _parse_date(text: str | None) -> datetime | None:
    """`1:56 pm on 8 May, 2023`, or an ISO date; None if it is neither."""
    if not text:
        return None
    if match := _DATE.search(text.lower()):
        hour, minute, half, day, month, year = match.groups()
        if month in MONTHS:
            return datetime(
                int(year), MONTHS[month], int(day), int(hour) % 12 + 12 * (half == "pm"), int(minute), tzinfo=UTC
            )
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
