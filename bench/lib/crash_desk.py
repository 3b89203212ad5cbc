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
_WORD = re.compile(r"message (\d+:\d+) ")
_DID = re.compile(r"Did work (\d+:\d+)")


class ScriptedDeskModel:
    """Answers by what it is asked, after a moment: the same in the same situation, however often."""

    name = "embedded"

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk, None]:
        await asyncio.sleep(self._chance.random() * 0.05)
        for chunk in self._answer(request):
            yield chunk
        yield Finished(reason="stop", tokens=Tokens(input=1, output=1), model="script")

    async def close(self) -> None:
        """Nothing is open."""

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
        told = next((word[1] for message in reversed(messages) if (word := _WORD.match(message.text))), None)
        if told is None:
            raise AssertionError("The person's last message is not in view.")
        if any(message.text == f"answer to {told}" for message in messages):  # woken by results
            return [TextDelta(text=f"noted {' '.join(_DID.findall(last))}")]
        return [
            _call("spawn_worker", task=f"work {told}"),
            _call("branch", thought=f"thought {told}"),
            _call("reply", text=f"answer to {told}"),
        ]


def _call(name: str, /, **arguments: object) -> ToolCallRequested:
    return ToolCallRequested(call=ToolCall(id=name, name=name, arguments=json.dumps(arguments)))


class DeskInstance:
    """A desk and its switchboard around one database, with leases as short as the lives of the process."""

    def __init__(self, folder: Path, provider: ScriptedDeskModel, sink: str) -> None:
        clock = SystemClock()
        self.store = Store.open(folder / "coterie.db", projections=desk_views(), clock=clock)
        models = ModelsSettings(roles={kind: (f"embedded/{kind}",) for kind in _KINDS})
        self.models = Models(models, clock=clock, store=self.store, providers={"embedded": provider})
        self.roster = Characters(self.store)
        self.people = People(self.store, clock)
        self.desk = DeskService(
            self.store,
            self.roster,
            Memory(self.store, clock=clock),
            self.models,
            Workspaces(folder / "workspaces"),
            DeskSettings(),
            clock,
            notify=lambda outgoing, token: self.board.notify(outgoing, token),
            lease_s=1.0,
        )
        talking: dict[str, Conversation] = {"desk": DeskConversation(self.store, self.desk, self.roster)}
        settings = SurfacesSettings(slow_notice_s=0)
        self.board = MessageRouter(self.store, clock, self.roster, self.people, talking, settings)
        self.webhook = WebhookSettings(callbacks=(sink,))

    async def create_rooms(self) -> None:
        await self.people.link_owner(NAME, CALLER)
        if not self.roster.all():
            await self.roster.save(Identity(name="Mara", persona="Mara gets things done."))

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        stop = asyncio.Event()
        hands = [asyncio.create_task(lane.run(stop)) for lane in self.desk.job_workers()]
        hands.append(asyncio.create_task(self.desk.stalled_processes.run(stop)))
        async with attached(self.board, self.webhook):
            yield
            await self.board.close()
        stop.set()
        await asyncio.gather(*hands)


def desk_views() -> list[Projection]:
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
    office = DeskInstance(folder, ScriptedDeskModel(chance), sink)
    await office.create_rooms()
    async with office.working():
        if drain:
            await _settled(office)
        else:
            os.write(1, READY)
            await asyncio.gather(*(_write(office, number, chance, sink) for number in range(_ROOMS)))
    await office.models.close()
    office.store.close()


async def _write(office: DeskInstance, number: int, chance: random.Random, sink: str) -> None:
    """One message after the other. What was not acknowledged by the last life is written again, with its id."""
    room = RoomRef(surface=NAME, id=f"room {number}")
    rows = office.store.query("SELECT count(*) FROM inbox WHERE surface = ? AND room = ?", (room.surface, room.id))
    at = max(int(rows[0][0]) - 1, 0)
    while True:
        told = f"{number}:{at}"
        account = Account(surface=NAME, id=CALLER, name=CALLER)
        text = f"message {told} {'word ' * 400}"
        incoming = IncomingMessage(account=account, room=room, key=told, thread=sink, text=text)
        (received,) = await office.board.inbound.accept([incoming])
        os.write(1, f"accepted {told}\n".encode())
        await office.board.inbound.wait_answered(received)
        if chance.random() < 0.3:
            soon = datetime.now(UTC) + timedelta(milliseconds=100)
            context = office.board.chats.rooms.get(room).context
            name = await office.desk.schedules.set(context, f"Tick for {told}.", ScheduleTime(at=soon))
            os.write(1, f"scheduled {name}\n".encode())
        at += 1


async def _settled(office: DeskInstance) -> None:
    """Everything that came in is answered, worked on, told, and delivered."""
    kinds = list(office.desk.handlers())
    while await office.store.jobs.next_due(kinds) is not None or office.board.delivery.outbox.waiting_rooms():
        await asyncio.sleep(0.1)
        await office.board.wait_idle()


