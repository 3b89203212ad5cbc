"""SillyTavern's chat files: a line of JSON about the chat, then one per message with its swipes.

Lines are kept as they were read, so that a chat is exported unchanged; turns are derived from them. A truncated last
line is left out with a note.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cached_property
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, SkipValidation

from coterie.base.values import parse_time
from coterie.characters.cards.import_export import check_size
from coterie.characters.cards.parsing import (
    MAX_CHAT_MESSAGES,
    Document,
    as_flag,
    as_number,
    read_object,
    text_or_empty,
    write_object,
)
from coterie.characters.errors import BrokenCard, CardTooBig, NotACard

Speaker = Literal["user", "character", "system"]


class TavernTurn(BaseModel):
    """One message with its alternatives."""

    model_config = ConfigDict(frozen=True)

    speaker: Speaker
    name: str
    text: str
    swipes: list[str] = []
    """All alternatives including the chosen one; empty if there was only one."""
    chosen: int = 0
    sent: datetime | None = None

    @classmethod
    def read(cls, raw: Document) -> Self:
        text = text_or_empty(raw.get("mes"))
        listed = raw.get("swipes")
        swipes = [text_or_empty(swipe) for swipe in listed] if isinstance(listed, list) else []
        at = as_number(raw.get("swipe_id"))
        chosen = int(at) if at is not None and 0 <= at < len(swipes) else 0
        if swipes:
            swipes[chosen] = text  # a manual edit changes only the message
        user, system = as_flag(raw.get("is_user")), as_flag(raw.get("is_system"))
        return cls(
            speaker="user" if user else "system" if system else "character",
            name=text_or_empty(raw.get("name")),
            text=text,
            swipes=swipes,
            chosen=chosen,
            sent=read_date(raw.get("send_date")),
        )

    def document(self) -> Document:
        sent = self.sent.isoformat() if self.sent else ""
        line: Document = {
            "name": self.name,
            "is_user": self.speaker == "user",
            "is_system": self.speaker == "system",
            "send_date": sent,
            "mes": self.text,
            "extra": {},
        }
        if self.swipes:
            line |= {
                "swipe_id": self.chosen,
                "swipes": self.swipes,
                "swipe_info": [{"send_date": sent, "extra": {}} for _ in self.swipes],
            }
        return line


class TavernChat(BaseModel):
    model_config = ConfigDict(frozen=True)

    header: SkipValidation[Document]
    messages: SkipValidation[list[Document]]
    notes: list[str] = []

    @classmethod
    def read(cls, data: bytes) -> Self:
        check_size(len(data))
        lines = [(number, line) for number, line in enumerate(data.split(b"\n"), 1) if line.strip()]
        if len(lines) > MAX_CHAT_MESSAGES:
            raise CardTooBig(
                f"This chat has more than {MAX_CHAT_MESSAGES:,} messages.", "Split it before importing it."
            )
        documents, notes = _read_lines(lines)
        header = documents.pop(0) if documents and "mes" not in documents[0] else {}
        if not documents and not ({"user_name", "character_name", "chat_metadata"} & header.keys()):
            raise NotACard("This is not a SillyTavern chat: it has no messages.", "Export the chat again as JSONL.")
        for number, document in enumerate(documents, 2):
            if "mes" not in document:
                raise BrokenCard(f"Message {number - 1} of the chat has no text (`mes`).", "Export the chat again.")
        return cls(header=header, messages=documents, notes=notes)

    @classmethod
    def compose(cls, *, user: str, character: str, turns: Iterable[TavernTurn], created: datetime) -> Self:
        """A chat of ours in SillyTavern's format."""
        header = {
            "user_name": user,
            "character_name": character,
            "create_date": created.isoformat(),
            "chat_metadata": {},
        }
        return cls(header=header, messages=[turn.document() for turn in turns])

    @property
    def user_name(self) -> str:
        return text_or_empty(self.header.get("user_name"))

    @property
    def character_name(self) -> str:
        return text_or_empty(self.header.get("character_name"))

    @cached_property
    def turns(self) -> list[TavernTurn]:
        return [TavernTurn.read(message) for message in self.messages]

    def to_bytes(self) -> bytes:
        lines = [self.header, *self.messages] if self.header else self.messages
        return b"\n".join(write_object(line) for line in lines)


def _read_lines(lines: list[tuple[int, bytes]]) -> tuple[list[Document], list[str]]:
    documents: list[Document] = []
    for index, (number, line) in enumerate(lines):
        try:
            documents.append(read_object(line, f"Line {number} of the chat"))
        except BrokenCard as error:
            if index and index == len(lines) - 1:
                return documents, [f"the last line is truncated and was left out: {error.what}"]
            raise
    return documents, []


def read_date(value: object) -> datetime | None:
    """A date in any of SillyTavern's formats, in UTC; None if it is not one, or out of the supported range."""
    number = as_number(value)
    try:
        if number is not None:
            parsed = datetime.fromtimestamp(number / 1000 if number > 1e11 else number, UTC)
        elif not isinstance(value, str):
            return None
        elif humane := _HUMANE.fullmatch(value.strip()):
            parsed = datetime(*(int(part or 0) for part in humane.groups()), tzinfo=UTC)  # type: ignore[arg-type, misc]
        else:
            parsed = _parse(value.strip())
    except (ValueError, OverflowError, OSError):
        return None
    return parse_time(parsed.isoformat())


# 2023-7-8 @15h 14m 20s 123ms
_HUMANE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})\s*@\s*(\d{1,2})h\s*(\d{1,2})m\s*(?:(\d{1,2})s)?(?:\s*\d+ms)?")


def _parse(text: str) -> datetime:
    for layout in ("%B %d, %Y %I:%M%p", "%B %d, %Y %I:%M %p"):
        try:
            return datetime.strptime(text, layout).replace(tzinfo=UTC)
        except ValueError:
            continue
    return datetime.fromisoformat(text)
