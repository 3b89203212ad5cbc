"""The formats in which models write edits, and parsers for replies that are still being streamed.

Text is passed on at once and an edit block when it is closed. A block that is unclosed, nested, empty, garbled or too
long is passed on as text, followed by a `BrokenBlock`. Only a suffix that could begin a marker is held back, so parsing
takes linear time and the parts do not depend on how the text was cut.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

from pydantic import BaseModel, ConfigDict, ValidationError

from coterie.base.values import ShownText
from coterie.llm import OutputSchema

ChangeFormat = Literal["auto", "tags", "search_replace", "json"]
"""`auto` is replaced, when a thread is opened, by the setting for the provider that answers in it."""
DEFAULT_FORMATS: dict[str, ChangeFormat] = {"embedded": "json"}
"""The format that a provider's models write best, if it is not tags."""
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
_MAX_BLOCK_LENGTH = 64_000
"""In characters. Some models forget to close a block."""

BrokenReason = Literal["unclosed", "nested", "empty", "garbled", "too long"]


@dataclass(frozen=True, slots=True)
class TextPart:
    text: str


@dataclass(frozen=True, slots=True)
class EditBlock:
    """A proposed edit, as the model wrote it."""

    original: str
    proposed: str
    reason: str
    raw: str
    """The whole block."""


@dataclass(frozen=True, slots=True)
class BrokenBlock:
    """Follows the text of a block that could not be parsed."""

    reason: BrokenReason


ReplyPart = TextPart | EditBlock | BrokenBlock


class ReplyParser(Protocol):
    def feed(self, text: str) -> list[ReplyPart]: ...

    def end(self) -> list[ReplyPart]:
        """End of the reply: returns what was held back."""
        ...


def parser_for(change_format: ChangeFormat) -> ReplyParser:
    if change_format == "json":
        return JsonParser()
    return FenceStripper(SearchReplaceParser() if change_format == "search_replace" else TagParser())


def parse_reply(text: str, change_format: ChangeFormat, *, complete: bool = True) -> list[ReplyPart]:
    """All parts of a reply; of an incomplete one, those that further text cannot change."""
    parser = parser_for(change_format)
    return join_text([*parser.feed(text), *(parser.end() if complete else [])])


def join_text(parts: Iterable[ReplyPart]) -> list[ReplyPart]:
    """The parts, with adjacent texts joined."""
    joined: list[ReplyPart] = []
    for part in parts:
        if isinstance(part, TextPart) and joined and isinstance(joined[-1], TextPart):
            joined[-1] = TextPart(joined[-1].text + part.text)
        else:
            joined.append(part)
    return joined


def visible_text(parts: Iterable[ReplyPart]) -> str:
    """The text of a reply without its edit blocks."""
    return "".join(part.text for part in parts if isinstance(part, TextPart))


# --- blocks between markers ----------------------------------------------------------------------------------


class Markers:
    """Strings to search for, none of them a prefix of another."""

    def __init__(self, *markers: str) -> None:
        self._pattern = re.compile("|".join(map(re.escape, markers)))
        self._max_length = max(map(len, markers))
        self._prefixes = {marker[:length] for marker in markers for length in range(1, len(marker))}

    def first(self, text: str, end: int) -> re.Match[str] | None:
        return self._pattern.search(text, 0, end)

    def could_begin(self, text: str) -> bool:
        """Whether the text is a prefix of a marker, or begins with one."""
        return text[: self._max_length] in self._prefixes or self._pattern.match(text) is not None

    def partial_length(self, text: str) -> int:
        """The length of the longest suffix of the text that could begin a marker."""
        for length in range(min(self._max_length - 1, len(text)), 0, -1):
            if text[-length:] in self._prefixes:
                return length
        return 0


