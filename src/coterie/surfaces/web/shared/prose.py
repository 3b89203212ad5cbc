"""Texts of people and models as HTML. Everything is escaped; HTML in a text is shown as it is.

Story prose has paragraphs, italics, bold, quotations and out-of-character notes, and nothing else. Its blocks are set
one by one, so that a reply that is still being given appends finished ones once and sets only its last again. Replies
of assistants (desk, threads about documents) have all of Markdown except images.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.common.utils import isMdAsciiPunct, isPunctChar, isWhiteSpace
from markdown_it.renderer import RendererHTML
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from markupsafe import Markup, escape

_BREAK = re.compile(r"\n[ \t]*(?:\n[ \t]*)+")
_CLOSING = {"(": ")", "[": "]", "{": "}", "<": ">"}
_DIRECTION = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_INVISIBLE = "\u00ad\u180e\u200b\u2060\ufeff"
_CONTROL = "\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff"
_UNREADABLE = re.compile(f"[{_DIRECTION}{_INVISIBLE}{_CONTROL}]")
_EMPHASIS = re.compile(r"\*{1,3}(?=\S)|(?<=\S)\*{1,3}|(?<!\w)_{1,3}(?=\S)|(?<=\S)_{1,3}(?!\w)")
_STRAIGHT = re.compile(r"""["']""")
NOTE_MARKER = "(("

_MARKS = "*_\"'\\&>\n("
MAX_BLOCK_MARKS = 3_000
MAX_MARKS = 20_000
"""A long chapter has a few thousand; rendering this many takes about a quarter of a second."""
_BLOCK_COST = 5
"""A block costs about as much as this many marks."""
_MAX_CACHED = 20_000
"""Longer texts are rare, and would fill the memory."""


