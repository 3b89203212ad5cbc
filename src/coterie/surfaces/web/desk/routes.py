"""The desk: conversations with a character at work, and everything that goes on in them. D1, D2, D15, D20"""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query, Response, status

from coterie.characters.service import OWNER
from coterie.conversation.turns import Turn, TurnQueries
from coterie.llm.usage import UsageQueries
from coterie.messaging.protocol import RoomRef
from coterie.messaging.rooms import Rooms
from coterie.modes.desk import DeskChat, DeskConversation, DeskError
from coterie.modes.story import ReadMarks
from coterie.surfaces.web.desk.schemas import (
    ConfirmationRequest,
    DeskChatDetailResponse,
    DeskChatRequest,
    DeskChatResponse,
    DeskMessageRequest,
    DeskReplyResponse,
    DeskTurnResponse,
    FollowUpRequest,
    ProcessDetailResponse,
    ProcessResponse,
    SandboxStatusResponse,
    ScheduleRequest,
    ScheduleResponse,
    SkillResponse,
    SpendingResponse,
    StepResponse,
    SwitchRequest,
    TaskRequest,
    ToolServerResponse,
)
from coterie.surfaces.web.shared.dependencies import Here, House
from coterie.surfaces.web.shared.errors import ERROR_RESPONSES
from coterie.surfaces.web.story.schemas import DoneResponse

router = APIRouter(prefix="/desk", tags=["desk"], responses=ERROR_RESPONSES)
_CHAT, _PROCESS, _SCHEDULE = "/{chat}", "/{chat}/processes/{process}", "/{chat}/schedules/{schedule}"
_WAIT_S = 300.0


@router.get("", summary="All conversations at the desk, newest first")
async def chats(house: Here) -> list[DeskChatResponse]:
    return [DeskChatResponse.of(house, chat) for chat in house.desk.queries.chats()]


@router.post("", summary="Begin a conversation", status_code=status.HTTP_201_CREATED)
async def begin(house: Here, taken: DeskChatRequest) -> DeskChatResponse:
    bot = house.characters.find(taken.character)
    if not taken.webhook:
        return DeskChatResponse.of(house, house.desk.queries.chat(await house.desk.open(bot.id, OWNER, taken.title)))
    place, rooms = RoomRef(surface="webhook", id=taken.webhook), Rooms(house.store)
    if rooms.find(place) is not None:
        raise DeskError(f"The webhook room {taken.webhook!r} is in use.", "Choose a name that nobody has called yet.")
    opened = await DeskConversation(house.store, house.desk, house.characters).open(OWNER, bot.id, taken.title)
    bound = await rooms.bind(place, OWNER, DeskConversation.mode, bot.id, opened, taken.title or bot.name)
    return DeskChatResponse.of(house, house.desk.queries.chat(bound.context))


@router.get("/sandbox", summary="Whether commands are run here, and if not, why and what to do")
async def sandbox(house: Here) -> SandboxStatusResponse:
    return SandboxStatusResponse.of(await house.desk.sandbox.status())


@router.get("/tool-servers", summary="The servers of tools (MCP) for workers, and how they stand")
async def tool_servers(house: Here) -> list[ToolServerResponse]:
    return [ToolServerResponse.of(state) for state in house.desk.mcp_servers.states.values()]


@router.get("/skills/{character}", summary="The skills of a character")
async def skills(house: Here, character: str) -> list[SkillResponse]:
    return [SkillResponse.of(skill) for skill in house.desk.skills.all(house.characters.find(character).id)]


@router.put("/skills/{character}/{skill}", summary="Switch a skill on or off")
async def switch_skill(house: Here, character: str, skill: str, taken: SwitchRequest) -> list[SkillResponse]:
    await house.desk.skills.switch(house.characters.find(character).id, skill, on=taken.on, actor=OWNER)
    return await skills(house, character)


