"""C4: who posts is decided by a token, and nobody has a name that looks like somebody else's."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.base.clock import ManualClock
from coterie.modes.crowd.errors import IdentityRefused
from coterie.modes.crowd.gateway import Admission, Admitted, ChatIdentity, ChatTokens, Refused, check_guest_name
from coterie.modes.crowd.gateway.admission import name_skeleton
from coterie.modes.crowd.protocol import ChatAuthor, ChatPost
from tests.modes.crowd.gateway.test_gateway import MODERATOR

ANA = ChatIdentity("ana")
LOOK_ALIKES = {"a": "аɑＡ", "e": "еＥ3", "o": "оο0", "s": "ѕ5S", "l": "1I|", "t": "Tｔ", "p": "р", "m": "Ｍ"}


def admission() -> Admission:
    return Admission("den", MODERATOR, names=["salt_lamp", "moss_granny"])


def post(name: str, kind: str = "human", nonce: str = "x") -> ChatPost:
    return ChatPost(id=nonce, room="den", author=ChatAuthor(name=name, kind=kind), text="hello")


@given(st.data())
@settings(max_examples=100)
def test_c4_no_spelling_of_a_personas_name_is_admitted(data: st.DataObject) -> None:
    letters = [data.draw(st.sampled_from([letter, *LOOK_ALIKES.get(letter, "")])) for letter in "salt_lamp"]
    inserted = data.draw(st.sampled_from(["", "\u200b", "\u2060", "\u0301", ".", " "]))
    at = data.draw(st.integers(1, len(letters)))
    name = "".join([*letters[:at], inserted, *letters[at:]])
    decision = admission().admit(post(name), 0)
    assert isinstance(decision, Refused)
    assert (decision.error.rule, decision.audits[0].rule) == ("name", "name")


def test_c4_a_persona_still_posts_after_somebody_tried_its_name() -> None:
    room = admission()
    assert isinstance(room.admit(post("salt_lamp"), 0), Refused)
    assert isinstance(room.admit(post("salt_lamp", "persona", "y"), 0), Admitted)


@pytest.mark.parametrize("name", ["ana", "Sal", "lamp", "granny_moss", "Ärger", "李雷", "Мария"])
def test_c4_other_names_are_admitted(name: str) -> None:
    assert isinstance(admission().admit(post(name), 0, guest=True), Admitted)
    assert check_guest_name(name, ["salt_lamp"])


def test_c4_a_guest_cannot_have_a_moderators_name_but_the_moderator_can() -> None:
    room = admission()
    assert isinstance(room.admit(post("Noor"), 0, guest=True), Admitted)
    room.add_moderator("Noor")
    refused = room.admit(post("N00r", nonce="y"), 0, guest=True)
    assert isinstance(refused, Refused)
    assert refused.error.rule == "name"
    assert isinstance(room.admit(post("Noor", nonce="z"), 0), Admitted)


@pytest.mark.parametrize("kind", ["system", "human"])
def test_c3_limits_apply_to_every_kind_of_author(kind: str) -> None:
    room = admission()
    outcomes = [room.admit(post("ana", kind, f"n{number}"), 0) for number in range(7)]
    assert [isinstance(outcome, Refused) for outcome in outcomes] == [False] * 5 + [True] * 2


def test_c4_a_flood_of_refusals_is_recorded_in_part_and_counted() -> None:
    room = admission()
    outcomes = [room.admit(post("ana", nonce=f"n{number}"), 0) for number in range(1_000)]
    refused = [outcome for outcome in outcomes if isinstance(outcome, Refused)]
    assert (len(refused), sum(len(outcome.audits) for outcome in refused)) == (995, 20)
    (later,) = room.admit(post("salt lamp", nonce="m"), 0).audits
    assert later.author.name == "salt lamp", "others are recorded as before"
    after = room.admit(post("ana", nonce="last").model_copy(update={"text": "\n\n"}), 60_000)
    assert "975 other refusals" in after.audits[0].reason


@pytest.mark.parametrize("name", ["", " ", "a:b", 'a"b', "a\nb", "streamer", "Ѕtreamer", "system", "x" * 41, "\u202e"])
def test_c4_names_that_are_no_names_are_refused(name: str) -> None:
    with pytest.raises(IdentityRefused):
        check_guest_name(name, [])


def test_c4_a_token_is_valid_for_its_room_and_time_only(tmp_path: Path, clock: ManualClock) -> None:
    tokens = ChatTokens.from_folder(tmp_path, clock)
    token = tokens.issue("den", ANA, days=1)
    assert ChatTokens.from_folder(tmp_path, clock).check(token, "den") == ANA
    assert (tmp_path / "crowd.key").stat().st_mode & 0o077 == 0
    for other, room in ((tokens, "attic"), (ChatTokens(b"other", clock), "den")):
        with pytest.raises(IdentityRefused):
            other.check(token, room)
    clock.advance(86_401)
    with pytest.raises(IdentityRefused, match="expired"):
        tokens.check(token, "den")


@given(st.text(max_size=60), st.integers(0, 200), st.characters())
@settings(max_examples=150)
def test_c4_no_changed_token_is_accepted(junk: str, at: int, letter: str) -> None:
    tokens = ChatTokens(b"key", ManualClock())
    token = tokens.issue("den", ANA)
    changed = token[: at % len(token)] + letter + token[at % len(token) + 1 :]
    for forged in (junk, f"{junk}.{junk}", token + junk, changed):
        if forged != token:
            with pytest.raises(IdentityRefused):
                tokens.check(forged, "den")


def test_c4_skeletons_of_shipped_personas_differ() -> None:
    from coterie.modes.crowd.settings import CrowdConfigs

    names = CrowdConfigs().personas()
    assert len({name_skeleton(name) for name in names}) == len(names)
