from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.lib.sample_events import SampleMemory, SampleTurn, sample_event, sample_projections
from coterie.eventstore import ChangedKeys, Event, Forked, NewEvent, Projection, Rewound, Rows, Store, on
from coterie.eventstore.sqlite.replay import replayed_hash


class Search(Projection):
    """A projection with a full-text index that `update_derived` maintains."""

    name = "test_search"
    stream_column = "room"
    schema = "CREATE TABLE test_text(room TEXT, turn TEXT, text TEXT, PRIMARY KEY(room, turn));"
    derived = "CREATE VIRTUAL TABLE IF NOT EXISTS test_words USING fts5(room UNINDEXED, turn UNINDEXED, text)"

    @on(SampleTurn)
    def store_turn(self, rows: Rows, event: Event[SampleTurn]) -> None:
        params = (event.stream, event.payload.turn, event.payload.text)
        rows.run("INSERT OR REPLACE INTO test_text VALUES (?, ?, ?)", params)

    def update_derived(self, rows: Rows, changed: ChangedKeys | None) -> None:
        if changed is None:
            rows.run("DELETE FROM test_words")
            rows.run("INSERT INTO test_words SELECT room, turn, text FROM test_text")
            return
        for room, turn in changed["test_text"]:
            rows.run("DELETE FROM test_words WHERE room = ? AND turn = ?", (room, turn))
            rows.run("INSERT INTO test_words SELECT * FROM test_text WHERE room = ? AND turn = ?", (room, turn))


def search(store: Store, words: str) -> list[tuple[str, str]]:
    sql = "SELECT room, turn FROM test_words WHERE test_words MATCH ? ORDER BY room, turn"
    return [(room, turn) for room, turn in store.query(sql, (words,))]


def turn_event(room: str, turn: str, text: str) -> NewEvent:
    return NewEvent(room, SampleTurn(turn=turn, speaker="mara", text=text), turn=turn)


@pytest.fixture
def open_search(tmp_path: Path) -> Callable[[], Store]:
    return lambda: Store.open(tmp_path / "coterie.db", projections=[Search()])


async def test_m6_an_index_follows_appends_rewinds_redos_and_forks(open_search: Callable[[], Store]) -> None:
    store = open_search()
    await store.append(
        [turn_event("room:a", "t1", "a harbour in winter"), turn_event("room:a", "t2", "a harbour in spring")]
    )
    assert search(store, "harbour") == [("room:a", "t1"), ("room:a", "t2")]
    await store.rewind("room:a", 1)
    assert search(store, "harbour") == [("room:a", "t1")]
    await store.redo("room:a")
    assert search(store, "spring") == [("room:a", "t2")]
    await store.fork("room:a", 1, "room:b")
    assert search(store, "harbour") == [("room:a", "t1"), ("room:a", "t2"), ("room:b", "t1")]
    await store.reset("room:a")
    assert search(store, "harbour") == [("room:b", "t1")]
    store.rebuild()
    assert search(store, "harbour") == [("room:b", "t1")]
    store.close()


async def test_an_index_is_complete_after_reopening_and_after_a_new_version(open_search: Callable[[], Store]) -> None:
    store = open_search()
    await store.append([turn_event("room:a", "t1", "a harbour")])
    store.close()
    store = open_search()
    await store.append([turn_event("room:a", "t1", "a mountain")])
    assert (search(store, "harbour"), search(store, "mountain")) == ([], [("room:a", "t1")])
    store.close()


async def test_a_projection_with_a_new_version_is_rebuilt(tmp_path: Path) -> None:
    class UpperCaseSearch(Search):
        version = 2

        @on(SampleTurn)
        def store_turn(self, rows: Rows, event: Event[SampleTurn]) -> None:
            params = (event.stream, event.payload.turn, event.payload.text.upper())
            rows.run("INSERT OR REPLACE INTO test_text VALUES (?, ?, ?)", params)

    store = Store.open(tmp_path / "coterie.db", projections=[Search()])
    await store.append([turn_event("room:a", "t1", "quiet")])
    store.close()
    store = Store.open(tmp_path / "coterie.db", projections=[UpperCaseSearch()])
    assert store.query("SELECT text FROM test_text") == [("QUIET",)]
    store.close()


async def test_a_projection_that_was_not_declared_for_a_while_catches_up(tmp_path: Path) -> None:
    path = tmp_path / "coterie.db"
    chance = random.Random(3)
    for projections in (sample_projections(), [], sample_projections()):
        store = Store.open(path, projections=projections)
        await store.append([sample_event(chance, "room:a", n) for n in range(20)])
        if not projections:
            await store.rewind("room:a", 5)  # before the position of the undeclared projections
        store.close()
    store = Store.open(path, projections=sample_projections())
    with store.reader.connections.read_transaction() as rows:
        assert store.hashes() == {projection.name: replayed_hash(projection, rows) for projection in store.projections}
    store.close()


