"""Finding change blocks in a reply that is still being written. F5

What every change format shares: text flows through, a block is held until it closes, and a block that is unclosed,
nested, empty, garbled or too long goes back to being text, with a notice. Nothing is looked at twice and only a suffix
that could begin a mark is held back, so the work is linear and the pieces do not depend on how the text was cut.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

MAX_BLOCK_LENGTH = 64_000
"""Characters. A block that grows past it will not close any more: some models forget to."""

BrokenReason = Literal["unclosed", "nested", "empty", "garbled", "too long"]


@dataclass(frozen=True, slots=True)
class ReplyText:
    text: str


@dataclass(frozen=True, slots=True)
class EditBlock:
    """A proposal, exactly as its block said it."""

    original: str
    proposed: str
    reason: str
    raw: str
    """All of the block as it was written."""


@dataclass(frozen=True, slots=True)
class BrokenBlock:
    """A block that could not be read was told as text; this says why."""

    reason: BrokenReason


ReplyPart = ReplyText | EditBlock | BrokenBlock


class ReplyParser(Protocol):
    def feed(self, text: str) -> list[ReplyPart]: ...

    def end(self) -> list[ReplyPart]:
        """The reply is over: what was held back, as what it turned out to be."""
        ...


class Markers:
    """Literal strings to look for, none of them the beginning of another."""

    def __init__(self, *literals: str) -> None:
        self._found = re.compile("|".join(map(re.escape, literals)))
        self._longest = max(map(len, literals))
        self._beginnings = {literal[:length] for literal in literals for length in range(1, len(literal))}

    def first(self, text: str, until: int) -> re.Match[str] | None:
        return self._found.search(text, 0, until)

    def could_begin(self, text: str) -> bool:
        """Whether the text is the beginning of a mark, or begins with one."""
        return text[: self._longest] in self._beginnings or self._found.match(text) is not None

    def unsure(self, text: str) -> int:
        """How long the longest end of the text is that could begin a mark."""
        for length in range(min(self._longest - 1, len(text)), 0, -1):
            if text[-length:] in self._beginnings:
                return length
        return 0


class BlockParser:
    """A subclass says how a block begins and reads what is inside it."""

    opener: Markers

    def __init__(self, max_length: int = MAX_BLOCK_LENGTH) -> None:
        self._longest = max_length
        self._rest = ""
        self._raw: list[str] = []
        self._open = False
        self._length = 0
        self._pieces: list[ReplyPart] = []

    def feed(self, text: str) -> list[ReplyPart]:
        self._rest += text
        while self._rest and self._step():
            pass
        return self._take()

    def end(self) -> list[ReplyPart]:
        if self._open:
            self._finish_at_end()
        if self._open:
            self._spoil("unclosed", self._rest)
        else:
            self._tell(self._rest)
        self._rest = ""
        return self._take()

    # --- for subclasses ------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """A block was opened."""
        raise NotImplementedError

    def _inside(self, room: int) -> bool:
        """Read on inside a block, at most so many characters; False when more is needed."""
        raise NotImplementedError

    def _finish_at_end(self) -> None:
        """The reply ends inside a block: close it if nothing is missing."""

    def _consume(self, length: int) -> str:
        """So much of what came belongs to the block."""
        taken, self._rest = self._rest[:length], self._rest[length:]
        self._raw.append(taken)
        self._length += length
        return taken

    def _spoil(self, why: BrokenReason, more: str = "") -> None:
        self._tell("".join(self._raw) + more)
        self._pieces.append(BrokenBlock(why))
        self._open = False

    def _close(self, original: str, proposed: str, reason: str) -> None:
        if original == proposed or not (original.strip() or proposed.strip()):
            self._spoil("empty")
            return
        self._pieces.append(EditBlock(original, proposed, reason.strip(), "".join(self._raw)))
        self._open = False

    # --- inside --------------------------------------------------------------------------------------------

    def _step(self) -> bool:
        if not self._open:
            return self._outside()
        room = self._longest - self._length
        before = self._length
        if self._inside(room) or self._length != before:
            return True
        if len(self._rest) >= room:
            self._consume(room)
            self._spoil("too long")
            return True
        return False

    def _outside(self) -> bool:
        found = self.opener.first(self._rest, len(self._rest))
        if found is None:
            keep = self.opener.unsure(self._rest)
            self._tell(self._rest[: len(self._rest) - keep])
            self._rest = self._rest[len(self._rest) - keep :]
            return False
        self._tell(self._rest[: found.start()])
        self._rest = self._rest[found.start() :]
        self._raw, self._length, self._open = [], 0, True
        self._consume(found.end() - found.start())
        self._begin()
        return True

    def _tell(self, text: str) -> None:
        if text:
            self._pieces.append(ReplyText(text))

    def _take(self) -> list[ReplyPart]:
        pieces, self._pieces = self._pieces, []
        return pieces


def strip_edge_newlines(field: str) -> str:
    """Models put a field's text on lines of its own: one line break at each edge is not part of it."""
    field = field.removeprefix("\r\n") if field.startswith("\r\n") else field.removeprefix("\n")
    return field.removesuffix("\r\n") if field.endswith("\r\n") else field.removesuffix("\n")


def join_text(pieces: Iterable[ReplyPart]) -> list[ReplyPart]:
    """The pieces with neighbouring texts made one: what was said, however it was cut."""
    result: list[ReplyPart] = []
    for piece in pieces:
        if isinstance(piece, ReplyText) and result and isinstance(result[-1], ReplyText):
            result[-1] = ReplyText(result[-1].text + piece.text)
        else:
            result.append(piece)
    return result


def visible_text(pieces: Sequence[ReplyPart]) -> str:
    return "".join(piece.text for piece in pieces if isinstance(piece, ReplyText))


class ByteParser:
    """A parser for bytes, as they come over a wire: a character may be cut in two, and not every byte is one."""

    def __init__(self, parser: ReplyParser) -> None:
        self._parser = parser
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes) -> list[ReplyPart]:
        return self._parser.feed(self._decoder.decode(data))

    def end(self) -> list[ReplyPart]:
        return [*self._parser.feed(self._decoder.decode(b"", final=True)), *self._parser.end()]
