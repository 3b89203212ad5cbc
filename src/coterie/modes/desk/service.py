"""The desk: a character that answers at once while branches and workers do the work in the background."""

from __future__ import annotations

import asyncio
import hashlib
import mimetypes
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import PurePosixPath

from coterie.base.clock import Clock
from coterie.base.ids import new_id
from coterie.characters import Characters, Workspaces
from coterie.conversation import AssistantTurn, Segment, Turn, TurnQueries, UserTurn
from coterie.eventstore import Handler, Job, JobResult, NewEvent, NewJob, Store, WhenSlow, Worker, subject_token
from coterie.llm import Models, Role
from coterie.memory import Memory
from coterie.messaging import (
    Attachment,
    ChatStatus,
    NewChat,
    OutgoingMessage,
    ReplyDelta,
    ReplyFinished,
    ReplyReaction,
    ReplyUpdate,
    RoomRef,
    with_quote,
)
from coterie.modes.desk.agents.branches import Branches, CharacterQuestions, MayTalk
from coterie.modes.desk.agents.channel import Channel
from coterie.modes.desk.agents.maintenance import UNKNOWN_WINDOW, Compactor, DeskMaintenance, StalledProcesses
from coterie.modes.desk.agents.processes import AgentDeps, Confirmations, Processes
from coterie.modes.desk.agents.tools import AgentTool, McpServers
from coterie.modes.desk.agents.workers import Workers, skill_tools, worker_tools
from coterie.modes.desk.errors import DeskError, WorkspaceFileError
from coterie.modes.desk.events import DeskOpened, DeskRenamed
from coterie.modes.desk.jobs import (
    BRANCH_JOB,
    COMPACT_JOB,
    MESSAGE_JOB,
    MESSAGE_PRIORITY,
    NOTIFY_JOB,
    SCHEDULE_JOB,
    WAKE_JOB,
    WORKER_JOB,
    ChannelOutcome,
    message_key,
)
from coterie.modes.desk.prompts import DeskPromptBuilder
from coterie.modes.desk.queries import Audience, BulletinQueries, DeskChat, DeskQueries, ScheduleQueries
from coterie.modes.desk.sandbox.files import Workspace, WorkspaceFile, WorkspaceFiles, WorkspaceLimits
from coterie.modes.desk.sandbox.sandbox import Sandbox
from coterie.modes.desk.schedules import ScheduleService
from coterie.modes.desk.settings import DeskSettings
from coterie.modes.desk.skills import Skills
from coterie.modes.desk.text_safety import LeakGuard

_MAX_DOWNLOAD = 50 << 20
Notify = Callable[[OutgoingMessage, str], Awaitable[None]]
"""Sends a message to a surface, once per token."""
_LEASE_S = 20.0
"""Jobs that a crash interrupted are taken up again after this time."""
_POLL_S = 0.5
"""A skipped message publishes no reply, so its job is polled, too."""
_GIVEN_UP = "I could not answer this after several attempts. `coterie doctor` shows the reason."


