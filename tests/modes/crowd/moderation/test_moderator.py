"""C16: disguised words are found, harmless ones pass, personal data is redacted, and findings name their rule."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.lib.evasion_messages import evasions, innocents
from coterie.base.errors import ConfigError
from coterie.modes.crowd.moderation import ModerationPolicy, Moderator, read_wordlists
from coterie.modes.crowd.moderation.moderator import MessageScanner, linked_hosts, redact
from coterie.modes.crowd.moderation.wordlist import alternative_readings, fold
from coterie.modes.crowd.settings import SHIPPED_CONFIGS

_PRIVATE = (
    "ana@example.org",
    "ana (at) example (dot) org",
    "ana at example dot com",
    "+49 170 1234567",
    "12 Baker Street",
    "Hauptstraße 5",
    "sk-abcdefghijklmnopqrstuvwx",
    "pin: 1234",
)


@pytest.fixture(scope="module")
def moderator() -> Moderator:
    return Moderator(read_wordlists([SHIPPED_CONFIGS / "moderation"]))


@pytest.fixture
def own(tmp_path: Path) -> Moderator:
    """A moderator that forbids a harmless word."""
    (tmp_path / "own.txt").write_text("# severity: 2\n# reason: Not here.\nbanana\nplum*\n*kiwi*\nno way\n")
    return Moderator(read_wordlists([tmp_path]))


@pytest.mark.parametrize(
    "text",
    [
        "BaNaNa",
        "b4n4na",
        "b\u200ban\u200bana",
        "bаnаnа",
        "ｂａｎａｎａ",
        "baaaaanana",
        "b a n a n a",
        "a b.a.n.a.n.a",
        "ban.ana",
        "b*n*na",
        "bánàña",
        "ban·ana",
        "i b 4 n 4 n 4",
        "bananas!",
        "NO   WAY".replace("   ", " "),
        "plummeting",
        "akiwied",
    ],
)
def test_c16_a_disguised_word_is_found(own: Moderator, text: str) -> None:
    refusal = own.check(text).refusal
    assert refusal is not None
    assert (refusal.rule, refusal.reason) == ("blocklist:own", "Not here.")


@pytest.mark.parametrize("text", ["bandanas", "abananas", "aplum", "snow ways", "B4 NAN4", "b, an, ana", ""])
def test_c16_word_boundaries_hold(own: Moderator, text: str) -> None:
    assert own.check(text).findings == ()


def test_c16_evasions_are_caught_and_scunthorpe_passes(moderator: Moderator) -> None:
    words = sorted(
        entry.text
        for each in read_wordlists([SHIPPED_CONFIGS / "moderation"])
        if each.severity > 1
        for entry in each.entries
        if entry.text.isalpha() and len(entry.text) >= 4
    )
    tried = evasions(words, seed=3, many=600)
    assert sum(moderator.check(text).refusal is not None for _, text in tried) / 600 >= 0.95
    assert [text for text in innocents(seed=4, many=600) if moderator.check(text).refusal is not None] == []


def test_c16_the_policy_decides_by_severity() -> None:
    lists = read_wordlists([SHIPPED_CONFIGS / "moderation"])
    lenient = Moderator(lists, ModerationPolicy(mild="allow", coarse="flag"))
    assert [f.action for f in Moderator(lists).check("oh damn").findings] == ["flagged"]
    assert lenient.check("oh damn").findings == ()
    assert Moderator(lists).check("oh damn", strict=True).refusal is not None


@pytest.mark.parametrize(
    ("text", "shown", "rule"),
    [
        ("write to ana.b+x@mail.example.org now", "write to [email] now", "redact:email"),
        ("ana (at) example (dot) org", "[email]", "redact:email"),
        ("call +49 170 1234567", "call [phone]", "redact:phone"),
        ("call (0461) 123 456 tonight", "call [phone] tonight", "redact:phone"),
        ("I live at 221 Baker Street, flat 2", "I live at [address]", "redact:address"),
        ("Lindenstraße 14 ist es", "[address] ist es", "redact:address"),
        ("key sk-abcdefghij0123456789xyz", "key [secret]", "redact:key"),
        ("my card is 4111 1111 1111 1111", "my card is [card]", "redact:key"),
    ],
)
def test_c16_personal_data_is_redacted(moderator: Moderator, text: str, shown: str, rule: str) -> None:
    verdict = moderator.check(text)
    assert verdict.text == shown
    assert [finding.rule for finding in verdict.findings] == [rule]
    assert not any(word in finding.reason for finding in verdict.findings for word in text.split() if len(word) > 8)


@pytest.mark.parametrize(
    "text",
    [
        "it is 2026-01-02 today",
        "he has 1000 hp and 20 mana",
        "3-0 at half time",
        "the 90s",
        "10:30 works",
        "at 99 % now",
    ],
)
def test_c16_ordinary_numbers_stay(moderator: Moderator, text: str) -> None:
    assert moderator.check(text).text == text


@given(st.text(alphabet=st.sampled_from("ab1 23-+@.()x79 Street"), max_size=60))
def test_c16_redaction_is_idempotent(text: str) -> None:
    once = redact(text).text
    assert redact(once).text == once


@given(st.text(max_size=200))
def test_c16_no_text_raises(text: str) -> None:
    Moderator(read_wordlists([SHIPPED_CONFIGS / "moderation"])).check(text)


_CHAT = st.text(st.sampled_from("aabikls 1455@$!.-'*_|+  "), max_size=24)
_LOOK = MessageScanner(read_wordlists([SHIPPED_CONFIGS / "moderation"]))


@given(_CHAT)
def test_c16_the_scan_misses_no_disguise(text: str) -> None:
    plain = fold(text)
    assert _LOOK.scan(plain).disguises or not list(alternative_readings(plain))


@given(st.lists(st.sampled_from([*_PRIVATE, *"ab .@1２＠", "(at)", " at ", "dot"]), max_size=8).map("".join))
def test_c16_the_scan_misses_no_redaction(text: str) -> None:
    verdict = Moderator([], ModerationPolicy(links="allow")).check(text)
    assert redact(verdict.text).text == verdict.text
    if text.isascii():
        assert verdict.text == redact(text).text


def test_c16_full_width_digits_are_redacted() -> None:
    assert Moderator([]).check("call １２３４５６７８９").text == "call [phone]"


def test_c16_links_by_policy() -> None:
    listed = Moderator([])
    assert listed.check("see youtu.be/x and clips.twitch.tv").refusal is None
    refusal = listed.check("free stuff at evil.xyz/win").refusal
    assert refusal is not None
    assert refusal.rule == "links"
    assert Moderator([], ModerationPolicy(links="none")).check("https://twitch.tv").refusal is not None
    assert Moderator([], ModerationPolicy(links="allow")).check("evil.xyz").refusal is None
    assert linked_hosts("that was great.no really, v1.2 and e.g. this") == []
    assert linked_hosts("notyoutube.com") == ["notyoutube.com"]


def test_c16_an_own_list_replaces_the_shipped_one(tmp_path: Path) -> None:
    (tmp_path / "mild.txt").write_text("# severity: 3\nbanana\n")
    changed = Moderator(read_wordlists([SHIPPED_CONFIGS / "moderation", tmp_path]))
    assert changed.check("oh damn").findings == ()
    assert changed.check("banana").refusal is not None


def test_c16_an_invalid_list_is_named_in_the_error(tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_text("# severity: 9\nbanana\n")
    with pytest.raises(ConfigError, match=r"own\.txt"):
        read_wordlists([tmp_path])
