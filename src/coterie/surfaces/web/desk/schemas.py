"""What the desk's part of the API takes and gives, as JSON."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from coterie.base.redaction import redact
from coterie.modes.desk import (
    DeskChat,
    DeskSchedule,
    McpServerState,
    Process,
    SandboxStatus,
    ScheduleTime,
    Skill,
    WorkerStep,
)
from coterie.surfaces.web.shared.dependencies import House
from coterie.surfaces.web.story.schemas import Name, Prose, RequestModel, ResponseModel


class DeskChatRequest(RequestModel):
    character: Name
    """By name or id."""
    title: str = Field(default="", max_length=200)
    webhook: str = Field(default="", max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")
    """A room of `POST /webhook` that is to be this conversation."""


class DeskMessageRequest(RequestModel):
    text: Prose = Field(min_length=1)
    key: str | None = Field(default=None, max_length=200)
    """The same key again is the same message: nothing is said twice."""


class FollowUpRequest(RequestModel):
    text: Prose = Field(min_length=1)


class TaskRequest(RequestModel):
    task: Prose = Field(min_length=1)
    interactive: bool = False
    """Keep the worker, to give it follow-ups."""


class ConfirmationRequest(RequestModel):
    allowed: bool


class ScheduleRequest(RequestModel):
    prompt: Prose = Field(min_length=1)
    """What the character is told when it is due."""
    when: ScheduleTime


class SwitchRequest(RequestModel):
    on: bool


class SandboxStatusResponse(ResponseModel):
    state: str
    """`confined`, `refused` or `off`."""
    reason: str
    fix: str

    @classmethod
    def of(cls, standing: SandboxStatus) -> SandboxStatusResponse:
        return cls(state=standing.state, reason=standing.reason, fix=standing.fix)


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
    """What came of it; while it waits, its question."""
    needs_yes: bool
    """It waits for your yes or no, and for nothing else."""

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
    """One thing a worker said or did."""

    role: str
    text: str
    tool: str
    arguments: str

    @classmethod
    def of(cls, step: WorkerStep) -> StepResponse:
        return cls(role=step.role, text=redact(step.text), tool=step.tool, arguments=redact(step.arguments))


class ProcessDetailResponse(ProcessResponse):
    done: list[StepResponse]
    """Step by step, oldest first."""


class ScheduleResponse(ResponseModel):
    id: str
    prompt: str
    when: ScheduleTime
    told: str
    """When, in words."""
    on: bool
    next: datetime | None
    failures: int
    """In a row; three switch it off."""
    why: str
    """Why it was switched off."""
    last: datetime | None
    last_end: str
    """`told`, `nothing` or `failed`."""
    last_told: str

    @classmethod
    def of(cls, found: DeskSchedule) -> ScheduleResponse:
        return cls(
            id=found.id,
            prompt=redact(found.prompt),
            when=found.when,
            told=found.when.describe(),
            on=found.on,
            next=found.next,
            failures=found.failures,
            why=found.why,
            last=found.last,
            last_end=found.last_end,
            last_told=found.last_output,
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
    """How many branches and workers are at it."""

    @classmethod
    def of(cls, house: House, chat: DeskChat) -> DeskChatResponse:
        name = house.characters.get(chat.character).name
        busy = house.desk.queries.active_count(chat.room)
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
    """The status block, as the character reads it."""
    bulletin: str
    """What the character should know now, as it last noted it."""
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
    trouble: str
    """Why there is no more of it."""
    at: datetime
    answers: str | None


class DeskReplyResponse(ResponseModel):
    turn: str = ""
    """Of your message."""
    decided: str = ""
    """It was your yes or no to a worker, and this became of it."""
    reply: DeskTurnResponse | None = None
    """With `wait=true`; null where nothing was said."""
    trouble: str = ""
