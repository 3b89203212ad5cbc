"""S9: "Lorebooks (character_book) work in the prompt with keys, secondary keys, constant, insertion order,
position, priority, token budget."
"""

from __future__ import annotations

import random
from typing import Any

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from coterie.characters.cards import Lorebook, LoreContext, LoreResult, Macros, find_lore, find_lore_in
from coterie.characters.cards.lore_scan import KeyMatcher, _has_word
from coterie.characters.cards.parsing import Document
from coterie.characters.errors import NotACard


def entry(content: str, *keys: str, **more: Any) -> Document:
    return {"keys": list(keys), "content": content, "enabled": True, "insertion_order": 0, "extensions": {}, **more}


def look(entries: list[Document], *messages: str, book: Document | None = None, **moment: Any) -> LoreResult:
    lorebook = Lorebook(document={"extensions": {}, **(book or {}), "entries": entries})
    return find_lore(lorebook, LoreContext(messages, **moment), count_tokens=lambda text: len(text.split()))


def matched(entries: list[Document], *messages: str, **more: Any) -> list[str]:
    return [lore.text for lore in look(entries, *messages, **more).included]


def test_s9_keys_match_in_any_case() -> None:
    lamp = entry("Oil.", "Lamp", "lantern")
    assert matched([lamp], "She lights the LAMP.") == ["Oil."]
    assert matched([lamp], "Two lanterns.") == ["Oil."]
    assert matched([lamp], "It is dark.") == []


def test_s9_case_sensitive() -> None:
    assert matched([entry("x", "Hope", case_sensitive=True)], "I hope so.") == []
    assert matched([entry("x", "Hope", case_sensitive=True)], "This is Hope.") == ["x"]


@pytest.mark.parametrize("secondary", [["sea", "coast"], "sea, coast"])
def test_s9_secondary_keys_as_array_or_comma_list_with_selective(secondary: object) -> None:
    both = entry("x", "lamp", selective=True, secondary_keys=secondary)
    assert matched([both], "a lamp") == []
    assert matched([both], "a lamp on the coast") == ["x"]
    assert matched([entry("x", "lamp", selective=False, secondary_keys=secondary)], "a lamp") == ["x"]


@pytest.mark.parametrize(
    ("logic", "message", "expected"),
    [
        (0, "k a", True),
        (1, "k a b", False),
        (1, "k a", True),
        (2, "k a", False),
        (2, "k", True),
        (3, "k a", False),
        (3, "k a b", True),
    ],
)
def test_s9_secondary_keys_follow_the_logic_of_sillytavern(logic: int, message: str, expected: bool) -> None:
    one = entry("x", "k", selective=True, secondary_keys=["a", "b"], extensions={"selectiveLogic": logic})
    assert bool(matched([one], message)) is expected


def test_s9_constant_needs_no_key_and_disabled_never_matches() -> None:
    assert matched([entry("x", constant=True)], "anything") == ["x"]
    assert matched([entry("x", constant=True)]) == ["x"]
    assert matched([entry("x", "k", constant=True, enabled=False)], "k") == []
    assert matched([entry("  ", constant=True)], "k") == []


def test_s9_insertion_order_low_is_earlier() -> None:
    entries = [
        entry("c", "k", insertion_order=3),
        entry("a", "k", insertion_order=-1),
        entry("b", "k", insertion_order=2),
    ]
    assert matched(entries, "k") == ["a", "b", "c"]


def test_s9_position_before_or_after_the_character() -> None:
    found = look([entry("x", "k", position="before_char"), entry("y", "k", position="after_char")], "k")
    assert [(lore.text, lore.position) for lore in found.included] == [("x", "before_char"), ("y", "after_char")]


def test_s9_scan_depth_counts_from_the_newest() -> None:
    lamp = entry("x", "lamp")
    messages = ["lamp", "one", "two"]
    assert matched([lamp], *messages, book={"scan_depth": 2}) == []
    assert matched([lamp], *messages, book={"scan_depth": 3}) == ["x"]
    assert matched([lamp], "lamp", book={"scan_depth": 0}) == []
    assert matched([entry("@@scan_depth 3\nx", "lamp")], *messages, book={"scan_depth": 1}) == ["x"]


def test_s9_recursive_scanning() -> None:
    chain = [
        entry("The lamp burns oil.", "lamp"),
        entry("Oil comes from whales.", "oil"),
        entry("Whales sing.", "whales"),
    ]
    assert matched(chain, "lamp", book={"recursive_scanning": True}) == [one["content"] for one in chain]
    assert matched(chain, "lamp", book={"recursive_scanning": False}) == ["The lamp burns oil."]
    circle = [entry("b", "a"), entry("a", "b")]
    assert matched(circle, "a", book={"recursive_scanning": True}) == ["b", "a"]


