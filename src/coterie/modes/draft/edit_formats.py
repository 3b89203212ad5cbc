"""Finding change blocks in a reply that is still being written. F5

What every change format shares: text flows through, a block is held until it closes, and a block that is unclosed,
nested, empty, garbled or too long goes back to being text, with a notice. Nothing is looked at twice and only a suffix
that could begin a mark is held back, so the work is linear and the pieces do not depend on how the text was cut.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from pydantic import BaseModel, ConfigDict, ValidationError

from coterie.llm.messages import OutputSchema

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


# Models like to wrap a change in a code fence of its own. The fence is not part of what they say. F5
#
# Only a fence that opens right before a block counts as such; the fence of somebody's code, and one around a block that
# could not be read, stay visible.


_LINES = re.compile(r"[^\n]*\n|[^\n]+")
_FENCE = re.compile(r"```\w{0,16}[ \t]{0,4}\r?\n?")
_COULD_BE = re.compile(r"`{1,2}|```\w{0,16}[ \t]{0,4}\r?")


class FenceStripper:
    """A parser behind which wrapping fences are gone."""

    def __init__(self, parser: ReplyParser) -> None:
        self._parser = parser
        self._line: str | None = ""
        """What was held back of the present line, while it could still be a fence; None once it cannot."""
        self._fence = ""
        """A whole line that opens a fence, until it is known what comes next."""
        self._in_code = False
        self._wrapping = False

    def feed(self, text: str) -> list[ReplyPart]:
        return self._pass_on(self._parser.feed(text))

    def end(self) -> list[ReplyPart]:
        told = self._pass_on(self._parser.end())
        last = "" if self._wrapping and (self._line or "").strip() == "```" else self._line or ""
        rest = self._fence + last
        self._line, self._fence = "", ""
        return [*told, ReplyText(rest)] if rest else told

    def _pass_on(self, pieces: Iterable[ReplyPart]) -> list[ReplyPart]:
        told: list[ReplyPart] = []
        for piece in pieces:
            if isinstance(piece, ReplyText):
                text = "".join(map(self._part, _LINES.findall(piece.text)))
                told += [ReplyText(text)] if text else []
            elif isinstance(piece, EditBlock):
                self._wrapping = self._wrapping or bool(self._fence)
                rest, self._fence, self._line = self._line or "", "", ""
                told += [ReplyText(rest), piece] if rest else [piece]
            else:
                told.append(piece)
        return told

    def _part(self, part: str) -> str:
        """A line, or a stretch of one, that came: what of it can be told now."""
        ends = part.endswith("\n")
        if self._line is None:
            self._line = "" if ends else None
            return part
        line = self._line + part
        if not ends and _COULD_BE.fullmatch(line):
            self._line = line
            return ""
        self._line = "" if ends else None
        released, self._fence = self._fence, ""
        self._in_code = self._in_code or bool(released)
        if not (ends and _FENCE.fullmatch(line)):
            return released + line
        closes = line.strip() == "```"
        if self._in_code:
            self._in_code = not closes
            return released + line
        if self._wrapping and closes:
            self._wrapping = False
            return released
        self._fence = line
        return released


# Changes as search and replace between conflict marks, which some models write far better than tags. F5
#
# <<<<<<< SEARCH
# what stands there
# =======
# what shall stand there
# >>>>>>> REPLACE and, on the same line, why


_SEARCH, _DIVIDE, _REPLACE = "<<<<<<< SEARCH\n", "\n=======\n", "\n>>>>>>> REPLACE"


class SearchReplaceParser(BlockParser):
    """Each mark stands on a line of its own. The line break that ends a mark begins what comes after it."""

    opener = Markers(_SEARCH, _SEARCH.replace("\n", "\r\n"))
    _in_original = Markers(_DIVIDE, _DIVIDE[:-1] + "\r\n", "\n" + _SEARCH, _REPLACE)
    _in_proposed = Markers(_REPLACE, "\n" + _SEARCH)
    _in_reason = Markers("\n")

    def _begin(self) -> None:
        self._give_back(1)
        self._fields: list[str] = []
        self._told: list[str] = []

    def _inside(self, room: int) -> bool:
        marks = (self._in_original, self._in_proposed, self._in_reason)[len(self._fields)]
        found = marks.first(self._rest, min(room, len(self._rest)))
        if found is None:
            sure = min(len(self._rest) - marks.unsure(self._rest), room)
            self._told.append(self._consume(sure))
            return False
        self._told.append(self._consume(found.start()))
        mark = found.group()
        if mark.endswith((_SEARCH, _SEARCH[:-1])):
            self._consume(1)
            self._spoil("nested")
            return True
        if mark == _REPLACE and len(self._fields) == 0:
            self._consume(len(mark))
            self._spoil("garbled")
            return True
        if mark != "\n":
            self._consume(len(mark))
            if mark != _REPLACE:
                self._give_back(1)
        # The line break that ends a field belongs to the mark after it.
        self._fields.append("".join(self._told).removeprefix("\n").removesuffix("\r"))
        self._told = []
        if len(self._fields) == 3:
            self._close(*self._fields)
        return True

    def _finish_at_end(self) -> None:
        """The reason may be the last line of the reply."""
        if len(self._fields) == 2:
            reason = "".join(self._told) + self._consume(len(self._rest))
            self._close(self._fields[0], self._fields[1], reason)

    def _give_back(self, length: int) -> None:
        last = self._raw[-1]
        self._raw[-1], self._rest = last[:-length], last[-length:] + self._rest
        self._length -= length


# Changes as tags: `<change><original>…</original><proposed>…</proposed><reason>…</reason></change>`. F5


FIELDS = ("original", "proposed", "reason")
_NEEDED = ("original", "proposed")
_SPACE = re.compile(r"\s+")


class TagParser(BlockParser):
    """Fields may come in any order, each once; only white space may stand between them."""

    opener = Markers("<change>")
    # A field that holds a block's own tags is one that was not closed.
    _closers = {name: Markers(f"</{name}>", "<change>", "</change>") for name in FIELDS}  # noqa: RUF012
    _between = Markers(*(f"<{name}>" for name in FIELDS), "<change>", "</change>")

    def _begin(self) -> None:
        self._fields: dict[str, str] = {}
        self._field = ""
        self._told: list[str] = []

    def _inside(self, room: int) -> bool:
        return self._in_field(room) if self._field else self._between_fields(room)

    def _in_field(self, room: int) -> bool:
        marks = self._closers[self._field]
        found = marks.first(self._rest, min(room, len(self._rest)))
        if found is None:
            sure = min(len(self._rest) - marks.unsure(self._rest), room)
            self._told.append(self._consume(sure))
            return False
        self._told.append(self._consume(found.start()))
        if found.group() == "<change>":
            self._spoil("nested")
        elif found.group() == "</change>":
            self._consume(len("</change>"))
            self._spoil("garbled")
        else:
            self._consume(found.end() - found.start())
            self._fields[self._field] = strip_edge_newlines("".join(self._told))
            self._field = ""
        return True

    def _between_fields(self, room: int) -> bool:
        blank = _SPACE.match(self._rest, 0, min(room, len(self._rest)))
        if blank:
            self._consume(blank.end())
            return True
        found = self._between.first(self._rest, min(room, len(self._rest)))
        if found is None or found.start():
            if self._between.could_begin(self._rest[:room]):
                return False
            self._spoil("garbled")
            return True
        mark = found.group()
        if mark == "<change>":
            self._spoil("nested")
            return True
        self._consume(len(mark))
        if mark == "</change>":
            if all(name in self._fields for name in _NEEDED):
                self._close(self._fields["original"], self._fields["proposed"], self._fields.get("reason", ""))
            else:
                self._spoil("garbled")
        elif mark[1:-1] in self._fields:
            self._spoil("garbled")
        else:
            self._field, self._told = mark[1:-1], []
        return True


# Changes as JSON that the provider itself holds to a schema: for models too small to keep to any other form. F5
#
# The schema lists the document's own sentences as the only originals there are, so that even the embedded model cannot
# misquote. The price is that nothing of the reply can be told before all of it is there.


_SENTENCE = re.compile(r"[^\s#>|`*+-][^\n]*?(?:[.!?](?=\s|\Z)|(?=\n)|\Z)")
_FENCED = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_SHORTEST, _MOST_SENTENCES, _MOST_CHANGES = 12, 60, 3


class _Change(BaseModel):
    model_config = ConfigDict(extra="ignore")

    original: str
    proposed: str
    reason: str = ""


class _Reply(BaseModel):
    model_config = ConfigDict(extra="ignore")

    say: str = ""
    changes: list[_Change] = []


class JsonParser:
    """Whoever answers without JSON, a provider that knows no schemas or a script, is read as one who writes tags."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._tags: ReplyParser | None = None
        self._is_json = False

    def feed(self, text: str) -> list[ReplyPart]:
        if self._tags is not None:
            return self._tags.feed(text)
        self._parts.append(text)
        self._is_json = self._is_json or text.lstrip().startswith("{")
        if self._is_json or not text.strip():
            return []
        self._tags = FenceStripper(TagParser())
        return self._tags.feed("".join(self._parts))

    def end(self) -> list[ReplyPart]:
        if self._tags is not None:
            return self._tags.end()
        raw = "".join(self._parts)
        self._parts = []
        if not raw.strip():
            return [ReplyText(raw)] if raw else []
        try:
            reply = _Reply.model_validate(json.loads(raw))
        except (ValueError, ValidationError, RecursionError):
            return [ReplyText(raw), BrokenBlock("garbled")]
        said: list[ReplyPart] = [ReplyText(reply.say)] if reply.say else []
        # Small models repeat themselves.
        for change in {(one.original, one.proposed): one for one in reply.changes}.values():
            if change.original != change.proposed and (change.original.strip() or change.proposed.strip()):
                block = change.model_dump_json()
                said.append(EditBlock(change.original, change.proposed, change.reason.strip(), block))
        return said


