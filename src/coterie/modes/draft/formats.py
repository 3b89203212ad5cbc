"""Which way of writing changes a provider is asked for, and how it is read. F5"""

from __future__ import annotations

from typing import Literal

from coterie.modes.draft.blocks import ReplyParser, ReplyPart, join_text
from coterie.modes.draft.fences import FenceStripper
from coterie.modes.draft.search_replace import SearchReplaceParser
from coterie.modes.draft.structured import JsonParser
from coterie.modes.draft.tags import TagParser

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