async def test_a_failing_handler_rolls_back_its_append_only(tmp_path: Path) -> None:
    class FailingProjection(Projection):
        name = "test_touchy"
        schema = "CREATE TABLE test_touchy(turn TEXT PRIMARY KEY);"

        @on(SampleTurn)
        def store_turn(self, rows: Rows, event: Event[SampleTurn]) -> None:
            rows.run("INSERT INTO test_touchy VALUES (?)", (event.payload.turn,))
            if event.payload.text == "bad":
                raise RuntimeError("no")

    import asyncio

    store = Store.open(tmp_path / "coterie.db", projections=[FailingProjection()])
    results = await asyncio.gather(
        *(store.append([turn_event("room:a", f"t{n}", "bad" if n == 5 else "good")]) for n in range(10)),
        return_exceptions=True,
    )
    assert [isinstance(result, RuntimeError) for result in results] == [n == 5 for n in range(10)]
    assert await store.head("room:a") == 9
    assert len(store.query("SELECT * FROM test_touchy")) == 9
    await store.append([turn_event("room:a", "t5", "good")])
    store.close()


async def test_a_projection_may_handle_control_events(tmp_path: Path) -> None:
    class ControlEvents(Projection):
        name = "test_turnings"
        schema = "CREATE TABLE test_turning(stream TEXT, seq INTEGER, kind TEXT, PRIMARY KEY(stream, seq));"

        @on(Rewound, Forked)
        def store_control_event(self, rows: Rows, event: Event[Rewound | Forked]) -> None:
            rows.run("INSERT INTO test_turning VALUES (?, ?, ?)", (event.stream, event.seq, event.kind))

    store = Store.open(tmp_path / "coterie.db", projections=[ControlEvents()])
    await store.append([turn_event("room:a", "t1", "one"), turn_event("room:a", "t2", "two")])
    await store.rewind("room:a", 1)
    await store.fork("room:a", 2, "room:b")
    assert store.query("SELECT stream, seq, kind FROM test_turning") == [
        ("room:a", 3, "rewound"),
        ("room:b", 3, "forked"),
    ]
    with store.reader.connections.read_transaction() as rows:
        assert store.hashes() == {projection.name: replayed_hash(projection, rows) for projection in store.projections}
    store.close()


async def test_values_of_every_type_are_stored_exactly(tmp_path: Path) -> None:
    class Types(Projection):
        name = "test_types"
        schema = "CREATE TABLE test_type(id INTEGER PRIMARY KEY, real REAL, blob BLOB, text TEXT, none);"

        @on(SampleMemory)
        def store_memory(self, rows: Rows, event: Event[SampleMemory]) -> None:
            weight = event.payload.weight
            params = (1, weight, event.payload.text.encode() + b"\0\xff", event.payload.text, None)
            rows.run("INSERT OR REPLACE INTO test_type VALUES (?, ?, ?, ?, ?)", params)

    store = Store.open(tmp_path / "coterie.db", projections=[Types()])
    for weight in (0.1 + 0.2, 1e-300, 12345678.123456789):
        payload = SampleMemory(memory="m", owner="o", scene="s", text="naïve ☃", weight=weight)
        await store.append([NewEvent("room:a", payload)])
        before = store.query("SELECT * FROM test_type")
        head = await store.head("room:a")
        await store.append([NewEvent("room:a", payload.model_copy(update={"weight": 2.0, "text": "other"}))])
        await store.rewind("room:a", head)
        assert store.query("SELECT * FROM test_type") == before
    store.close()


def test_a_table_belongs_to_one_projection_and_needs_a_key(tmp_path: Path) -> None:
    class SameTable(Projection):
        name = "test_thief"
        schema = "CREATE TABLE test_text(x PRIMARY KEY);"

    class Keyless(Projection):
        name = "test_keyless"
        schema = "CREATE TABLE test_keyless(x);"

    with pytest.raises(TypeError, match="belongs to both"):
        Store.open(tmp_path / "one.db", projections=[Search(), SameTable()])
    with pytest.raises(TypeError, match="primary key"):
        Store.open(tmp_path / "two.db", projections=[Keyless()])


class RenamedSearch(Search):
    """The same projection with another name and another table."""

    name = "test_full_text"
    schema = "CREATE TABLE test_document(room TEXT, turn TEXT, text TEXT, PRIMARY KEY(room, turn));"
    derived = ""

    @on(SampleTurn)
    def store_turn(self, rows: Rows, event: Event[SampleTurn]) -> None:
        row = (event.stream, event.payload.turn, event.payload.text)
        rows.run("INSERT OR REPLACE INTO test_document VALUES (?, ?, ?)", row)

    def update_derived(self, rows: Rows, changed: ChangedKeys | None) -> None:
        return None


async def test_opening_removes_the_tables_of_a_renamed_projection(tmp_path: Path) -> None:
    path = tmp_path / "coterie.db"
    store = Store.open(path, projections=[Search(), *sample_projections()])
    await store.append([NewEvent("room:a", SampleTurn(turn="t1", speaker="mara", text="rain"))])
    store.transact(lambda rows: rows.run("CREATE TABLE test_cache(id INTEGER PRIMARY KEY)"))
    hashes = store.hashes()
    store.close()
    store = Store.open(path, projections=[RenamedSearch(), *sample_projections()])
    tables = {name for (name,) in store.query("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    assert not {"test_text", "undo_test_text"} & tables
    assert {"test_document", "undo_test_document", "test_cache"} <= tables
    assert "test_search" not in store.reader.projection_fingerprints()
    assert store.query("SELECT text FROM test_document") == [("rain",)]
    assert {name: value for name, value in store.hashes().items() if name != "test_full_text"} == {
        name: value for name, value in hashes.items() if name != "test_search"
    }
    store.close()