def live(folder: Path, seed: int, sink: str, drain: bool, told: Connection) -> None:
    """A life of the desk, in a process of its own."""
    # A job that was under way at twenty kills is rightly given up; here the kills are not its fault.
    jobs.MAX_LEASES_PER_ATTEMPT = 10_000  # type: ignore[attr-defined]
    os.dup2(told.fileno(), 1)
    asyncio.run(child(folder, seed, sink, drain=drain))


class Sink:
    """Takes what is posted, and acknowledges it once it is noted."""

    def __init__(self) -> None:
        self.tokens: Counter[str] = Counter()
        self.texts: dict[str, str] = {}
        lock = threading.Lock()

        class Taking(BaseHTTPRequestHandler):
            def do_POST(taking) -> None:  # noqa: N805 - as the server calls it; `self` is the sink
                length = int(taking.headers["Content-Length"])
                body = taking.rfile.read(length)
                if len(body) < length:  # the sender was killed in the middle of it
                    return
                told = json.loads(body)
                with lock:
                    self.tokens[told["token"]] += 1
                    self.texts[told["token"]] = f"{told['room']}: {told['text']}"
                taking.send_response(200)
                taking.send_header("Content-Length", "0")
                taking.end_headers()

            def log_message(taking, format: str, *args: object) -> None:  # noqa: A002, N805
                """Nobody reads it."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Taking)
        self.url = f"http://127.0.0.1:{self._server.server_port}/sink"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def run(kills: int, folder: Path) -> dict[str, int]:
    told: dict[str, set[str]] = {"accepted": set(), "scheduled": set()}
    sink = Sink()

    def on_line(line: str) -> None:
        what, _, name = line.partition(" ")
        if what in told:
            told[what].add(name)
        else:  # the house's own log
            log(line)

    def spawn(kill: int) -> Forked:
        return Forked(live, folder, kill, sink.url, False)

    failures = kill_repeatedly(kills, folder / "coterie.db", desk_views, spawn, on_line, longest_s=1.5, verify_every=10)
    Forked(live, folder, kills, sink.url, True).read_until_exit()
    sink.close()
    acknowledged = len(told["accepted"]) + len(told["scheduled"])
    counted = Count(folder / "coterie.db").against(told["accepted"], told["scheduled"], sink)
    return {"kills": kills, "acknowledged": acknowledged, **counted, "verify_failures": failures}


class Count:
    """What the log holds of everything, read once from end to end."""

    def __init__(self, database: Path) -> None:
        self.said, self.replies = Counter[str](), Counter[str]()
        self.started, self.ended, self.injected = Counter[str](), Counter[str](), Counter[str]()
        self.runs = Counter[str]()
        self.compacted = 0
        self._of_turn: dict[str, str] = {}
        self._answers: dict[str, str] = {}
        reader = LogReader(database)
        after = 0
        while page := reader.read(after=after):
            for event in page:
                self._take(event)
            after = page[-1].id
        (self.waiting,) = reader.query("SELECT count(*) FROM desk_process WHERE unread")[0]
        (self.undelivered,) = reader.query("SELECT count(*) FROM outbox WHERE state != 'delivered'")[0]
        states = reader.jobs.count_by_state()
        self.dead = sum(count for state, count in states.items() if state not in ("done", "withdrawn"))
        (self.messages,) = reader.query("SELECT count(*) FROM outbox")[0]
        reader.close()

    def _take(self, event: AnyEvent) -> None:
        match event.payload:
            case UserTurn(turn=turn, text=text):
                self._of_turn[turn] = text.split()[1]
                self.said[text.split()[1]] += 1
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

    def against(self, accepted: set[str], scheduled: set[str], sink: Sink) -> dict[str, int]:
        """What was acknowledged to somebody, held against what is there."""
        told = Counter(text for text in sink.texts.values())
        begun, ran = self.started.total(), self.runs.total()
        log(f"{self.replies.total()} replies, {begun} thoughts and workers, {ran} runs of schedules")
        log(f"{self.compacted} compactions, {self.messages} messages out, {len(sink.tokens)} taken by the sink")
        unheard = sum(told[f"room {one.split(':')[0]}: answer to {one}"] == 0 for one in accepted)
        # What came of work may be noted in the same words twice, and who was killed may set a schedule anew.
        answers = Counter({text: times for text, times in told.items() if ": answer to " in text})
        over = (self.said, self.replies, answers)
        done = (self.started, self.ended, self.injected, self.runs)
        return {
            "lost": sum(self.said[one] == 0 or self.replies[one] == 0 for one in accepted) + unheard + self.undelivered,
            "doubled": sum(times > 1 for counter in over for times in counter.values()),
            "jobs_lost": self.started.total()
            - len(self.ended)
            + (len(self.ended) - len(self.injected) - self.waiting)
            + sum(self.runs[one] == 0 for one in scheduled)
            + self.dead,
            "jobs_doubled": sum(times > 1 for counter in done for times in counter.values()),
            "sent_again": sum(times - 1 for times in sink.tokens.values()),
            "compactions": self.compacted,
        }
