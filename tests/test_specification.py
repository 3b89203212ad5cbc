"""Every behaviour in docs/specification.md has a test, and tests name only known behaviours."""

from __future__ import annotations

from tools.reference.specification import Behaviour, behaviours, find_tests, numbered_tests, problems

KNOWN = [Behaviour("S1", "A.", built=True, missing=""), Behaviour("S2", "B.", built=False, missing="")]


def test_numbers_and_tests_agree() -> None:
    assert len(numbered_tests()) > 500
    assert problems(behaviours(), numbered_tests()) == []


def test_a_behaviour_without_a_test_is_reported() -> None:
    assert problems(KNOWN, []) == ["S1 has no test."]


def test_a_test_of_an_unknown_or_unbuilt_behaviour_is_reported() -> None:
    source = (
        "class Contract:\n    async def test_s1_s3_both(self): ...\n\ndef test_s2_early(): ...\n\ndef test_plain(): ..."
    )
    tests = list(find_tests(source, "tests/test_it.py"))
    assert [test.numbers for test in tests] == [("S1", "S3"), ("S2",)]
    assert problems(KNOWN, tests) == [
        "tests/test_it.py: test_s1_s3_both names S3, which is not a behaviour.",
        "S2 is listed as not built, and test_s2_early tests it.",
    ]


def test_numbers_are_listed_once_and_in_order() -> None:
    numbers = [(behaviour.number[0], int(behaviour.number[1:])) for behaviour in behaviours()]
    assert len(numbers) == len(set(numbers))
    letters = list(dict.fromkeys(letter for letter, _ in numbers))
    for letter in letters:
        own = [number for one, number in numbers if one == letter]
        assert own == list(range(1, len(own) + 1))