class ReplyWaiter:
    """Waits for the reply to a message of a person."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._turns = TurnQueries(store)

    async def wait(self, room: str, turn: str) -> Turn | None:
        """Wait until the message was handled; None if it was skipped, answered with another or given up."""
        # Subscribed to replies only: a busy desk appends dozens of other events per second.
        subject = f"event.{subject_token(room)}.{AssistantTurn.kind}"
        async with self._store.bus.subscribe(subject, limit=1, when_slow=WhenSlow.DROP_OLDEST) as replies:
            while not self.handled(turn):
                with suppress(TimeoutError):
                    async with asyncio.timeout(_POLL_S):
                        await anext(replies)
        return self.find(room, turn)

    def find(self, room: str, turn: str) -> Turn | None:
        return next((reply for reply in reversed(self._turns.latest(room, 50)) if reply.answers == turn), None)

    def handled(self, turn: str) -> bool:
        return self._job_state(turn) not in ("ready", "leased")

    def given_up(self, turn: str) -> bool:
        return self._job_state(turn) == "dead"

    def _job_state(self, turn: str) -> str:
        return self._store.reader.jobs.state_of(message_key(turn)) or ""


class ReplyNotifications:
    """Sends replies that no message asked for to every surface room of the conversation, or to the room of a schedule.

    It is a job that is stored with the reply. The delivery token is derived from the reply, so that a repeated run
    sends nothing twice.
    """

    def __init__(self, store: Store, queries: DeskQueries, notify: Notify | None) -> None:
        self._store = store
        self._queries = queries
        self._turns = TurnQueries(store)
        self._notify = notify

    async def notify(self, job: Job) -> JobResult | None:
        room, reply = str(job.payload["room"]), str(job.payload["reply"])
        text, files = self._turns.turn(room, reply).text, self._queries.files_of(room, reply)
        if self._notify is None or not (text or files):
            return None
        own_rooms = [
            RoomRef(surface=surface, id=surface_room)
            for surface, surface_room in self._store.query(
                "SELECT surface, room FROM surface_room WHERE context = ? AND NOT archived ORDER BY surface, room",
                (room,),
            )
        ]
        targets = [RoomRef.model_validate(job.payload["to"])] if "to" in job.payload else own_rooms
        for target in targets:
            token = hashlib.sha256(f"{reply}\n{target.surface}\n{target.id}".encode()).hexdigest()[:20]
            # Files belong to the people of the conversation, and are not shown in other rooms.
            attachments = files if target in own_rooms else ()
            message = OutgoingMessage(room=target, text=text, attachments=attachments, thread=self._last_thread(target))
            await self._notify(message, token)
        return None

    def _last_thread(self, room: RoomRef) -> str | None:
        """The thread, or the callback address, of the latest message in the room."""
        rows = self._store.query(
            "SELECT json_extract(incoming, '$.thread') FROM inbox WHERE surface = ? AND room = ?"
            " ORDER BY id DESC LIMIT 1",
            (room.surface, room.id),
        )
        return rows[0][0] if rows else None


class DeskService:
    """Builds the collaborators of the desk and offers its commands."""

    def __init__(
        self,
        store: Store,
        characters: Characters,
        memory: Memory,
        models: Models,
        workspaces: Workspaces,
        settings: DeskSettings,
        clock: Clock,
        extra_tools: Sequence[AgentTool] = (),
        notify: Notify | None = None,
        *,
        may_talk: MayTalk = lambda person, character: True,
        lease_s: float = _LEASE_S,
    ) -> None:
        self._store = store
        self._characters = characters
        self._workspaces = workspaces
        self._clock = clock
        self._lease_s = lease_s
        self._extra_tools: tuple[AgentTool, ...] = tuple(extra_tools)
        self._limits = WorkspaceLimits(settings.workspace_mb << 20, settings.workspace_files)
        self.sandbox = Sandbox(settings)
        self.queries = DeskQueries(store)
        self.replies = ReplyWaiter(store)
        audience = self._audience = Audience(store, memory)
        self.processes = Processes(store, self.queries, memory, audience)
        self.confirmations = Confirmations(self.queries, self.processes)
        self.skills = Skills(store, workspaces)
        self.bulletins = BulletinQueries(store, memory, audience)
        schedule_queries = ScheduleQueries(store)
        self.prompts = DeskPromptBuilder(
            self.queries,
            characters,
            workspaces,
            clock,
            self.bulletins,
            schedule_queries,
            self.skills,
            lambda: models.context_window(Role.CHANNEL) or UNKNOWN_WINDOW,
        )
        self.compactor = Compactor(store, self.queries, models, self.processes, workspaces)
        deps = AgentDeps(
            self.queries,
            self.prompts,
            self.processes,
            models,
            LeakGuard(),
            schedule_queries,
            self.skills,
            self._file_to_send,
        )
        channel = Channel(deps, self.compactor, audience, clock)
        self.previews = channel.previews
        self.character_questions = CharacterQuestions(
            store, characters, workspaces, memory, audience, models, clock, may_talk, settings.asks_a_day
        )
        branches = Branches(deps, audience, self.character_questions)
        workers = Workers(deps, self._tools)
        self.mcp_servers = McpServers(settings.tool_servers)
        self.schedules = ScheduleService(store, deps, channel, clock)
        self.stalled_processes = StalledProcesses(store, self.queries, self.schedules.fail_lost_runs)
        self.maintenance = DeskMaintenance(
            store, self.queries, self.bulletins, audience, memory, models, clock, self.stalled_processes, workspaces
        )
        self._job_groups: list[tuple[str, int, dict[str, Handler]]] = [
            (
                "messages",
                16,
                {
                    MESSAGE_JOB: channel.handle_message,
                    WAKE_JOB: channel.handle_wake,
                    NOTIFY_JOB: ReplyNotifications(store, self.queries, notify).notify,
                },
            ),
            (
                "branches",
                16,
                {
                    BRANCH_JOB: branches.run_branch,
                    COMPACT_JOB: self.compactor.compact,
                    SCHEDULE_JOB: self.schedules.run,
                },
            ),
            ("workers", 64, {WORKER_JOB: workers.run_turn}),
        ]

    async def open(self, character: str, person: str, title: str = "") -> str:
        room, opened = self.plan_conversation(character, person, title)
        await self._store.append([opened])
        return room

    def plan_conversation(self, character: str, person: str, title: str = "") -> tuple[str, NewEvent]:
        """A new room, and the event that opens it."""
        room = f"room:{new_id()}"
        opened = DeskOpened(character=self._characters.get(character).id, person=person, title=title)
        return room, NewEvent(room, opened, person)

    async def send_message(self, room: str, text: str, *, person: str, key: str | None = None) -> str:
        """Store the message together with the job that answers it; returns the turn. Idempotent by key."""
        self.queries.chat(room)
        turn = new_id()
        payload = UserTurn(turn=turn, author=person, text=text, segments=(Segment(kind="dialogue", text=text),))
        job = NewJob(MESSAGE_JOB, message_key(turn), {"room": room, "turn": turn}, priority=MESSAGE_PRIORITY)
        (event,) = await self._store.append([NewEvent(room, payload, person, key=key, turn=turn)], jobs=[job])
        return event.payload.turn if isinstance(event.payload, UserTurn) else turn

    async def start_worker(
        self, room: str, task: str, *, interactive: bool = False, person: str, task_type: str = ""
    ) -> str:
        """Start a worker on behalf of a person; the character receives the result."""
        outcome = ChannelOutcome(self.queries.chat(room), person)
        worker = outcome.start_worker(task, interactive, task_type=task_type)
        new_events = [event._replace(actor=person) for event in outcome.new_events]
        await self._store.append(new_events, jobs=outcome.jobs)
        return worker

    def add_tools(self, tools: Sequence[AgentTool]) -> None:
        """Offer more tools to every worker, from its next turn on."""
        self._extra_tools += tuple(tools)

    def handlers(self) -> dict[str, Handler]:
        return {kind: handler for *_, handlers in self._job_groups for kind, handler in handlers.items()}

    def job_workers(self) -> dict[str, Worker]:
        """One job worker per kind of process, so that busy workers never delay a reply."""
        return {
            name: Worker(
                self._store.jobs,
                handlers,
                clock=self._clock,
                bus=self._store.bus,
                concurrency=concurrency,
                lease_s=self._lease_s,
                serialize_by=serialization_key,
            )
            for name, concurrency, handlers in self._job_groups
        }

    def workspace(self, room: str) -> Workspace:
        """The files of a conversation's workers: those of the people in it, and what the character shares with all.

        Everybody who is in the conversation counts, as for memories, so that a guest who joins sees none of the files
        that the others had before.
        """
        chat = self.queries.chat(room)
        folder = self._workspaces.people_folder(chat.character, self._audience.present(chat))
        shared = {**self._workspaces.shared_texts(chat.character), **self.skills.shared(chat.character)}
        return Workspace(folder, shared)

    def files(self, room: str, most: int = 50) -> list[WorkspaceFile]:
        """The files of a conversation's workers, those changed last first. It reads folders: call it in a thread."""
        return WorkspaceFiles(self.workspace(room), self._limits).newest(most)

    def read_file(self, room: str, path: str) -> bytes:
        """A file of the conversation's workers; raises `WorkspaceFileError` if there is none, or it is too large."""
        if PurePosixPath(path).is_absolute():
            raise WorkspaceFileError(f"{path[:200]} is not in the workspace.", "Name a file of the conversation.")
        size, data = WorkspaceFiles(self.workspace(room), self._limits).measure(path, _MAX_DOWNLOAD)
        if size > _MAX_DOWNLOAD:
            raise WorkspaceFileError(f"{path[:200]} is too large to download.", "Copy it from the data folder.")
        return data

    def _file_to_send(self, room: str, path: str, most: int) -> tuple[Attachment, bytes]:
        if PurePosixPath(path).is_absolute():
            raise WorkspaceFileError(f"{path[:200]} is not in the workspace.", "Copy it there first.")
        workspace = self.workspace(room)
        size, beginning = WorkspaceFiles(workspace, self._limits).measure(path, most)
        folder = workspace.folder.relative_to(self._workspaces.folder(self.queries.chat(room).character))
        name = PurePosixPath(path).name
        media_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
        return Attachment(name=name, path=f"{folder.as_posix()}/{path}", media_type=media_type, size=size), beginning

    def people_in(self, room: str) -> frozenset[str]:
        """Everybody who is in a conversation, or was."""
        return self._audience.present(self.queries.chat(room))

    def _tools(self, chat: DeskChat) -> Sequence[AgentTool]:
        files = WorkspaceFiles(self.workspace(chat.room), self._limits)
        return [
            *worker_tools(self.sandbox, files),
            *skill_tools(self.skills, chat.character, files),
            *self._extra_tools,
            *self.mcp_servers.tools,
        ]


