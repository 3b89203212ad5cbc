"""The desk: conversations with a character at work, and everything that goes on in them. D1, D2, D15, D20"""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query, Response, status

from coterie.cast.roster import YOU
from coterie.engine.protocol import RoomRef
from coterie.engine.rooms import RoomBook
from coterie.engine.turns import Timeline, Turn
from coterie.llm.usage import UsageBook
from coterie.modes.desk import DeskChat, DeskConversation, DeskError
from coterie.modes.story import Bookmarks
from coterie.surfaces.web.desk_shapes import (
    AnswerShape,
    DeskShape,
    DeskTaken,
    DeskWhole,
    FollowUp,
    LineShape,
    MessageTaken,
    ProcessShape,
    ScheduleShape,
    ScheduleTaken,
    SkillShape,
    SpentShape,
    StandingShape,
    StepShape,
    Switch,
    TaskTaken,
    ToolServerShape,
    WorkShape,
    YesOrNo,
)
from coterie.surfaces.web.errors import TROUBLES
from coterie.surfaces.web.house import Here, House
from coterie.surfaces.web.shapes import Done

router = APIRouter(prefix="/desk", tags=["desk"], responses=TROUBLES)
_CHAT, _PROCESS, _SCHEDULE = "/{chat}", "/{chat}/processes/{process}", "/{chat}/schedules/{schedule}"
_WAIT_S = 300.0


@router.get("", summary="All conversations at the desk, newest first")
async def chats(house: Here) -> list[DeskShape]:
    return [DeskShape.of(house, chat) for chat in house.desk.book.chats()]


@router.post("", summary="Begin a conversation", status_code=status.HTTP_201_CREATED)
async def begin(house: Here, taken: DeskTaken) -> DeskShape:
    bot = house.roster.find(taken.character)
    if not taken.webhook:
        return DeskShape.of(house, house.desk.book.chat(await house.desk.open(bot.id, YOU, taken.title)))
    place, rooms = RoomRef(surface="webhook", id=taken.webhook), RoomBook(house.store)
    if rooms.find(place) is not None:
        raise DeskError(f"The webhook room {taken.webhook!r} is in use.", "Choose a name that nobody has called yet.")
    opened = await DeskConversation(house.store, house.desk, house.roster).open(YOU, bot.id, taken.title)
    bound = await rooms.bind(place, YOU, DeskConversation.mode, bot.id, opened, taken.title or bot.name)
    return DeskShape.of(house, house.desk.book.chat(bound.context))


@router.get("/sandbox", summary="Whether commands are run here, and if not, why and what to do")
async def sandbox(house: Here) -> StandingShape:
    return StandingShape.of(await house.desk.sandbox.standing())


@router.get("/tool-servers", summary="The servers of tools (MCP) for workers, and how they stand")
async def tool_servers(house: Here) -> list[ToolServerShape]:
    return [ToolServerShape.of(state) for state in house.desk.tool_servers.states.values()]


@router.get("/skills/{character}", summary="The skills of a character")
async def skills(house: Here, character: str) -> list[SkillShape]:
    return [SkillShape.of(skill) for skill in house.desk.skills.all(house.roster.find(character).id)]


@router.put("/skills/{character}/{skill}", summary="Switch a skill on or off")
async def switch_skill(house: Here, character: str, skill: str, taken: Switch) -> list[SkillShape]:
    await house.desk.skills.switch(house.roster.find(character).id, skill, on=taken.on, actor=YOU)
    return await skills(house, character)


@router.get(_CHAT, summary="A conversation as it stands: who works, what is planned, what it cost")
async def show(house: Here, chat: str) -> DeskWhole:
    found = house.desk.book.chat(f"room:{chat}")
    return DeskWhole(
        **DeskShape.of(house, found).model_dump(),
        status=house.desk.briefing.status(found),
        bulletin=house.desk.bulletins.text(found),
        processes=[ProcessShape.of(process) for process in house.desk.book.processes_of_note(found.room)],
        schedules=[ScheduleShape.of(each) for each in house.desk.schedules.book.all(found.room)],
        sandbox=await sandbox(house),
        spent_today=spent_today(house, found),
    )


@router.post(_CHAT + "/read", summary="All of it has been read: nothing in it is new")
async def mark_read(house: Here, chat: str) -> Done:
    await Bookmarks(house.store).mark_read(house.desk.book.chat(f"room:{chat}").room)
    return Done()


