"""A bot on a real homeserver, killed with -9 at named and random points and started again, over and over. P4

Somebody writes numbered messages into several rooms all the while. At the end every message is looked for: each must be
answered, once. Rooms are plain: there is no encryption yet, and `plaintext_in_encrypted` says so with null.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench._report import arguments, finish, progress, say, scratch
from coterie.base.ids import new_id
from coterie.engine.inbox import InboxBook
from coterie.kernel import Store
from coterie.surfaces.matrix.homeserver import Homeserver
from tests.real.matrix_house import Human, MatrixHouse, house_on
from tests.real.synapse import Synapse

ROOMS = 10
_POINTS: tuple[tuple[type, str, bool], ...] = (
    (Homeserver, "send", False),
    (Homeserver, "send", True),
    (Homeserver, "sync", True),
    (InboxBook, "accept", False),
    (InboxBook, "accept", True),
    (Store, "append", False),
    (Store, "append", True),
)
"""Where the process ends itself: in which call, and whether after it."""


def die_at(chance: random.Random) -> None:
    owner, name, after = chance.choice(_POINTS)
    left = chance.randint(1, 12)
    original: Callable[..., Any] = getattr(owner, name)

    async def counted(*arguments: Any, **named: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0 and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = await original(*arguments, **named)
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, counted)


def start(make: Callable[[], MatrixHouse], seed: int, *, deadly: bool) -> int:
    """A bot in a process of its own; forked, so that three hundred starts do not take an hour."""
    pid = os.fork()
    if pid:
        return pid
    try:
        chance = random.Random(seed)
        if deadly and chance.random() < 0.6:
            die_at(chance)
        asyncio.run(_work(make))
    finally:
        os._exit(1)


async def _work(make: Callable[[], MatrixHouse]) -> None:
    house = make()
    await house.connect()
    await house.following.run(asyncio.Event())


async def prepared(synapse: Synapse, folder: Path, name: str) -> tuple[Human, list[str]]:
    """A bot that is in its rooms, stopped in good order."""
    async with house_on(synapse, folder, name) as (house, ana):
        rooms = [await ana.room_with(house.bot_user) for _ in range(ROOMS)]
        await house.settle()
        token, user = ana.server.token, ana.user
    human = Human(Homeserver(synapse.url, token), user)
    return human, rooms


async def answered(ana: Human, rooms: list[str], bot: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for room in rooms:
        found.update(text.partition(" [")[0] for text in await ana.shown(room, bot) if " [" in text)
    return found


def run(synapse: Synapse, folder: Path, messages: int, kills: int) -> dict[str, object]:
    name = f"bot-{new_id().lower()}"
    ana, rooms = asyncio.run(prepared(synapse, folder, name))

    def make() -> MatrixHouse:
        return MatrixHouse(folder, synapse, name, ana.user)

    async def say_some(first: int, last: int) -> None:
        human = Human(Homeserver(synapse.url, ana.server.token), ana.user)
        for n in range(first, last):
            await human.say(rooms[n % ROOMS], f"m{n}", f"bench.{n}")
        await human.server.close()

    chance, said, done = random.Random(7), 0, 0
    while done < kills:
        pid = start(make, 1_000 + done, deadly=True)
        upto = min(messages, round(messages * (done + 1) / kills))
        asyncio.run(say_some(said, upto))
        said = upto
        ends = time.monotonic() + 0.4 + chance.random() * 1.2
        while time.monotonic() < ends and os.waitpid(pid, os.WNOHANG) == (0, 0):
            time.sleep(0.02)
        else:
            if time.monotonic() >= ends:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        done += 1
        progress(done, kills, "kills")
    say(f"{kills} kills; letting it finish")
    pid = start(make, 0, deadly=False)
    wanted = {f"m{n}" for n in range(messages)}
    found: Counter[str] = Counter()
    ends = time.monotonic() + 120 + messages
    while time.monotonic() < ends and not wanted <= set(found):
        time.sleep(2)
        found = asyncio.run(_look(synapse, ana, rooms, f"@{name}:localhost"))
    time.sleep(3)
    found = asyncio.run(_look(synapse, ana, rooms, f"@{name}:localhost"))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return {
        "messages": messages,
        "kills": kills,
        "lost": len(wanted - set(found)),
        "doubled": sum(count - 1 for count in found.values()),
        "plaintext_in_encrypted": None,
    }


async def _look(synapse: Synapse, ana: Human, rooms: list[str], bot: str) -> Counter[str]:
    human = Human(Homeserver(synapse.url, ana.server.token), ana.user)
    try:
        return await answered(human, rooms, bot)
    finally:
        await human.server.close()


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--messages", type=int)
    parser.add_argument("--kills", type=int)
    options = parser.parse_args()
    messages = options.messages or (60 if options.quick else 1_000)
    kills = options.kills or (15 if options.quick else 300)
    with scratch() as folder:
        synapse = Synapse(Path(folder).absolute() / "synapse")
        synapse.start()
        try:
            finish(run(synapse, Path(folder).absolute() / "house", messages, kills))
        finally:
            synapse.stop()


if __name__ == "__main__":
    main()
