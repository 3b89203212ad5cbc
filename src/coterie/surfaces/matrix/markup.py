"""Markdown as Matrix shows it: HTML made by us from text that is never trusted to be HTML. P5"""

from __future__ import annotations

from functools import cache

from markdown_it import MarkdownIt


@cache
def _markdown() -> MarkdownIt:
    # Raw HTML is shown as text, and a single line break stays one, as people write in chats.
    return MarkdownIt("commonmark", {"html": False, "breaks": True}).enable("strikethrough").disable("image")


def to_html(text: str) -> str | None:
    """None where the plain text says it all."""
    html = str(_markdown().render(text)).strip()
    inner = html.removeprefix("<p>").removesuffix("</p>")
    return None if inner == text else html