class BlockParser:
    """Splits a reply into text and blocks. Subclasses define the opening marker and parse the inside of a block."""

    opener: Markers

    def __init__(self, max_length: int = _MAX_BLOCK_LENGTH) -> None:
        self._max_length = max_length
        self._rest = ""
        """Text that is not parsed yet."""
        self._raw: list[str] = []
        """The parsed text of the open block."""
        self._length = 0
        self._open = False
        self._parts: list[ReplyPart] = []

    def feed(self, text: str) -> list[ReplyPart]:
        self._rest += text
        while self._rest and self._step():
            pass
        return self._take_parts()

    def end(self) -> list[ReplyPart]:
        if self._open:
            self._finish_at_end()
        if self._open:
            self._break("unclosed", self._rest)
        else:
            self._add_text(self._rest)
        self._rest = ""
        return self._take_parts()

    # --- for subclasses ------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """A block was opened."""
        raise NotImplementedError

    def _parse_inside(self, limit: int) -> bool:
        """Parse at most `limit` characters of a block; False if more text is needed."""
        raise NotImplementedError

    def _finish_at_end(self) -> None:
        """The reply ends inside a block: close it if nothing is missing."""

    def _consume(self, length: int) -> str:
        """Move text into the open block."""
        taken, self._rest = self._rest[:length], self._rest[length:]
        self._raw.append(taken)
        self._length += length
        return taken

    def _break(self, reason: BrokenReason, rest: str = "") -> None:
        self._add_text("".join(self._raw) + rest)
        self._parts.append(BrokenBlock(reason))
        self._open = False

    def _close(self, original: str, proposed: str, reason: str) -> None:
        if original == proposed or not (original.strip() or proposed.strip()):
            self._break("empty")
            return
        self._parts.append(EditBlock(original, proposed, reason.strip(), "".join(self._raw)))
        self._open = False

    # --- private -------------------------------------------------------------------------------------------

    def _step(self) -> bool:
        if not self._open:
            return self._parse_outside()
        limit = self._max_length - self._length
        before = self._length
        if self._parse_inside(limit) or self._length != before:
            return True
        if len(self._rest) >= limit:
            self._consume(limit)
            self._break("too long")
            return True
        return False

    def _parse_outside(self) -> bool:
        match = self.opener.first(self._rest, len(self._rest))
        if match is None:
            certain = len(self._rest) - self.opener.partial_length(self._rest)
            self._add_text(self._rest[:certain])
            self._rest = self._rest[certain:]
            return False
        self._add_text(self._rest[: match.start()])
        self._rest = self._rest[match.start() :]
        self._raw, self._length, self._open = [], 0, True
        self._consume(match.end() - match.start())
        self._begin()
        return True

    def _add_text(self, text: str) -> None:
        if text:
            self._parts.append(TextPart(text))

    def _take_parts(self) -> list[ReplyPart]:
        parts, self._parts = self._parts, []
        return parts


# --- fences --------------------------------------------------------------------------------------------------

_LINES = re.compile(r"[^\n]*\n|[^\n]+")
_FENCE = re.compile(r"```\w{0,16}[ \t]{0,4}\r?\n?")
_FENCE_PREFIX = re.compile(r"`{1,2}|```\w{0,16}[ \t]{0,4}\r?")


class FenceStripper:
    """Removes the code fences that models put around edit blocks.

    Only a fence that opens directly before a block is removed. Fences of code, and those around a broken block, stay.
    """

    def __init__(self, parser: ReplyParser) -> None:
        self._parser = parser
        self._line: str | None = ""
        """The start of the current line, held back while it could be a fence; None once it cannot."""
        self._fence = ""
        """A line that opens a fence, held back until it is known what follows."""
        self._in_code = False
        self._around_blocks = False

    def feed(self, text: str) -> list[ReplyPart]:
        return self._strip(self._parser.feed(text))

    def end(self) -> list[ReplyPart]:
        parts = self._strip(self._parser.end())
        last = "" if self._around_blocks and (self._line or "").strip() == "```" else self._line or ""
        rest = self._fence + last
        self._line, self._fence = "", ""
        return [*parts, TextPart(rest)] if rest else parts

    def _strip(self, parts: Iterable[ReplyPart]) -> list[ReplyPart]:
        stripped: list[ReplyPart] = []
        for part in parts:
            if isinstance(part, TextPart):
                text = "".join(map(self._strip_line, _LINES.findall(part.text)))
                stripped += [TextPart(text)] if text else []
            elif isinstance(part, EditBlock):
                self._around_blocks = self._around_blocks or bool(self._fence)
                rest, self._fence, self._line = self._line or "", "", ""
                stripped += [TextPart(rest), part] if rest else [part]
            else:
                stripped.append(part)
        return stripped

    def _strip_line(self, part: str) -> str:
        """Of a line or a part of one, and what was held back before it, the text that is certain now."""
        line_ends = part.endswith("\n")
        if self._line is None:
            self._line = "" if line_ends else None
            return part
        line = self._line + part
        if not line_ends and _FENCE_PREFIX.fullmatch(line):
            self._line = line
            return ""
        self._line = "" if line_ends else None
        released, self._fence = self._fence, ""
        self._in_code = self._in_code or bool(released)
        if not (line_ends and _FENCE.fullmatch(line)):
            return released + line
        closes = line.strip() == "```"
        if self._in_code:
            self._in_code = not closes
            return released + line
        if self._around_blocks and closes:
            self._around_blocks = False
            return released
        self._fence = line
        return released


