"""How quickly the desk answers, idle and with 50 busy workers, 5 branches and a compaction in the same conversation. D1

The model is scripted and takes its time: 150 ms for a reply, about a second for each turn of a worker or a branch.
A neighbour on the machine may be busy at any moment, so this is done in rounds, each idle and then busy: the ratio
is that of the round in the middle, and the worst is told beside it.
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
from coterie.eventstore import NewEvent, NewJob, Store
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
TAKES_S = {"channel": 0.15, "worker": 1.0, "branch": 1.0, "compactor": 5.0}


class Scripted:
    """A model that answers after a while: people in words, workers and branches with one more thing to do."""

    name = "embedded"

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk, None]:
        await asyncio.sleep(TAKES_S[request.model] * (1.0 if request.model == "channel" else CHANCE.uniform(0.5, 1.5)))
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


class Office:
    """A desk with its hands at work, and somebody who asks."""

    def __init__(self, folder: Path) -> None:
        clock = SystemClock()
        views = [
            CharactersProjection(),
            PeopleProjection(),
            TurnsProjection(),
            *message_router.messaging_projections(),
            MemoryProjection(),
            UsageProjection(),
            *desk_mode.desk_projections(),
        ]
        self.store = Store.open(folder / "desk.db", projections=views, clock=clock)
        settings = ModelsSettings(roles={kind: (f"embedded/{kind}",) for kind in TAKES_S})
        self._models = Models(settings, clock=clock, store=self.store, providers={"embedded": Scripted()})
        self._roster = Characters(self.store)
        memory = Memory(self.store, clock=clock)
        places = Workspaces(folder / "ws")
        self.desk = DeskService(self.store, self._roster, memory, self._models, places, DeskSettings(), clock)
        self._talk = DeskConversation(self.store, self.desk, self._roster)
        self._lanes: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Office:
        bot = await self._roster.save(Identity(name="Mara", persona="Mara gets things done."))
        self._bot = bot.id
        self._lanes = [asyncio.create_task(lane.run(asyncio.Event())) for lane in self.desk.job_workers()]
        return self

    async def __aexit__(self, *_: object) -> None:
        for lane in self._lanes:
            lane.cancel()
        await asyncio.gather(*self._lanes, return_exceptions=True)
        await self._models.close()
        self.store.close()

    async def open(self, title: str) -> str:
        """With a few words said: what is loaded on first use is loaded then."""
        room = await self.desk.open(self._bot, "ana", title)
        await self.ask(room, 3)
        return room

    async def ask(self, room: str, messages: int) -> list[float]:
        """How many milliseconds each answer took."""
        took: list[float] = []
        for number in range(messages):
            began = time.perf_counter()
            async for speech in self._talk.send_message(room, f"hello {number}", person="ana", key=new_id()):
                assert isinstance(speech, ReplyFinished) and speech.text, "no answer"
            took.append((time.perf_counter() - began) * 1_000)
        return took


async def one_round(office: Office, number: int, messages: int) -> Round:
    idle_room, busy_room = [await office.open(f"{name} {number}") for name in ("idle", "busy")]
    gc.collect()
    gc.freeze()  # as `coterie serve` does
    idle = await office.ask(idle_room, messages)
    await make_busy(office.store, office.desk, busy_room)
    busy = await office.ask(busy_room, messages)
    at_work = [process for process in office.desk.queries.processes(busy_room) if process.active]
    for process in at_work:
        await office.desk.processes.cancel(busy_room, process.id)
    found = Round(percentile(idle, 0.95), percentile(busy, 0.95))
    log(
        f"median idle {median(idle):.1f} ms, busy {median(busy):.1f} ms; p95 {found.idle:.1f}, {found.busy:.1f} ms;"
        f" {len(at_work)} still at work, {sum(process.steps for process in at_work)} steps"
    )
    return found


async def run(folder: Path, rounds: int, messages: int) -> dict[str, object]:
    found: list[Round] = []
    async with Office(folder) as office:
        for number in range(rounds):
            found.append(await one_round(office, number, messages))
            progress(number + 1, rounds, "rounds")
    middle = sorted(found, key=lambda each: each.ratio)[rounds // 2]
    return {
        "idle_p95_ms": round(middle.idle, 1),
        "busy_p95_ms": round(middle.busy, 1),
        "ratio": round(middle.ratio, 3),
        "worst_ratio": round(max(each.ratio for each in found), 3),
        "workers": WORKERS,
        "branches": BRANCHES,
        "messages": rounds * messages,
    }


async def make_busy(store: Store, desk: DeskService, room: str) -> None:
    errand = ChannelOutcome(desk.queries.chat(room), "bench")
    lines = desk.queries.history(room)
    for number in range(WORKERS):
        errand.start_worker(f"task {number}", interactive=False)
    for number in range(BRANCHES):
        errand.start_branch(f"thought {number}", lines[-1].seq)
    payload = {"room": room, "first": lines[0].seq, "upto": lines[1].seq}
    jobs = [*errand.jobs, NewJob(COMPACT_JOB, "bench", payload)]
    drafts: list[NewEvent] = errand.new_events
    await store.append(drafts, jobs=jobs)
    await asyncio.sleep(1.5)
    busy = [process for process in desk.queries.processes(room) if process.active]
    assert len(busy) == WORKERS + BRANCHES, f"only {len(busy)} are at work"


def main() -> None:
    options = arguments(__doc__).parse_args()
    with scratch_folder() as folder:
        finish(asyncio.run(run(Path(folder), *((1, 20) if options.quick else (5, 80)))))


if __name__ == "__main__":
    main()
