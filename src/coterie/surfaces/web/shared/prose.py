"""Prose as HTML: paragraphs, italics, bold, quotations, and out-of-character notes, and nothing else.

Everything is escaped; there are no links, images, headings, code or HTML in it. Blocks are set one by one, so that a
reply that is still being given appends finished ones once and sets only its last again.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_inline import StateInline
from markupsafe import Markup, escape

_BREAK = re.compile(r"\n[ \t]*(?:\n[ \t]*)+")
_CLOSING = {"(": ")", "[": "]", "{": "}", "<": ">"}
_DIRECTION = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_INVISIBLE = "\u00ad\u180e\u200b\u2060\ufeff"
_CONTROL = "\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff"
_UNREADABLE = re.compile(f"[{_DIRECTION}{_INVISIBLE}{_CONTROL}]")
NOTE_MARKER = "(("


def clean_line(text: str) -> str:
    """A name or line without invisible characters: controls, directions, zero width."""
    return "".join(c for c in text if unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Zl", "Zp")).strip()


def clean_fragment(text: str) -> str:
    """The same for a part of a line, whose surrounding spaces are kept."""
    return "".join(" " if c in "\n\t" else c for c in _strip_invisible(text))


def show_invisible(text: str) -> str:
    """The exact text, with invisible characters shown as their code points."""
    return "".join(c if c in "\n\t" or not _is_invisible(c) else f"⟨U+{ord(c):04X}⟩" for c in text)


def _is_invisible(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")


def split_blocks(text: str) -> list[str]:
    """The blocks of a text, in order. More text can change only the last one."""
    return [block for block in _BREAK.split(text.replace("\r\n", "\n").strip("\n")) if block.strip()]


def render_prose(text: str, marker: str = NOTE_MARKER) -> Markup:
    """The whole text, each block in its own element."""
    blocks = (
        Markup('<div class="block" dir="auto">{}</div>').format(render_block(one, marker)) for one in split_blocks(text)
    )
    return Markup("").join(blocks)


@lru_cache(maxsize=2048)
def render_block(text: str, marker: str = NOTE_MARKER) -> Markup:
    """One block, cached: several tabs show the same text."""
    return Markup(_markdown(marker).render(_strip_invisible(text)))  # noqa: S704 - the setter escapes all it is given


def excerpt(text: str, max_length: int = 140) -> str:
    """The beginning of a text in one line, without markup."""
    line = re.sub(r"[*_]{1,3}(?=\S)|(?<=\S)[*_]{1,3}", "", " ".join(clean_line(text.replace("\n", " ")).split()))
    return line if len(line) <= max_length else line[: max_length - 1].rstrip() + "…"


def _strip_invisible(text: str) -> str:
    """Without direction, zero-width and control characters, which can change how a text reads."""
    return _UNREADABLE.sub("", text)


@lru_cache(maxsize=8)
def _markdown(marker: str) -> MarkdownIt:
    markdown = MarkdownIt("zero", {"html": False, "breaks": True, "typographer": True, "quotes": "“”‘’"})
    markdown.enable(["emphasis", "balance_pairs", "fragments_join", "blockquote", "newline", "smartquotes", "escape"])
    markdown.inline.ruler.at("text", _TextRule(marker))
    markdown.inline.ruler.after("text", "ooc", _NoteRule(marker))
    markdown.add_render_rule("ooc", _render_note)
    return markdown


class _TextRule:
    """Plain text up to the next mark or note."""

    def __init__(self, marker: str) -> None:
        self._mark = re.compile(rf"[\n*_\\&{re.escape(marker[0])}]")

    def __call__(self, state: StateInline, silent: bool) -> bool:
        match = self._mark.search(state.src, state.pos, state.posMax)
        end = match.start() if match else state.posMax
        if end == state.pos:
            return False
        if not silent:
            state.pending += state.src[state.pos : end]
        state.pos = end
        return True


class _NoteRule:
    """A note, from its marker to the mirrored marker."""

    def __init__(self, marker: str) -> None:
        self._opens = marker
        self._closes = "".join(_CLOSING.get(c, c) for c in reversed(marker))

    def __call__(self, state: StateInline, silent: bool) -> bool:
        if not state.src.startswith(self._opens, state.pos):
            return False
        end = state.src.find(self._closes, state.pos + len(self._opens))
        if end < 0:
            return False
        if not silent:
            token = state.push("ooc", "", 0)
            token.content = state.src[state.pos : end + len(self._closes)]
        state.pos = end + len(self._closes)
        return True


def _render_note(_: RendererHTML, tokens: list, at: int, *__: object) -> str:  # type: ignore[type-arg]
    return f'<span class="ooc">{escape(tokens[at].content)}</span>'
