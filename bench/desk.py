"""Reply latency of the desk, idle and with 50 busy workers, 5 branches and a compaction in the same conversation.

The model is scripted: 150 ms for a reply, about a second for a turn of a worker or branch. Other load on the machine
varies, so each round measures idle and then busy; the ratio is that of the median round, and the worst is reported.
"""

from __future__ import annotations

import asyncio
import gc
import json
import random
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path

from bench.lib.report import arguments, finish, log, median, percentile, progress, scratch_folder
from coterie.base.clock import SystemClock
from coterie.base.ids import new_id
from coterie.characters.identity import Identity
from coterie.characters.people import PeopleProjection
from coterie.characters.service import Characters, CharactersProjection
from coterie.characters.workspace import Workspaces
from coterie.conversation.turns import TurnsProjection
from coterie.eventstore import NewJob, Store
from coterie.llm.messages import Chunk, CompletionRequest, Finished, TextDelta, Tokens, ToolCall, ToolCallRequested
from coterie.llm.router import Models
from coterie.llm.settings import ModelsSettings
from coterie.llm.usage import UsageProjection
from coterie.memory import Memory
from coterie.memory.projection import MemoryProjection
from coterie.messaging import message_router
from coterie.messaging.ports import ReplyFinished
from coterie.modes.desk import projections as desk_mode
from coterie.modes.desk.jobs import COMPACT_JOB, ChannelOutcome
from coterie.modes.desk.service import DeskConversation, DeskService
from coterie.modes.desk.settings import DeskSettings

WORKERS, BRANCHES = 50, 5
CHANCE = random.Random(8)
DURATION_S = {"channel": 0.15, "worker": 1.0, "branch": 1.0, "compactor": 5.0}


class DelayedModel:
    """A model with fixed delays: it answers messages, and workers and branches call another tool."""

    name = "embedded"

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk, None]:
        await asyncio.sleep(
            DURATION_S[request.model] * (1.0 if request.model == "channel" else CHANCE.uniform(0.5, 1.5))
        )
        end = Finished(reason="stop", tokens=Tokens(input=100, output=10), model="script")
        if request.model == "worker":
            arguments = json.dumps({"text": f"step at {time.time():.0f}"})
            yield ToolCallRequested(call=ToolCall(id="1", name="set_status", arguments=arguments))
        elif request.model == "branch":
            yield ToolCallRequested(call=ToolCall(id="1", name="channel_recall", arguments='{"text": "hello"}'))
        elif request.model == "compactor":
            yield TextDelta(text='{"summary": "They said hello."}')
        else:
            yield TextDelta(text="Certainly.")
        yield end

    async def close(self) -> None:
        pass


@dataclass(frozen=True)
class Round:
    idle: float
    busy: float

    @property
    def ratio(self) -> float:
        return self.busy / self.idle


class DeskFixture:
    """A desk with running job workers, and a person who sends messages."""

    def __init__(self, folder: Path) -> None:
        clock = SystemClock()
        projections = [
            CharactersProjection(),
            PeopleProjection(),
            TurnsProjection(),
            *message_router.messaging_projections(),
            MemoryProjection(),
            UsageProjection(),
            *desk_mode.desk_projections(),
        ]
        self.store = Store.open(folder / "desk.db", projections=projections, clock=clock)
        settings = ModelsSettings(roles={kind: (f"embedded/{kind}",) for kind in DURATION_S})
        self._models = Models(settings, clock=clock, store=self.store, providers={"embedded": DelayedModel()})
        self._characters = Characters(self.store)
        memory = Memory(self.store, clock=clock)
        workspaces = Workspaces(folder / "ws")
        self.desk = DeskService(self.store, self._characters, memory, self._models, workspaces, DeskSettings(), clock)
        self._conversation = DeskConversation(self.store, self.desk, self._characters)
        self._workers: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> DeskFixture:
        character = await self._characters.save(Identity(name="Mara", persona="Mara gets things done."))
        self._character = character.id
        self._workers = [
            asyncio.create_task(worker.run(asyncio.Event())) for worker in self.desk.job_workers().values()
        ]
        return self

    async def __aexit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        await self._models.close()
        self.store.close()

    async def open(self, title: str) -> str:
        """Open a conversation with a few messages, which load what is loaded on first use."""
        room = await self.desk.open(self._character, "ana", title)
        await self.ask(room, 3)
        return room

    async def ask(self, room: str, messages: int) -> list[float]:
        """Milliseconds per answer."""
        durations: list[float] = []
        for number in range(messages):
            started = time.perf_counter()
            async for update in self._conversation.send_message(room, f"hello {number}", person="ana", key=new_id()):
                assert isinstance(update, ReplyFinished) and update.text, "no answer"
            durations.append((time.perf_counter() - started) * 1_000)
        return durations


async def one_round(fixture: DeskFixture, number: int, messages: int) -> Round:
    idle_room, busy_room = [await fixture.open(f"{name} {number}") for name in ("idle", "busy")]
    gc.collect()
    gc.freeze()  # as `coterie serve` does
    idle = await fixture.ask(idle_room, messages)
    await make_busy(fixture.store, fixture.desk, busy_room)
    busy = await fixture.ask(busy_room, messages)
    active = [process for process in fixture.desk.queries.processes(busy_room) if process.active]
    for process in active:
        await fixture.desk.processes.cancel(busy_room, process.id)
    result = Round(percentile(idle, 0.95), percentile(busy, 0.95))
    log(
        f"median idle {median(idle):.1f} ms, busy {median(busy):.1f} ms; p95 {result.idle:.1f}, {result.busy:.1f} ms;"
        f" {len(active)} still active, {sum(process.steps for process in active)} steps"
    )
    return result


async def run(folder: Path, rounds: int, messages: int) -> dict[str, object]:
    results: list[Round] = []
    async with DeskFixture(folder) as fixture:
        for number in range(rounds):
            results.append(await one_round(fixture, number, messages))
            progress(number + 1, rounds, "rounds")
    middle = sorted(results, key=lambda result: result.ratio)[rounds // 2]
    return {
        "idle_p95_ms": round(middle.idle, 1),
        "busy_p95_ms": round(middle.busy, 1),
        "ratio": round(middle.ratio, 3),
        "worst_ratio": round(max(result.ratio for result in results), 3),
        "workers": WORKERS,
        "branches": BRANCHES,
        "messages": rounds * messages,
    }


async def make_busy(store: Store, desk: DeskService, room: str) -> None:
    outcome = ChannelOutcome(desk.queries.chat(room), "bench")
    lines = desk.queries.history(room)
    for number in range(WORKERS):
        outcome.start_worker(f"task {number}", interactive=False)
    for number in range(BRANCHES):
        outcome.start_branch(f"thought {number}", lines[-1].seq)
    payload = {"room": room, "first": lines[0].seq, "upto": lines[1].seq}
    jobs = [*outcome.jobs, NewJob(COMPACT_JOB, "bench", payload)]
    await store.append(outcome.new_events, jobs=jobs)
    await asyncio.sleep(1.5)
    active = [process for process in desk.queries.processes(room) if process.active]
    assert len(active) == WORKERS + BRANCHES, f"only {len(active)} are active"


def main() -> None:
    options = arguments(__doc__).parse_args()
    with scratch_folder() as folder:
        finish(asyncio.run(run(Path(folder), *((1, 20) if options.quick else (5, 80)))))


if __name__ == "__main__":
    main()
