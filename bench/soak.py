"""A server under load for ten minutes, with a thousand live pages, and with a chat of 20,000 turns.

The model is scripted and answers at once. A turn is a message or a reply, as in `bench.turn`; `db_kb_per_exchange` is
for a message with its reply.

- Load: 50 clients in 50 chats and 20 in one send the next message when the reply is there. A client that is refused
  because another reply is being written (409) tries again; every other refusal is an error.
- Listeners: exchanges in one chat, alternately with one page that follows it and with a thousand.
- Length: exchanges alternately in a fresh instance, in a chat of 1,000 turns, in one of 20,000 turns, and in a new chat
  with another character beside that; then forks and rewinds of the long chat at its end, middle and beginning (the
  longest counts), and `verify`. A prompt grows with its chat until it is full: `p50_ratio` compares with the first
  exchanges of a chat, `p50_ratio_full_prompt` with the chat of 1,000 turns, whose prompt is as full as the longest's.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from bench.lib.report import arguments, finish, log, median, percentile, progress, scratch_folder
from bench.lib.server_process import ServerProcess, serving
from bench.lib.story_fixture import StoryFixture, scripted_model
from bench.lib.stream_readers import stream_readers
from bench.turn import sentence, write_past
from coterie.app import all_projections

_OWN_CHATS, _SHARING = 50, 20
_LISTENERS = 1_000
_FULL_PROMPT_TURNS = 1_000
_TIMEOUT_S = 300
_LENGTH = "Answer in 50 words."


@dataclass
class Load:
    """What the clients saw."""

    times_s: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    busy: int = 0


class Client:
    """One session on a server."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self.cookies = server.log_in()
        self.http = httpx.Client(base_url=server.address, cookies=self.cookies, timeout=_TIMEOUT_S)
        self._chance = random.Random(7)

    def close(self) -> None:
        self.http.close()

    def post(self, path: str, body: dict[str, object] | None = None) -> dict[str, object]:
        answer = self.http.post(path, json=body or {})
        answer.raise_for_status()
        data: dict[str, object] = answer.json()
        return data

    def new_chat(self, character: str | None = None) -> str:
        """A chat with a character, else with one of the ready-made ones."""
        character = character or str(self.post("/characters/ready/maren")["id"])
        return str(self.post(f"/characters/{character}/kickoff", {"place": {"name": "the lighthouse"}})["id"])

    def exchange(self, chat: str) -> float:
        started = time.perf_counter()
        self.post(f"/chats/{chat}/turns?wait=true", {"text": f"{sentence(self._chance)} {_LENGTH}"})
        return time.perf_counter() - started


async def talk(http: httpx.AsyncClient, chat: str, chance: random.Random, until: float, load: Load) -> None:
    while time.monotonic() < until:
        text = f"{sentence(chance)} {_LENGTH}"
        started = time.perf_counter()
        try:
            answer = await http.post(f"/chats/{chat}/turns?wait=true", json={"text": text})
        except httpx.TransportError as error:
            load.errors.append(f"{type(error).__name__}: {error}")
            continue
        if answer.status_code == 409:
            load.busy += 1
            await asyncio.sleep(0.5 + chance.random())
        elif answer.is_success:
            load.times_s.append(time.perf_counter() - started)
        else:
            load.errors.append(f"{answer.status_code}: {answer.text[:200]}")


async def talk_all(client: Client, chats: list[str], shared: str, seconds: float) -> Load:
    load, until = Load(), time.monotonic() + seconds
    # Idle connections are given up before the server does it, so that none is closed while a request is sent.
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=2.0)
    async with httpx.AsyncClient(
        base_url=client.server.address, cookies=client.cookies, timeout=_TIMEOUT_S, limits=limits
    ) as http:
        rooms = [*chats, *[shared] * _SHARING]
        await asyncio.gather(*(talk(http, room, random.Random(n), until, load) for n, room in enumerate(rooms)))
    return load