def test_s9_hidden_keys_match_only_from_lore_and_comments_never() -> None:
    macros = Macros(char="Ada", user="Kim", rng=random.Random(1))
    entries = [entry("Oil{{hidden_key:whale}}{{// shark}}", "lamp"), entry("Sing", "whale"), entry("Bite", "shark")]
    assert matched(entries, "lamp", book={"recursive_scanning": True}, macros=macros) == ["Oil", "Sing"]


def test_s9_token_budget_drops_low_priority_first() -> None:
    entries = [
        entry("one one", "k", priority=5, insertion_order=1),
        entry("two two", "k", priority=1, insertion_order=2),
        entry("three three", "k", priority=9, insertion_order=3),
    ]
    found = look(entries, "k", book={"token_budget": 4})
    assert [lore.text for lore in found.included] == ["one one", "three three"]
    assert [(lore.text, lore.tokens) for lore in found.left_out] == [("two two", 2)]
    assert matched(entries, "k", book={"token_budget": 0}) == []
    assert len(matched(entries, "k")) == 3


def test_s9_without_priority_low_insertion_order_is_dropped_first() -> None:
    entries = [entry("first", "k", insertion_order=1), entry("last", "k", insertion_order=9)]
    assert matched(entries, "k", book={"token_budget": 1}) == ["last"]


def test_s9_an_entry_over_the_budget_displaces_no_other() -> None:
    entries = [entry("far too long for it", "k", priority=9), entry("short", "k", priority=1)]
    assert matched(entries, "k", book={"token_budget": 2}) == ["short"]


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5), st.integers(-5, 5)), max_size=12),
    st.integers(0, 30),
)
def test_s9_the_budget_holds_and_importance_decides(sizes: list[tuple[int, int, int]], budget: int) -> None:
    entries = [
        entry(" ".join(["w"] * size), "k", priority=priority, insertion_order=order) for size, priority, order in sizes
    ]
    found = look(entries, "k", book={"token_budget": budget})
    assert sum(lore.tokens for lore in found.included) <= budget
    orders = [lore.entry.insertion_order for lore in found.included]
    assert orders == sorted(orders)
    for dropped in found.left_out:
        if dropped.tokens <= budget:
            assert all((kept.entry.priority or 0) >= (dropped.entry.priority or 0) for kept in found.included)


def test_s9_use_regex() -> None:
    assert matched([entry("x", r"l[ae]mps?\b", use_regex=True)], "the LEMP") == ["x"]
    assert matched([entry("x", r"/l.mp/s", use_regex=True)], "the L\nMP") == []
    assert matched([entry("x", r"/l.mp/is", use_regex=True)], "the L\nMP") == ["x"]
    assert matched([entry("x", "c.t")], "cat") == []


def test_s9_an_invalid_pattern_does_not_match_and_is_reported() -> None:
    found = look([entry("x", "(", use_regex=True)], "(")
    assert found.included == []
    assert "(" in found.refused_keys


@pytest.mark.parametrize(
    "pattern",
    [
        r"(a+)+$",
        r"(a|aa)+$",
        r"(a|a?)+$",
        r"(.*a){25}$",
        r"(?:(?:a{999}){999}){999}",
        r"(?R)",
        r"((a*)*)*\2$",
        "(" * 1_500,
        "(?:" * 400 + "a" + ")*" * 400,
        "a" * 3_000,
    ],
)
def test_s9_a_catastrophic_pattern_does_not_hang(pattern: str) -> None:
    book = [entry(f"{number}", f"{pattern}(?#{number})", use_regex=True) for number in range(40)]
    found = look([*book, entry("sound", "a")], "a" * 4_000 + "b")
    assert found.included[-1].text == "sound"


def test_s9_with_patterns_secondary_keys_and_constant_are_ignored_as_v3_says() -> None:
    assert matched([entry("x", "k", use_regex=True, selective=True, secondary_keys=["z"])], "k") == ["x"]
    assert matched([entry("x", "k", use_regex=True, constant=True)], "z") == []


def test_s9_entries_that_sillytavern_marked_as_patterns_keep_their_meaning() -> None:
    """It sets `use_regex` on everything it exports."""
    tavern = {"use_regex": True, "extensions": {"selectiveLogic": 0, "display_index": 1}}
    assert matched([entry("x", "Mr. X (old)", **tavern)], "mr. x (old) came") == ["x"]
    assert matched([entry("x", **tavern, constant=True)], "nothing") == ["x"]
    assert matched([entry("x", "/mr.x/i", **tavern)], "MR X") == ["x"]


