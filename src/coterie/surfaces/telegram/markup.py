"""Convert Markdown to the HTML that Telegram shows: bold, italic, strikethrough, code, links, quotes, lists."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from html import escape

from markdown_it import MarkdownIt
from markdown_it.token import Token

_INLINE = {"strong": "b", "em": "i", "s": "s"}


@cache
def _markdown() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False}).enable("strikethrough").disable("image")


def to_html(text: str) -> str:
    """The text as Telegram's HTML; everything that is not formatting is escaped."""
    return _Renderer().render(_markdown().parse(text))


class _Renderer:
    def __init__(self) -> None:
        self._blocks: list[str] = []
        self._lists: list[int | None] = []
        """The next number of each open list; None for a list with bullets."""
        self._marker = ""
        """What is written before the next block: the bullet or number of a list item."""

    def render(self, tokens: Sequence[Token]) -> str:
        for token in tokens:
            self._block(token)
        return "".join(self._blocks).strip("\n")

    def _block(self, token: Token) -> None:
        match token.type:
            case "inline":
                self._blocks.append(self._take_marker() + _inline(token.children or []))
            case "fence" | "code_block":
                language = escape(token.info.split()[0]) if token.info.split() else ""
                code = escape(token.content.removesuffix("\n"), quote=False)
                inner = f'<code class="language-{language}">{code}</code>' if language else code
                self._blocks.append(f"{self._take_marker()}<pre>{inner}</pre>\n\n")
            case "heading_open":
                self._blocks.append(f"{self._take_marker()}<b>")
            case "heading_close":
                self._blocks.append("</b>\n\n")
            case "paragraph_close":
                self._blocks.append("\n" if token.hidden or self._lists else "\n\n")
            case "blockquote_open":
                self._blocks.append(f"{self._take_marker()}<blockquote>")
            case "blockquote_close":
                inner = self._blocks.pop().rstrip("\n") if self._blocks else ""
                self._blocks.append(f"{inner}</blockquote>\n\n")
            case "bullet_list_open":
                self._open_list(None)
            case "ordered_list_open":
                self._open_list(int(token.attrGet("start") or 1))
            case "bullet_list_close" | "ordered_list_close":
                self._lists.pop()
                if not self._lists:
                    self._blocks.append("\n")
            case "list_item_open":
                self._marker = self._next_marker()
            case "list_item_close" if self._marker:
                self._blocks.append(f"{self._take_marker().rstrip()}\n")
            case "hr":
                self._blocks.append(f"{self._take_marker()}———\n\n")

    def _open_list(self, start: int | None) -> None:
        if self._marker:  # an item that begins with a list of its own
            self._blocks.append(f"{self._take_marker().rstrip()}\n")
        self._lists.append(start)

    def _next_marker(self) -> str:
        number = self._lists[-1]
        indent = "  " * (len(self._lists) - 1)
        if number is None:
            return f"{indent}• "
        self._lists[-1] = number + 1
        return f"{indent}{number}. "

    def _take_marker(self) -> str:
        marker, self._marker = self._marker, ""
        return marker


def _inline(tokens: Sequence[Token]) -> str:
    parts: list[str] = []
    links: list[bool] = []
    for token in tokens:
        name, _, edge = token.type.rpartition("_")
        if token.type == "text":
            parts.append(escape(token.content, quote=False))
        elif token.type == "code_inline":
            parts.append(f"<code>{escape(token.content, quote=False)}</code>")
        elif token.type in ("softbreak", "hardbreak"):
            parts.append("\n")
        elif token.type == "link_open":
            address = str(token.attrGet("href") or "")
            links.append(address.startswith(("http://", "https://", "tg://", "mailto:")))
            if links[-1]:
                parts.append(f'<a href="{escape(address)}">')
        elif token.type == "link_close":
            if links.pop():
                parts.append("</a>")
        elif name in _INLINE:
            parts.append(f"<{'/' if edge == 'close' else ''}{_INLINE[name]}>")
    return "".join(parts)
