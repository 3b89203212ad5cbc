"""S9: "Import a SillyTavern chat JSONL as a chat with its turns and swipes." S26 writes one."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.characters.cards import TavernChat, TavernTurn
from coterie.characters.cards.parsing import Document
from coterie.characters.cards.tavern_chat import read_date
from coterie.characters.errors import BrokenCard, CardError, NotACard
from tests.characters.cards.samples import texts, unknown

HEADER: Document = {
    "user_name": "Kim",
    "character_name": "Ada",
    "create_date": "2024-1-2 @03h 04m 05s 6ms",
    "chat_metadata": {"note": 1},
}
MESSAGES: list[Document] = [
    {"name": "Ada", "is_user": False, "is_system": False, "send_date": "January 2, 2024 3:04am", "mes": "Come in!"},
    {"name": "Kim", "is_user": True, "send_date": 1704164700000, "mes": "Thanks."},
    {"name": "Ada", "is_user": False, "send_date": "2024-01-02T03:06:00.000Z", "mes": "Mind the stairs.", "swipe_id": 1,
     "swipes": ["Sit.", "Mind the stairs.", "Tea?"], "swipe_info": [{}, {}, {}], "extra": {"model": "m"}},
    {"name": "Note", "is_user": False, "is_system": True, "mes": "hidden"},
]  # fmt: skip


def lines(*documents: Document) -> bytes:
    return b"\n".join(json.dumps(document).encode() for document in documents)


def test_s9_turns_and_swipes() -> None:
    chat = TavernChat.read(lines(HEADER, *MESSAGES))
    assert (chat.user_name, chat.character_name) == ("Kim", "Ada")
    assert [turn.speaker for turn in chat.turns] == ["character", "user", "character", "system"]
    swiped = chat.turns[2]
    assert (swiped.text, swiped.swipes, swiped.chosen) == (
        "Mind the stairs.",
        ["Sit.", "Mind the stairs.", "Tea?"],
        1,
    )
    assert chat.turns[0].swipes == []
    assert [turn.sent for turn in chat.turns] == [
        datetime(2024, 1, 2, 3, 4, tzinfo=UTC),
        datetime(2024, 1, 2, 3, 5, tzinfo=UTC),
        datetime(2024, 1, 2, 3, 6, tzinfo=UTC),
        None,
    ]


def test_s9_a_message_edited_by_hand_is_the_chosen_swipe() -> None:
    edited = TavernTurn.read({**MESSAGES[2], "mes": "Mind your head."})
    assert edited.swipes == ["Sit.", "Mind your head.", "Tea?"]


@given(unknown, st.lists(st.builds(lambda more, text: {**more, "mes": text}, unknown, texts), max_size=4))
def test_s26_a_chat_is_exported_as_imported(more: Document, messages: list[Document]) -> None:
    data = lines({**more, "user_name": "Kim"}, *messages)
    chat = TavernChat.read(data)
    assert [json.loads(line) for line in chat.to_bytes().split(b"\n")] == [
        json.loads(line) for line in data.split(b"\n")
    ]
    assert TavernChat.read(chat.to_bytes()) == chat


words = st.text(st.characters(codec="utf-8"), max_size=10)
turns = st.builds(
    lambda speaker, text, others, sent: TavernTurn(
        speaker=speaker, name="Ada", text=text, swipes=[*others, text] if others else [], chosen=len(others), sent=sent
    ),
    st.sampled_from(["user", "character", "system"]),
    words,
    st.lists(words, max_size=3),
    st.integers(0, 2**32).map(lambda second: datetime.fromtimestamp(second, UTC)) | st.none(),
)


@given(st.lists(turns, max_size=5))
def test_s26_our_turns_come_back_from_sillytavern_jsonl(played: list[TavernTurn]) -> None:
    chat = TavernChat.compose(user="Kim", character="Ada", turns=played, created=datetime(2024, 1, 2, tzinfo=UTC))
    assert TavernChat.read(chat.to_bytes()).turns == played


def test_s9_a_truncated_last_line_is_left_out() -> None:
    data = lines(HEADER, *MESSAGES)
    chat = TavernChat.read(data[:-20])
    assert len(chat.turns) == 3
    assert "truncated" in chat.notes[0]


def test_s9_old_chats_have_no_header() -> None:
    assert len(TavernChat.read(lines(*MESSAGES)).turns) == 4


@pytest.mark.parametrize(
    ("data", "error", "reason"),
    [
        (b"", NotACard, "no messages"),
        (b"\n\n", NotACard, "no messages"),
        (b"{}", NotACard, "no messages"),
        (b"nonsense", BrokenCard, "Line 1"),
        (lines(HEADER) + b"\n{oops\n" + lines(MESSAGES[0]), BrokenCard, "Line 2"),
        (lines(HEADER, {"name": "x"}), BrokenCard, "Message 1"),
        (lines(HEADER) + b"\n" + b"[" * 100_000, CardError, "Line 2|cut"),
    ],
)
def test_s9_an_invalid_chat_is_a_clear_error(data: bytes, error: type[CardError], reason: str) -> None:
    with pytest.raises(error, match=reason):
        TavernChat.read(data)


@pytest.mark.parametrize(
    "value", [None, "", "yesterday", [], 10**400, -(10**18), "2024-13-45", True, "9999999-1-1 @1h 1m"]
)
def test_invalid_dates_are_none(value: object) -> None:
    assert read_date(value) is None or value is True
