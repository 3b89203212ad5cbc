"""M2: who may know."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.memory import Memory
from coterie.memory.access import ANYBODY, Viewpoint, may_recall
from coterie.memory.records import StreamForks

PEOPLE = ["mara", "ana", "ben", "cleo"]


def recalled(memory: Memory, owner: str = "mara", room: str | None = None, present: tuple[str, ...] = ()) -> set[str]:
    return {each.text for each in memory.recall("the boat", owner=owner, room=room, present=present)}


def test_m2_only_the_owner_who_was_there_or_was_told_recalls(memory: Memory) -> None:
    memory.add("the boat was sold", owner="mara", witnesses=("mara", "ana"))
    memory.add("the boat was painted", owner="mara", witnesses=("ana",))
    memory.add("the boat has sunk", owner="mara", told_by="ben")
    assert recalled(memory) == {"the boat was sold", "the boat has sunk"}
    assert recalled(memory, owner="ana") == set()


def test_m2_a_private_memory_is_spoken_of_only_before_those_who_were_there(memory: Memory) -> None:
    memory.add("the boat is a present for Ben", owner="mara", witnesses=("mara", "ana"), private=True, room="room:a")
    whispered = {"the boat is a present for Ben"}
    assert recalled(memory, room="room:b", present=("ana",)) == whispered
    assert recalled(memory, room="room:b", present=("mara", "ana")) == whispered
    assert recalled(memory, room="room:a", present=("ana", "ben")) == set()
    assert recalled(memory, room="room:a", present=("ben",)) == set()


def test_m2_disclosure_room_keeps_it_where_it_was_made(memory: Memory) -> None:
    memory.add("the boat leaks", owner="mara", disclosure="room", room="room:a")
    assert recalled(memory, room="room:a") == {"the boat leaks"}
    assert recalled(memory, room="room:b") == set()
    assert recalled(memory) == set()


def test_m2_disclosure_open_is_spoken_of_anywhere(memory: Memory) -> None:
    memory.add("the boat is blue", owner="mara", private=True, disclosure="open", room="room:a")
    assert recalled(memory, room="room:b", present=("ben", "cleo")) == {"the boat is blue"}


def test_m2_a_window_never_shows_a_neighbour_that_may_not_be_known(memory: Memory) -> None:
    memory.add("Ben will get a watch", owner="mara", witnesses=("mara", "ana"), private=True)
    memory.add("the boat is in the harbour", owner="mara", witnesses=("mara", "ana", "ben"))
    memory.add("the weather is fine", owner="mara", witnesses=("mara", "ana", "ben"))
    (best, *_) = memory.recall("the boat", owner="mara", room="room:main", present=("ben",), window=1)
    assert [each.text for each in best.neighbours] == ["the weather is fine"]
    (best, *_) = memory.recall("the boat", owner="mara", room="room:main", present=("ana",), window=1)
    assert [each.text for each in best.neighbours] == ["Ben will get a watch", "the weather is fine"]


def test_m2_an_export_for_somebody_holds_only_what_they_may_know(memory: Memory, tmp_path: object) -> None:
    memory.add("the boat was sold", owner="mara")
    memory.add("Ben will get a watch", owner="mara", witnesses=("mara", "ana"), private=True)
    from pathlib import Path

    file = Path(str(tmp_path)) / "out.jsonl"
    assert memory.export_jsonl(file, owner="mara", view=Viewpoint.of("mara", "room:main", ["ben"])) == 1
    assert "watch" not in file.read_text()
    assert memory.export_jsonl(file, owner="mara") == 2


@given(
    there=st.sets(st.sampled_from(PEOPLE)),
    present=st.sets(st.sampled_from(PEOPLE)),
    told=st.sampled_from([None, "ben"]),
    private=st.booleans(),
    disclosure=st.sampled_from(["people", "room", "open"]),
    here=st.booleans(),
)
def test_m2_nobody_hears_what_is_private_without_having_been_there(
    there: set[str], present: set[str], told: str | None, private: bool, disclosure: str, here: bool
) -> None:
    view = Viewpoint.of("mara", "room:a", present)
    allowed = may_recall(
        view, witnesses=there, told_by=told, private=private, disclosure=disclosure, room="room:a" if here else "room:b"
    )
    if allowed:
        assert "mara" in there or told
        assert here or disclosure != "room"
        if private and disclosure != "open":
            assert present - {"mara"} <= there | {told}


@pytest.mark.parametrize(
    ("stream", "hidden"), [("room:2", True), ("room:1", True), ("room:3", False), ("room:9", False)]
)
def test_m2_lines_of_one_family_do_not_see_each_other(stream: str, hidden: bool) -> None:
    lines = StreamForks({"room:1": "room:1", "room:2": "room:1", "room:3": "room:1"})
    assert lines.is_other_branch(stream, "room:3") is hidden
    assert not lines.is_other_branch(stream, None)


def test_m2_m6_what_may_still_be_told_of_what_was_once_recalled(memory: Memory) -> None:
    there = ("mara", "ana")
    plain = memory.add("the boat was sold", owner="mara", witnesses=there, speaker="Ana")
    secret = memory.add("the boat is a present", owner="mara", witnesses=there, private=True)
    gone = memory.add("the boat has sunk", owner="mara", witnesses=there)
    memory.forget(gone)
    ids = [plain, secret, gone, "never there"]
    assert memory.disclosable(Viewpoint.of("mara", present=["ana"]), ids) == {plain, secret}
    before_anybody = Viewpoint.of("mara", present=["ana", ANYBODY])
    assert memory.disclosable(before_anybody, ids) == {plain}
    assert [each.text_with_speaker for each in memory.recall_as(before_anybody, "the boat")] == [
        "Ana: the boat was sold"
    ]
    assert memory.disclosable(Viewpoint.of("nobody"), ids) == frozenset()
