"""Reading changes out of a reply that is still being written. F5"""

from __future__ import annotations

import codecs
import itertools
import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.fuzz_stream import check, mangled
from coterie.modes.draft.edit_formats import (
    BrokenBlock,
    ChangeFormat,
    EditBlock,
    FenceStripper,
    ReplyParser,
    ReplyPart,
    ReplyText,
    SearchReplaceParser,
    TagParser,
    join_text,
    parse_reply,
    parser_for,
    quotable_sentences,
    reply_schema,
    visible_text,
)

CHANGE = "<change><original>\nold words\n</original>\n<proposed>new words</proposed><reason> shorter </reason></change>"
FENCED = "<<<<<<< SEARCH\nold words\n=======\nnew words\n>>>>>>> REPLACE shorter\n"

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
            FENCED,
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


def read(text: str, form: ChangeFormat = "tags") -> list[ReplyPart]:
    return parse_reply(text, form)


def cut(data: bytes, places: list[int], parser: ReplyParser) -> list[ReplyPart]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    pieces: list[ReplyPart] = []
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    for start, end in itertools.pairwise(edges):
        pieces += parser.feed(decoder.decode(data[start:end]))
    return join_text([*pieces, *parser.feed(decoder.decode(b"", final=True)), *parser.end()])


def small(form: ChangeFormat) -> ReplyParser:
    """With a cap that short texts meet too."""
    if form == "json":
        return parser_for(form)
    return FenceStripper(TagParser(max_length=150) if form == "tags" else SearchReplaceParser(max_length=150))


@given(text=fragments, places=st.lists(st.integers(0, 10_000), max_size=12), form=formats)
def test_f5_every_split_of_the_bytes_gives_the_same_pieces(text: str, places: list[int], form: ChangeFormat) -> None:
    data = text.encode("utf-8", "replace")
    whole = cut(data, [], small(form))
    assert cut(data, places, small(form)) == whole
    assert cut(data, list(range(len(data))), small(form)) == whole


@given(text=fragments, form=formats)
def test_f5_nothing_that_was_said_is_lost(text: str, form: ChangeFormat) -> None:
    for parser in (TagParser(max_length=90), SearchReplaceParser(max_length=90)):
        pieces = [*parser.feed(text), *parser.end()]
        said = "".join(
            p.text if isinstance(p, ReplyText) else p.raw if isinstance(p, EditBlock) else "" for p in pieces
        )
        assert said == text


@given(data=st.binary(max_size=80), form=formats)
def test_f5_bytes_that_are_no_text_do_no_harm(data: bytes, form: ChangeFormat) -> None:
    assert visible_text(cut(data, list(range(len(data))), parser_for(form))) == visible_text(
        cut(data, [], parser_for(form))
    )


def test_f5_a_change_is_there_the_moment_its_block_closes() -> None:
    parser = parser_for("tags")
    assert parser.feed("Sure. " + CHANGE[:-1]) == [ReplyText("Sure. ")]
    assert parser.feed(">") == [EditBlock("old words", "new words", "shorter", CHANGE)]
    assert parser.feed(" And") == [ReplyText(" And")]


def test_f5_only_what_could_begin_a_tag_is_held_back() -> None:
    parser = parser_for("tags")
    assert parser.feed("a < b, <cha") == [ReplyText("a < b, ")]
    assert parser.feed("pter>") == [ReplyText("<chapter>")]


def test_f5_search_and_replace() -> None:
    assert read("Sure.\n" + FENCED + "Good.", "search_replace") == [
        ReplyText("Sure.\n"),
        EditBlock("old words", "new words", "shorter", FENCED[:-1]),
        ReplyText("\nGood."),
    ]
    assert read("<<<<<<< SEARCH\n=======\nmore\n>>>>>>> REPLACE", "search_replace") == [
        EditBlock("", "more", "", "<<<<<<< SEARCH\n=======\nmore\n>>>>>>> REPLACE")
    ]
    windows = read(FENCED.replace("\n", "\r\n"), "search_replace")
    assert isinstance(windows[0], EditBlock)
    assert (windows[0].original, windows[0].proposed, windows[0].reason) == ("old words", "new words", "shorter")


