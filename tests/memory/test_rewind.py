"""M6: what a regenerate, rewind, fork or reset takes back is out of every index at once."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.eventstore import Store
from coterie.eventstore.sqlite.replay import replayed_hash
from coterie.memory import Memory
from coterie.memory.projection import MemoryProjection


def texts(memory: Memory, room: str | None = None, question: str = "boat harbour mast rope") -> set[str]:
    return {each.text for each in memory.recall(question, room=room, k=50)}


def folded(store: Store) -> str:
    return store.transact(lambda rows: replayed_hash(MemoryProjection(), rows))


@pytest.fixture
def talk(memory: Memory) -> Memory:
    for text in ("the boat is blue", "the boat is in the harbour", "the boat lost its mast"):
        memory.add(text, room="room:1")
    return memory


async def test_m6_a_rewind_takes_memories_out_of_the_index_and_a_redo_puts_them_back(talk: Memory) -> None:
    await talk.store.rewind("room:1", to=1)
    assert texts(talk) == {"the boat is blue"}
    assert talk.count() == 1
    assert talk.verify() == []
    await talk.store.redo("room:1")
    assert texts(talk) == {"the boat is blue", "the boat is in the harbour", "the boat lost its mast"}


async def test_m6_a_regenerate_takes_what_came_of_the_old_reply(talk: Memory) -> None:
    await talk.store.supersede("room:1", drop=[3])
    assert texts(talk) == {"the boat is blue", "the boat is in the harbour"}
    talk.add("the boat lost its rope", room="room:1")
    await talk.store.supersede("room:1", drop=[5], restore=[3])
    assert texts(talk) == {"the boat is blue", "the boat is in the harbour", "the boat lost its mast"}


async def test_m6_a_fork_shares_what_was_and_hides_what_comes(talk: Memory) -> None:
    await talk.store.fork("room:1", at=2, into="room:2")
    talk.add("the boat was sold at the harbour", room="room:2")
    assert texts(talk, "room:1") == {"the boat is blue", "the boat is in the harbour", "the boat lost its mast"}
    assert texts(talk, "room:2") == {
        "the boat is blue",
        "the boat is in the harbour",
        "the boat was sold at the harbour",
    }
    elsewhere = [each.text for each in talk.recall("boat harbour mast", room="room:9", k=50)]
    assert len(elsewhere) == len(set(elsewhere)) == 4


async def test_m6_a_reset_leaves_nothing(talk: Memory) -> None:
    await talk.store.reset("room:1")
    assert texts(talk) == set()
    assert talk.count() == 0


async def test_m6_taking_back_an_update_brings_back_what_it_updated(talk: Memory) -> None:
    (old,) = [each.id for each in talk.recall("is the boat blue?", k=1)]
    new = talk.add("the boat is red now", room="room:1")
    talk.supersede(old, new)
    assert "the boat is blue" not in texts(talk)
    await talk.store.rewind("room:1", to=3)
    assert "the boat is blue" in texts(talk)


async def test_m6_forgetting_is_not_undone_by_a_rewind(talk: Memory) -> None:
    (first,) = [each.id for each in talk.recall("harbour", k=1)]
    talk.forget(first)
    await talk.store.rewind("room:1", to=1)
    await talk.store.redo("room:1")
    assert "the boat is in the harbour" not in texts(talk)


async def test_m6_a_purge_leaves_no_word_in_the_file(talk: Memory) -> None:
    talk.add("the zanzibar treasure map", room="room:1")
    await talk.store.purge("room:1", first=4)
    path = talk.store.path
    assert talk.verify() == []
    talk.store.transact(lambda rows: None)
    found = [file for file in path.parent.iterdir() if b"zanzibar" in file.read_bytes()]
    assert found == []


def test_m6_views_rebuilt_from_the_log_are_the_live_ones(talk: Memory) -> None:
    talk.forget(talk.recall("mast", k=1)[0].id)
    before = talk.store.hashes()
    talk.store.rebuild()
    assert talk.store.hashes() == before == {"memories": folded(talk.store)}
    assert talk.verify() == []
    assert texts(talk) == {"the boat is blue", "the boat is in the harbour"}


Move = tuple[str, int]


@settings(max_examples=20)
@given(
    st.lists(
        st.tuples(st.sampled_from(["add", "rewind", "drop", "fork", "reset", "forget"]), st.integers(0, 9)), max_size=14
    )
)
def test_m6_law_the_index_is_what_the_log_says_after_any_history(
    tmp_path_factory: pytest.TempPathFactory, moves: Iterable[Move]
) -> None:
    import asyncio

    with Memory(tmp_path_factory.mktemp("law") / "memory.db") as memory:
        rooms = ["room:1"]

        async def play() -> None:
            for number, (kind, choice) in enumerate(moves):
                room = rooms[choice % len(rooms)]
                head = await memory.store.head(room)
                if kind == "add":
                    memory.add(f"boat number {number} is called {chr(97 + number) * 6}", room=room)
                elif kind == "forget" and (found := memory.recall("boat", room=room, k=1)):
                    memory.forget(found[0].id)
                elif kind == "rewind" and head:
                    await memory.store.rewind(room, to=choice % head)
                elif kind == "drop" and head:
                    await memory.store.supersede(room, drop=[1 + choice % head])
                elif kind == "reset" and head:
                    await memory.store.reset(room)
                elif kind == "fork" and head:
                    rooms.append(f"room:{len(rooms) + 1}")
                    await memory.store.fork(room, at=head, into=rooms[-1])

        asyncio.run(play())
        assert memory.verify() == []
        assert memory.store.hashes() == {"memories": folded(memory.store)}
