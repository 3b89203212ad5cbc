"""Random rewinds of a long story: whether the state equals a full replay, and how long a rewind takes.

Each round rewinds one of two rooms that share relationships to a random point, compares every projection with a full
replay, and continues by redo, by new turns, or by leaving the room rewound for the next round.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from pathlib import Path

from bench.lib.report import arguments, finish, log, percentile, progress
from bench.lib.sample_events import sample_event, sample_projections
from coterie.eventstore import Store
from coterie.eventstore.sqlite.replay import replayed_hash

ROOMS = ("room:a", "room:b")


def fresh(store: Store) -> dict[str, str]:
    with store.reader.connections.read_transaction() as rows:
        return {view.name: replayed_hash(view, rows) for view in store.projections}


async def run(folder: Path, events: int, rewinds: int) -> dict[str, float]:
    store = Store.open(folder / "coterie.db", projections=sample_projections())
    chance = random.Random(11)
    for start in range(0, events, 500):
        rooms = [ROOMS[chance.random() < 0.2] for _ in range(500)]
        await store.append([sample_event(chance, room, start + n) for n, room in enumerate(rooms)])
    took: list[float] = []
    mismatches = 0
    full = {room: await store.head(room) for room in ROOMS}
    for turn in range(rewinds):
        room = chance.choices(ROOMS, [3, 1])[0]
        to = chance.randint(0, full[room])
        started = time.perf_counter()
        await store.rewind(room, to)
        took.append((time.perf_counter() - started) * 1_000)
        mismatches += store.hashes() != fresh(store)
        match chance.choice(["redo", "redo", "play", "stay"]):
            case "redo":
                await store.redo(room)
                mismatches += store.hashes() != fresh(store)
            case "play":
                await store.append([sample_event(chance, room, events + turn * 10 + n) for n in range(10)])
            case _:
                pass
        progress(turn + 1, rewinds, "rewinds")
    store.close()
    return {
        "rewinds": rewinds,
        "events": events,
        "mismatches": mismatches,
        "p50_ms": round(percentile(took, 0.5), 1),
        "p95_ms": round(percentile(took, 0.95), 1),
        "max_ms": round(max(took), 1),
    }


def main() -> None:
    options = arguments(__doc__).parse_args()
    with tempfile.TemporaryDirectory(dir=".") as name:
        figures = asyncio.run(run(Path(name), 5_000, 50 if options.quick else 500))
    for key, value in figures.items():
        log(f"{key:>12}: {value}")
    finish(figures)


if __name__ == "__main__":
    main()
