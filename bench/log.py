"""Durable appends per second (`synchronous=FULL`) with 1, 16 and 256 producers.

Compared in the same run with a bare apsw loop that commits the same batches, and with the `eventsourcing` library on
SQLite with as many threads. Then the replay rate of typical projections.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from pathlib import Path
from typing import Any

import apsw

from bench.lib.peers import PeerMissing, peer_python, run_peer
from bench.lib.report import arguments, finish, log, median, progress
from bench.lib.sample_events import SampleTurn, sample_event, sample_projections
from coterie.eventstore import NewEvent, Store
from coterie.eventstore.events import encode

PRODUCERS = (1, 16, 256)
TEXT = "The rain had stopped, and somebody in the harbour was singing."


async def ours(folder: Path, producers: int, events: int) -> float:
    store = Store.open(folder / "ours.db")
    left = iter(range(events))

    async def produce(room: str) -> None:
        for number in left:
            payload = SampleTurn(turn=f"t{number}", speaker="mara", text=TEXT)
            await store.append([NewEvent(room, payload, actor="mara", turn=f"t{number}")])

    started = time.perf_counter()
    await asyncio.gather(*(produce(f"room:{n}") for n in range(producers)))
    rate = events / (time.perf_counter() - started)
    store.close()
    return rate


def bare(folder: Path, producers: int, events: int) -> float:
    """The least that could be done: the same tables and indexes, batches of one event per producer, nothing else."""
    Store.open(folder / "bare.db").close()
    connection = apsw.Connection(str(folder / "bare.db"))
    connection.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL")
    now = time.time_ns() // 1_000
    connection.execute("INSERT INTO event_kind(id, kind, version) VALUES (1, ?, 1)", (SampleTurn.kind,))
    names = ["mara", *(f"room:{producer}" for producer in range(producers))]
    connection.executemany("INSERT INTO name(name) VALUES (?)", ((name,) for name in names))
    ids = {name: number for number, name in connection.execute("SELECT id, name FROM name")}
    started = time.perf_counter()
    number = 0
    while number < events:
        connection.execute("BEGIN IMMEDIATE")
        for producer in range(min(producers, events - number)):
            number += 1
            text = encode(SampleTurn(turn=f"t{number}", speaker="mara", text=TEXT))
            connection.execute("INSERT INTO name(name) VALUES (?)", (f"t{number}",))
            turn = connection.last_insert_rowid()
            row = (number, ids[f"room:{producer}"], number, 1, text, now, ids["mara"], None, None, turn)
            connection.execute("INSERT INTO log VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        connection.execute("COMMIT")
    rate = events / (time.perf_counter() - started)
    connection.close()
    return rate


EVENTSOURCING = """
import json, os, sys, threading, time, uuid
folder, producers, events = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
os.environ.update(PERSISTENCE_MODULE="eventsourcing.sqlite", SQLITE_DBNAME=os.path.join(folder, "es.db"))
from eventsourcing.application import Application
from eventsourcing.domain import Aggregate, event

class Room(Aggregate):
    @event("Said")
    def say(self, turn, speaker, text):
        self.last = text

app = Application()
rooms = [Room() for _ in range(producers)]
for room in rooms:
    app.save(room)
each = max(1, events // producers)
def produce(room):
    for number in range(each):
        room.say(turn=f"t{number}", speaker="mara", text=TEXT)
        app.save(room)
threads = [threading.Thread(target=produce, args=(room,)) for room in rooms]
started = time.perf_counter()
for thread in threads: thread.start()
for thread in threads: thread.join()
print(json.dumps(each * producers / (time.perf_counter() - started)))
""".replace("TEXT", repr(TEXT))


def peer(folder: Path, producers: int, events: int) -> float:
    python = peer_python("eventsourcing", ["eventsourcing==9.5.6"])
    return float(run_peer(python, EVENTSOURCING, str(folder), str(producers), str(events)))


def fold_rate(folder: Path, events: int) -> float:
    """Events per second through the sample views, journal included, from the log on disk."""
    store = Store.open(folder / "fold.db", projections=sample_projections())
    chance = random.Random(7)
    for start in range(0, events, 1_000):
        store.append_blocking([sample_event(chance, f"room:{n % 5}", n) for n in range(start, start + 1_000)])
    started = time.perf_counter()
    store.rebuild()
    rate = events / (time.perf_counter() - started)
    store.close()
    return rate


def main() -> None:
    options = arguments(__doc__).parse_args()
    rounds = 3 if options.quick else 7
    events = {1: 500, 16: 4_000, 256: 16_000} if options.quick else {1: 2_000, 16: 16_000, 256: 60_000}
    appends: dict[str, float] = {}
    bares: dict[str, float] = {}
    peers: dict[str, float | None] = {}
    reason: str | None = None
    for producers in PRODUCERS:
        mine: list[float] = []
        loop: list[float] = []
        theirs: list[float] = []
        for turn in range(rounds):
            with tempfile.TemporaryDirectory(dir=".") as name:
                folder = Path(name)
                mine.append(asyncio.run(ours(folder, producers, events[producers])))
                loop.append(bare(folder, producers, events[producers]))
                if turn < 3 and reason is None:
                    try:
                        theirs.append(peer(folder, producers, min(events[producers], 3_000)))
                    except PeerMissing as missing:
                        reason = str(missing)
            progress(turn + 1, rounds, f"rounds with {producers} producers")
        key = str(producers)
        appends[key], bares[key] = round(median(mine)), round(median(loop))
        peers[key] = round(median(theirs)) if theirs else None
        log(f"{producers:>4} producers: {appends[key]:>7}/s   bare {bares[key]:>7}/s   eventsourcing {peers[key]}/s")
    with tempfile.TemporaryDirectory(dir=".") as name:
        folded = round(fold_rate(Path(name), 20_000 if options.quick else 100_000))
    log(f"fold of typical views: {folded} events/s")
    figures: dict[str, Any] = {
        "appends_per_s": appends,
        "bare_appends_per_s": bares,
        "eventsourcing_appends_per_s": peers,
        "ratio_16": round(appends["16"] / bares["16"], 3),
        "fold_per_s": folded,
    }
    if reason:
        figures["eventsourcing_missing"] = reason
    finish(figures)


if __name__ == "__main__":
    main()
