"""Markdown in Telegram's HTML."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.surfaces.telegram.markup import to_html
from tests.surfaces.telegram.bot_api import Refusal, _parse

CASES = {
    "plain & <b>simple</b>": "plain &amp; &lt;b&gt;simple&lt;/b&gt;",
    "**bold** *it* ~~no~~ `x<y`": "<b>bold</b> <i>it</i> <s>no</s> <code>x&lt;y</code>",
    "# Title\ntext": "<b>Title</b>\n\ntext",
    "one\ntwo\n\nthree": "one\ntwo\n\nthree",
    "- a\n- b\n  - c\n\nend": "• a\n• b\n  • c\n\nend",
    "3. x\n4. y": "3. x\n4. y",
    "> said\n> so\n\nend": "<blockquote>said\nso</blockquote>\n\nend",
    "```py\na < b\n```": '<pre><code class="language-py">a &lt; b</code></pre>',
    "[here](https://x.org/?a=1&b=2)": '<a href="https://x.org/?a=1&amp;b=2">here</a>',
    "[bad](javascript:alert(1))": "[bad](javascript:alert(1))",
}


@pytest.mark.parametrize("text", CASES)
def test_p13_markdown_becomes_telegrams_html(text: str) -> None:
    assert to_html(text) == CASES[text]


@given(
    st.lists(
        st.sampled_from(
            ["*", "**", "_", "`", "```\n", "> ", "- ", "1. ", "# ", "\n", "\n\n", "[a](https://b)", "<", "x "]
        ),
        max_size=40,
    ).map("".join)
)
def test_p13_any_markdown_is_html_that_telegram_reads(text: str) -> None:
    html = to_html(text)
    try:
        _parse({"text": html, "parse_mode": "HTML"})
    except Refusal as refusal:
        assert "is empty" in str(refusal), (text, html)