def test_s9_whole_words_when_an_entry_asks_for_them() -> None:
    elf = entry("x", "elf", extensions={"match_whole_words": True})
    assert matched([elf], "herself") == []
    assert matched([elf], "an Elf!") == ["x"]


def test_macros_in_keys_are_expanded() -> None:
    macros = Macros(char="Ada", user="Kim", rng=random.Random(1))
    assert matched([entry("{{char}} knows {{user}}", "{{user}}")], "I am Kim", macros=macros) == ["Ada knows Kim"]


@pytest.mark.parametrize(
    ("decorator", "moment", "expected"),
    [
        ("@@activate_only_after 3", {"replies": 2}, False),
        ("@@activate_only_after 3", {"replies": 3}, True),
        ("@@activate_only_every 2", {"replies": 3}, False),
        ("@@activate_only_every 2", {"replies": 4}, True),
        ("@@dont_activate", {}, False),
        ("@@dont_activate_after_match", {"matched_before": {("", "at-0"): 0}}, False),
        ("@@dont_activate_after_match", {}, True),
        ("@@is_greeting 1", {"greeting": 0}, False),
        ("@@is_greeting 1", {"greeting": 1}, True),
        ("@@is_greeting 1", {}, True),
        ("@@is_user_icon hat", {"user_icon": "coat"}, False),
        ("@@ignore_on_max_context", {"context_full": True}, False),
        ("@@ignore_on_max_context", {"context_full": False}, True),
        ("@@additional_keys sea,coast", {}, False),
        ("@@additional_keys sea,word", {}, True),
        ("@@exclude_keys sea,word", {}, False),
        ("@@exclude_keys sea", {}, True),
    ],
)
def test_s9_decorators_for_conditions(decorator: str, moment: dict[str, Any], expected: bool) -> None:
    assert matched([entry(f"{decorator}\n\nx", "key")], "key word", **moment) == (["x"] if expected else [])


@pytest.mark.parametrize(
    ("decorator", "moment"),
    [
        ("@@activate", {}),
        ("@@dont_activate\n@@activate", {}),
        ("@@keep_activate_after_match", {"matched_before": {("", "at-0"): 0}}),
    ],
)
def test_s9_decorators_that_need_no_key(decorator: str, moment: dict[str, Any]) -> None:
    assert matched([entry(f"{decorator}\nx", "key")], "nothing", **moment) == ["x"]


@pytest.mark.parametrize(
    ("decorator", "spot", "depth", "role"),
    [
        ("@@depth 2", "at_depth", 2, "system"),
        ("@@depth 99", "at_depth", 3, "system"),
        ("@@depth -4", "at_depth", 0, "system"),
        ("@@depth 1\n@@role user", "at_depth", 1, "user"),
        ("@@reverse_depth 1", "at_depth", 2, "system"),
        ("@@position scenario\n@@depth 1", "scenario", 1, "system"),
        ("@@position nowhere\n@@depth 1", "at_depth", 1, "system"),
    ],
)
def test_s9_decorators_for_the_position(decorator: str, spot: str, depth: int, role: str) -> None:
    (lore,) = look([entry(f"{decorator}\nx", "key")], "a", "b", "key").included
    assert (lore.position, lore.depth, lore.role, lore.text) == (spot, depth, role, "x")


def test_every_match_has_a_reason() -> None:
    found = look(
        [entry("a lamp", "key"), entry("b", constant=True), entry("c", "lamp")],
        "key",
        book={"recursive_scanning": True},
    )
    assert [lore.why for lore in found.included] == ["“key” said", "constant", "“lamp” in other lore"]


def timed(count: int, last: int | None = None, **extensions: Any) -> list[str]:
    """What a scan uses when the chat has so many messages, and the entry last matched at `last`."""
    lamp = entry("x", "lamp", extensions=extensions)
    before = {} if last is None else {("", "at-0"): last}
    said = "the lamp" if count % 2 else "nothing"
    return matched([lamp], said, message_count=count, matched_before=before)


def test_s9_a_sticky_entry_stays_for_some_messages() -> None:
    assert timed(1, sticky=3) == ["x"]
    assert timed(2, 1, sticky=3) == ["x"]
    assert timed(4, 1, sticky=3) == []
    assert timed(2, 1) == []


def test_s9_a_cooldown_begins_after_the_stickiness() -> None:
    assert timed(3, 1, cooldown=2) == ["x"]
    assert timed(3, 1, cooldown=3) == []
    assert timed(5, 1, cooldown=2, sticky=3) == []
    assert timed(7, 1, cooldown=2, sticky=3) == ["x"]
    assert timed(1, 1, cooldown=9) == ["x"]  # the same message again: another reply to it is asked for


