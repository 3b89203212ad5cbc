"""Parsing edits in replies that are being streamed."""

from __future__ import annotations

import codecs
import itertools
import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.fuzz_stream import check, mangle
from coterie.modes.draft.edit_formats import (
    BrokenBlock,
    ChangeFormat,
    EditBlock,
    FenceStripper,
    ReplyParser,
    ReplyPart,
    SearchReplaceParser,
    TagParser,
    TextPart,
    join_text,
    parse_reply,
    parser_for,
    quotable_sentences,
    reply_schema,
    visible_text,
)

CHANGE = "<change><original>\nold words\n</original>\n<proposed>new words</proposed><reason> shorter </reason></change>"
SEARCH_REPLACE = "<<<<<<< SEARCH\nold words\n=======\nnew words\n>>>>>>> REPLACE shorter\n"

fragments = st.lists(
    st.sampled_from(
        [
            "<change>",
            "</change>",
            "<original>",
            "</original>",
            "<proposed>",
            "</proposed>",
            "<reason>",
            "</reason>",
            CHANGE,
            SEARCH_REPLACE,
            "<<<<<<< SEARCH\n",
            "\n=======\n",
            "\n>>>>>>> REPLACE",
            "```xml\n",
            "```\n",
            "```",
            "\r\n",
            "\n",
            " ",
            "<",
            "<chan",
            "é",
            "語",
            "🦀",
            "old",
            "x" * 40,
        ]
    )
    | st.text(max_size=5),
    max_size=14,
).map("".join)
formats = st.sampled_from(["tags", "search_replace", "json"])


def parse(text: str, change_format: ChangeFormat = "tags") -> list[ReplyPart]:
    return parse_reply(text, change_format)


def parse_split(data: bytes, offsets: list[int], parser: ReplyParser) -> list[ReplyPart]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    parts: list[ReplyPart] = []
    edges = sorted({0, len(data), *(offset % (len(data) + 1) for offset in offsets)})
    for start, end in itertools.pairwise(edges):
        parts += parser.feed(decoder.decode(data[start:end]))
    return join_text([*parts, *parser.feed(decoder.decode(b"", final=True)), *parser.end()])


def limited_parser(change_format: ChangeFormat) -> ReplyParser:
    """With a maximum block length that short texts reach."""
    if change_format == "json":
        return parser_for(change_format)
    return FenceStripper(TagParser(max_length=150) if change_format == "tags" else SearchReplaceParser(max_length=150))


@given(text=fragments, offsets=st.lists(st.integers(0, 10_000), max_size=12), change_format=formats)
def test_f5_parts_do_not_depend_on_how_the_bytes_are_split(
    text: str, offsets: list[int], change_format: ChangeFormat
) -> None:
    data = text.encode("utf-8", "replace")
    whole = parse_split(data, [], limited_parser(change_format))
    assert parse_split(data, offsets, limited_parser(change_format)) == whole
    assert parse_split(data, list(range(len(data))), limited_parser(change_format)) == whole


@given(text=fragments, change_format=formats)
def test_f5_no_text_is_lost(text: str, change_format: ChangeFormat) -> None:
    for parser in (TagParser(max_length=90), SearchReplaceParser(max_length=90)):
        parts = [*parser.feed(text), *parser.end()]
        text_and_blocks = "".join(
            part.text if isinstance(part, TextPart) else part.raw if isinstance(part, EditBlock) else ""
            for part in parts
        )
        assert text_and_blocks == text


@given(data=st.binary(max_size=80), change_format=formats)
def test_f5_invalid_utf8_is_replaced(data: bytes, change_format: ChangeFormat) -> None:
    assert visible_text(parse_split(data, list(range(len(data))), parser_for(change_format))) == visible_text(
        parse_split(data, [], parser_for(change_format))
    )


def test_f5_an_edit_is_returned_as_soon_as_its_block_closes() -> None:
    parser = parser_for("tags")
    assert parser.feed("Sure. " + CHANGE[:-1]) == [TextPart("Sure. ")]
    assert parser.feed(">") == [EditBlock("old words", "new words", "shorter", CHANGE)]
    assert parser.feed(" And") == [TextPart(" And")]


def test_f5_only_a_possible_start_of_a_tag_is_held_back() -> None:
    parser = parser_for("tags")
    assert parser.feed("a < b, <cha") == [TextPart("a < b, ")]
    assert parser.feed("pter>") == [TextPart("<chapter>")]


