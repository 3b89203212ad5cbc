"""S9: "decorators `@@name value`, `@@@` fallback"."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.characters.cards.lorebook import Decorators, split_decorators


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("@@depth 5\nLore", Decorators(depth=5)),
        ("@@unknown 4\n@@@depth 5\nLore", Decorators(depth=5)),
        ("@@depth 3\n@@@role user\nLore", Decorators(depth=3)),
        ("@@unknown\n@@@other\n@@@third 1\n@@@fourth\n@@@fifth\n@@@activate\nLore", Decorators(activate=True)),
        ("@@unknown\n@@@depth 1\n@@@depth 2\n@@@role user\nLore", Decorators(depth=1)),
        ("@@depth many\n@@@scan_depth 2\nLore", Decorators(scan_depth=2)),
        ("@@instruct_depth 9\n@@@depth 2\nLore", Decorators(depth=2)),
        ("@@depth 1\n@@depth 2\nLore", Decorators(depth=1)),
        ("@@additional_keys a, b ,c\nLore", Decorators(additional_keys=("a", "b", "c"))),
        ("@@role wizard\nLore", Decorators()),
        ("@@@depth 4\nLore", Decorators()),
        ("@@DEPTH 4\nLore", Decorators(depth=4)),
        ("Lore\n@@depth 4", Decorators(depth=4)),
    ],
)
def test_s9_decorators_and_fallbacks(content: str, expected: Decorators) -> None:
    assert split_decorators(content) == (expected, "Lore")


def test_s9_newlines_around_decorators_go_with_them() -> None:
    assert split_decorators("\n\n@@activate\n\n\nLore\n\nmore\n")[1] == "Lore\n\nmore"


@pytest.mark.parametrize("content", ["Lore", "", "\n a@@depth 4\n", "@@ 1,2 @@", "me@@example.com", "@ @depth 1"])
def test_text_without_decorators_is_left_alone(content: str) -> None:
    assert split_decorators(content) == (Decorators(), content)


@given(st.text(st.sampled_from("@ab_ 1\n\r,depth")))
def test_s9_no_decorator_ever_reaches_a_prompt(content: str) -> None:
    _, text = split_decorators(content)
    assert split_decorators(text) == (Decorators(), text)
