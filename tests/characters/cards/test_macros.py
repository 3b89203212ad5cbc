"""S9: "Macros, case-insensitive: `{{char}}` (nickname, else name), `{{user}}`, `<BOT>`, `<USER>`, `{{original}}`,
random, pick, roll, `//`, hidden_key, comment, reverse".
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.characters.cards import Macros


def macros(**more: Any) -> Macros:
    return Macros(**{"char": "Ada", "user": "Kim", "rng": random.Random(7), "seed": "chat-1", **more})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{char}} and {{user}}", "Ada and Kim"),
        ("{{CHAR}} {{ User }}", "Ada Kim"),
        ("<BOT> <bot> <USER> <user> <char>", "Ada Ada Kim Kim Ada"),
        ("a{{// not {said} }}b", "ab"),
        ("a{{//\nnot said\n}}b", "ab"),
        ("a{{hidden_key:whale}}b", "ab"),
        ("a{{comment: note}}b", "ab"),
        ("{{reverse:abc}}", "cba"),
        ("{{reverse:{{user}}}}", "miK"),
        ("{{random:same,same}}", "same"),
        ("{{random::same::same}}", "same"),
        (r"{{random:a\,b}}", "a,b"),
        ("{{pick:same,same}}", "same"),
        ("{{pick::same,same}}", "same"),
        ("{{roll:1}} {{roll:d1}} {{roll:D1}} {{roll:3d1}} {{roll:2d1+4}}", "1 1 1 3 6"),
        ("{{unknown}} {{char.name}} {{}}", "{{unknown}} {{char.name}} {{}}"),
        ("{{unknown:{{char}}}}", "{{unknown:Ada}}"),
        ("{{char", "{{char"),
        ("}} {{ {{char}}", "}} {{ Ada"),
        ("{ {char} } <b>", "{ {char} } <b>"),
        ("{{roll:0}} {{roll:many}} {{roll}} {{random}}", "{{roll:0}} {{roll:many}} {{roll}} {{random}}"),
    ],
)
def test_s9_macros(text: str, expected: str) -> None:
    assert macros().expand(text) == expected


def test_s9_original_is_the_replaced_text_once() -> None:
    assert macros(original="Be kind.").expand("{{Original}} Be brief.") == "Be kind. Be brief."
    assert macros(original="X").expand("{{original}}{{original}}") == "X"
    assert macros().expand("{{original}}Be brief.") == "Be brief."


def test_s9_random_uses_the_given_generator() -> None:
    text = "{{random:a,b,c,d,e,f,g,h}}" * 20
    assert macros().expand(text) == macros().expand(text)
    assert macros(rng=random.Random(8)).expand(text) != macros().expand(text)
    assert set(macros().expand("{{random:a,b,c}}" * 200)) == {"a", "b", "c"}


def test_s9_pick_is_stable_for_a_chat() -> None:
    text = "{{pick:a,b,c,d,e,f,g,h}}" * 20
    first = macros()
    assert first.expand(text) == first.expand(text) == macros(rng=random.Random(99)).expand(text)
    assert len(set(macros().expand(text))) > 1
    assert macros(seed="chat-2").expand(text) != macros().expand(text)


def test_s9_roll_is_between_one_and_the_sides() -> None:
    rolls = {int(macros(rng=random.Random(seed)).expand("{{roll:d6}}")) for seed in range(200)}
    assert rolls == {1, 2, 3, 4, 5, 6}
    assert all(1 <= int(macros(rng=random.Random(seed)).expand("{{roll:20}}")) <= 20 for seed in range(50))


def test_s9_comments_are_for_people_and_hidden_keys_for_lorebooks() -> None:
    text = "a{{comment: note}}{{hidden_key:whale}}{{// never}}"
    assert macros().expand(text, "display") == "anote"
    assert macros().expand(text, "scan") == "awhale"


def test_the_result_of_a_macro_is_not_expanded_again() -> None:
    odd = macros(char="{{user}}", user="{{original}},<BOT>", original="{{original}}{{char}}")
    assert odd.expand("{{char}}|{{user}}|{{original}}") == "{{user}}|{{original}},<BOT>|{{original}}{{char}}"
    assert odd.expand("{{random:{{user}}}}") == "{{original}},<BOT>"


@given(st.text(st.sampled_from("{}<>:,/\\ abcharuserondmpikl")))
def test_any_text_is_expanded_and_plain_text_is_kept(text: str) -> None:
    expanded = macros().expand(text)
    if "{{" not in text and "<" not in text:
        assert expanded == text


@pytest.mark.parametrize("text", ["{{" * 100_000, "}}" * 100_000, "{{random:" * 50_000 + "a" + "}}" * 50_000])
def test_deep_nesting_is_bounded(text: str) -> None:
    assert len(macros().expand(text)) <= len(text)