class Sizes:
    """Samples the memory of a server and the size of its write-ahead log, in a thread of its own."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server
        self._journal = server.home / "coterie.db-wal"
        self._stopping = threading.Event()
        self.rss_mb: list[float] = []
        self.wal_mb = 0.0

    @contextmanager
    def sampled(self) -> Iterator[None]:
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(0.25):
            self.rss_mb.append(self._server.rss_mb())
            self.wal_mb = max(self.wal_mb, self._journal.stat().st_size / 1e6 if self._journal.exists() else 0.0)

    @property
    def growth(self) -> float:
        """The growth of the memory from the end of the first fifth, as the median of a twentieth, to the end."""
        count = max(1, len(self.rss_mb) // 20)
        warm, end = self.rss_mb[len(self.rss_mb) // 5 :][:count], self.rss_mb[-count:]
        return median(end) / median(warm) - 1


def soak(folder: Path, seconds: float) -> dict[str, object]:
    with serving(folder) as server:
        client = Client(server)
        chats = [client.new_chat() for _ in range(_OWN_CHATS)]
        shared = client.new_chat()
        for chat in chats:
            client.exchange(chat)
        database = server.home / "coterie.db"
        before = _size(database)
        sizes = Sizes(server)
        with sizes.sampled():
            load = asyncio.run(talk_all(client, chats, shared, seconds))
        client.close()
        log(f"  RSS in MB over time: {[round(mb) for mb in sizes.rss_mb[:: max(1, len(sizes.rss_mb) // 10)]]}")
    grown = _size(database) - before
    for error in load.errors[:5]:
        log(f"  {error}")
    kb = grown / 1_000 / max(len(load.times_s), 1)
    log(
        f"  {len(load.times_s):,} exchanges, {load.busy:,} refused as busy, {len(load.errors)} errors,"
        f" {kb:.1f} KB per exchange, WAL at most {sizes.wal_mb:.0f} MB, RSS {sizes.growth:+.1%}"
    )
    return {
        "seconds": seconds,
        "clients": _OWN_CHATS + _SHARING,
        "exchanges": len(load.times_s),
        "errors": len(load.errors),
        "p50_ms": round(1_000 * median(load.times_s), 1),
        "p95_ms": round(1_000 * percentile(load.times_s, 0.95), 1),
        "rss_growth": round(sizes.growth, 3),
        "db_kb_per_turn": round(kb / 2, 2),
        "db_kb_per_exchange": round(kb, 2),
        "wal_mb": round(sizes.wal_mb, 1),
    }


def _size(database: Path) -> int:
    """The size with what is still in the write-ahead log."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        ((pages,),) = connection.execute("PRAGMA page_count").fetchall()
        ((page_size,),) = connection.execute("PRAGMA page_size").fetchall()
    return int(pages) * int(page_size)


def listen(folder: Path, listeners: int, rounds: int) -> dict[str, object]:
    """Exchanges with one page that follows the chat and with many, in alternating rounds."""
    times: dict[int, list[float]] = {1: [], listeners: []}
    with serving(folder) as server:
        client = Client(server)
        chat = client.new_chat()
        cookie = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
        port = urlsplit(server.address).port or 80
        for _ in range(5):
            client.exchange(chat)
        for number in range(rounds):
            for count, taken in times.items():
                with stream_readers(port, count, cookie, f"/live?follow={chat}:0") as readers:
                    time.sleep(2)
                    taken += [client.exchange(chat) for _ in range(5)]
                    if readers.poll() is not None:
                        raise SystemExit("The readers ended early.")
            progress(number + 1, rounds, f"rounds with 1 and {listeners:,} listeners")
        client.close()
    one, many = (1_000 * median(taken) for taken in times.values())
    log(f"  an exchange takes {one:.1f} ms with one page that follows, {many:.1f} ms with {listeners:,}")
    return {
        "listeners": listeners,
        "one_listener_ms": round(one, 1),
        "listeners_ms": round(many, 1),
        "listeners_ratio": round(many / one, 2),
    }


async def write_long_chat(database: Path, turns: int) -> tuple[str, list[str]]:
    """A chat with every event that its turns would have left. Returns its id and the ids of its turns."""
    fixture = StoryFixture(database, scripted_model(), projections=all_projections())
    character = await fixture.create_character()
    room = await fixture.open_chat(character)
    await write_past(fixture, room, character, turns, random.Random(turns))
    ids = [turn.id for turn in fixture.story.timeline.latest(room, turns)]
    await fixture.close()
    return room.removeprefix("room:"), ids