def reply_schema(document: str) -> OutputSchema:
    """What a reply about this document may be."""
    sentences = quotable_sentences(document)
    original: dict[str, object] = {"type": "string", "enum": sentences} if sentences else {"type": "string"}
    text = {"type": "string", "maxLength": 400}
    change = {
        "type": "object",
        "properties": {"original": original, "proposed": text, "reason": {"type": "string", "maxLength": 160}},
        "required": ["original", "proposed", "reason"],
        "additionalProperties": False,
    }
    return OutputSchema(
        name="Reply",
        definition={
            "type": "object",
            "properties": {"say": text, "changes": {"type": "array", "items": change, "maxItems": _MOST_CHANGES}},
            "required": ["say", "changes"],
            "additionalProperties": False,
        },
    )


def quotable_sentences(document: str) -> list[str]:
    """Sentences of the prose that stand there once: code is left alone."""
    prose = _FENCED.sub(lambda code: "\n" * code.group().count("\n"), document)
    found = dict.fromkeys(match.group().strip() for match in _SENTENCE.finditer(prose))
    return [one for one in found if len(one) >= _SHORTEST and document.count(one) == 1][:_MOST_SENTENCES]


# Which way of writing changes a provider is asked for, and how it is read. F5


ChangeFormat = Literal["auto", "tags", "search_replace", "json"]
"""`auto` becomes, when a thread is opened, what the settings say for the provider that answers in it."""
DEFAULT_FORMATS: dict[str, ChangeFormat] = {"embedded": "json"}
"""What a provider's models are known to write best; tags otherwise."""

