from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from coterie.modes.desk.text_safety import mark_untrusted
from coterie.surfaces.web.shared.prose import (
    MAX_BLOCK_MARKS,
    MAX_MARKS,
    _without_markup,
    clean_line,
    excerpt,
    render_block,
    render_prose,
    render_reply,
    split_blocks,
)

ALLOWED = {"div", "p", "em", "strong", "blockquote", "br", "span"}


class Seen(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[tuple[str, str | None]] = set()
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= set(attrs)


def test_s18_markdown_light() -> None:
    html = render_prose('*walks over* "Hey." **Now.** ((player note))\n\n> A quotation.\n\n# No heading, `no code`')
    assert "<em>walks over</em> “Hey.” <strong>Now.</strong>" in html
    assert '<span class="ooc">((player note))</span>' in html
    assert "<blockquote>" in html
    assert "<p># No heading, `no code`</p>" in html


def test_s11_the_note_marker_is_configurable() -> None:
    assert '<span class="ooc">[[note]]</span> ((not one))' in render_prose("[[note]] ((not one))", "[[")


@pytest.mark.parametrize(
    "hostile",
    ["<script>alert(1)</script>", '<img src=x onerror="alert(1)">', "[x](javascript:alert(1))", "![x](http://e/x.png)",
     "<svg/onload=alert(1)>", "<http://evil.example>", "[a]: javascript:alert(1)\n\n[a]", "</div><iframe src=//e>",
     "((<b onclick=x>))", "**<u>**", "&lt;script&gt;", "<!--", "&#60;script&#62;"],
)  # fmt: skip
def test_s18_hostile_text_is_escaped(hostile: str) -> None:
    assert Seen(render_prose(hostile)).tags <= ALLOWED
    assert "<script" not in render_prose(hostile)


@given(st.text(alphabet=st.sampled_from("ab *_\"'<>()[]!&#;\n\\>`:/=") | st.characters(), max_size=120))
def test_s18_law_only_allowed_tags_are_rendered(text: str) -> None:
    seen = Seen(render_prose(text))
    assert seen.tags <= ALLOWED
    assert seen.attributes <= {("class", "block"), ("dir", "auto"), ("class", "ooc")}


def test_direction_and_zero_width_characters_are_removed() -> None:
    html = render_prose("safe\u202etxt.exe \u200bhid\u2066den")
    assert "safetxt.exe hidden" in html
    assert clean_line("Ma\u202era\u200b\n") == "Mara"
    assert "👩‍👩" in render_prose("👩‍👩"), "joiners make one sign of two"


@given(st.lists(st.text("ab*> .", min_size=1, max_size=9).filter(str.strip), min_size=1, max_size=5))
def test_law_a_finished_block_does_not_change_when_text_is_added(parts: list[str]) -> None:
    text = "\n\n".join(parts)
    for end in range(1, len(text)):
        before, after = split_blocks(text[:end]), split_blocks(text)
        assert after[: max(0, len(before) - 1)] == before[:-1]
    assert render_prose(text) == "".join(
        f'<div class="block" dir="auto">{render_block(one)}</div>' for one in split_blocks(text)
    )


def test_a_line_without_marks() -> None:
    assert excerpt('*She nods.*\n\n"Come **in**."') == 'She nods. "Come in."'
    assert excerpt("send_mail: to __Bo__, _now_") == "send_mail: to Bo, now"
    assert excerpt("word " * 60, 20) == "word word word word…"


def _reference() -> MarkdownIt:
    """The same formatting with markdown-it's own quotation marks, which take quadratic time."""
    markdown = MarkdownIt("zero", {"html": False, "breaks": True, "typographer": True, "quotes": "“”‘’"})
    return markdown.enable(
        ["emphasis", "balance_pairs", "fragments_join", "blockquote", "newline", "smartquotes", "escape"]
    )


@given(st.lists(st.sampled_from(['"', "'", "*", "**", "_", "a", "1", " ", "\n", ".", "-", '\\"', "(", "“", "> "])))
def test_law_quotation_marks_are_those_of_markdown_it(parts: list[str]) -> None:
    text = "".join(parts)
    assert render_block(text, "[[") == _reference().render(text)


def test_a_block_full_of_marks_is_shown_without_formatting_but_escaped() -> None:
    block = "*a* <b>\n" * MAX_BLOCK_MARKS
    html = render_block(block)
    assert "<em>" not in html
    assert html.startswith("<p>*a* &lt;b&gt;<br />\n*a*")
    assert Seen(html).tags == {"p", "br"}


def test_after_very_many_marks_the_rest_of_a_text_is_shown_without_formatting() -> None:
    html = render_prose("\n\n".join(["*She nods.*"] * MAX_MARKS))
    assert html.startswith('<div class="block" dir="auto"><p><em>She nods.</em></p>')
    assert html.endswith('<div class="block" dir="auto"><p>*She nods.*</p>\n</div>')
    assert html.count("She nods.") == MAX_MARKS


def test_a_chapter_is_formatted_to_its_end() -> None:
    paragraph = '*She turns.* "I know," she says, "that it\'s late." ' * 12
    html = render_prose("\n\n".join([paragraph.strip()] * 100))
    assert html.count("<em>She turns.</em> “I know,” she says, “that it’s late.”") == 1_200


@given(st.text("ab *_\n\u200b", max_size=60), st.integers(1, 9), st.integers(0, 60))
def test_law_an_excerpt_does_not_depend_on_the_length_of_the_text(text: str, times: int, length: int) -> None:
    text = text * times
    line = _without_markup(text)
    assert excerpt(text, length + 2) == (line if len(line) <= length + 2 else line[: length + 1].rstrip() + "…")


def test_an_excerpt_begins_after_long_white_space() -> None:
    assert excerpt(" \n" * 50_000 + "*word* " * 20, 12) == "word word w…"


def test_replies_of_assistants_have_code_lists_tables_and_links() -> None:
    text = (
        "Done:\n\n- one\n- two\n\n```python\nif a < b:\n\n    print(1)\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n"
        "See [the page](https://example.org/x) and `code`."
    )
    html = render_reply(text)
    for part in ("<li>one</li>", "<pre><code", "if a &lt; b:\n\n    print(1)", "<td>1</td>", "<code>code</code>"):
        assert part in html
    assert 'href="https://example.org/x" rel="noreferrer noopener nofollow" target="_blank"' in html


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "[x](javascript:alert(1))",
        "![x](https://tracker.example/a.png)",
        "<img src=x onerror=alert(1)>",
        "[x](data:text/html,<script>alert(1)</script>)",
        "`" * 5_000 + "[" * 30_000,
    ],
)
def test_replies_of_assistants_run_and_load_nothing(text: str) -> None:
    html = render_reply(text)
    assert not re.search(r"<(script|img|iframe)|href=\"(javascript|data):", html, re.I)


def test_marks_of_untrusted_text_are_never_shown() -> None:
    marked = mark_untrusted("The parcel is late.", "mail")
    assert "〔" in marked
    for html in (render_reply(f"They wrote: {marked} That is all."), excerpt(marked)):
        assert "〔" not in html
        assert "The parcel is late." in html
