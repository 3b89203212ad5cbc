"""Kill a Matrix client on a real homeserver with SIGKILL at named and random points, and restart it.

Another client writes numbered messages into several rooms, half of them encrypted. At the end every message must have
exactly one answer, and the homeserver's database must contain no plain text of encrypted rooms.
"""

from __future__ import annotations

import asyncio
import inspect
import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from multiprocessing.context import ForkServerProcess
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from bench.lib.report import arguments, finish, log, progress, scratch_folder
from coterie.base.ids import new_id
from coterie.eventstore import Store
from coterie.eventstore.sqlite.database import KeyStore
from coterie.messaging.inbox import Inbox
from coterie.surfaces.matrix.homeserver import Homeserver
from tests.real.matrix_app import MatrixApp, MatrixUser
from tests.real.second_client import EncryptedMatrixUser
from tests.real.synapse import Synapse

ROOMS = 10
_POINTS: tuple[tuple[type, str, bool], ...] = (
    (Homeserver, "send", False),
    (Homeserver, "send", True),
    (Homeserver, "sync", True),
    (Homeserver, "send_to_device", False),
    (Homeserver, "send_to_device", True),
    (Homeserver, "claim_keys", True),
    (Homeserver, "upload_keys", True),
    (KeyStore, "put", False),
    (KeyStore, "put", True),
    (Inbox, "accept", False),
    (Inbox, "accept", True),
    (Store, "append", False),
    (Store, "append", True),
)
"""Calls in which the process may kill itself, and whether after the call."""
_fork_server = multiprocessing.get_context("forkserver")


def die_at(chance: random.Random) -> None:
    owner, name, after = chance.choice(_POINTS)
    left = chance.randint(1, 2 if name in ("send_to_device", "claim_keys", "upload_keys") else 12)
    original: Callable[..., Any] = getattr(owner, name)

    def step(*, done: bool) -> None:
        nonlocal left
        left -= not done
        if left == 0 and done is after:
            os.kill(os.getpid(), signal.SIGKILL)

    async def counted(*arguments: Any, **named: Any) -> Any:
        step(done=False)
        result = await original(*arguments, **named)
        step(done=True)
        return result

    def counted_sync(*arguments: Any, **named: Any) -> Any:
        step(done=False)
        result = original(*arguments, **named)
        step(done=True)
        return result

    setattr(owner, name, counted if inspect.iscoroutinefunction(original) else counted_sync)


def work(folder: Path, url: str, name: str, owner: str, seed: int | None, ready: Event) -> None:
    """Entry point of the client process; with a seed it may kill itself."""
    chance = random.Random(seed)
    if seed is not None and chance.random() < 0.6:
        die_at(chance)

    async def follow() -> None:
        app = MatrixApp(folder, Synapse.at(url), name, owner, encrypted=True)
        await app.connect()
        ready.set()
        await app.following.run(asyncio.Event())

    asyncio.run(follow())


def _wait_until_ready(process: ForkServerProcess, ready: Event, timeout_s: float) -> None:
    """Wait until it is ready or dead, or the timeout has passed."""
    ends = time.monotonic() + timeout_s
    while process.is_alive() and not ready.is_set() and time.monotonic() < ends:
        time.sleep(0.02)