# --- search and replace --------------------------------------------------------------------------------------

_SEARCH, _DIVIDER, _REPLACE = "<<<<<<< SEARCH\n", "\n=======\n", "\n>>>>>>> REPLACE"


class SearchReplaceParser(BlockParser):
    """Parses edits between conflict markers, each on a line of its own; the reason follows the last one.

    The line break that ends a marker is also the first character of the next field, so that an empty field is found.
    """

    opener = Markers(_SEARCH, _SEARCH.replace("\n", "\r\n"))
    _after_original = Markers(_DIVIDER, _DIVIDER[:-1] + "\r\n", "\n" + _SEARCH, _REPLACE)
    _after_proposed = Markers(_REPLACE, "\n" + _SEARCH)
    _after_reason = Markers("\n")

    def _begin(self) -> None:
        self._give_back(1)
        self._fields: list[str] = []
        self._field_parts: list[str] = []

    def _parse_inside(self, limit: int) -> bool:
        markers = (self._after_original, self._after_proposed, self._after_reason)[len(self._fields)]
        match = markers.first(self._rest, min(limit, len(self._rest)))
        if match is None:
            certain = min(len(self._rest) - markers.partial_length(self._rest), limit)
            self._field_parts.append(self._consume(certain))
            return False
        self._field_parts.append(self._consume(match.start()))
        marker = match.group()
        if marker.endswith((_SEARCH, _SEARCH[:-1])):
            self._consume(1)
            self._break("nested")
            return True
        if marker == _REPLACE and len(self._fields) == 0:
            self._consume(len(marker))
            self._break("garbled")
            return True
        if marker != "\n":
            self._consume(len(marker))
            if marker != _REPLACE:
                self._give_back(1)
        # The line break that ends a field belongs to the marker after it.
        self._fields.append("".join(self._field_parts).removeprefix("\n").removesuffix("\r"))
        self._field_parts = []
        if len(self._fields) == 3:
            self._close(*self._fields)
        return True

    def _finish_at_end(self) -> None:
        """The reason may be the last line of the reply."""
        if len(self._fields) == 2:
            reason = "".join(self._field_parts) + self._consume(len(self._rest))
            self._close(self._fields[0], self._fields[1], reason)

    def _give_back(self, length: int) -> None:
        last = self._raw[-1]
        self._raw[-1], self._rest = last[:-length], last[-length:] + self._rest
        self._length -= length


# --- tags ----------------------------------------------------------------------------------------------------

_FIELDS = ("original", "proposed", "reason")
_REQUIRED_FIELDS = ("original", "proposed")
_SPACE = re.compile(r"\s+")