@router.get(_CHAT, summary="A conversation as it stands: who works, what is planned, what it cost")
async def show(house: Here, chat: str) -> DeskChatDetailResponse:
    found = house.desk.queries.chat(f"room:{chat}")
    return DeskChatDetailResponse(
        **DeskChatResponse.of(house, found).model_dump(),
        status=house.desk.prompts.status(found),
        bulletin=house.desk.bulletins.text(found),
        processes=[ProcessResponse.of(process) for process in house.desk.queries.status_processes(found.room)],
        schedules=[ScheduleResponse.of(each) for each in house.desk.schedules.queries.all(found.room)],
        sandbox=await sandbox(house),
        spent_today=spent_today(house, found),
    )


@router.post(_CHAT + "/read", summary="All of it has been read: nothing in it is new")
async def mark_read(house: Here, chat: str) -> DoneResponse:
    await ReadMarks(house.store).mark_read(house.desk.queries.chat(f"room:{chat}").room)
    return DoneResponse()


@router.get(_CHAT + "/messages", summary="What was said, oldest first; `before` goes further back")
async def messages(
    house: Here,
    chat: str,
    before: Annotated[int | None, Query(ge=1)] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> list[DeskTurnResponse]:
    found = house.desk.queries.chat(f"room:{chat}")
    return [turn_response(house, found, turn) for turn in TurnQueries(house.store).latest(found.room, limit, before)]


@router.post(
    _CHAT + "/messages",
    summary="Say something. It is durable, with the work of answering it, before this answers",
    status_code=status.HTTP_202_ACCEPTED,
    responses={200: {"model": DeskReplyResponse, "description": "With `wait=true`: what was said."}},
)
async def say(
    house: Here, chat: str, taken: DeskMessageRequest, response: Response, wait: bool = False
) -> DeskReplyResponse:
    found = house.desk.queries.chat(f"room:{chat}")
    if decided := await house.desk.confirmations.handle_answer(found, taken.text, OWNER):
        response.status_code = status.HTTP_200_OK
        return DeskReplyResponse(decided=decided)
    key = f"api:{found.room}:{taken.key}" if taken.key else None
    turn = await house.desk.send_message(found.room, taken.text, person=OWNER, key=key)
    if not wait:
        return DeskReplyResponse(turn=turn)
    try:
        async with asyncio.timeout(_WAIT_S):
            reply = await house.desk.replies.wait(found.room, turn)
    except TimeoutError:
        return DeskReplyResponse(turn=turn)  # it goes on being answered; whoever asked may look later
    response.status_code = status.HTTP_200_OK
    trouble = "The reply failed; see System status for the reason." if house.desk.replies.given_up(turn) else ""
    return DeskReplyResponse(turn=turn, reply=turn_response(house, found, reply) if reply else None, trouble=trouble)


@router.post(_CHAT + "/stop", summary="End everything that goes on in this conversation")
async def stop(house: Here, chat: str) -> DoneResponse:
    room = house.desk.queries.chat(f"room:{chat}").room
    return DoneResponse(done=await DeskConversation(house.store, house.desk, house.characters).stop(room))


@router.get(_CHAT + "/processes", summary="Branches and workers, oldest first")
async def processes(house: Here, chat: str) -> list[ProcessResponse]:
    room = house.desk.queries.chat(f"room:{chat}").room
    return [ProcessResponse.of(process) for process in house.desk.queries.processes(room)]


@router.post(_CHAT + "/workers", summary="Give a worker a task yourself", status_code=status.HTTP_201_CREATED)
async def start_worker(house: Here, chat: str, taken: TaskRequest) -> ProcessResponse:
    room = f"room:{chat}"
    worker = await house.desk.start_worker(room, taken.task, interactive=taken.interactive, person=OWNER)
    return ProcessResponse.of(house.desk.queries.process(room, worker))


@router.get(_PROCESS, summary="A branch or a worker, step by step")
async def process(house: Here, chat: str, process: str) -> ProcessDetailResponse:
    found = house.desk.queries.process(f"room:{chat}", process)
    done = [StepResponse.of(step) for step in house.desk.queries.worker_steps(found)]
    return ProcessDetailResponse(**ProcessResponse.of(found).model_dump(), done=done)


@router.post(_PROCESS + "/cancel", summary="End it, whatever it is doing; false if it had ended already")
async def cancel(house: Here, chat: str, process: str) -> DoneResponse:
    return DoneResponse(done=await house.desk.processes.cancel(f"room:{chat}", process, actor=OWNER))


@router.post(_PROCESS + "/follow-up", summary="Give a waiting worker its follow-up")
async def follow_up(house: Here, chat: str, process: str, taken: FollowUpRequest) -> ProcessResponse:
    await house.desk.processes.send_follow_up(f"room:{chat}", process, taken.text, actor=OWNER)
    return ProcessResponse.of(house.desk.queries.process(f"room:{chat}", process))


@router.post(_PROCESS + "/answer", summary="Your yes or no to a tool that sends or spends")
async def answer(house: Here, chat: str, process: str, taken: ConfirmationRequest) -> ProcessResponse:
    await house.desk.processes.confirm(f"room:{chat}", process, allowed=taken.allowed, actor=OWNER)
    return ProcessResponse.of(house.desk.queries.process(f"room:{chat}", process))


@router.get(_CHAT + "/schedules", summary="What it does by itself, and when")
async def schedules(house: Here, chat: str) -> list[ScheduleResponse]:
    room = house.desk.queries.chat(f"room:{chat}").room
    return [ScheduleResponse.of(each) for each in house.desk.schedules.queries.all(room)]


@router.post(_CHAT + "/schedules", summary="Add a schedule", status_code=status.HTTP_201_CREATED)
async def add_schedule(house: Here, chat: str, taken: ScheduleRequest) -> ScheduleResponse:
    made = await house.desk.schedules.set(f"room:{chat}", taken.prompt, taken.when, actor=OWNER)
    return ScheduleResponse.of(house.desk.schedules.queries.get(f"room:{chat}", made))


@router.put(_SCHEDULE, summary="Change what is done, or when")
async def change_schedule(house: Here, chat: str, schedule: str, taken: ScheduleRequest) -> ScheduleResponse:
    await house.desk.schedules.set(f"room:{chat}", taken.prompt, taken.when, schedule=schedule, actor=OWNER)
    return ScheduleResponse.of(house.desk.schedules.queries.get(f"room:{chat}", schedule))


@router.post(_SCHEDULE + "/switch", summary="Switch it on or off")
async def switch_schedule(house: Here, chat: str, schedule: str, taken: SwitchRequest) -> ScheduleResponse:
    await house.desk.schedules.switch(f"room:{chat}", schedule, on=taken.on, actor=OWNER)
    return ScheduleResponse.of(house.desk.schedules.queries.get(f"room:{chat}", schedule))


@router.delete(_SCHEDULE, summary="Remove a schedule")
async def remove_schedule(house: Here, chat: str, schedule: str) -> DoneResponse:
    await house.desk.schedules.remove(f"room:{chat}", schedule, actor=OWNER)
    return DoneResponse()


def turn_response(house: House, chat: DeskChat, turn: Turn) -> DeskTurnResponse:
    you, name = house.characters.owner().name, house.characters.get(chat.character).name
    return DeskTurnResponse(
        id=turn.id,
        seq=turn.seq,
        speaker=(you if turn.speaker == OWNER else turn.speaker) if turn.by_person else name,
        text=turn.text,
        by_person=turn.by_person,
        trouble=turn.why,
        at=turn.shown_at,
        answers=turn.answers,
    )


def spent_today(house: House, chat: DeskChat) -> SpendingResponse:
    calls, tokens, usd = UsageQueries(house.store).room_total(chat.room, house.models.ledger.today)
    return SpendingResponse(calls=calls, tokens=tokens, usd=usd)
