"""Models like to wrap a change in a code fence of its own. The fence is not part of what they say. F5

Only a fence that opens right before a block counts as such; the fence of somebody's code, and one around a block that
could not be read, stay visible.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from coterie.modes.draft.blocks import EditBlock, ReplyParser, ReplyPart, ReplyText

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