@pytest.mark.parametrize(
    ("text", "why"),
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
def test_f5_a_spoilt_block_stays_visible_with_a_notice(text: str, why: str) -> None:
    pieces = read("Before. " + text + " After.")
    assert visible_text(pieces) == "Before. " + text + " After."
    assert [p.reason for p in pieces if isinstance(p, BrokenBlock)] == [why]
    assert not [p for p in pieces if isinstance(p, EditBlock)]


def test_f5_a_block_the_reply_ends_in_is_text() -> None:
    text = "<change><original>a</original><proposed>b</proposed>\n"
    assert read(text) == [ReplyText(text), BrokenBlock("unclosed")]


def test_f5_a_nested_change_abandons_the_outer() -> None:
    pieces = read("<change><original>a" + CHANGE)
    assert pieces == [
        ReplyText("<change><original>a"),
        BrokenBlock("nested"),
        EditBlock("old words", "new words", "shorter", CHANGE),
    ]
    assert [type(p) for p in read("<<<<<<< SEARCH\na\n" + FENCED, "search_replace")] == [
        ReplyText,
        BrokenBlock,
        EditBlock,
        ReplyText,
    ]


def test_f5_one_wrapping_fence_is_not_shown() -> None:
    assert visible_text(read(f"So:\n```xml\n{CHANGE}\n{CHANGE}\n```\nDone.")) == "So:\n\n\nDone."
    assert visible_text(read(f"```\n{CHANGE}\n```")) == "\n"


def test_f5_fences_of_code_and_of_spoilt_blocks_stay() -> None:
    code = "```python\nx = 1\n```\n"
    assert visible_text(read(code + CHANGE + "\n" + code)) == code + "\n" + code
    spoilt = "```xml\n<change><original>a</change>\n```\n"
    assert visible_text(read(spoilt)) == spoilt


def test_f5_time_grows_with_the_text_and_not_faster() -> None:
    """Counted in characters looked at, not in seconds: what is held back stays short, however long the reply."""
    parser = TagParser()
    longest = 0
    for piece in ["<chang", "<", "```", "<change><original>", *["<orig"] * 3_000, "x"] * 3:
        parser.feed(piece)
        longest = max(longest, len(parser._rest))
    assert longest <= len("</original>")


def test_f5_changes_as_json() -> None:
    told = {"say": "Shorter.", "changes": [{"original": "a", "proposed": "b", "reason": "why"}] * 2}
    told["changes"] = [*told["changes"], {"original": "a", "proposed": "a", "reason": ""}]
    pieces = read(json.dumps(told), "json")
    assert [(p.original, p.proposed, p.reason) for p in pieces if isinstance(p, EditBlock)] == [("a", "b", "why")]
    assert visible_text(pieces) == "Shorter."
    assert read('{"say": "broken', "json") == [ReplyText('{"say": "broken'), BrokenBlock("garbled")]
    assert read("No JSON: " + CHANGE, "json") == read("No JSON: " + CHANGE, "tags")


def test_f5_a_schema_names_the_documents_own_sentences() -> None:
    document = "# Title here\n\nOne sentence stands. Another one stands!\n\n- An item of a list\n"
    document += "\n```\ncode stands here.\n```\n"
    assert quotable_sentences(document) == ["One sentence stands.", "Another one stands!", "An item of a list"]
    assert "One sentence stands." in json.dumps(reply_schema(document).definition)


def test_f5_fuzzed_streams() -> None:
    """A million of them: `python -m bench.fuzz_stream`."""
    chance = random.Random(5)
    for _ in range(2_000):
        check(mangled(chance), chance)