class Crash:
    def __init__(self, synapse: Synapse, folder: Path) -> None:
        self._synapse = synapse
        self._folder = folder
        self._name = f"bot-{new_id().lower()}"
        self.bot = f"@{self._name}:localhost"

    async def prepare(self) -> None:
        """Create the account with its rooms, and stop it cleanly."""
        self.ana = await EncryptedMatrixUser.arrive(self._synapse, f"ana-{self._name}")
        self._synapse.register(self._name)
        self._folder.mkdir(parents=True)
        app = MatrixApp(self._folder, self._synapse, self._name, self.ana.user, encrypted=True)
        await app.create_character()
        await app.connect()
        await app.following.sync_once(0)
        self.encrypted = [await self.ana.room_with(self.bot) for _ in range(ROOMS // 2)]
        self.plain = [await MatrixUser.room_with(self.ana, self.bot) for _ in range(ROOMS - len(self.encrypted))]
        self.rooms = [room for pair in zip(self.encrypted, self.plain, strict=True) for room in pair]
        await app.settle()
        await self.ana.accept_invites()
        await app.close()

    def start(self, seed: int | None) -> tuple[ForkServerProcess, Event]:
        ready = _fork_server.Event()
        args = (self._folder, self._synapse.url, self._name, self.ana.user, seed, ready)
        process = _fork_server.Process(target=work, args=args, daemon=True)
        process.start()
        return process, ready

    async def kill_one(self, seed: int, chance: random.Random, first: int, last: int) -> None:
        """Run the client while some messages arrive, until it kills itself or is killed at a random time."""
        process, ready = self.start(seed)
        early = chance.random() < 0.15
        await asyncio.to_thread(_wait_until_ready, process, ready, chance.random() * 2 if early else 60)
        for n in range(first, last):
            room = self.rooms[n % ROOMS]
            # Its own `say` insists on encryption.
            send = self.ana.say if room in self.encrypted else partial(MatrixUser.say, self.ana)
            await send(room, f"m{n}", f"bench.{n}")
        await asyncio.to_thread(process.join, 0.2 + chance.random() * 1.2)
        process.kill()
        await asyncio.to_thread(process.join)
        process.close()

    async def answered(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        for room in self.rooms:
            counts.update(text.partition(" [")[0] for text in await self.ana.shown(room, self.bot) if " [" in text)
        return counts

    def count_unencrypted(self) -> int:
        """Unencrypted events of encrypted rooms, other than state, in the homeserver's database."""
        sql = (
            "SELECT count(*) FROM events WHERE room_id = ? AND state_key IS NULL AND type <> 'm.room.encrypted'"
            " AND type <> 'm.room.redaction'"
        )
        return sum(int(self._synapse.query(sql, room)[0][0]) for room in self.encrypted)

    async def run(self, messages: int, kills: int, seed: int) -> dict[str, object]:
        await self.prepare()
        chance, sent = random.Random(seed), 0
        for done in range(kills):
            upto = min(messages, round(messages * (done + 1) / kills))
            await self.kill_one(1_000 * seed + done, chance, sent, upto)
            sent = upto
            progress(done + 1, kills, "kills")
            if (done + 1) % 50 == 0:
                log(f"{done + 1} kills, {sent} messages sent")
        log(f"{kills} kills; waiting for the remaining answers")
        process, _ = self.start(None)
        expected = {f"m{n}" for n in range(messages)}
        counts: Counter[str] = Counter()
        ends = time.monotonic() + 240 + messages
        while time.monotonic() < ends and not expected <= set(counts):
            await asyncio.sleep(5)
            counts = await self.answered()
        await asyncio.sleep(5)
        counts = await self.answered()
        process.kill()
        await asyncio.to_thread(process.join)
        await self.ana.close()
        return {
            "messages": messages,
            "kills": kills,
            "lost": len(expected - set(counts)),
            "doubled": sum(count - 1 for count in counts.values()),
            "plaintext_in_encrypted": self.count_unencrypted(),
        }


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--messages", type=int)
    parser.add_argument("--kills", type=int)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    messages = options.messages or (60 if options.quick else 1_000)
    kills = options.kills or (15 if options.quick else 300)
    _fork_server.set_forkserver_preload(["tests.real.matrix_app"])
    with scratch_folder() as folder:
        synapse = Synapse(Path(folder).absolute() / "synapse")
        synapse.start()
        try:
            finish(asyncio.run(Crash(synapse, Path(folder).absolute() / "data").run(messages, kills, options.seed)))
        finally:
            synapse.stop()


if __name__ == "__main__":
    main()