_TAGS = (
    "To propose a change to the document, write a block of exactly this form, one per change:\n"
    "<change><original>words copied exactly from the document</original>"
    "<proposed>the words that shall stand there instead</proposed><reason>why, in a sentence</reason></change>"
)
FORMAT_INSTRUCTIONS: dict[ChangeFormat, str] = {
    "auto": _TAGS,
    "tags": _TAGS,
    "json": (
        'Answer as JSON: "say" is what you tell them; "changes" are changes to the document, each with the "original"'
        ' sentence, the "proposed" sentence that shall stand there instead, and the "reason".'
    ),
    "search_replace": (
        "To propose a change to the document, write a block of exactly this form, one per change:\n"
        "<<<<<<< SEARCH\nwords copied exactly from the document\n=======\n"
        "the words that shall stand there instead\n>>>>>>> REPLACE why, in a sentence"
    ),
}


def parser_for(change_format: ChangeFormat) -> ReplyParser:
    if change_format == "json":
        return JsonParser()
    return FenceStripper(SearchReplaceParser() if change_format == "search_replace" else TagParser())


def parse_reply(text: str, change_format: ChangeFormat, *, complete: bool = True) -> list[ReplyPart]:
    """All pieces of a reply, or, if it is not `over` yet, those that are certain."""
    parser = parser_for(change_format)
    return join_text([*parser.feed(text), *(parser.end() if complete else [])])