class TagParser(BlockParser):
    """Parses `<change><original>…</original><proposed>…</proposed><reason>…</reason></change>`.

    Fields may come in any order, each once, with only white space between them.
    """

    opener = Markers("<change>")
    # A field that contains a block's own tags was not closed.
    _closers = {name: Markers(f"</{name}>", "<change>", "</change>") for name in _FIELDS}  # noqa: RUF012
    _between = Markers(*(f"<{name}>" for name in _FIELDS), "<change>", "</change>")

    def _begin(self) -> None:
        self._fields: dict[str, str] = {}
        self._field = ""
        self._field_parts: list[str] = []

    def _parse_inside(self, limit: int) -> bool:
        return self._parse_field(limit) if self._field else self._parse_between(limit)

    def _parse_field(self, limit: int) -> bool:
        markers = self._closers[self._field]
        match = markers.first(self._rest, min(limit, len(self._rest)))
        if match is None:
            certain = min(len(self._rest) - markers.partial_length(self._rest), limit)
            self._field_parts.append(self._consume(certain))
            return False
        self._field_parts.append(self._consume(match.start()))
        if match.group() == "<change>":
            self._break("nested")
        elif match.group() == "</change>":
            self._consume(len("</change>"))
            self._break("garbled")
        else:
            self._consume(match.end() - match.start())
            self._fields[self._field] = _strip_edge_newlines("".join(self._field_parts))
            self._field = ""
        return True

    def _parse_between(self, limit: int) -> bool:
        space = _SPACE.match(self._rest, 0, min(limit, len(self._rest)))
        if space:
            self._consume(space.end())
            return True
        match = self._between.first(self._rest, min(limit, len(self._rest)))
        if match is None or match.start():
            if self._between.could_begin(self._rest[:limit]):
                return False
            self._break("garbled")
            return True
        marker = match.group()
        if marker == "<change>":
            self._break("nested")
            return True
        self._consume(len(marker))
        if marker == "</change>":
            if all(name in self._fields for name in _REQUIRED_FIELDS):
                self._close(self._fields["original"], self._fields["proposed"], self._fields.get("reason", ""))
            else:
                self._break("garbled")
        elif marker[1:-1] in self._fields:
            self._break("garbled")
        else:
            self._field, self._field_parts = marker[1:-1], []
        return True


def _strip_edge_newlines(field: str) -> str:
    """Models put a field's text on lines of its own: one line break at each edge is not part of it."""
    field = field.removeprefix("\r\n") if field.startswith("\r\n") else field.removeprefix("\n")
    return field.removesuffix("\r\n") if field.endswith("\r\n") else field.removesuffix("\n")


# --- JSON ----------------------------------------------------------------------------------------------------
# The provider enforces a schema, for models too small to keep to another format. The schema lists the document's own
# sentences as the only possible originals, so that even the embedded model cannot misquote. In return, no part of the
# reply is known before all of it is there.

_SENTENCE = re.compile(r"[^\s#>|`*+-][^\n]*?(?:[.!?](?=\s|\Z)|(?=\n)|\Z)")
_CODE_BLOCK = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_MIN_SENTENCE_LENGTH, _MAX_SENTENCES, _MAX_CHANGES = 12, 60, 3


class _JsonChange(BaseModel):
    model_config = ConfigDict(extra="ignore")

    original: ShownText
    proposed: ShownText
    reason: ShownText = ""


class _JsonReply(BaseModel):
    model_config = ConfigDict(extra="ignore")

    say: ShownText = ""
    changes: list[_JsonChange] = []


class JsonParser:
    """Parses a reply in JSON. A reply that is not JSON, of a provider without schemas, is parsed for tags."""

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
            return [TextPart(raw)] if raw else []
        try:
            reply = _JsonReply.model_validate(json.loads(raw))
        except (ValueError, ValidationError, RecursionError):
            return [TextPart(raw), BrokenBlock("garbled")]
        parts: list[ReplyPart] = [TextPart(reply.say)] if reply.say else []
        # Small models repeat changes.
        for change in {(one.original, one.proposed): one for one in reply.changes}.values():
            if change.original != change.proposed and (change.original.strip() or change.proposed.strip()):
                block = change.model_dump_json()
                parts.append(EditBlock(change.original, change.proposed, change.reason.strip(), block))
        return parts


def reply_schema(document: str) -> OutputSchema:
    """The schema of a reply about a document."""
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
            "properties": {"say": text, "changes": {"type": "array", "items": change, "maxItems": _MAX_CHANGES}},
            "required": ["say", "changes"],
            "additionalProperties": False,
        },
    )


def quotable_sentences(document: str) -> list[str]:
    """Sentences that are in the document once, outside code blocks."""
    prose = _CODE_BLOCK.sub(lambda code: "\n" * code.group().count("\n"), document)
    found = dict.fromkeys(match.group().strip() for match in _SENTENCE.finditer(prose))
    return [one for one in found if len(one) >= _MIN_SENTENCE_LENGTH and document.count(one) == 1][:_MAX_SENTENCES]
