"""A desk under load that is killed repeatedly, with a webhook receiver that survives.

Clients send messages with ids and repeat what was not acknowledged. Every message starts a branch and a worker, some
set a schedule, and conversations grow until they are summarised. The model answers deterministically, so that each
message has one reply and each worker one result. The receiver counts delivery tokens. At the end everything
acknowledged must be answered and delivered once, and every result be part of its conversation once.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import threading
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from pathlib import Path

from bench.lib.crash_loop import READY, Forked, kill_repeatedly
from bench.lib.report import log
from coterie.base.clock import SystemClock
from coterie.characters.identity import Identity
from coterie.characters.people import People, PeopleProjection
from coterie.characters.service import Characters, CharactersProjection
from coterie.characters.workspace import Workspaces
from coterie.conversation.events import AssistantTurn, AssistantTurnStarted, UserTurn
from coterie.conversation.turns import TurnsProjection
from coterie.eventstore import AnyEvent, LogReader, Projection, Store
from coterie.eventstore.sqlite import jobs
from coterie.llm.messages import Chunk, CompletionRequest, Finished, TextDelta, Tokens, ToolCall, ToolCallRequested
from coterie.llm.router import Models
from coterie.llm.settings import ModelsSettings
from coterie.llm.usage import UsageProjection
from coterie.memory import Memory
from coterie.memory.projection import MemoryProjection
from coterie.messaging import message_router
from coterie.messaging.message_router import MessageRouter
from coterie.messaging.ports import Conversation
from coterie.messaging.protocol import Account, IncomingMessage, RoomRef
from coterie.messaging.settings import SurfacesSettings
from coterie.modes.desk import DeskConversation, DeskService, ScheduleTime
from coterie.modes.desk import projections as desk_mode
from coterie.modes.desk.events import (
    BranchEnded,
    BranchStarted,
    HistoryCompacted,
    ResultsInjected,
    ScheduleRan,
    WorkerEnded,
    WorkerStarted,
)
from coterie.modes.desk.settings import DeskSettings
from coterie.surfaces.webhook.surface import CALLER, NAME, WebhookSettings, attached

_ROOMS = 4
_KINDS = ("channel", "branch", "worker", "compactor", "cortex")
_MESSAGE = re.compile(r"message (\d+:\d+) ")
_WORK_DONE = re.compile(r"Did work (\d+:\d+)")


class ScriptedDeskModel:
    """Answers deterministically after a short random delay."""

    name = "embedded"

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk, None]:
        await asyncio.sleep(self._chance.random() * 0.05)
        for chunk in self._answer(request):
            yield chunk
        yield Finished(reason="stop", tokens=Tokens(input=1, output=1), model="script")

    async def close(self) -> None:
        """Nothing to close."""

    def _answer(self, request: CompletionRequest) -> list[Chunk]:
        messages = request.prompt.messages
        last = messages[-1].text
        if request.model == "compactor":
            return [TextDelta(text=json.dumps({"summary": "They wrote.", "memories": []}))]
        if request.model == "worker":
            if not any(message.role == "tool" for message in messages):
                return [_call("file", action="write", path="note.txt", text=last)]
            return [TextDelta(text=f"Did {messages[1].text}")]
        if request.model in ("branch", "cortex"):
            return [TextDelta(text="It is well.")]
        if last.startswith("Tick for"):
            return [TextDelta(text=last.replace("Tick", "Tock"))]
        key = next((found[1] for message in reversed(messages) if (found := _MESSAGE.match(message.text))), None)
        if key is None:
            raise AssertionError("The person's last message is not in the prompt.")
        if any(message.text == f"answer to {key}" for message in messages):  # woken by results
            return [TextDelta(text=f"noted {' '.join(_WORK_DONE.findall(last))}")]
        return [
            _call("spawn_worker", task=f"work {key}"),
            _call("branch", thought=f"thought {key}"),
            _call("reply", text=f"answer to {key}"),
        ]


def _call(name: str, /, **arguments: object) -> ToolCallRequested:
    return ToolCallRequested(call=ToolCall(id=name, name=name, arguments=json.dumps(arguments)))


class DeskInstance:
    """A desk and its message router on one database, with short leases."""

    def __init__(self, folder: Path, provider: ScriptedDeskModel, sink: str) -> None:
        clock = SystemClock()
        self.store = Store.open(folder / "coterie.db", projections=desk_projections(), clock=clock)
        models = ModelsSettings(roles={kind: (f"embedded/{kind}",) for kind in _KINDS})
        self.models = Models(models, clock=clock, store=self.store, providers={"embedded": provider})
        self.characters = Characters(self.store)
        self.people = People(self.store, clock)
        self.desk = DeskService(
            self.store,
            self.characters,
            Memory(self.store, clock=clock),
            self.models,
            Workspaces(folder / "workspaces"),
            DeskSettings(),
            clock,
            notify=lambda outgoing, token: self.router.notify(outgoing, token),
            lease_s=1.0,
        )
        conversations: dict[str, Conversation] = {"desk": DeskConversation(self.store, self.desk, self.characters)}
        settings = SurfacesSettings(slow_notice_s=0)
        self.router = MessageRouter(self.store, clock, self.characters, self.people, conversations, settings)
        self.webhook = WebhookSettings(callbacks=(sink,))

    async def create_rooms(self) -> None:
        await self.people.link_owner(NAME, CALLER)
        if not self.characters.all():
            await self.characters.save(Identity(name="Mara", persona="Mara gets things done."))

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        stop = asyncio.Event()
        tasks = [asyncio.create_task(worker.run(stop)) for worker in self.desk.job_workers().values()]
        tasks.append(asyncio.create_task(self.desk.stalled_processes.run(stop)))
        async with attached(self.router, self.webhook):
            yield
            await self.router.close()
        stop.set()
        await asyncio.gather(*tasks)


def desk_projections() -> list[Projection]:
    return [
        CharactersProjection(),
        PeopleProjection(),
        TurnsProjection(),
        MemoryProjection(),
        UsageProjection(),
        *message_router.messaging_projections(),
        *desk_mode.desk_projections(),
    ]


async def child(folder: Path, seed: int, sink: str, *, drain: bool) -> None:
    chance = random.Random(seed)
    instance = DeskInstance(folder, ScriptedDeskModel(chance), sink)
    await instance.create_rooms()
    async with instance.working():
        if drain:
            await _wait_until_settled(instance)
        else:
            os.write(1, READY)
            await asyncio.gather(*(_write(instance, number, chance, sink) for number in range(_ROOMS)))
    await instance.models.close()
    instance.store.close()


async def _write(instance: DeskInstance, number: int, chance: random.Random, sink: str) -> None:
    """Send messages one by one, starting with the last one, which may not have been acknowledged."""
    room = RoomRef(surface=NAME, id=f"room {number}")
    rows = instance.store.query("SELECT count(*) FROM inbox WHERE surface = ? AND room = ?", (room.surface, room.id))
    at = max(int(rows[0][0]) - 1, 0)
    while True:
        key = f"{number}:{at}"
        account = Account(surface=NAME, id=CALLER, name=CALLER)
        text = f"message {key} {'word ' * 400}"
        incoming = IncomingMessage(account=account, room=room, key=key, thread=sink, text=text)
        (received,) = await instance.router.inbound.accept([incoming])
        os.write(1, f"accepted {key}\n".encode())
        await instance.router.inbound.wait_answered(received)
        if chance.random() < 0.3:
            soon = datetime.now(UTC) + timedelta(milliseconds=100)
            context = instance.router.chats.rooms.get(room).context
            name = await instance.desk.schedules.set(context, f"Tick for {key}.", ScheduleTime(at=soon))
            os.write(1, f"scheduled {name}\n".encode())
        at += 1


async def _wait_until_settled(instance: DeskInstance) -> None:
    """Wait until all jobs are done and all messages are delivered."""
    kinds = list(instance.desk.handlers())
    while await instance.store.jobs.next_due(kinds) is not None or instance.router.delivery.outbox.waiting_rooms():
        await asyncio.sleep(0.1)
        await instance.router.wait_idle()


def run_child(folder: Path, seed: int, sink: str, drain: bool, output: Connection) -> None:
    """Entry point of the child process."""
    # Every kill counts as an attempt of the running jobs, so that the limit is raised.
    jobs.MAX_LEASES_PER_ATTEMPT = 10_000  # type: ignore[attr-defined]
    os.dup2(output.fileno(), 1)
    asyncio.run(child(folder, seed, sink, drain=drain))


class WebhookReceiver:
    """Counts posted messages by token and acknowledges them."""

    def __init__(self) -> None:
        self.tokens: Counter[str] = Counter()
        self.texts: dict[str, str] = {}
        lock = threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(handler) -> None:  # noqa: N805 - `self` is the receiver
                length = int(handler.headers["Content-Length"])
                body = handler.rfile.read(length)
                if len(body) < length:  # the sender was killed meanwhile
                    return
                message = json.loads(body)
                with lock:
                    self.tokens[message["token"]] += 1
                    self.texts[message["token"]] = f"{message['room']}: {message['text']}"
                handler.send_response(200)
                handler.send_header("Content-Length", "0")
                handler.end_headers()

            def log_message(handler, format: str, *args: object) -> None:  # noqa: A002, N805
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/sink"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def run(kills: int, folder: Path) -> dict[str, int]:
    acknowledged: dict[str, set[str]] = {"accepted": set(), "scheduled": set()}
    sink = WebhookReceiver()

    def on_line(line: str) -> None:
        what, _, name = line.partition(" ")
        if what in acknowledged:
            acknowledged[what].add(name)
        else:  # a log line of the server
            log(line)

    def spawn(kill: int) -> Forked:
        return Forked(run_child, folder, kill, sink.url, False)

    failures = kill_repeatedly(
        kills, folder / "coterie.db", desk_projections, spawn, on_line, longest_s=1.5, verify_every=10
    )
    Forked(run_child, folder, kills, sink.url, True).read_until_exit()
    sink.close()
    accepted, scheduled = acknowledged["accepted"], acknowledged["scheduled"]
    counted = LogCounts(folder / "coterie.db").compare(accepted, scheduled, sink)
    return {"kills": kills, "acknowledged": len(accepted) + len(scheduled), **counted, "verify_failures": failures}


class LogCounts:
    """Counts of the events in the log."""

    def __init__(self, database: Path) -> None:
        self.messages_received, self.replies = Counter[str](), Counter[str]()
        self.started, self.ended, self.injected = Counter[str](), Counter[str](), Counter[str]()
        self.runs = Counter[str]()
        self.compacted = 0
        self._of_turn: dict[str, str] = {}
        self._answers: dict[str, str] = {}
        reader = LogReader(database)
        after = 0
        while page := reader.read(after=after):
            for event in page:
                self._count(event)
            after = page[-1].id
        (self.waiting,) = reader.query("SELECT count(*) FROM desk_process WHERE unread")[0]
        (self.undelivered,) = reader.query("SELECT count(*) FROM outbox WHERE state != 'delivered'")[0]
        states = reader.jobs.count_by_state()
        self.dead = sum(count for state, count in states.items() if state not in ("done", "withdrawn"))
        (self.messages,) = reader.query("SELECT count(*) FROM outbox")[0]
        reader.close()

    def _count(self, event: AnyEvent) -> None:
        match event.payload:
            case UserTurn(turn=turn, text=text):
                self._of_turn[turn] = text.split()[1]
                self.messages_received[text.split()[1]] += 1
            case AssistantTurnStarted(reply=reply, answers=str(to)):
                self._answers[reply] = to
            case AssistantTurn(reply=reply) if reply in self._answers:
                self.replies[self._of_turn[self._answers[reply]]] += 1
            case WorkerStarted(task=about) | BranchStarted(thought=about):
                self.started[about] += 1
            case WorkerEnded(worker=name) | BranchEnded(branch=name):
                self.ended[f"{event.stream} {name}"] += 1
            case ResultsInjected(results=results):
                self.injected.update(f"{event.stream} {name}" for name in results)
            case ScheduleRan(schedule=name):
                self.runs[name] += 1
            case HistoryCompacted():
                self.compacted += 1

    def compare(self, accepted: set[str], scheduled: set[str], sink: WebhookReceiver) -> dict[str, int]:
        """Lost and repeated messages and jobs, compared with what was acknowledged."""
        delivered = Counter(sink.texts.values())
        started, ran = self.started.total(), self.runs.total()
        log(f"{self.replies.total()} replies, {started} branches and workers, {ran} schedule runs")
        log(f"{self.compacted} compactions, {self.messages} messages sent, {len(sink.tokens)} received")
        undelivered = sum(delivered[f"room {one.split(':')[0]}: answer to {one}"] == 0 for one in accepted)
        # Notes about results may repeat, and a killed client may set a schedule again.
        answers = Counter({text: times for text, times in delivered.items() if ": answer to " in text})
        messages = (self.messages_received, self.replies, answers)
        work = (self.started, self.ended, self.injected, self.runs)
        return {
            "lost": sum(self.messages_received[one] == 0 or self.replies[one] == 0 for one in accepted)
            + undelivered
            + self.undelivered,
            "doubled": sum(times > 1 for counter in messages for times in counter.values()),
            "jobs_lost": self.started.total()
            - len(self.ended)
            + (len(self.ended) - len(self.injected) - self.waiting)
            + sum(self.runs[one] == 0 for one in scheduled)
            + self.dead,
            "jobs_doubled": sum(times > 1 for counter in work for times in counter.values()),
            "sent_again": sum(times - 1 for times in sink.tokens.values()),
            "compactions": self.compacted,
        }
