"""A story with a slow model that is killed repeatedly: during replies, between turn and job, anywhere.

A player sends messages with idempotency keys and repeats what was not acknowledged; it regenerates, rewinds, undoes and
forks. The child process reports accepted messages, durable parts of replies and finished replies. Each job leaves one
event per reply, so that lost and repeated jobs are visible.
"""

from __future__ import annotations

import asyncio
import collections
import json
import os
import random
import sys
from collections.abc import AsyncGenerator
from multiprocessing.connection import Connection
from pathlib import Path

from bench.lib.crash_loop import READY, Forked, kill_repeatedly
from bench.lib.report import log
from bench.lib.story_fixture import StoryFixture, bench_projections
from coterie.base.errors import CoterieError
from coterie.conversation.events import AssistantTokens, AssistantTurn, UserTurn
from coterie.eventstore import AnyEvent, LogReader
from coterie.llm.messages import Chunk, CompletionRequest, Finished, TextDelta, Tokens
from coterie.memory.events import MemoryAdded
from coterie.modes.story.events import ClockMoved, RelationshipUpdated

_CHATS = 3
_SHAPES: dict[str, object] = {
    "TurnAnalysis": {
        "pairs": [{"of": "Mara", "toward": "Ana", "affinity_delta": 1}],
        "minutes": 3,
        "significance": 2,
    },
}


class SlowModel:
    """Says a word every few milliseconds, so that most kills come in the middle of something."""

    name = "embedded"

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk, None]:
        shape = request.prompt.output_schema
        words = [json.dumps(_SHAPES.get(shape.name, {}))] if shape else self._words()
        for word in words:
            await asyncio.sleep(0 if shape else 0.002)
            yield TextDelta(text=word)
        yield Finished(reason="stop", tokens=Tokens(input=1, output=len(words)), model="script")

    async def close(self) -> None:
        """Nothing is open."""

    def _words(self) -> list[str]:
        # No bare numbers: three may look like a card, which memory covers, and two covered texts are the same.
        return [f"n{self._chance.randrange(10**6)} " for _ in range(self._chance.randint(1, 400))]


def _report(*words: object) -> None:
    os.write(1, f"{' '.join(map(str, words))}\n".encode())


async def child(folder: Path, seed: int, *, drain: bool) -> None:
    chance = random.Random(seed)
    fixture = StoryFixture(folder / "coterie.db", SlowModel(chance), lease_s=0.5)
    await fixture.story.recover()
    if drain:
        kinds = list(fixture.story.handlers())
        while await fixture.store.jobs.next_due(kinds) is not None:
            await fixture.worker.drain()
            await asyncio.sleep(0.1)
        await fixture.close()
        return
    mara = next(iter(fixture.characters.all()), None) or await fixture.create_character()
    rooms = [chat.room for chat in fixture.story.chats.chats() if not fixture.store.reader.fork_origin(chat.room)]
    while len(rooms) < _CHATS:
        rooms.append(await fixture.open_chat(mara))
    # Fills caches before the child is ready, since it lives for a few seconds only.
    fixture.story.prompts.assemble(fixture.story.chats.chat(rooms[0]), mara.id, "warm")
    os.write(1, READY)

    async def report_replies() -> None:
        """Report durable parts of replies and finished replies."""
        async for event in fixture.store.tail(fixture.store.reader.last_id()):
            if isinstance(event.payload, AssistantTokens):
                _report("tokens", event.payload.reply, event.id)
            elif isinstance(event.payload, AssistantTurn):
                _report("ended", event.payload.reply, len(event.payload.text))

    async def play(room: str) -> None:
        while True:
            key = f"{room}:{fixture.store.reader.head(room)}"
            started = await fixture.story.send_message(room, f"What about {key} {chance.randrange(10**9)}?", key=key)
            _report("said", f"say:{room}:{key}", started.turn)
            if chance.random() < 0.2:
                await asyncio.sleep(chance.random() * 0.2)
                await fixture.story.stop(room)
            await fixture.story.replies.wait(room)
            try:
                await disturb(room)
            except CoterieError as error:
                print(error, file=sys.stderr)

    async def disturb(room: str) -> None:
        turns = fixture.story.timeline.latest(room, 10)
        match chance.choice(["regenerate", "rewind", "fork", "", "", "", ""]):
            case "regenerate":
                await fixture.story.regenerate(room)
                await fixture.story.replies.wait(room)
            case "rewind":
                await fixture.story.rewind(room, chance.choice(turns).id)
                if chance.random() < 0.5:
                    await fixture.story.undo_rewind(room)
            case "fork" if len(fixture.story.chats.chats()) < 12:
                await fixture.story.fork(room, chance.choice(turns).id)

    await asyncio.gather(report_replies(), fixture.worker.run(asyncio.Event()), *map(play, rooms))


