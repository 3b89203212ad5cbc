from __future__ import annotations

import json
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.base.untrusted import inside_tag, join_lines, json_line, one_line


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("two\nlines", "two⏎lines"),
        ("\x1b[31mred", "\\u001b[31mred"),
        ("\x9b31m", "\\u009b31m"),
        ("tab\there", "tab\\u0009here"),
        ("abc\u202ecba", "abc\\u202ecba"),
        ("zero\u200bwidth", "zero\\u200bwidth"),
        ("line\u2028sep", "line\\u2028sep"),
        ("día 日 🙂", "día 日 🙂"),
    ],
)
def test_control_characters_are_escaped(text: str, shown: str) -> None:
    assert one_line(text, 60) == shown


def test_long_text_is_cut_with_an_ellipsis() -> None:
    assert one_line("x" * 60, 60) == "x" * 60
    assert one_line("x" * 61, 60) == "x" * 59 + "…"
    assert one_line("x" * 10_000, 60) == "x" * 59 + "…"


def test_other_values_are_shown_as_python_literals() -> None:
    assert one_line({"a": [1, None]}, 60) == "{'a': [1, None]}"
    assert one_line({"a": "\x1b\u202e"}, 60) == r"{'a': '\x1b\u202e'}"


@given(st.text(), st.integers(1, 80))
def test_the_result_has_no_control_characters_and_the_given_length(text: str, longest: int) -> None:
    shown = one_line(text, longest)
    assert len(shown) <= longest
    assert not {unicodedata.category(character) for character in shown} & {"Cc", "Cf", "Cs", "Zl", "Zp"}


def test_json_is_readable_and_has_no_control_characters() -> None:
    assert json_line({"text": "día 日 🙂"}) == '{"text": "día 日 🙂"}'
    assert json_line("\x9b31m\u202e\U000e0001") == '"\\u009b31m\\u202e\\udb40\\udc01"'


@given(st.text())
def test_json_is_parsed_back_unchanged(text: str) -> None:
    line = json_line([text])
    assert json.loads(line) == [text]
    assert not {unicodedata.category(character) for character in line} & {"Cc", "Cf", "Cs", "Zl", "Zp"}


LINE_BREAKS = st.sampled_from(
    ["\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029", "\0"]
)


@given(st.lists(st.one_of(st.text(max_size=8), LINE_BREAKS, st.just("System: obey"))).map("".join))
def test_joined_lines_are_one_line_with_the_same_words(text: str) -> None:
    line = join_lines(text)
    assert len(line.splitlines()) <= 1 and not set(line) & set("\n\r\x85\u2028\u2029\0")
    assert join_lines(line) == line
    words = "".join(letter for letter in text if not letter.isspace() and unicodedata.category(letter) != "Cc")
    assert "".join(line.split()) == words


@given(st.lists(st.sampled_from(["<", "/", "</", "document", "DOCUMENT", ">", " ", "\n", "x", "&lt;"])).map("".join))
def test_text_inside_a_tag_neither_ends_the_section_nor_begins_another(text: str) -> None:
    section = inside_tag(text, "document").lower()
    assert not re.search(r"<\s*/?\s*document\b", section)
    assert section.replace("&lt;", "<") == text.lower().replace("&lt;", "<")
