"""M7: the graph of the same memories is the same, and fits into the frame."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.memory.records import MemoryRecord
from coterie.surfaces.web.memory.pages import HEIGHT, MAX_MEMORIES, WIDTH, graph

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def a_memory(number: int, people: list[str], significance: int, pinned: bool) -> MemoryRecord:
    return MemoryRecord(
        id=f"m{number}", owner="mara", room="room:a", text=f"Number {number}.", type="fact", scene=None, speaker=None,
        told_by=None, witnesses=tuple(people), about=(), sources=(), happened=None, made=NOW, significance=significance,
        confidence=1.0, reliability=1.0, pinned=pinned, auto_pinned=False, private=False, disclosure="people",
    )  # fmt: skip


minds = st.lists(
    st.tuples(st.lists(st.sampled_from(["you", "io", "mara", "Teodor"]), max_size=4), st.integers(0, 3), st.booleans()),
    max_size=100,
).map(lambda fields: [a_memory(number, *one) for number, one in enumerate(fields)])
ties = st.lists(st.tuples(st.integers(0, 120), st.integers(0, 120)), max_size=30).map(
    lambda pairs: [(f"m{a}", "related_to", f"m{b}") for a, b in pairs]
)


@settings(max_examples=25, deadline=None)
@given(minds, ties)
def test_m7_law_a_graph_of_any_memories(records: list[MemoryRecord], links: list[tuple[str, str, str]]) -> None:
    drawn = graph(records, links, str.title)
    assert drawn == graph(list(reversed(records)), links, str.title)
    assert len(drawn.dots) == min(len(records), MAX_MEMORIES)
    places = [(dot.x, dot.y) for dot in drawn.dots] + [(person.x, person.y) for person in drawn.people]
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in places)
    assert "Mara" not in {person.name for person in drawn.people}, "whose memories they are"
    pinned = {record.id for record in records if record.pinned}
    assert len(pinned) > MAX_MEMORIES or pinned <= {dot.record.id for dot in drawn.dots}
    assert sum(person.count for person in drawn.people) == sum(not line.relation for line in drawn.lines)