def serialization_key(job: Job) -> str | None:
    """At most one job at a time handles a conversation, and likewise a worker."""
    payload: Mapping[str, object] = job.payload
    if job.kind in (MESSAGE_JOB, WAKE_JOB):
        return f"talk:{payload['room']}"
    if job.kind == COMPACT_JOB:
        return f"compact:{payload['room']}"
    return f"work:{payload['room']}:{payload['worker']}" if job.kind == WORKER_JOB else None


class DeskConversation:
    """The desk as a conversation in a room of any surface."""

    mode = "desk"

    def __init__(self, store: Store, desk: DeskService, characters: Characters) -> None:
        self._store = store
        self._desk = desk
        self._characters = characters
        self._turns = TurnQueries(store)

    async def open(self, person: str, character: str, title: str = "", *, at_once: bool = False) -> NewChat:
        room, opened = self._desk.plan_conversation(character, person, title)
        return NewChat(room, [opened])

    async def add_person(self, context: str, person: str) -> None:
        """Nothing to store: every message names its author."""

    async def remove_person(self, context: str, person: str) -> None:
        """Nothing to store: every message names its author."""

    async def send_message(
        self, context: str, text: str, *, person: str, key: str, attachments: Sequence[Attachment] = (), quote: str = ""
    ) -> AsyncIterator[ReplyUpdate]:
        chat = self._desk.queries.chat(context)
        if answer := await self._desk.confirmations.handle_answer(chat, text, person):
            yield ReplyFinished(answer, self._characters.get(chat.character).name)
            return
        folder = self._desk.workspace(context).folder.name if attachments else ""
        files = [_attachment_text(file, folder) for file in attachments]
        message = "\n".join([with_quote(text, quote), *files]).strip()
        turn = await self._desk.send_message(context, message, person=person, key=key)
        with self._desk.previews.listening(turn) as previews:
            waiting = asyncio.ensure_future(self._wait_for_reply(context, turn))
            try:
                async for update in _growing_text(previews, waiting):
                    yield update
                if emoji := self._desk.queries.reaction_to(context, turn):
                    yield ReplyReaction(emoji)
                yield await waiting
            finally:
                waiting.cancel()

    def retry(self, context: str, *, person: str) -> AsyncIterator[ReplyUpdate]:
        raise DeskError("A desk reply cannot be regenerated.", "Write what should be different.")

    async def stop(self, context: str) -> bool:
        """Cancel every active process of the conversation."""
        active = [process for process in self._desk.queries.processes(context) if process.active]
        for process in active:
            await self._desk.processes.cancel(context, process.id)
        return bool(active)

    def status(self, context: str) -> ChatStatus:
        chat = self._desk.queries.chat(context)
        active = [process for process in self._desk.queries.processes(context) if process.active]
        notes = tuple((f"{process.kind} {process.id}", process.status or process.task) for process in active)
        return ChatStatus(chat.title, self._characters.get(chat.character).name, self._turns.count(context), notes)

    async def rename(self, context: str, title: str) -> None:
        await self._store.append([NewEvent(context, DeskRenamed(title=title))])

    async def _wait_for_reply(self, room: str, turn: str) -> ReplyFinished:
        name = self._characters.get(self._desk.queries.chat(room).character).name
        reply = await self._desk.replies.wait(room, turn)
        if reply is not None:
            return ReplyFinished(reply.text, name, reply.why, self._desk.queries.files_of(room, reply.id))
        return ReplyFinished("", name, _GIVEN_UP if self._desk.replies.given_up(turn) else "")


async def _growing_text(
    previews: asyncio.Queue[str], until: asyncio.Future[ReplyFinished]
) -> AsyncIterator[ReplyDelta]:
    """What is new in each preview, until the reply is there. A text that did not grow out of the last one is left to
    the end: the model began anew."""
    shown = ""
    while not until.done():
        following = asyncio.ensure_future(previews.get())
        await asyncio.wait((following, until), return_when=asyncio.FIRST_COMPLETED)
        if not following.done():
            following.cancel()
            return
        text = following.result()
        if text.startswith(shown) and text != shown:
            yield ReplyDelta(text[len(shown) :])
            shown = text


def _attachment_text(file: Attachment, folder: str) -> str:
    """Names a file as workers see it, relative to the folder of the people in the conversation."""
    name = " ".join(file.name.split())[:100]
    return f"(a file: {name}, {file.path.partition(f'{folder}/')[2] or file.path})"
