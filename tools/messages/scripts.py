"""String literals of scripts, found by reading them character by character: comments, templates and patterns included.

It is not a parser: a slash begins a pattern where a value may begin, which is enough for scripts that are formatted
like ours.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

_CALL = re.compile(r"(?<![\w.#$])(t|plural)\($")
_BEFORE_PATTERN = re.compile(r"(?:^|[(,=:\[!&|?{};\n]|=>|\breturn)\s*$")


@dataclass(frozen=True)
class Literal:
    start: int
    end: int
    text: str
    """Without quotes, with escapes resolved. Values in a template are left out."""
    quote: str
    line: int


@dataclass(frozen=True)
class Call:
    """A call of `t` or `plural`. A text that is not a plain literal is None."""

    function: str
    texts: tuple[str | None, ...]
    line: int


def literals(code: str) -> list[Literal]:
    """All string literals in order, those inside of templates as well."""
    return sorted(_Reader(code).found, key=lambda one: one.start)


def calls(code: str) -> Iterator[Call]:
    """All calls of `t` and `plural`, with their texts."""
    found = {one.start: one for one in _Reader(code).found}
    inside = [(one.start, one.end) for one in found.values() if one.quote != "`"]
    for match in re.finditer(r"(?<![\w.#$])(t|plural)\(\s*", code):
        if any(start < match.start() < end for start, end in inside) or _in_comment(code, match.start()):
            continue
        if re.search(r"\b(function|export const)\s+$|\bconst\s+$", code[: match.start()]):
            continue
        wanted = 2 if match[1] == "plural" else 1
        texts: list[str | None] = []
        at = match.end()
        for _ in range(wanted):
            one = found.get(at)
            texts.append(one.text if one is not None and one.quote == '"' else None)
            if one is None:
                break
            after = re.compile(r"\s*,\s*").match(code, one.end)
            at = after.end() if after else one.end
        yield Call(match[1], tuple(texts), code.count("\n", 0, match.start()) + 1)


def wrapped(code: str) -> set[int]:
    """Where the literals are that are looked up."""
    starts = set()
    found = {one.start: one for one in _Reader(code).found}
    for start, one in found.items():
        before = code[:start].rstrip()
        first = re.compile(r"\s*,\s*").match(code, one.end)
        if _CALL.search(before):
            starts.add(start)
            if before.endswith("plural(") and first and first.end() in found:
                starts.add(first.end())
    return starts


def _in_comment(code: str, at: int) -> bool:
    line = code[code.rfind("\n", 0, at) + 1 : at]
    return line.lstrip().startswith("//")


class _Reader:
    def __init__(self, code: str) -> None:
        self._code = code
        self.found: list[Literal] = []
        self._read(0, "")

    def _read(self, at: int, until: str) -> int:
        """Read code up to `until` at the same depth of braces; return the position after it."""
        code, depth = self._code, 0
        while at < len(code):
            char = code[at]
            if char == until and depth == 0:
                return at + 1
            if char in "{}":
                depth += 1 if char == "{" else -1
            if code.startswith("//", at):
                at = code.find("\n", at) if "\n" in code[at:] else len(code)
            elif code.startswith("/*", at):
                at = code.index("*/", at) + 2
            elif char in "\"'":
                at = self._string(at)
            elif char == "`":
                at = self._template(at)
            elif char == "/" and _BEFORE_PATTERN.search(code[max(0, at - 40) : at]):
                at = self._pattern(at)
            else:
                at += 1
        return at

    def _string(self, start: int) -> int:
        quote, at = self._code[start], start + 1
        while self._code[at] != quote:
            at += 2 if self._code[at] == "\\" else 1
        self._add(start, at + 1, self._code[start + 1 : at])
        return at + 1

    def _template(self, start: int) -> int:
        at, parts = start + 1, []
        while self._code[at] != "`":
            if self._code.startswith("${", at):
                at = self._read(at + 2, "}")
                parts.append("\0")
            else:
                step = 2 if self._code[at] == "\\" else 1
                parts.append(self._code[at : at + step])
                at += step
        self._add(start, at + 1, "".join(parts))
        return at + 1

    def _pattern(self, start: int) -> int:
        at, in_set = start + 1, False
        while in_set or self._code[at] != "/":
            if self._code[at] == "\\":
                at += 1
            elif self._code[at] in "[]":
                in_set = self._code[at] == "["
            at += 1
        return at + 1

    def _add(self, start: int, end: int, raw: str) -> None:
        text = json.loads(f'"{raw}"') if self._code[start] == '"' else raw
        self.found.append(Literal(start, end, text, self._code[start], self._code.count("\n", 0, start) + 1))