def test_f5_search_and_replace() -> None:
    assert parse("Sure.\n" + SEARCH_REPLACE + "Good.", "search_replace") == [
        TextPart("Sure.\n"),
        EditBlock("old words", "new words", "shorter", SEARCH_REPLACE[:-1]),
        TextPart("\nGood."),
    ]
    assert parse("<<<<<<< SEARCH\n=======\nmore\n>>>>>>> REPLACE", "search_replace") == [
        EditBlock("", "more", "", "<<<<<<< SEARCH\n=======\nmore\n>>>>>>> REPLACE")
    ]
    windows = parse(SEARCH_REPLACE.replace("\n", "\r\n"), "search_replace")
    assert isinstance(windows[0], EditBlock)
    assert (windows[0].original, windows[0].proposed, windows[0].reason) == ("old words", "new words", "shorter")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<change><original>a", "unclosed"),
        ("<change><original> </original><proposed></proposed></change>", "empty"),
        ("<change><original>a</original><proposed>a</proposed></change>", "empty"),
        ("<change></change>", "garbled"),
        ("<change><original>a</original></change>", "garbled"),
        ("<change><original>a<proposed>b</proposed></change>", "garbled"),
        ("<change>so<original>a</original><proposed>b</proposed></change>", "garbled"),
        ("<change><original>a</original><original>a</original><proposed>b</proposed></change>", "garbled"),
        ("<change><original>" + "a" * 70_000, "too long"),
    ],
)
def test_f5_a_broken_block_is_text_with_a_reason(text: str, reason: str) -> None:
    parts = parse("Before. " + text + " After.")
    assert visible_text(parts) == "Before. " + text + " After."
    assert [part.reason for part in parts if isinstance(part, BrokenBlock)] == [reason]
    assert not [part for part in parts if isinstance(part, EditBlock)]


def test_f5_an_unclosed_block_at_the_end_is_text() -> None:
    text = "<change><original>a</original><proposed>b</proposed>\n"
    assert parse(text) == [TextPart(text), BrokenBlock("unclosed")]


def test_f5_a_nested_block_breaks_the_outer_one() -> None:
    parts = parse("<change><original>a" + CHANGE)
    assert parts == [
        TextPart("<change><original>a"),
        BrokenBlock("nested"),
        EditBlock("old words", "new words", "shorter", CHANGE),
    ]
    assert [type(part) for part in parse("<<<<<<< SEARCH\na\n" + SEARCH_REPLACE, "search_replace")] == [
        TextPart,
        BrokenBlock,
        EditBlock,
        TextPart,
    ]


def test_f5_a_fence_around_blocks_is_removed() -> None:
    assert visible_text(parse(f"So:\n```xml\n{CHANGE}\n{CHANGE}\n```\nDone.")) == "So:\n\n\nDone."
    assert visible_text(parse(f"```\n{CHANGE}\n```")) == "\n"


def test_f5_fences_of_code_and_of_broken_blocks_stay() -> None:
    code = "```python\nx = 1\n```\n"
    assert visible_text(parse(code + CHANGE + "\n" + code)) == code + "\n" + code
    broken = "```xml\n<change><original>a</change>\n```\n"
    assert visible_text(parse(broken)) == broken


def test_f5_parsing_takes_linear_time() -> None:
    """The held-back text stays short, however long the reply is."""
    parser = TagParser()
    longest = 0
    for part in ["<chang", "<", "```", "<change><original>", *["<orig"] * 3_000, "x"] * 3:
        parser.feed(part)
        longest = max(longest, len(parser._rest))
    assert longest <= len("</original>")


def test_f5_edits_in_json() -> None:
    reply = {"say": "Shorter.", "changes": [{"original": "a", "proposed": "b", "reason": "why"}] * 2}
    reply["changes"] = [*reply["changes"], {"original": "a", "proposed": "a", "reason": ""}]
    parts = parse(json.dumps(reply), "json")
    assert [(part.original, part.proposed, part.reason) for part in parts if isinstance(part, EditBlock)] == [
        ("a", "b", "why")
    ]
    assert visible_text(parts) == "Shorter."
    assert parse('{"say": "broken', "json") == [TextPart('{"say": "broken'), BrokenBlock("garbled")]
    assert parse("No JSON: " + CHANGE, "json") == parse("No JSON: " + CHANGE, "tags")


def test_f5_the_schema_lists_the_documents_sentences() -> None:
    document = "# Title here\n\nOne sentence stands. Another one stands!\n\n- An item of a list\n"
    document += "\n```\ncode stands here.\n```\n"
    assert quotable_sentences(document) == ["One sentence stands.", "Another one stands!", "An item of a list"]
    assert "One sentence stands." in json.dumps(reply_schema(document).definition)


def test_f5_fuzzed_streams() -> None:
    """A small run; `python -m bench.fuzz_stream` parses a million streams."""
    rng = random.Random(5)
    for _ in range(2_000):
        check(mangle(rng), rng)
