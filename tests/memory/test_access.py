"""M2: access rules."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.memory import Memory
from coterie.memory.access import ANYBODY, Viewpoint, may_recall
from coterie.memory.records import StreamForks

PEOPLE = ["mara", "ana", "ben", "cleo"]


def recalled(memory: Memory, owner: str = "mara", room: str | None = None, present: tuple[str, ...] = ()) -> set[str]:
    return {each.text for each in memory.recall("the boat", owner=owner, room=room, present=present)}


def test_m2_only_witnesses_and_owners_who_were_told_recall(memory: Memory) -> None:
    memory.add("the boat was sold", owner="mara", witnesses=("mara", "ana"))
    memory.add("the boat was painted", owner="mara", witnesses=("ana",))
    memory.add("the boat has sunk", owner="mara", told_by="ben")
    assert recalled(memory) == {"the boat was sold", "the boat has sunk"}
    assert recalled(memory, owner="ana") == set()


def test_m2_a_private_memory_is_disclosed_only_to_witnesses(memory: Memory) -> None:
    memory.add("the boat is a present for Ben", owner="mara", witnesses=("mara", "ana"), private=True, room="room:a")
    private = {"the boat is a present for Ben"}
    assert recalled(memory, room="room:b", present=("ana",)) == private
    assert recalled(memory, room="room:b", present=("mara", "ana")) == private
    assert recalled(memory, room="room:a", present=("ana", "ben")) == set()
    assert recalled(memory, room="room:a", present=("ben",)) == set()


def test_m2_disclosure_room_limits_a_memory_to_its_room(memory: Memory) -> None:
    memory.add("the boat leaks", owner="mara", disclosure="room", room="room:a")
    assert recalled(memory, room="room:a") == {"the boat leaks"}
    assert recalled(memory, room="room:b") == set()
    assert recalled(memory) == set()


def test_m2_disclosure_open_allows_every_room(memory: Memory) -> None:
    memory.add("the boat is blue", owner="mara", private=True, disclosure="open", room="room:a")
    assert recalled(memory, room="room:b", present=("ben", "cleo")) == {"the boat is blue"}


def test_m2_neighbours_that_are_not_allowed_are_left_out(memory: Memory) -> None:
    memory.add("Ben will get a watch", owner="mara", witnesses=("mara", "ana"), private=True)
    memory.add("the boat is in the harbour", owner="mara", witnesses=("mara", "ana", "ben"))
    memory.add("the weather is fine", owner="mara", witnesses=("mara", "ana", "ben"))
    (best, *_) = memory.recall("the boat", owner="mara", room="room:main", present=("ben",), window=1)
    assert [each.text for each in best.neighbours] == ["the weather is fine"]
    (best, *_) = memory.recall("the boat", owner="mara", room="room:main", present=("ana",), window=1)
    assert [each.text for each in best.neighbours] == ["Ben will get a watch", "the weather is fine"]


def test_m2_an_export_with_a_viewpoint_has_only_allowed_memories(memory: Memory, tmp_path: Path) -> None:
    memory.add("the boat was sold", owner="mara")
    memory.add("Ben will get a watch", owner="mara", witnesses=("mara", "ana"), private=True)
    file = tmp_path / "out.jsonl"
    assert memory.export_jsonl(file, owner="mara", view=Viewpoint.of("mara", "room:main", ["ben"])) == 1
    assert "watch" not in file.read_text()
    assert memory.export_jsonl(file, owner="mara") == 2


@given(
    witnesses=st.sets(st.sampled_from(PEOPLE)),
    present=st.sets(st.sampled_from(PEOPLE)),
    told_by=st.sampled_from([None, "ben"]),
    private=st.booleans(),
    disclosure=st.sampled_from(["people", "room", "open"]),
    in_room=st.booleans(),
)
def test_m2_law_private_memories_are_disclosed_only_to_witnesses(
    witnesses: set[str], present: set[str], told_by: str | None, private: bool, disclosure: str, in_room: bool
) -> None:
    view = Viewpoint.of("mara", "room:a", present)
    allowed = may_recall(
        view,
        witnesses=witnesses,
        told_by=told_by,
        private=private,
        disclosure=disclosure,
        room="room:a" if in_room else "room:b",
    )
    if allowed:
        assert "mara" in witnesses or told_by
        assert in_room or disclosure != "room"
        if private and disclosure != "open":
            assert present - {"mara"} <= witnesses | {told_by}


@pytest.mark.parametrize(
    ("stream", "hidden"), [("room:2", True), ("room:1", True), ("room:3", False), ("room:9", False)]
)
def test_m2_forks_of_a_chat_do_not_see_each_other(stream: str, hidden: bool) -> None:
    forks = StreamForks({"room:1": "room:1", "room:2": "room:1", "room:3": "room:1"})
    assert forks.is_other_branch(stream, "room:3") is hidden
    assert not forks.is_other_branch(stream, None)


def test_m2_m6_which_recalled_memories_may_still_be_disclosed(memory: Memory) -> None:
    witnesses = ("mara", "ana")
    plain = memory.add("the boat was sold", owner="mara", witnesses=witnesses, speaker="Ana")
    secret = memory.add("the boat is a present", owner="mara", witnesses=witnesses, private=True)
    forgotten = memory.add("the boat has sunk", owner="mara", witnesses=witnesses)
    memory.forget(forgotten)
    ids = [plain, secret, forgotten, "unknown"]
    assert memory.disclosable(Viewpoint.of("mara", present=["ana"]), ids) == {plain, secret}
    public = Viewpoint.of("mara", present=["ana", ANYBODY])
    assert memory.disclosable(public, ids) == {plain}
    assert [each.text_with_speaker for each in memory.recall_as(public, "the boat")] == ["Ana: the boat was sold"]
    assert memory.disclosable(Viewpoint.of("unknown"), ids) == frozenset()