def run_child(folder: Path, seed: int, drain: bool, output: Connection) -> None:
    """Entry point of the child process."""
    os.dup2(output.fileno(), 1)
    asyncio.run(child(folder, seed, drain=drain))


def run(kills: int, folder: Path) -> dict[str, int]:
    accepted: dict[str, str] = {}
    durable: list[int] = []
    ended: dict[str, int] = {}

    def on_line(line: str) -> None:
        match line.split():
            case ["said", key, turn]:
                accepted[key] = turn
            case ["tokens", _, event]:
                durable.append(int(event))
            case ["ended", reply, length]:
                ended[reply] = int(length)

    def spawn(kill: int) -> Forked:
        return Forked(run_child, folder, kill, False)

    failures = kill_repeatedly(
        kills, folder / "coterie.db", bench_projections, spawn, on_line, longest_s=3.0, verify_every=5
    )
    Forked(run_child, folder, kills, True).read_until_exit()
    return {
        "kills": kills,
        "acknowledged": len(accepted) + len(durable) + len(ended),
        **_count(folder / "coterie.db", accepted, durable, ended),
        "verify_failures": failures,
    }


def _count(database: Path, accepted: dict[str, str], durable: list[int], ended: dict[str, int]) -> dict[str, int]:
    reader = LogReader(database)
    events: dict[int, AnyEvent] = {}
    while page := reader.read(after=max(events, default=0)):
        events |= {event.id: event for event in page}
    messages = collections.Counter(e.key for e in events.values() if isinstance(e.payload, UserTurn))
    replies = {e.payload.reply: e.payload for e in events.values() if isinstance(e.payload, AssistantTurn)}
    kept: dict[str, str] = collections.defaultdict(str)
    for event in events.values():
        if isinstance(event.payload, AssistantTokens):
            kept[event.payload.reply] += event.payload.text
    lost = sum(messages[key] == 0 for key in accepted)
    lost += sum(event not in events for event in durable)
    lost += sum(reply not in replies or len(replies[reply].text) != length for reply, length in ended.items())
    partial_lost = sum(reply not in replies or not replies[reply].text.startswith(text) for reply, text in kept.items())
    closed = sum(1 for turn in replies.values() if turn.why == "restart" and turn.text)
    log(f"{len(replies)} replies, {closed} of them interrupted by a kill and closed with their durable part")
    jobs_lost, jobs_doubled = _jobs(reader)
    left = [*reader.jobs.pending(), *reader.jobs.find(state="dead")]
    for job in left:
        log(f"left: {job}")
    reader.close()
    return {
        "lost": lost + partial_lost,
        "doubled": sum(times > 1 for times in messages.values()),
        "jobs_lost": jobs_lost + len(left),
        "jobs_doubled": jobs_doubled,
        "partial_kept": closed,
        "partial_lost": partial_lost,
    }


def _jobs(reader: LogReader) -> tuple[int, int]:
    """Every visible reply has one event of each of its jobs, in every chat that includes it."""
    lost = doubled = 0
    for (room,) in reader.query("SELECT room FROM chat"):
        history = reader.history(room)
        fork = reader.fork_origin(room) is not None
        traces: collections.Counter[tuple[str | None, str]] = collections.Counter()
        for event in history:
            match event.payload:
                case ClockMoved() | RelationshipUpdated():
                    traces[event.turn, event.kind] += 1
                case MemoryAdded() as memory:
                    traces[event.turn, f"memory of {memory.sources[0]}"] += 1
        doubled += sum(times > 1 for times in traces.values())
        for event in history:
            reply = event.payload
            if isinstance(reply, AssistantTurn) and reply.text.strip():
                expected = [ClockMoved.kind, f"memory of {reply.reply}"]
                # A fork copies all relationships.
                expected += [] if fork else [RelationshipUpdated.kind]
            else:
                continue
            missing = [kind for kind in expected if traces[event.turn, kind] == 0]
            lost += len(missing)
            if missing:
                jobs = [job for job in reader.jobs.find(limit=100_000) if str(event.turn) in job.key]
                log(f"{room}: event {event.id} of turn {event.turn} has no {', '.join(missing)}; jobs {jobs}")
    return lost, doubled
