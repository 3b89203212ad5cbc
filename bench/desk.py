"""How quickly the desk answers, idle and with 50 busy workers, 5 branches and a compaction in the same conversation. D1

The model is scripted and takes its time: 150 ms for a reply, about a second for each turn of a worker or a branch.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from pathlib import Path

from bench._report import arguments, finish, median, percentile, progress, say, scratch
from coterie.base.clock import SystemClock
from coterie.cast.identity import Identity
from coterie.cast.people import People
from coterie.cast.roster import Cast, Roster
from coterie.cast.workspace import Workspaces
from coterie.engine import switchboard
from coterie.engine.conversation import Spoken
from coterie.engine.turns import Turns
from coterie.kernel import Draft, NewJob, Store
from coterie.llm.messages import CallRequested, Chunk, Finished, Request, TextDelta, Tokens, ToolCall
from coterie.llm.router import Models
from coterie.llm.settings import ModelsSettings
from coterie.llm.usage import Usage
from coterie.memory import Memory
from coterie.memory.view import Memories
from coterie.modes.desk import mode as desk_mode
from coterie.modes.desk.conversation import DeskConversation
from coterie.modes.desk.desk import Desk
from coterie.modes.desk.errand import COMPACT, Errand
from coterie.modes.desk.settings import DeskSettings

WORKERS, BRANCHES = 50, 5
CHANCE = random.Random(8)
TAKES_S = {"channel": 0.15, "worker": 1.0, "branch": 1.0, "compactor": 5.0}


class Scripted:
    """A model that answers after a while: people in words, workers and branches with one more thing to do."""

    name = "embedded"

    async def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        await asyncio.sleep(TAKES_S[request.model] * (1.0 if request.model == "channel" else CHANCE.uniform(0.5, 1.5)))
        end = Finished(reason="stop", tokens=Tokens(input=100, output=10), model="script")
        if request.model == "worker":
            arguments = json.dumps({"text": f"step at {time.time():.0f}"})
            yield CallRequested(call=ToolCall(id="1", name="set_status", arguments=arguments))
        elif request.model == "branch":
            yield CallRequested(call=ToolCall(id="1", name="channel_recall", arguments='{"text": "hello"}'))
        elif request.model == "compactor":
            yield TextDelta(text='{"summary": "They said hello."}')
        else:
            yield TextDelta(text="Certainly.")
        yield end

    async def close(self) -> None:
        pass


async def run(folder: Path, messages: int) -> dict[str, object]:
    clock = SystemClock()
    views = [Cast(), People(), Turns(), *switchboard.views(), Memories(), Usage(), *desk_mode.views()]
    store = Store.open(folder / "desk.db", views=views, clock=clock)
    settings = ModelsSettings(roles={kind: (f"embedded/{kind}",) for kind in TAKES_S})
    models = Models(settings, clock=clock, store=store, providers={"embedded": Scripted()})
    roster = Roster(store)
    desk = Desk(store, roster, Memory(store, clock=clock), models, Workspaces(folder / "ws"), DeskSettings(), clock)
    bot = await roster.author(Identity(name="Mara", persona="Mara gets things done."))
    talk = DeskConversation(store, desk, roster)
    stop = asyncio.Event()
    lanes = [asyncio.create_task(lane.run(stop)) for lane in desk.workers()]
    rooms = {name: await desk.open(bot.id, "ana", name) for name in ("idle", "busy")}
    took: dict[str, list[float]] = {"idle": [], "busy": []}

    async def ask(name: str, number: int) -> float:
        began = time.perf_counter()
        async for speech in talk.say(rooms[name], f"hello {number}", person="ana", key=f"{name}:{number}"):
            assert isinstance(speech, Spoken) and speech.text, "no answer"
        return (time.perf_counter() - began) * 1_000

    async with AsyncExitStack() as stack:
        stack.callback(store.close)
        stack.push_async_callback(models.close)
        for number in range(3):  # what is loaded on first use is loaded now
            await ask("idle", -1 - number)
            await ask("busy", -1 - number)
        for number in range(messages):
            took["idle"].append(await ask("idle", number))
            progress(number + 1, messages, "idle")
        await make_busy(store, desk, rooms["busy"])
        for number in range(messages):
            took["busy"].append(await ask("busy", number))
            progress(number + 1, messages, "busy")
        at_work = [process for process in desk.book.processes(rooms["busy"]) if process.busy]
        say(f"still at work: {len(at_work)}, steps {sum(process.steps for process in at_work)}")
        for process in at_work:
            await desk.processes.cancel(rooms["busy"], process.id)
        stop.set()
        for lane in lanes:
            lane.cancel()
        await asyncio.gather(*lanes, return_exceptions=True)
    idle, busy = (percentile(took[name], 0.95) for name in ("idle", "busy"))
    say(f"median idle {median(took['idle']):.1f} ms, busy {median(took['busy']):.1f} ms; p95 {idle:.1f}, {busy:.1f} ms")
    return {
        "idle_p95_ms": round(idle, 1),
        "busy_p95_ms": round(busy, 1),
        "ratio": round(busy / idle, 3),
        "workers": WORKERS,
        "branches": BRANCHES,
        "messages": messages,
    }


async def make_busy(store: Store, desk: Desk, room: str) -> None:
    errand = Errand(desk.book.chat(room), "bench")
    lines = desk.book.history(room)
    for number in range(WORKERS):
        errand.hire(f"task {number}", interactive=False)
    for number in range(BRANCHES):
        errand.branch(f"thought {number}", lines[-1].seq)
    payload = {"room": room, "first": lines[0].seq, "upto": lines[1].seq}
    jobs = [*errand.jobs, NewJob(COMPACT, "bench", payload)]
    drafts: list[Draft] = errand.drafts
    await store.append(drafts, jobs=jobs)
    await asyncio.sleep(1.5)
    busy = [process for process in desk.book.processes(room) if process.busy]
    assert len(busy) == WORKERS + BRANCHES, f"only {len(busy)} are at work"


def main() -> None:
    options = arguments(__doc__).parse_args()
    with scratch() as folder:
        finish(asyncio.run(run(Path(folder), 20 if options.quick else 100)))


if __name__ == "__main__":
    main()