def lengthen(folder: Path, turns: int, rounds: int) -> dict[str, object]:
    (folder / "old" / "home").mkdir(parents=True)
    (folder / "full" / "home").mkdir(parents=True)
    (folder / "fresh").mkdir()
    long_chat, ids = asyncio.run(write_long_chat(folder / "old" / "home" / "coterie.db", turns))
    full_chat, _ = asyncio.run(write_long_chat(folder / "full" / "home" / "coterie.db", _FULL_PROMPT_TURNS))
    times: dict[str, list[float]] = {"fresh": [], "full": [], "long": [], "new": []}
    with serving(folder / "old") as old, serving(folder / "full") as full, serving(folder / "fresh") as fresh:
        old_client, full_client, fresh_client = Client(old), Client(full), Client(fresh)
        chats = {
            "fresh": (fresh_client, fresh_client.new_chat()),
            "full": (full_client, full_chat),
            "long": (old_client, long_chat),
            "new": (old_client, old_client.new_chat()),
        }
        for number in range(rounds + 5):  # the first ones load what is loaded once
            for name, (client, chat) in chats.items():
                taken = client.exchange(chat)
                times[name] += [taken] if number >= 5 else []
            progress(number + 1, rounds + 5, f"exchanges beside {turns:,} turns")
        points = (ids[-10], ids[turns // 2], ids[10])
        fork_s = max(_timed(old_client, f"/chats/{long_chat}/fork", turn, "fork") for turn in points)
        rewinds = [_timed_rewind(old_client, long_chat, turn) for turn in points]
        for client in (old_client, full_client, fresh_client):
            client.close()
    started = time.perf_counter()
    clean = old.verify()
    verify_s = time.perf_counter() - started
    p50 = {name: 1_000 * median(taken) for name, taken in times.items()}
    log(
        f"  p50 of an exchange: {', '.join(f'{name} {ms:.1f} ms' for name, ms in p50.items())}; verify {verify_s:.1f} s"
    )
    return {
        "turns": turns,
        "p50_begin_ms": round(p50["fresh"], 1),
        "p50_1000_ms": round(p50["full"], 1),
        "p50_end_ms": round(p50["long"], 1),
        "p50_ratio": round(p50["long"] / p50["fresh"], 2),
        "p50_ratio_full_prompt": round(p50["long"] / p50["full"], 2),
        "new_chat_ms": round(p50["new"], 1),
        "new_chat_ratio": round(p50["new"] / p50["fresh"], 2),
        "fork_s": round(fork_s, 2),
        "rewind_s": round(max(rewind for rewind, _ in rewinds), 2),
        "undo_rewind_s": round(max(undo for _, undo in rewinds), 2),
        "verify_s": round(verify_s, 1),
        "verify_clean": clean,
    }


def _timed(client: Client, path: str, turn: str, what: str) -> float:
    started = time.perf_counter()
    client.post(path, {"turn": turn})
    taken = time.perf_counter() - started
    log(f"  {what}: {taken:.2f} s")
    return taken


def _timed_rewind(client: Client, chat: str, turn: str) -> tuple[float, float]:
    rewind = _timed(client, f"/chats/{chat}/rewind", turn, "rewind")
    return rewind, _timed(client, f"/chats/{chat}/undo", turn, "undo of the rewind")


def main() -> None:
    options = arguments(__doc__)
    options.add_argument("--seconds", type=float, help="how long the load lasts; 600 by default")
    given = options.parse_args()
    seconds = given.seconds or (12.0 if given.quick else 600.0)
    figures: dict[str, object] = {}
    with scratch_folder() as name, tempfile.TemporaryDirectory(dir=name) as listening:
        folder = Path(name)
        log(f"{seconds:.0f} s of load")
        (folder / "load").mkdir()
        figures |= soak(folder / "load", seconds)
        log("live pages")
        figures |= listen(Path(listening), 200 if given.quick else _LISTENERS, 1 if given.quick else 4)
        log("a long chat")
        figures |= lengthen(folder, 2_000 if given.quick else 20_000, 10 if given.quick else 60)
    finish(figures)


if __name__ == "__main__":
    main()