def clean_line(text: str) -> str:
    """A name or line without invisible characters: controls, directions, zero width."""
    return "".join(c for c in text if unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Zl", "Zp")).strip()


def clean_fragment(text: str) -> str:
    """The same for a part of a line, whose surrounding spaces are kept."""
    return "".join(" " if c in "\n\t" else c for c in _strip_invisible(text))


def plain_fragment(text: str) -> str:
    """A part of a line without markup, such as a hit of a search."""
    return _EMPHASIS.sub("", clean_fragment(text))


def show_invisible(text: str) -> str:
    """The exact text, with invisible characters shown as their code points."""
    return "".join(c if c in "\n\t" or not _is_invisible(c) else f"⟨U+{ord(c):04X}⟩" for c in text)


def _is_invisible(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")


def split_blocks(text: str) -> list[str]:
    """The blocks of a text, in order. More text can change only the last one."""
    return [block for block in _BREAK.split(text.replace("\r\n", "\n").strip("\n")) if block.strip()]


def render_prose(text: str, marker: str = NOTE_MARKER) -> Markup:
    """The whole text, each block in its own element. After `MAX_MARKS` in all, the rest is shown without formatting."""
    parts: list[str] = []
    marks = 0
    for block in split_blocks(text):
        marks += _BLOCK_COST + _count_marks(block)
        html = render_block(block, marker) if marks <= MAX_MARKS else _render_plain(block)
        parts.append(f'<div class="block" dir="auto">{html}</div>')
    return Markup("".join(parts))  # noqa: S704 - the blocks are escaped


def render_block(text: str, marker: str = NOTE_MARKER) -> Markup:
    """One block. One with more than `MAX_BLOCK_MARKS` is not prose, and is shown without formatting."""
    if _count_marks(text) > MAX_BLOCK_MARKS:
        return _render_plain(text)
    return (_render_cached if len(text) <= _MAX_CACHED else _render)(text, marker)


def _render(text: str, marker: str) -> Markup:
    return Markup(_markdown(marker).render(_strip_invisible(text)))  # noqa: S704 - it escapes all it is given


_render_cached = lru_cache(maxsize=2048)(_render)
"""Several tabs show the same text."""


def _count_marks(text: str) -> int:
    """The number of characters that may be formatting: the work of rendering grows with it."""
    return sum(map(text.count, _MARKS))


def _render_plain(text: str) -> Markup:
    lines = escape(_strip_invisible(text)).split("\n")
    return Markup("<p>{}</p>\n").format(Markup("<br />\n").join(lines))


_DATA_MARKS = re.compile(r"〔(?:data|end of data) [^〔〕\n]{1,200}〕\n?")
"""The marks that enclose untrusted text in prompts. A model may repeat them; people never see them."""


def render_reply(text: str) -> Markup:
    """A finished reply of an assistant as Markdown: code, lists, tables, headings and links, without images."""
    text = _DATA_MARKS.sub("", text)
    if _count_marks(text) > MAX_MARKS:
        return _render_plain(text)
    return Markup('<div class="block markdown" dir="auto">{}</div>').format(_render_reply(_strip_invisible(text)))


@lru_cache(maxsize=512)
def _render_reply(text: str) -> Markup:
    return Markup(_reply_markdown().render(text))  # noqa: S704 - it escapes all it is given


@lru_cache(maxsize=1)
def _reply_markdown() -> MarkdownIt:
    markdown = MarkdownIt("commonmark", {"html": False, "breaks": True, "maxNesting": 12}).enable(
        ["table", "strikethrough"]
    )
    markdown.disable(["image", "html_block", "html_inline"])
    markdown.add_render_rule("link_open", _render_link)
    return markdown


def _render_link(renderer: RendererHTML, tokens: list, at: int, options: Any, env: Any) -> str:  # type: ignore[type-arg]
    tokens[at].attrSet("rel", "noreferrer noopener nofollow")
    tokens[at].attrSet("target", "_blank")
    return renderer.renderToken(tokens, at, options, env)


def excerpt(text: str, max_length: int = 140) -> str:
    """The beginning of a text in one line, without markup."""
    # Of a long text, as much as is usually enough; all of it if that is mostly white space or markup.
    line = _without_markup(text[: 10 * max_length + 100])
    if len(line) <= max_length + 3:
        line = _without_markup(text)
    return line if len(line) <= max_length else line[: max_length - 1].rstrip() + "…"


def _without_markup(text: str) -> str:
    text = _DATA_MARKS.sub("", text)
    return _EMPHASIS.sub("", " ".join(clean_line(text.replace("\n", " ")).split()))


def _strip_invisible(text: str) -> str:
    """Without direction, zero-width and control characters, which can change how a text reads."""
    return _UNREADABLE.sub("", text)


@lru_cache(maxsize=8)
def _markdown(marker: str) -> MarkdownIt:
    markdown = MarkdownIt("zero", {"html": False, "breaks": True})
    markdown.enable(["emphasis", "balance_pairs", "fragments_join", "blockquote", "newline", "smartquotes", "escape"])
    markdown.inline.ruler.at("text", _TextRule(marker))
    markdown.inline.ruler.after("text", "ooc", _NoteRule(marker))
    markdown.core.ruler.at("smartquotes", _curl_quotes)
    markdown.add_render_rule("ooc", _render_note)
    return markdown


def _closing_marker(marker: str) -> str:
    return "".join(_CLOSING.get(c, c) for c in reversed(marker))


class _TextRule:
    """Plain text up to the next mark or note. A marker after the last closing one is plain text, too."""

    def __init__(self, marker: str) -> None:
        self._closes = _closing_marker(marker)
        self._mark = re.compile(r"[\n*_\\&]")
        self._mark_or_note = re.compile(rf"[\n*_\\&]|{re.escape(marker)}")

    def __call__(self, state: StateInline, silent: bool) -> bool:
        pattern = self._mark_or_note if state.pos <= state.html_terminator_last(self._closes) else self._mark
        match = pattern.search(state.src, state.pos, state.posMax)
        end = match.start() if match else state.posMax
        if end == state.pos:
            return False
        if not silent:
            state.append_pending(state.src[state.pos : end])
        state.pos = end
        return True


class _NoteRule:
    """A note, from its marker to the mirrored marker."""

    def __init__(self, marker: str) -> None:
        self._opens = marker
        self._closes = _closing_marker(marker)

    def __call__(self, state: StateInline, silent: bool) -> bool:
        if not state.src.startswith(self._opens, state.pos):
            return False
        start = state.pos + len(self._opens)
        # Without the check, each of many unclosed markers would search the rest of the text.
        end = state.src.find(self._closes, start) if start <= state.html_terminator_last(self._closes) else -1
        if end < 0:
            return False
        if not silent:
            token = state.push("ooc", "", 0)
            token.content = state.src[state.pos : end + len(self._closes)]
        state.pos = end + len(self._closes)
        return True


def _curl_quotes(state: StateCore) -> None:
    """Typographic quotation marks, by the rules of markdown-it's own `smartquotes`, but in linear time."""
    for token in state.tokens:
        if token.type == "inline" and token.children and ('"' in token.content or "'" in token.content):
            _QuoteCurler(token.children).run()


class _QuoteCurler:
    """Replaces the straight quotation marks in the tokens of one paragraph.

    A mark that can close looks for the last open mark of its kind on its own level of emphasis; open marks of the other
    kind in between, and all on deeper levels, stay as they are.
    """

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._changed: dict[int, list[str]] = {}
        """By token: its characters, some of them replaced."""
        self._levels: list[_OpenQuotes] = []
        """Ascending."""

    def run(self) -> None:
        for index, token in enumerate(self._tokens):
            while self._levels and self._levels[-1].level > token.level:
                self._levels.pop()
            if token.type == "text":
                for match in _STRAIGHT.finditer(token.content):
                    self._curl(index, match.start(), match[0])
        for index, letters in self._changed.items():
            self._tokens[index].content = "".join(letters)

    def _curl(self, index: int, at: int, mark: str) -> None:
        text, level = self._tokens[index].content, self._tokens[index].level
        before = text[at - 1] if at else self._neighbour(index, -1)
        after = text[at + 1] if at + 1 < len(text) else self._neighbour(index, 1)
        opens, closes = _quote_roles(mark, before, after)
        quotes = self._levels[-1] if self._levels and self._levels[-1].level == level else None
        if closes and quotes is not None and (opening := quotes.take(mark)) is not None:
            self._replace(*opening, "“" if mark == '"' else "‘")
            self._replace(index, at, "”" if mark == '"' else "’")
        elif opens:
            if quotes is None:
                quotes = _OpenQuotes(level)
                self._levels.append(quotes)
            quotes.add(mark, index, at)
        elif mark == "'":
            self._replace(index, at, "’")

    def _neighbour(self, index: int, step: int) -> str:
        """The last character before a token, or the first one after it; a space at the end of the line."""
        index += step
        while 0 <= index < len(self._tokens):
            token = self._tokens[index]
            if token.type in ("softbreak", "hardbreak"):
                break
            if token.content:
                return token.content[-1 if step < 0 else 0]
            index += step
        return " "

    def _replace(self, index: int, at: int, mark: str) -> None:
        if index not in self._changed:
            self._changed[index] = list(self._tokens[index].content)
        self._changed[index][at] = mark


class _OpenQuotes:
    """The open quotation marks on one level of emphasis."""

    def __init__(self, level: int) -> None:
        self.level = level
        self._marks: list[tuple[str, int, int]] = []
        self._counts = {'"': 0, "'": 0}

    def add(self, mark: str, index: int, at: int) -> None:
        self._marks.append((mark, index, at))
        self._counts[mark] += 1

    def take(self, mark: str) -> tuple[int, int] | None:
        """The token and position of the last open mark of this kind. Those after it cannot be closed any more."""
        if not self._counts[mark]:
            return None
        while True:
            kind, index, at = self._marks.pop()
            self._counts[kind] -= 1
            if kind == mark:
                return index, at


def _quote_roles(mark: str, before: str, after: str) -> tuple[bool, bool]:
    """Whether a quotation mark between two characters can open and can close a quotation."""
    space_before, space_after = isWhiteSpace(ord(before)), isWhiteSpace(ord(after))
    punctuation_before, punctuation_after = _is_punctuation(before), _is_punctuation(after)
    if mark == after == '"' and before in "0123456789":
        return False, False  # inches
    opens = not space_after and (not punctuation_after or space_before or punctuation_before)
    closes = not space_before and (not punctuation_before or space_after or punctuation_after)
    if opens and closes:
        return punctuation_before, punctuation_after  # not in the middle of a word
    return opens, closes


def _is_punctuation(character: str) -> bool:
    return isMdAsciiPunct(ord(character)) or isPunctChar(character)


def _render_note(_: RendererHTML, tokens: list, at: int, *__: object) -> str:  # type: ignore[type-arg]
    return f'<span class="ooc">{escape(tokens[at].content)}</span>'
