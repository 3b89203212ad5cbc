"""M6: memories removed by a regenerate, rewind, fork or reset leave every index at once."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.eventstore import NewEvent, Store
from coterie.eventstore.sqlite.replay import replayed_hash
from coterie.memory import Memory
from coterie.memory.events import MemoryEdited
from coterie.memory.index.embedders import Ids, StaticEmbedder
from coterie.memory.projection import MemoryProjection


def texts(memory: Memory, room: str | None = None, question: str = "boat harbour mast rope") -> set[str]:
    return {each.text for each in memory.recall(question, room=room, k=50)}


def replayed(store: Store) -> str:
    return store.transact(lambda rows: replayed_hash(MemoryProjection(), rows))


@pytest.fixture
def conversation(memory: Memory) -> Memory:
    for text in ("the boat is blue", "the boat is in the harbour", "the boat lost its mast"):
        memory.add(text, room="room:1")
    return memory


async def test_m6_a_rewind_removes_memories_from_the_index_and_a_redo_restores_them(conversation: Memory) -> None:
    await conversation.store.rewind("room:1", to=1)
    assert texts(conversation) == {"the boat is blue"}
    assert conversation.count() == 1
    assert conversation.verify() == []
    await conversation.store.redo("room:1")
    assert texts(conversation) == {"the boat is blue", "the boat is in the harbour", "the boat lost its mast"}


async def test_m6_a_regenerate_removes_memories_of_the_old_reply(conversation: Memory) -> None:
    await conversation.store.supersede("room:1", drop=[3])
    assert texts(conversation) == {"the boat is blue", "the boat is in the harbour"}
    conversation.add("the boat lost its rope", room="room:1")
    await conversation.store.supersede("room:1", drop=[5], restore=[3])
    assert texts(conversation) == {"the boat is blue", "the boat is in the harbour", "the boat lost its mast"}


async def test_m6_a_fork_shares_earlier_memories_but_not_later_ones(conversation: Memory) -> None:
    await conversation.store.fork("room:1", at=2, into="room:2")
    conversation.add("the boat was sold at the harbour", room="room:2")
    assert texts(conversation, "room:1") == {"the boat is blue", "the boat is in the harbour", "the boat lost its mast"}
    assert texts(conversation, "room:2") == {
        "the boat is blue",
        "the boat is in the harbour",
        "the boat was sold at the harbour",
    }
    elsewhere = [each.text for each in conversation.recall("boat harbour mast", room="room:9", k=50)]
    assert len(elsewhere) == len(set(elsewhere)) == 4


def documents(memory: Memory) -> list[tuple[object, ...]]:
    return memory.store.query("SELECT stream, id, question, tokens, vector FROM memory_doc ORDER BY stream, id")


async def test_m6_a_fork_takes_over_the_vectors_of_its_memories(
    conversation: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the same texts: embedding them again would take as long as at first."""
    edited = conversation.recall("mast", k=1)[0].id
    conversation.store.transact(
        lambda rows: rows.run("INSERT INTO memory_vector SELECT doc, 'chosen', 'vector ' || id FROM memory_doc")
    )
    embedded: list[str] = []
    tokens = StaticEmbedder.tokens

    def noted(embedder: StaticEmbedder, text: str) -> Ids:
        embedded.append(text)
        return tokens(embedder, text)

    monkeypatch.setattr(StaticEmbedder, "tokens", noted)
    await conversation.store.fork("room:1", at=3, into="room:2")
    assert embedded == []
    chosen = "SELECT v.model, v.vector = 'vector ' || d.id FROM memory_doc d JOIN memory_vector v USING(doc)"
    assert conversation.store.query(f"{chosen} WHERE d.stream = 'room:2'") == [("chosen", 1)] * 3
    edit = NewEvent("room:2", MemoryEdited(id=edited, text="the boat lost its rudder"))
    await conversation.store.append([edit])
    assert embedded == ["the boat lost its rudder"]
    before = documents(conversation)
    assert len(before) == 6
    conversation.store.rebuild()
    assert documents(conversation) == before
    assert conversation.verify() == []


async def test_m6_a_reset_removes_all_memories(conversation: Memory) -> None:
    await conversation.store.reset("room:1")
    assert texts(conversation) == set()
    assert conversation.count() == 0


async def test_m6_rewinding_an_update_restores_the_old_memory(conversation: Memory) -> None:
    (old,) = [each.id for each in conversation.recall("is the boat blue?", k=1)]
    new = conversation.add("the boat is red now", room="room:1")
    conversation.supersede(old, new)
    assert "the boat is blue" not in texts(conversation)
    await conversation.store.rewind("room:1", to=3)
    assert "the boat is blue" in texts(conversation)


async def test_m6_forgetting_is_not_undone_by_a_rewind(conversation: Memory) -> None:
    (first,) = [each.id for each in conversation.recall("harbour", k=1)]
    conversation.forget(first)
    await conversation.store.rewind("room:1", to=1)
    await conversation.store.redo("room:1")
    assert "the boat is in the harbour" not in texts(conversation)


async def test_m6_a_purge_removes_the_text_from_the_files(conversation: Memory) -> None:
    conversation.add("the zanzibar treasure map", room="room:1")
    await conversation.store.purge("room:1", first=4)
    path = conversation.store.path
    assert conversation.verify() == []
    conversation.store.transact(lambda rows: None)
    found = [file for file in path.parent.iterdir() if b"zanzibar" in file.read_bytes()]
    assert found == []


def test_m6_rebuilt_projections_equal_the_live_ones(conversation: Memory) -> None:
    conversation.forget(conversation.recall("mast", k=1)[0].id)
    before = conversation.store.hashes()
    conversation.store.rebuild()
    assert conversation.store.hashes() == before == {"memories": replayed(conversation.store)}
    assert conversation.verify() == []
    assert texts(conversation) == {"the boat is blue", "the boat is in the harbour"}


Move = tuple[str, int]


@settings(max_examples=20)
@given(
    st.lists(
        st.tuples(st.sampled_from(["add", "rewind", "drop", "fork", "reset", "forget"]), st.integers(0, 9)), max_size=14
    )
)
def test_m6_law_the_index_matches_the_log_after_any_history(
    tmp_path_factory: pytest.TempPathFactory, moves: Iterable[Move]
) -> None:
    import asyncio

    with Memory(tmp_path_factory.mktemp("law") / "memory.db") as memory:
        rooms = ["room:1"]

        async def apply_moves() -> None:
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

        asyncio.run(apply_moves())
        assert memory.verify() == []
        assert memory.store.hashes() == {"memories": replayed(memory.store)}
        before = documents(memory)
        memory.store.rebuild()
        assert documents(memory) == before
