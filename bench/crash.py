"""Kill a writer process with SIGKILL at random points, restart it, and count lost and repeated events and jobs.

Eight producers append with idempotency keys and repeat what was not acknowledged. A worker runs the jobs of these
events, whose effect has no idempotency key. Rooms are rewound, forked and snapshotted meanwhile. The database is
verified after every kill. `--story` kills a story during replies; `--desk` kills a desk with running agents.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.lib.crash_loop import kill_repeatedly
from bench.lib.report import arguments, finish, log
from bench.lib.sample_events import SampleTurn, sample_event, sample_projections
from coterie.base.clock import SystemClock
from coterie.eventstore import Job, LogReader, NewEvent, NewJob, Payload, Store
from coterie.eventstore.sqlite.snapshots import seed_from_snapshots, write_snapshot
from coterie.eventstore.worker import JobResult, Worker

PRODUCERS = 8
JOB = "sample_effect"


class Effect(Payload, kind="sample_effect"):
    """The effect of a job, deliberately without an idempotency key."""

    of: str


async def effect(job: Job) -> JobResult:
    await asyncio.sleep(random.random() * 0.01)
    return JobResult([NewEvent("effects", Effect(of=str(job.payload["key"])))])


async def child(folder: Path, starts: list[int], seed: int, *, drain: bool) -> None:
    """Write until killed. Every acknowledged key goes straight to the parent."""
    snapshots = folder / "snapshots"
    store = Store.open(
        folder / "coterie.db",
        projections=sample_projections(),
        seed=seed_from_snapshots(snapshots, lambda text: print(text, file=sys.stderr)),
    )
    worker = Worker(
        store.jobs, {JOB: effect}, clock=SystemClock(), bus=store.bus, concurrency=4, lease_s=0.5, max_wait_s=0.05
    )
    if drain:
        while await store.jobs.next_due([JOB]) is not None:
            await worker.drain()
            await asyncio.sleep(0.1)
        store.close()
        return
    chance = random.Random(seed)
    os.write(1, b"ready\n")

    async def produce(producer: int, number: int) -> None:
        while True:
            key = f"{producer}:{number}"
            room = f"room:{producer % 3}"
            turn = NewEvent(room, SampleTurn(turn=key, speaker="mara", text=f"Word {key}."), key=key, turn=key)
            rest = [sample_event(chance, room, number * PRODUCERS + producer) for _ in range(chance.randint(0, 3))]
            # Many attempts, since every kill counts as one. The job belongs to the last event of its batch.
            job = NewJob(JOB, key=f"effect:{key}", payload={"key": key}, max_attempts=10_000)
            await store.append([*rest, turn], jobs=[job])
            os.write(1, f"{key}\n".encode())
            number += 1
            await asyncio.sleep(chance.random() * 0.02)

    async def disturb() -> None:
        for number in range(1_000):
            await asyncio.sleep(0.02 + chance.random() * 0.2)
            room = f"room:{chance.randint(0, 2)}"
            head = await store.head(room)
            match chance.choice(["rewind", "fork", "snapshot"]):
                case "rewind" if head:
                    # Redone at once, so that the jobs of these turns are still due.
                    await store.rewind(room, chance.randint(max(0, head - 20), head))
                    try:
                        await store.redo(room)
                    except Exception:
                        await store.rewind(room, head)
                case "fork" if head < 200:
                    await store.fork(room, head, f"fork:{seed}:{number}")
                case _:
                    path = snapshots / f"{time.time_ns()}.snapshot"
                    await asyncio.to_thread(write_snapshot, store.reader.connections, store.projections, path)

    await asyncio.gather(*(produce(n, starts[n]) for n in range(PRODUCERS)), disturb(), worker.run(asyncio.Event()))


def spawn(folder: Path, starts: list[int], seed: int, *, drain: bool = False) -> subprocess.Popen[bytes]:
    numbers = ",".join(map(str, starts))
    command = [sys.executable, "-m", "bench.crash", "--child", str(folder), "--starts", numbers, "--seed", str(seed)]
    return subprocess.Popen([*command, "--drain"] if drain else command, stdout=subprocess.PIPE)


def run(kills: int, folder: Path) -> dict[str, int]:
    acknowledged: set[str] = set()
    starts = [0] * PRODUCERS

    def on_line(line: str) -> None:
        acknowledged.add(line)
        producer, number = map(int, line.split(":"))
        starts[producer] = max(starts[producer], number + 1)

    failures = kill_repeatedly(
        kills,
        folder / "coterie.db",
        sample_projections,
        lambda kill: spawn(folder, starts, kill),
        on_line,
        longest_s=0.4,
    )
    spawn(folder, starts, kills, drain=True).wait()
    return {
        "kills": kills,
        "acknowledged": len(acknowledged),
        **count(folder, acknowledged),
        "verify_failures": failures,
    }


def count(folder: Path, acknowledged: set[str]) -> dict[str, int]:
    reader = LogReader(folder / "coterie.db")
    turns: collections.Counter[str] = collections.Counter()
    effects: collections.Counter[str] = collections.Counter()
    after = 0
    while page := reader.read(after=after, kinds=[SampleTurn.kind, Effect.kind]):
        for event in page:
            if isinstance(event.payload, Effect):
                effects[event.payload.of] += 1
            elif isinstance(event.payload, SampleTurn) and event.key is not None:
                turns[event.payload.turn] += 1
        after = page[-1].id
    # A kill between a rewind and its redo leaves turns that do not count, and their jobs are withdrawn.
    due = {
        event.payload.turn
        for room in range(3)
        for event in reader.history(f"room:{room}")
        if isinstance(event.payload, SampleTurn) and event.key is not None
    }
    reader.close()
    return {
        "lost": sum(turns[key] == 0 for key in acknowledged),
        "doubled": sum(times > 1 for times in turns.values()),
        "jobs_lost": sum(effects[key] == 0 for key in due),
        "jobs_doubled": sum(times > 1 for times in effects.values()),
    }


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--kills", type=int, default=None, help="number of kills (default 200, quick 25)")
    for name in ("--child", "--starts", "--seed"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    parser.add_argument("--drain", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--story", action="store_true", help="kill a story, also during replies")
    parser.add_argument(
        "--desk", action="store_true", help="kill a desk with messages, branches, workers and schedules"
    )
    options = parser.parse_args()
    # Imported only if needed: a child lives for about a second.
    if options.desk:
        from bench.lib import crash_desk
    elif options.story:
        from bench.lib import crash_story
    if options.child:
        starts = [int(start) for start in options.starts.split(",")]
        asyncio.run(child(Path(options.child), starts, int(options.seed), drain=options.drain))
        return
    kills = options.kills or (25 if options.quick else 200)
    with tempfile.TemporaryDirectory() as name:
        bench = crash_desk.run if options.desk else crash_story.run if options.story else run
        figures = bench(kills, Path(name))
    for name, value in figures.items():
        log(f"{name:>16}: {value}")
    finish(figures)


if __name__ == "__main__":
    main()