@router.get(_CHAT + "/messages", summary="What was said, oldest first; `before` goes further back")
async def messages(
    house: Here,
    chat: str,
    before: Annotated[int | None, Query(ge=1)] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> list[LineShape]:
    found = house.desk.book.chat(f"room:{chat}")
    return [line_of(house, found, turn) for turn in Timeline(house.store).latest(found.room, limit, before)]


@router.post(
    _CHAT + "/messages",
    summary="Say something. It is durable, with the work of answering it, before this answers",
    status_code=status.HTTP_202_ACCEPTED,
    responses={200: {"model": AnswerShape, "description": "With `wait=true`: what was said."}},
)
async def say(house: Here, chat: str, taken: MessageTaken, response: Response, wait: bool = False) -> AnswerShape:
    found = house.desk.book.chat(f"room:{chat}")
    if decided := await house.desk.decisions.take(found, taken.text, YOU):
        response.status_code = status.HTTP_200_OK
        return AnswerShape(decided=decided)
    key = f"api:{found.room}:{taken.key}" if taken.key else None
    turn = await house.desk.say(found.room, taken.text, person=YOU, key=key)
    if not wait:
        return AnswerShape(turn=turn)
    try:
        async with asyncio.timeout(_WAIT_S):
            reply = await house.desk.answers.wait(found.room, turn)
    except TimeoutError:
        return AnswerShape(turn=turn)  # it goes on being answered; whoever asked may look later
    response.status_code = status.HTTP_200_OK
    trouble = "It was given up; the Workshop tells why." if house.desk.answers.given_up(turn) else ""
    return AnswerShape(turn=turn, reply=line_of(house, found, reply) if reply else None, trouble=trouble)


@router.post(_CHAT + "/stop", summary="End everything that goes on in this conversation")
async def stop(house: Here, chat: str) -> Done:
    room = house.desk.book.chat(f"room:{chat}").room
    return Done(done=await DeskConversation(house.store, house.desk, house.roster).stop(room))


@router.get(_CHAT + "/processes", summary="Branches and workers, oldest first")
async def processes(house: Here, chat: str) -> list[ProcessShape]:
    room = house.desk.book.chat(f"room:{chat}").room
    return [ProcessShape.of(process) for process in house.desk.book.processes(room)]


@router.post(_CHAT + "/workers", summary="Give a worker a task yourself", status_code=status.HTTP_201_CREATED)
async def hire(house: Here, chat: str, taken: TaskTaken) -> ProcessShape:
    room = f"room:{chat}"
    worker = await house.desk.hire(room, taken.task, interactive=taken.interactive, person=YOU)
    return ProcessShape.of(house.desk.book.process(room, worker))


@router.get(_PROCESS, summary="A branch or a worker, step by step")
async def process(house: Here, chat: str, process: str) -> WorkShape:
    found = house.desk.book.process(f"room:{chat}", process)
    done = [StepShape.of(step) for step in house.desk.book.done(found)]
    return WorkShape(**ProcessShape.of(found).model_dump(), done=done)


@router.post(_PROCESS + "/cancel", summary="End it, whatever it is doing; false if it had ended already")
async def cancel(house: Here, chat: str, process: str) -> Done:
    return Done(done=await house.desk.processes.cancel(f"room:{chat}", process, actor=YOU))


@router.post(_PROCESS + "/follow-up", summary="Give a waiting worker its follow-up")
async def follow_up(house: Here, chat: str, process: str, taken: FollowUp) -> ProcessShape:
    await house.desk.processes.route(f"room:{chat}", process, taken.text, actor=YOU)
    return ProcessShape.of(house.desk.book.process(f"room:{chat}", process))


@router.post(_PROCESS + "/answer", summary="Your yes or no to a tool that sends or spends")
async def answer(house: Here, chat: str, process: str, taken: YesOrNo) -> ProcessShape:
    await house.desk.processes.answer(f"room:{chat}", process, allowed=taken.allowed, actor=YOU)
    return ProcessShape.of(house.desk.book.process(f"room:{chat}", process))


@router.get(_CHAT + "/schedules", summary="What it does by itself, and when")
async def schedules(house: Here, chat: str) -> list[ScheduleShape]:
    room = house.desk.book.chat(f"room:{chat}").room
    return [ScheduleShape.of(each) for each in house.desk.schedules.book.all(room)]


@router.post(_CHAT + "/schedules", summary="Put something on the timetable", status_code=status.HTTP_201_CREATED)
async def add_schedule(house: Here, chat: str, taken: ScheduleTaken) -> ScheduleShape:
    made = await house.desk.schedules.set(f"room:{chat}", taken.prompt, taken.when, actor=YOU)
    return ScheduleShape.of(house.desk.schedules.book.one(f"room:{chat}", made))


@router.put(_SCHEDULE, summary="Change what is done, or when")
async def change_schedule(house: Here, chat: str, schedule: str, taken: ScheduleTaken) -> ScheduleShape:
    await house.desk.schedules.set(f"room:{chat}", taken.prompt, taken.when, schedule=schedule, actor=YOU)
    return ScheduleShape.of(house.desk.schedules.book.one(f"room:{chat}", schedule))


@router.post(_SCHEDULE + "/switch", summary="Switch it on or off")
async def switch_schedule(house: Here, chat: str, schedule: str, taken: Switch) -> ScheduleShape:
    await house.desk.schedules.switch(f"room:{chat}", schedule, on=taken.on, actor=YOU)
    return ScheduleShape.of(house.desk.schedules.book.one(f"room:{chat}", schedule))


@router.delete(_SCHEDULE, summary="Take it off the timetable")
async def remove_schedule(house: Here, chat: str, schedule: str) -> Done:
    await house.desk.schedules.remove(f"room:{chat}", schedule, actor=YOU)
    return Done()


def line_of(house: House, chat: DeskChat, turn: Turn) -> LineShape:
    you, name = house.roster.you().name, house.roster.bot(chat.character).name
    return LineShape(
        id=turn.id,
        seq=turn.seq,
        speaker=(you if turn.speaker == YOU else turn.speaker) if turn.by_person else name,
        text=turn.text,
        by_person=turn.by_person,
        trouble=turn.why,
        at=turn.shown_at,
        answers=turn.answers,
    )


def spent_today(house: House, chat: DeskChat) -> SpentShape:
    calls, tokens, usd = UsageBook(house.store).of_room(chat.room, house.models.ledger.today)
    return SpentShape(calls=calls, tokens=tokens, usd=usd)
