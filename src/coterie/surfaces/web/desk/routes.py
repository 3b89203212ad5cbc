"""The API for the desk: conversations, workers, confirmations, schedules and skills."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Query, Response, status
from pydantic import Field

from coterie.base.redaction import redact
from coterie.base.values import Int64, Name, Prose
from coterie.characters import OWNER, Characters
from coterie.conversation import Turn, TurnQueries
from coterie.eventstore import Store
from coterie.llm import Models, UsageQueries
from coterie.messaging import RoomRef, Rooms
from coterie.modes.desk import (
    DeskChat,
    DeskConversation,
    DeskError,
    DeskSchedule,
    DeskService,
    McpServerState,
    Process,
    SandboxStatus,
    ScheduleTime,
    Skill,
    WorkerStep,
)
from coterie.modes.story import ReadMarks
from coterie.surfaces.web.shared.dependencies import CharactersDep, DeskDep, ModelsDep, StoreDep
from coterie.surfaces.web.shared.errors import ERROR_RESPONSES
from coterie.surfaces.web.story.schemas import DoneResponse, RequestModel, ResponseModel

# Requests and responses


class DeskChatRequest(RequestModel):
    character: Name
    """By name or id."""
    title: str = Field(default="", max_length=200)
    webhook: str = Field(default="", max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")
    """Bind this conversation to a room of `POST /webhook`."""


class DeskMessageRequest(RequestModel):
    text: Prose = Field(min_length=1)
    key: str | None = Field(default=None, max_length=200)
    """A repeated key is the same message."""


class FollowUpRequest(RequestModel):
    text: Prose = Field(min_length=1)


class TaskRequest(RequestModel):
    task: Prose = Field(min_length=1)
    interactive: bool = False
    """Keep the worker for follow-ups."""
    type: str = Field(default="", max_length=40)
    """The type of the task, which may have a model of its own (`models.tasks`)."""


class ConfirmationRequest(RequestModel):
    allowed: bool


class ScheduleRequest(RequestModel):
    prompt: Prose = Field(min_length=1)
    """The prompt when it is due."""
    when: ScheduleTime
    to: str = Field(default="", max_length=300)
    """The room that gets what it says, such as `telegram: Kitchen`; empty: this conversation."""


class SwitchRequest(RequestModel):
    on: bool


class SandboxStatusResponse(ResponseModel):
    state: str
    """`confined`, `refused` or `off`."""
    reason: str
    fix: str
    limits: str
    """Who limits the memory and the processes of all commands together."""

    @classmethod
    def of(cls, status: SandboxStatus) -> SandboxStatusResponse:
        return cls(state=status.state, reason=status.reason, fix=status.fix, limits=status.limits)


class ProcessResponse(ResponseModel):
    id: str
    kind: str
    """`branch` or `worker`."""
    task: str
    state: str
    status: str
    interactive: bool
    started: datetime
    ended: datetime | None
    steps: int
    calls: int
    result: str
    """The result; while it waits, its question."""
    needs_yes: bool
    """Whether it waits for a confirmation."""

    @classmethod
    def of(cls, process: Process) -> ProcessResponse:
        return cls(
            id=process.id,
            kind=process.kind,
            task=redact(process.task),
            state=process.state,
            status=process.status,
            interactive=process.interactive,
            started=process.started,
            ended=process.ended,
            steps=process.steps,
            calls=process.calls,
            result=process.result,
            needs_yes=process.needs_confirmation,
        )


class StepResponse(ResponseModel):
    """One step of a worker."""

    role: str
    text: str
    tool: str
    arguments: str

    @classmethod
    def of(cls, step: WorkerStep) -> StepResponse:
        return cls(role=step.role, text=redact(step.text), tool=step.tool, arguments=redact(step.arguments))


class ProcessDetailResponse(ProcessResponse):
    done: list[StepResponse]
    """Steps, oldest first."""


class ScheduleResponse(ResponseModel):
    id: str
    prompt: str
    when: ScheduleTime
    description: str
    """When it runs, in words."""
    on: bool
    next: datetime | None
    failures: int
    """Consecutive failures; three switch it off."""
    why: str
    """Why it was switched off."""
    last: datetime | None
    last_end: str
    """`replied`, `nothing` or `failed`."""
    last_output: str
    to: RoomRef | None
    """The room on a surface that gets what it says; none for the rooms of the conversation."""

    @classmethod
    def of(cls, schedule: DeskSchedule) -> ScheduleResponse:
        return cls(
            id=schedule.id,
            prompt=redact(schedule.prompt),
            when=schedule.when,
            description=schedule.when.describe(),
            on=schedule.on,
            next=schedule.next,
            failures=schedule.failures,
            why=schedule.why,
            last=schedule.last,
            last_end=schedule.last_end,
            last_output=schedule.last_output,
            to=schedule.to,
        )


class SkillResponse(ResponseModel):
    name: str
    description: str
    on: bool

    @classmethod
    def of(cls, skill: Skill) -> SkillResponse:
        return cls(name=skill.name, description=skill.description, on=skill.on)


class ToolServerResponse(ResponseModel):
    name: str
    connected: bool
    tools: list[str]
    why: str
    """Why it is not connected."""

    @classmethod
    def of(cls, state: McpServerState) -> ToolServerResponse:
        return cls(name=state.name, connected=state.connected, tools=list(state.tools), why=state.why)


class DeskChatResponse(ResponseModel):
    id: str
    title: str
    character: str
    """Its id."""
    name: str
    busy: int
    """Number of running branches and workers."""

    @classmethod
    def of(cls, characters: Characters, desk: DeskService, chat: DeskChat) -> DeskChatResponse:
        name = characters.get(chat.character).name
        busy = desk.queries.active_count(chat.room)
        return cls(
            id=chat.room.removeprefix("room:"),
            title=chat.title or name,
            character=chat.character,
            name=name,
            busy=busy,
        )


class SpendingResponse(ResponseModel):
    calls: int
    tokens: int
    usd: float


class DeskChatDetailResponse(DeskChatResponse):
    status: str
    """The status block of the character's prompt."""
    bulletin: str
    """The bulletin of the character's prompt."""
    processes: list[ProcessResponse]
    schedules: list[ScheduleResponse]
    sandbox: SandboxStatusResponse
    spent_today: SpendingResponse


