"""Kill a Telegram client with SIGKILL at named and random points, and restart it against our Bot API server.

Users write numbered messages into several private chats. At the end every message must have an answer. The Bot API has
no idempotent send: an answer may be shown twice only if it is recorded as ambiguous.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from bench.lib.report import arguments, finish, log, progress, scratch_folder
from coterie.base.supervisor import Supervisor
from coterie.eventstore import Store
from coterie.messaging.inbox import Inbox
from coterie.surfaces.telegram.service import TelegramService
from coterie.surfaces.telegram.settings import TelegramSettings
from coterie.surfaces.telegram.surface import TelegramSurface
from tests.contracts.surface_app import SurfaceApp
from tests.surfaces.telegram.bot_api import TOKEN, BotApi, Json

ROOMS = 10
_POINTS: tuple[tuple[type, str, bool], ...] = (
    (TelegramSurface, "send", False),
    (TelegramSurface, "send", True),
    (TelegramSurface, "edit", False),
    (TelegramSurface, "edit", True),
    (TelegramService, "poll_once", True),
    (Inbox, "accept", False),
    (Inbox, "accept", True),
    (Store, "append", False),
    (Store, "append", True),
)
"""Calls in which the process may kill itself, and whether after the call."""
_fork_server = multiprocessing.get_context("forkserver")


def die_at(chance: random.Random) -> None:
    owner, name, after = chance.choice(_POINTS)
    left = chance.randint(1, 8)
    original: Callable[..., Any] = getattr(owner, name)

    async def counted(*arguments: Any, **named: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0 and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = await original(*arguments, **named)
        if left == 0 and after:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, counted)


def work(database: Path, url: str, seed: int | None, ready: Event) -> None:
    """Entry point of the client process; with a seed it may kill itself."""
    chance = random.Random(seed)
    if seed is not None and chance.random() < 0.6:
        die_at(chance)

    async def follow() -> None:
        app = SurfaceApp(database)
        settings = TelegramSettings(token=SecretStr(TOKEN), api_url=url, poll_s=5)
        service = TelegramService(app.router, settings, lambda _: app.files_in_workspace("shared"), Supervisor())
        async with service.running():
            while service.status.state != "connected":  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            ready.set()
            await asyncio.Event().wait()

    asyncio.run(follow())


def _wait_until_ready(process: ForkServerProcess, ready: Event, timeout_s: float) -> None:
    ends = time.monotonic() + timeout_s
    while process.is_alive() and not ready.is_set() and time.monotonic() < ends:
        time.sleep(0.02)


class Crash:
    def __init__(self, api: BotApi, url: str, database: Path) -> None:
        self._api = api
        self._url = url
        self._database = database

    async def prepare(self) -> None:
        self._database.parent.mkdir(parents=True)
        app = SurfaceApp(self._database)
        await app.create_character()
        for room in range(ROOMS):
            await app.people.link_owner("telegram", str(1_000 + room))
        await app.close()

    def start(self, seed: int | None) -> tuple[ForkServerProcess, Event]:
        ready = _fork_server.Event()
        process = _fork_server.Process(target=work, args=(self._database, self._url, seed, ready), daemon=True)
        process.start()
        return process, ready

    def say(self, number: int) -> None:
        user: Json = {"id": 1_000 + number % ROOMS, "is_bot": False, "first_name": "Ana"}
        self._api.message(user, {"id": user["id"], "type": "private", "first_name": "Ana"}, f"m{number}")

    async def kill_one(self, seed: int, chance: random.Random, first: int, last: int) -> None:
        """Run the client while some messages arrive, until it kills itself or is killed at a random time."""
        process, ready = self.start(seed)
        early = chance.random() < 0.15
        await asyncio.to_thread(_wait_until_ready, process, ready, chance.random() if early else 60)
        for number in range(first, last):
            self.say(number)
        await asyncio.to_thread(process.join, chance.random() * 0.6)
        process.kill()
        await asyncio.to_thread(process.join)
        process.close()

    def answered(self) -> Counter[str]:
        return Counter(sent.text.partition(" [")[0] for sent in self._api.sent.values() if " [" in sent.text)

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
        ends = time.monotonic() + 60 + messages
        while time.monotonic() < ends and not expected <= set(self.answered()):  # noqa: ASYNC110
            await asyncio.sleep(1)
        await asyncio.sleep(3)
        counts = self.answered()
        process.kill()
        await asyncio.to_thread(process.join)
        app = SurfaceApp(self._database)
        # Every send that was interrupted is recorded as a try; a preview without an id was one too.
        ((ambiguous,),) = app.store.query(
            "SELECT coalesce(sum(o.tried - 1 + (coalesce(p.message, '-') = '')), 0) FROM outbox o"
            " LEFT JOIN outbox_opened p USING (token) WHERE o.perhaps_twice"
        )
        await app.close()
        if self._api.violations:
            log(f"calls that do not fit the Bot API: {self._api.violations[:5]}")
        return {
            "messages": messages,
            "kills": kills,
            "lost": len(expected - set(counts)),
            "doubled": sum(count - 1 for count in counts.values()),
            "ambiguous": ambiguous,
        }


async def bench(folder: Path, messages: int, kills: int, seed: int) -> dict[str, object]:
    api = BotApi()
    async with api.running() as url:
        return await Crash(api, url, folder / "data" / "coterie.db").run(messages, kills, seed)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--messages", type=int)
    parser.add_argument("--kills", type=int)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    messages = options.messages or (60 if options.quick else 1_000)
    kills = options.kills or (12 if options.quick else 300)
    _fork_server.set_forkserver_preload(["tests.contracts.surface_app", "coterie.surfaces.telegram.service"])
    with scratch_folder() as folder:
        finish(asyncio.run(bench(Path(folder).absolute(), messages, kills, options.seed)))


if __name__ == "__main__":
    main()
