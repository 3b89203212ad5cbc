"""Properties of every history: live projections equal a replay of the log."""

from __future__ import annotations

import asyncio
import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.lib.sample_events import sample_event, sample_projections
from coterie.base.clock import ManualClock
from coterie.base.errors import CoterieError
from coterie.eventstore import Store
from coterie.eventstore.sqlite.replay import replayed_hash

ROOMS = ["room:a", "room:b"]


def replay_log(store: Store) -> dict[str, str]:
    with store.reader.connections.read_transaction() as rows:
        return {projection.name: replayed_hash(projection, rows) for projection in store.projections}


Step = tuple[str, int, int]

steps = st.lists(
    st.tuples(
        st.sampled_from(
            ["say", "say", "say", "say", "rewind", "redo", "drop", "swap", "fork", "fork", "reset", "reopen"]
        ),
        st.integers(0, 1_000_000),
        st.integers(0, 1_000_000),
    ),
    min_size=1,
    max_size=40,
)


class Play:
    """Performs random steps on a store and checks the property after each control event."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "coterie.db"
        self.clock = ManualClock()
        self.store = self.open()
        self.rooms = list(ROOMS)
        self.numbers = 0

    def open(self) -> Store:
        return Store.open(self.path, projections=sample_projections(), clock=self.clock)

    async def step(self, kind: str, a: int, b: int) -> None:
        room = self.rooms[a % len(self.rooms)]
        head = await self.store.head(room)
        chance = random.Random(b)
        try:
            match kind:
                case "say":
                    drafts = [sample_event(chance, room, self.numbers + n) for n in range(1 + b % 8)]
                    self.numbers += len(drafts)
                    await self.store.append(drafts)
                case "rewind":
                    await self.store.rewind(room, b % (head + 1))
                case "redo":
                    await self.store.redo(room)
                case "drop":
                    await self.store.supersede(room, drop=chance.sample(range(1, head + 1), min(3, head)))
                case "swap":
                    some = chance.sample(range(1, head + 1), min(6, head))
                    await self.store.supersede(room, drop=some[:3], restore=some[3:])
                case "fork" if head:
                    into = f"room:fork{len(self.rooms)}"
                    await self.store.fork(room, b % (head + 1), into)
                    self.rooms.append(into)
                case "reset":
                    await self.store.reset(room)
                case "reopen":
                    self.store.close()
                    self.store = self.open()
        except CoterieError:
            assert kind == "redo"  # the only step that may be refused


@settings(max_examples=80)
@given(steps)
def test_live_projections_equal_a_replay_of_the_log(history: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        play = Play(Path(folder))

        async def run() -> None:
            for step in history:
                await play.step(*step)
                assert play.store.hashes() == replay_log(play.store), step

        try:
            asyncio.run(run())
        finally:
            play.store.close()


@settings(max_examples=40)
@given(st.integers(1, 60), st.integers(0, 60), st.integers(0, 10_000))
def test_a_redo_undoes_a_rewind_completely(length: int, to: int, seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(Path(folder) / "coterie.db", projections=sample_projections())

        async def run() -> None:
            chance = random.Random(seed)
            await store.append([sample_event(chance, chance.choice(ROOMS), n) for n in range(length)])
            before = store.hashes()
            active = [event.seq for event in await store.history("room:a")]
            await store.rewind("room:a", min(to, await store.head("room:a")))
            await store.redo("room:a")
            assert store.hashes() == before
            assert [e.seq for e in await store.history("room:a") if e.kind.startswith("sample_")] == active

        try:
            asyncio.run(run())
        finally:
            store.close()


@pytest.mark.parametrize("to", [0, 1, 17, 40])
async def test_s23_the_state_after_a_rewind_is_the_earlier_state(tmp_path: Path, to: int) -> None:
    chance = random.Random(1)
    drafts = [sample_event(chance, "room:a", n) for n in range(40)]
    then = Store.open(tmp_path / "then.db", projections=sample_projections())
    await then.append(drafts[:to])
    now = Store.open(tmp_path / "now.db", projections=sample_projections())
    await now.append(drafts)
    await now.rewind("room:a", to)
    assert now.hashes() == then.hashes()
    then.close()
    now.close()


async def test_s24_a_fork_has_only_the_events_before_it(store: Store) -> None:
    chance = random.Random(2)
    await store.append([sample_event(chance, "room:a", n) for n in range(30)])
    past = [(e.seq, e.payload) for e in await store.history("room:a")]
    await store.fork("room:a", 30, "room:b")
    await store.append([sample_event(chance, "room:a", n) for n in range(30, 40)])
    assert [(e.seq, e.payload) for e in await store.history("room:b", before=31)] == past
    turns_a = store.query("SELECT turn, seq, text FROM sample_turn WHERE room = 'room:a' AND seq <= 30 ORDER BY seq")
    turns_b = store.query("SELECT turn, seq, text FROM sample_turn WHERE room = 'room:b' ORDER BY seq")
    assert turns_b == turns_a
    await store.rewind("room:a", 5)
    assert store.query("SELECT turn, seq, text FROM sample_turn WHERE room = 'room:b' ORDER BY seq") == turns_b