def test_s9_a_delayed_entry_waits_for_a_number_of_messages() -> None:
    assert timed(3, delay=4) == []
    assert timed(5, delay=4) == ["x"]


@given(st.integers(0, 100), st.text("ab", min_size=1, max_size=3))
def test_s9_probability_is_decided_by_the_seed_alone(percent: int, seed: str) -> None:
    lamp = entry("x", "lamp", extensions={"probability": percent, "useProbability": True})
    found = look([lamp], "lamp", seed=seed)
    assert found.included == look([lamp], "lamp", seed=seed).included
    assert bool(found.included) is (percent == 100 or f"chance of {percent}" not in found.skipped.get(("", "at-0"), ""))
    if percent in (0, 100):
        assert bool(found.included) is (percent == 100)
    unused = entry("x", "lamp", extensions={"probability": percent, "useProbability": False})
    assert matched([unused], "lamp", seed=seed) == ["x"]


def test_s9_a_probability_holds_on_average() -> None:
    lamp = entry("x", "lamp", extensions={"probability": 30})
    count = sum(bool(matched([lamp], "lamp", seed=f"turn {number}")) for number in range(2_000))
    assert 500 < count < 700


def grouped(content: str, *keys: str, **extensions: Any) -> Document:
    return entry(content, *keys, extensions={"group": "weather", **extensions}, comment=content)


def test_s9_one_entry_of_a_group_is_used_according_to_the_weights() -> None:
    entries = [grouped("rain", "sky", group_weight=300), grouped("sun", "sky")]
    shown = [matched(entries, "the sky", seed=f"turn {number}") for number in range(400)]
    assert all(len(one) == 1 for one in shown)
    assert 250 < shown.count(["rain"]) < 350
    found = look(entries, "the sky", seed="s")
    assert list(found.skipped.values()) == [f"“{found.included[0].text}” was chosen from the group “weather”"]


def test_s9_an_override_or_more_keys_decide_a_group() -> None:
    entries = [grouped("rain", "sky"), grouped("sun", "sky", group_override=True), grouped("fog", "sky")]
    assert {matched(entries, "the sky", seed=seed)[0] for seed in "abcdef"} == {"sun"}
    scored = [
        grouped("rain", "sky", "grey", use_group_scoring=True),
        grouped("sun", "sky", "blue", use_group_scoring=True),
    ]
    assert {matched(scored, "the grey sky", seed=seed)[0] for seed in "abcdef"} == {"rain"}


def test_s9_a_group_that_has_its_entry_takes_no_other_from_recursion() -> None:
    entries = [grouped("rain and whales", "sky"), grouped("sun", "whales")]
    assert matched(entries, "the sky", book={"recursive_scanning": True}) == ["rain and whales"]


def test_s9_a_delayed_recursion_is_found_only_in_other_lore() -> None:
    entries = [
        entry("The lamp burns oil.", "lamp"),
        entry("Oil is dear.", "oil", extensions={"delay_until_recursion": True}),
    ]
    assert matched(entries, "oil", book={"recursive_scanning": True}) == []
    assert matched(entries, "lamp", book={"recursive_scanning": True}) == ["The lamp burns oil.", "Oil is dear."]
    assert look(entries, "lamp").skipped[("", "at-1")].startswith("it is only found in other lore")


def test_s9_recursion_can_be_switched_off_for_an_entry() -> None:
    silent = entry("oil", "lamp", extensions={"prevent_recursion": True})
    assert matched([silent, entry("x", "oil")], "lamp", book={"recursive_scanning": True}) == ["oil"]
    deaf = entry("x", "oil", extensions={"exclude_recursion": True})
    assert matched([entry("oil", "lamp"), deaf], "lamp", book={"recursive_scanning": True}) == ["oil"]


def test_s9_several_books_have_a_budget_each_and_one_order() -> None:
    books = {
        "a": Lorebook.read({"entries": [entry("one", "k", insertion_order=2)], "token_budget": 0}),
        "b": Lorebook.read({"entries": [entry("two", "k", insertion_order=3)]}),
        "c": Lorebook.read({"entries": [entry("three", "k", insertion_order=1)]}),
    }
    found = find_lore_in(books, LoreContext(["k"]), len)
    assert [(one.book, one.text) for one in found.included] == [("c", "three"), ("b", "two")]
    assert "budget" in found.skipped["a", "at-0"]