class DeskTurnResponse(ResponseModel):
    id: str
    seq: int
    speaker: str
    text: str
    by_person: bool
    error: str
    """Why the reply is incomplete."""
    at: datetime
    answers: str | None


class DeskReplyResponse(ResponseModel):
    turn: str = ""
    """The id of the message."""
    decided: str = ""
    """The outcome, if the message answered a worker's confirmation."""
    reply: DeskTurnResponse | None = None
    """With `wait=true`; null without a reply."""
    error: str = ""


router = APIRouter(prefix="/desk", tags=["desk"], responses=ERROR_RESPONSES)
_CHAT, _PROCESS, _SCHEDULE = "/{chat}", "/{chat}/processes/{process}", "/{chat}/schedules/{schedule}"
_WAIT_S = 300.0


@router.get("", summary="All desk conversations, newest first")
async def chats(characters: CharactersDep, desk: DeskDep) -> list[DeskChatResponse]:
    return [DeskChatResponse.of(characters, desk, chat) for chat in desk.queries.chats()]


@router.post("", summary="Begin a conversation", status_code=status.HTTP_201_CREATED)
async def begin(store: StoreDep, characters: CharactersDep, desk: DeskDep, body: DeskChatRequest) -> DeskChatResponse:
    character = characters.find(body.character)
    if not body.webhook:
        return DeskChatResponse.of(
            characters, desk, desk.queries.chat(await desk.open(character.id, OWNER, body.title))
        )
    place, rooms = RoomRef(surface="webhook", id=body.webhook), Rooms(store)
    if rooms.find(place) is not None:
        raise DeskError(f"The webhook room {body.webhook!r} is in use.", "Choose a name that nobody has called yet.")
    opened = await DeskConversation(store, desk, characters).open(OWNER, character.id, body.title)
    binding = await rooms.bind(place, OWNER, DeskConversation.mode, character.id, opened, body.title or character.name)
    return DeskChatResponse.of(characters, desk, desk.queries.chat(binding.context))


@router.get("/sandbox", summary="Whether commands can run in a sandbox, and if not, why and what to do")
async def sandbox(desk: DeskDep) -> SandboxStatusResponse:
    return SandboxStatusResponse.of(await desk.sandbox.status())


@router.get("/tool-servers", summary="The MCP servers for workers and their status")
async def tool_servers(desk: DeskDep) -> list[ToolServerResponse]:
    return [ToolServerResponse.of(state) for state in desk.mcp_servers.states.values()]


@router.get("/skills/{character}", summary="The skills of a character")
async def skills(characters: CharactersDep, desk: DeskDep, character: str) -> list[SkillResponse]:
    return [SkillResponse.of(skill) for skill in desk.skills.all(characters.find(character).id)]


@router.put("/skills/{character}/{skill}", summary="Switch a skill on or off")
async def switch_skill(
    characters: CharactersDep, desk: DeskDep, character: str, skill: str, body: SwitchRequest
) -> list[SkillResponse]:
    await desk.skills.switch(characters.find(character).id, skill, on=body.on, actor=OWNER)
    return await skills(characters, desk, character)