WORLD_INFO: Document = {
    "entries": {
        "0": {
            "uid": 0,
            "key": ["lamp"],
            "keysecondary": ["oil"],
            "selective": True,
            "content": "x",
            "order": 5,
            "disable": False,
            "position": 0,
            "comment": "Lamp",
            "probability": 80,
        },
        "7": {"uid": 7, "key": ["lamp"], "content": "y", "disable": True, "position": 4, "depth": 2, "role": 1},
    },
    "name": "Coast",
}


def test_s9_sillytavern_world_info_is_read() -> None:
    book = Lorebook.read(WORLD_INFO)
    first, second = book.entries
    assert (first.keys, first.secondary_keys, first.insertion_order, first.enabled) == (["lamp"], ["oil"], 5, True)
    assert (first.position, first.name, first.id) == ("before_char", "Lamp", "0")
    assert (second.enabled, second.position, second.depth, second.role) == (False, "at_depth", 2, "user")
    assert [lore.text for lore in find_lore(book, LoreContext(["lamp oil"]), len).included] == ["x"]


def test_s9_world_info_becomes_a_stand_alone_book_that_reads_the_same() -> None:
    before = Lorebook.read(WORLD_INFO)
    document = before.standalone()
    assert document["spec"] == "lorebook_v3"
    assert document["data"]["entries"][0]["extensions"]["probability"] == 80
    assert Lorebook.read(document).entries == before.entries


def test_s9_a_stand_alone_book_is_read_and_written_as_it_was() -> None:
    document = {"spec": "lorebook_v3", "data": {"name": "Coast", "x": 1, "entries": [entry("x", "k", y=2)]}}
    assert Lorebook.read(document).standalone() == document


@pytest.mark.parametrize("document", [{}, {"spec": "lorebook_v3"}, {"spec": "lorebook_v3", "data": 5}, {"entries": 5}])
def test_s9_an_invalid_lorebook_is_refused(document: Document) -> None:
    with pytest.raises(NotACard, match="entries"):
        Lorebook.read(document)


def test_invalid_entries_are_skipped() -> None:
    book = Lorebook(document={"entries": [None, 5, entry("x", "k", insertion_order="7", id=None, priority="high")]})
    (only,) = book.entries
    assert (only.insertion_order, only.priority, only.index) == (7, None, 2)


@given(st.text("ab_ é1", min_size=1, max_size=4), st.text("ab_ é1", max_size=20))
def test_law_a_whole_word_is_one_without_letters_beside_it(key: str, text: str) -> None:
    assert _has_word(key, text) == (regex.search(rf"(?<!\w){regex.escape(key)}(?!\w)", text) is not None)


def test_all_keys_of_a_scan_have_one_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coterie.characters.cards.lore_scan.SCAN_SECONDS", 0.0)
    book = Lorebook.read({"entries": [{"keys": ["lamp"], "content": "Light."}, {"keys": ["sea"], "content": "Salt."}]})
    result = find_lore(book, LoreContext(["the lamp by the sea"]), len)
    assert result.included == []
    assert set(result.refused_keys) == {"lamp", "sea"}
    assert "too long together" in result.refused_keys["lamp"]


@pytest.mark.parametrize(
    "pattern",
    ["(a+)+$", "(a|aa)+$", "(.*a){20}$", "(?:a?){50}a{50}", r"^(\w+\s?)*$", "(.*)*y", r"(\s*)+x", "(?i)(a+)+$",
     "(?:abcdefgh){e<=8}z", "(?:a{70}){70}", r"\p{L}*\p{N}+$", "(?:" * 250 + "a" + ")+" * 250 + "b", "(?fi)(s|ss)+b"],
)  # fmt: skip
def test_a_pattern_that_backtracks_ends(pattern: str) -> None:
    """The limit is tested by the test's own time limit: without it, most of these take years."""
    entry = Lorebook.read({"entries": [{"keys": [pattern], "use_regex": True, "content": "Lore"}]}).entries[0]
    for text in ("a" * 50 + "!", "a" * 200_000 + "!", " " * 200_000, "ss" * 100_000):
        matcher = KeyMatcher()
        assert not matcher.is_match(pattern, text, entry) or not matcher.refused


def test_a_key_of_any_length_takes_no_longer_than_a_scan_may() -> None:
    """Searching for whole words took quadratic time if a long key was repeated in the text."""
    entry = {"keys": ["a" * 100_000], "content": "x", "extensions": {"match_whole_words": True}}
    result = find_lore(Lorebook.read({"entries": [entry]}), LoreContext(["a" * 200_000]), len)
    assert not result.included
    assert "longer than 2,000 characters" in next(iter(result.refused_keys.values()))