@router.get(_CHAT, summary="A conversation: running processes, schedules, spending")
async def show(
    store: StoreDep, characters: CharactersDep, desk: DeskDep, models: ModelsDep, chat: str
) -> DeskChatDetailResponse:
    desk_chat = desk.queries.chat(f"room:{chat}")
    return DeskChatDetailResponse(
        **DeskChatResponse.of(characters, desk, desk_chat).model_dump(),
        status=desk.prompts.status(desk_chat),
        bulletin=desk.bulletins.text(desk_chat),
        processes=[ProcessResponse.of(process) for process in desk.queries.status_processes(desk_chat.room)],
        schedules=[ScheduleResponse.of(each) for each in desk.schedules.queries.all(desk_chat.room)],
        sandbox=await sandbox(desk),
        spent_today=spent_today(store, models, desk_chat),
    )


@router.post(_CHAT + "/read", summary="Mark as read")
async def mark_read(store: StoreDep, desk: DeskDep, chat: str) -> DoneResponse:
    await ReadMarks(store).mark_read(desk.queries.chat(f"room:{chat}").room)
    return DoneResponse()


@router.get(_CHAT + "/messages", summary="Messages, oldest first; `before` goes further back")
async def messages(
    store: StoreDep,
    characters: CharactersDep,
    desk: DeskDep,
    chat: str,
    before: Annotated[Int64 | None, Query(ge=1)] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> list[DeskTurnResponse]:
    desk_chat = desk.queries.chat(f"room:{chat}")
    return [
        turn_response(characters, desk_chat, turn) for turn in TurnQueries(store).latest(desk_chat.room, limit, before)
    ]


@router.post(
    _CHAT + "/messages",
    summary="Send a message. It is stored, with the job that answers it, before this returns",
    status_code=status.HTTP_202_ACCEPTED,
    responses={200: {"model": DeskReplyResponse, "description": "With `wait=true`: what was said."}},
)
async def say(
    characters: CharactersDep,
    desk: DeskDep,
    chat: str,
    body: DeskMessageRequest,
    response: Response,
    wait: bool = False,
) -> DeskReplyResponse:
    desk_chat = desk.queries.chat(f"room:{chat}")
    if decided := await desk.confirmations.handle_answer(desk_chat, body.text, OWNER):
        response.status_code = status.HTTP_200_OK
        return DeskReplyResponse(decided=decided)
    key = f"api:{desk_chat.room}:{body.key}" if body.key else None
    turn = await desk.send_message(desk_chat.room, body.text, person=OWNER, key=key)
    if not wait:
        return DeskReplyResponse(turn=turn)
    try:
        async with asyncio.timeout(_WAIT_S):
            reply = await desk.replies.wait(desk_chat.room, turn)
    except TimeoutError:
        return DeskReplyResponse(turn=turn)  # it goes on being answered; whoever asked may look later
    response.status_code = status.HTTP_200_OK
    error = "The reply failed; see Status & costs for the reason." if desk.replies.given_up(turn) else ""
    return DeskReplyResponse(
        turn=turn, reply=turn_response(characters, desk_chat, reply) if reply else None, error=error
    )


@router.post(_CHAT + "/stop", summary="Cancel all running processes of a conversation")
async def stop(store: StoreDep, characters: CharactersDep, desk: DeskDep, chat: str) -> DoneResponse:
    room = desk.queries.chat(f"room:{chat}").room
    return DoneResponse(done=await DeskConversation(store, desk, characters).stop(room))


class WorkspaceFileResponse(ResponseModel):
    name: str
    """Its path in the workspace."""
    size: int
    """In bytes."""
    changed: datetime


@router.get(_CHAT + "/files", summary="The files that workers made, those changed last first")
async def files(desk: DeskDep, chat: str) -> list[WorkspaceFileResponse]:
    found = await asyncio.to_thread(desk.files, desk.queries.chat(f"room:{chat}").room)
    return [WorkspaceFileResponse(name=one.name, size=one.size, changed=one.changed) for one in found]


@router.get(
    _CHAT + "/files/{path:path}",
    summary="Download a file",
    response_class=Response,
    responses={200: {"content": {"application/octet-stream": {}}}},
)
async def download_file(desk: DeskDep, chat: str, path: str) -> Response:
    data = await asyncio.to_thread(desk.read_file, desk.queries.chat(f"room:{chat}").room, path)
    # Workers wrote it: it is saved, never shown as a page of this site.
    disposition = f"attachment; filename*=UTF-8''{quote(path.rpartition('/')[2], safe='')}"
    return Response(data, media_type="application/octet-stream", headers={"Content-Disposition": disposition})


@router.get(_CHAT + "/processes", summary="Branches and workers, oldest first")
async def processes(desk: DeskDep, chat: str) -> list[ProcessResponse]:
    room = desk.queries.chat(f"room:{chat}").room
    return [ProcessResponse.of(process) for process in desk.queries.processes(room)]


@router.post(_CHAT + "/workers", summary="Start a worker", status_code=status.HTTP_201_CREATED)
async def start_worker(desk: DeskDep, chat: str, body: TaskRequest) -> ProcessResponse:
    room = f"room:{chat}"
    worker = await desk.start_worker(room, body.task, interactive=body.interactive, person=OWNER, task_type=body.type)
    return ProcessResponse.of(desk.queries.process(room, worker))


@router.get(_PROCESS, summary="A branch or worker with its steps")
async def process(desk: DeskDep, chat: str, process: str) -> ProcessDetailResponse:
    process_state = desk.queries.process(f"room:{chat}", process)
    done = [StepResponse.of(step) for step in desk.queries.worker_steps(process_state)]
    return ProcessDetailResponse(**ProcessResponse.of(process_state).model_dump(), done=done)


@router.post(_PROCESS + "/cancel", summary="Cancel it; false if it had ended already")
async def cancel(desk: DeskDep, chat: str, process: str) -> DoneResponse:
    return DoneResponse(done=await desk.processes.cancel(f"room:{chat}", process, actor=OWNER))


@router.post(_PROCESS + "/follow-up", summary="Send a follow-up to a waiting worker")
async def follow_up(desk: DeskDep, chat: str, process: str, body: FollowUpRequest) -> ProcessResponse:
    await desk.processes.send_follow_up(f"room:{chat}", process, body.text, actor=OWNER)
    return ProcessResponse.of(desk.queries.process(f"room:{chat}", process))


@router.post(_PROCESS + "/answer", summary="Confirm or refuse a tool call")
async def answer(desk: DeskDep, chat: str, process: str, body: ConfirmationRequest) -> ProcessResponse:
    await desk.processes.confirm(f"room:{chat}", process, allowed=body.allowed, actor=OWNER)
    return ProcessResponse.of(desk.queries.process(f"room:{chat}", process))


@router.get(_CHAT + "/schedules", summary="The schedules of a conversation")
async def schedules(desk: DeskDep, chat: str) -> list[ScheduleResponse]:
    room = desk.queries.chat(f"room:{chat}").room
    return [ScheduleResponse.of(each) for each in desk.schedules.queries.all(room)]


@router.post(_CHAT + "/schedules", summary="Add a schedule", status_code=status.HTTP_201_CREATED)
async def add_schedule(desk: DeskDep, chat: str, body: ScheduleRequest) -> ScheduleResponse:
    schedule = await desk.schedules.set(f"room:{chat}", body.prompt, body.when, to=body.to, actor=OWNER)
    return ScheduleResponse.of(desk.schedules.queries.get(f"room:{chat}", schedule))


@router.put(_SCHEDULE, summary="Change a schedule")
async def change_schedule(desk: DeskDep, chat: str, schedule: str, body: ScheduleRequest) -> ScheduleResponse:
    await desk.schedules.set(f"room:{chat}", body.prompt, body.when, schedule=schedule, to=body.to, actor=OWNER)
    return ScheduleResponse.of(desk.schedules.queries.get(f"room:{chat}", schedule))


@router.post(_SCHEDULE + "/switch", summary="Switch a schedule on or off")
async def switch_schedule(desk: DeskDep, chat: str, schedule: str, body: SwitchRequest) -> ScheduleResponse:
    await desk.schedules.switch(f"room:{chat}", schedule, on=body.on, actor=OWNER)
    return ScheduleResponse.of(desk.schedules.queries.get(f"room:{chat}", schedule))


@router.delete(_SCHEDULE, summary="Remove a schedule")
async def remove_schedule(desk: DeskDep, chat: str, schedule: str) -> DoneResponse:
    await desk.schedules.remove(f"room:{chat}", schedule, actor=OWNER)
    return DoneResponse()


def turn_response(characters: Characters, chat: DeskChat, turn: Turn) -> DeskTurnResponse:
    you, name = characters.owner().name, characters.get(chat.character).name
    return DeskTurnResponse(
        id=turn.id,
        seq=turn.seq,
        speaker=(you if turn.speaker == OWNER else turn.speaker) if turn.by_person else name,
        text=turn.text,
        by_person=turn.by_person,
        error=turn.why,
        at=turn.shown_at,
        answers=turn.answers,
    )


def spent_today(store: Store, models: Models, chat: DeskChat) -> SpendingResponse:
    calls, tokens, usd = UsageQueries(store).room_total(chat.room, models.ledger.today)
    return SpendingResponse(calls=calls, tokens=tokens, usd=usd)
