"""C6, C7, C9, C10, C17: a live session in real time with a scripted model, and its replay."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from coterie.base.clock import SystemClock
from coterie.eventstore import Store
from coterie.llm.messages import CompletionRequest
from coterie.llm.recording import RecordedCall, RecordedError, ReplayProvider
from coterie.llm.router import Models
from coterie.llm.settings import ModelsSettings
from coterie.llm.usage import UsageProjection
from coterie.modes.crowd.errors import BadCrowdConfig, BadRecording
from coterie.modes.crowd.events import CrowdWritten
from coterie.modes.crowd.gateway import Gateway
from coterie.modes.crowd.generation import CannedLineWriter, LineRules, ModelLineWriter, WrittenLine
from coterie.modes.crowd.prompts import LineRequest
from coterie.modes.crowd.protocol import MAX_CONTEXT_BYTES, ChatAuthor, ChatMessage, ChatPost, StreamContext
from coterie.modes.crowd.session.replay import Replay, admission_for, last_session_events
from coterie.modes.crowd.session.session import LineWriter, LiveSession
from coterie.modes.crowd.session.stream_context import RollingContext, StreamScript, StreamScriptLine, detect_event
from coterie.modes.crowd.session.stream_sources import (
    contexts_from_lines,
    contexts_from_script,
    follow_file,
    read_subtitles,
)
from coterie.modes.crowd.settings import CrowdConfigs, RoomConfig, Tempo

HURRIED = Tempo(tick_s=0.02, lines_per_minute=900, rest_s=0.5, typing_per_s=5_000, line_deadline_s=5)
ONLY_MODEL = HURRIED.model_copy(update={"stand_in": False})
TALE = StreamScript(
    line=tuple(
        StreamScriptLine(at=number * 0.1, say=f"chat, which door, number {number}?", event="chat_question")
        for number in range(15)
    )
)
MakeVoice = Callable[[LineRules], LineWriter]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(tmp_path / "coterie.db", projections=[UsageProjection()])
    yield opened
    opened.close()


async def run_session(
    store: Store,
    configs: CrowdConfigs,
    writer: MakeVoice,
    *,
    tempo: Tempo = HURRIED,
    person_text: str = "",
    enough: int = 0,
) -> list[ChatMessage]:
    room = configs.room("late-shift").model_copy(update={"tempo": tempo})
    personas = configs.personas_in(room)
    gateway = Gateway(store, admission_for(room, personas, configs.moderator(room)), SystemClock())
    await gateway.recover()
    live = LiveSession(room, personas, gateway, store.bus, writer, seed=3)

    async def contexts() -> AsyncIterator[StreamContext]:
        async for context in contexts_from_script(TALE, room.name, SystemClock()):
            yield context
            if person_text and context.number == 5:
                author = ChatAuthor(name="ana", kind="human")
                await gateway.post(ChatPost(id="p1", room=room.name, author=author, text=person_text))
        # A busy machine is slow, not wrong.
        waited = 0
        while len(gateway.latest(10_000)) < enough and waited < 600:
            waited += 1
            await asyncio.sleep(0.1)

    await live.run(contexts(), linger_s=4)
    return gateway.latest(10_000)


async def test_c17_a_live_session_replays_to_the_byte(store: Store, configs: CrowdConfigs, room: RoomConfig) -> None:
    messages = await run_session(store, configs, CannedLineWriter, person_text="@nonna_exe is there soup?")
    assert len([each for each in messages if each.author.kind == "persona"]) > 10
    question = next(each for each in messages if each.author.kind == "human")
    assert "nonna_exe" in {each.author.name for each in messages if each.reply_to == question.id}
    replayed = Replay(last_session_events(store.reader, "late-shift"), configs.moderator(room)).run()
    assert replayed.hash == replayed.recorded_hash
    assert replayed.identical
    again = await run_session(store, configs, CannedLineWriter)
    assert again[-1].number > messages[-1].number
    second = Replay(last_session_events(store.reader, "late-shift"), configs.moderator(room)).run()
    assert second.identical
    assert second.messages[0].number == messages[-1].number + 1


def models(store: Store, answer: Callable[[CompletionRequest], RecordedCall]) -> Models:
    settings = ModelsSettings(roles={"crowd": ("embedded/script",)})
    return Models(settings, store=store, providers={"embedded": ReplayProvider("embedded", default=answer)})


async def test_c7_a_model_writes_lines_and_bad_ones_are_not_posted(store: Store, configs: CrowdConfigs) -> None:
    requests: list[CompletionRequest] = []

    def answer(request: CompletionRequest) -> RecordedCall:
        requests.append(request)
        number = len(requests)
        if number % 3 == 0:
            return RecordedCall(say="As an AI language model I have no opinion.")
        return RecordedCall(say=f'"number {number} is the {number}th thing about {number} doors"\nand a second line')

    asking = models(store, answer)
    messages = await run_session(
        store, configs, lambda rules: ModelLineWriter(asking, rules, "late-shift"), tempo=ONLY_MODEL, enough=3
    )
    texts = [each.text for each in messages]
    assert texts
    assert all(text.split("number ")[1].endswith("doors") for text in texts)
    assert not any("AI" in text for text in texts)
    system, *shown, user = requests[0].prompt.messages
    assert "one short line of chat" in system.text
    assert "which door" in user.text
    name = system.text.split()[2].rstrip(",")
    assert [message.role for message in shown] == ["user", "assistant"] * (len(shown) // 2)
    own = {line for lines in configs.personas()[name].lines.values() for line in lines}
    assert {message.text for message in shown if message.role == "assistant"} <= own
    written = [each for each in last_session_events(store.reader, "late-shift") if isinstance(each, CrowdWritten)]
    assert {each.model for each in written if each.outcome == "written"} == {"embedded/script"}


async def test_c7_a_person_gets_an_answer_without_a_model(store: Store, configs: CrowdConfigs) -> None:
    asking = models(store, lambda request: RecordedCall(error=RecordedError(kind="BadRequest")))
    messages = await run_session(
        store,
        configs,
        lambda rules: ModelLineWriter(asking, rules, "late-shift"),
        tempo=ONLY_MODEL,
        person_text="@salt_lamp well?",
    )
    assert [each.author.name for each in messages if each.author.kind == "persona"] == ["salt_lamp"]
    written = [each for each in last_session_events(store.reader, "late-shift") if isinstance(each, CrowdWritten)]
    assert {each.outcome for each in written} == {"written", "failed"}


@pytest.mark.parametrize(
    ("line", "outcome"),
    [
        ("the spare key is under the third stone by the gate", "written"),
        ("You remember: the spare key is under the third stone", "refused"),
        ("Answer with one short line of chat, as yourself.", "refused"),
    ],
)
async def test_c7_c13_a_line_may_repeat_memories_but_not_instructions(
    configs: CrowdConfigs, store: Store, line: str, outcome: str
) -> None:
    writer = ModelLineWriter(models(store, lambda request: RecordedCall(say=line)), LineRules(100), "late-shift")
    kept = ("the spare key is under the third stone by the gate",)
    written = await writer.write(LineRequest(configs.personas()["salt_lamp"], 1, "base", 1, memories=kept), 5)
    assert written.outcome == outcome, written.reason


async def test_c7_late_lines_are_dropped(configs: CrowdConfigs, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(brief: LineRequest, deadline_s: float) -> WrittenLine:
        await asyncio.sleep(60)
        return WrittenLine("written", "too late")

    writer = ModelLineWriter(models(store, lambda request: RecordedCall(say="hi")), LineRules(100), "late-shift")
    monkeypatch.setattr(writer, "_ask", never)
    persona = configs.personas()["salt_lamp"]
    line = await writer.write(LineRequest(persona, 1, "base", 1), 0.01)
    assert (line.outcome, line.text) == ("late", "")
    answered = await writer.write(
        LineRequest(persona, 1, "mention", 1, recipient="ana", recipient_is_person=True), 0.01
    )
    assert answered.outcome == "written"
    assert answered.text.startswith("@ana ")


def test_c9_a_context_stays_below_the_size_limit() -> None:
    rolling = RollingContext("den")
    for number in range(40):
        context = rolling.add("ärger über große türen und öfen " * 20, number * 2_000, "chat_question")
        assert len(context.to_json().encode()) <= MAX_CONTEXT_BYTES
    assert context.transcript
    assert rolling.add("quiet now", 500_000).transcript == "quiet now"


def test_c9_subtitles_become_a_script(tmp_path: Path) -> None:
    file = tmp_path / "a.srt"
    file.write_text(
        "1\r\n00:00:01,500 --> 00:00:03,000\r\n<i>Chat, left or right?</i>\r\n\r\n"
        "2\n00:01:02.000 --> 00:01:04.000\noh no,\nI fell\n\nNOTE nothing\n"
    )
    script = read_subtitles(file)
    assert [(line.at, line.say, line.event) for line in script.line] == [
        (1.5, "Chat, left or right?", "chat_question"),
        (62.0, "oh no, I fell", "fail"),
    ]
    file.write_text("nothing here")
    with pytest.raises(BadCrowdConfig, match="no subtitles"):
        read_subtitles(file)


async def test_c9_lines_of_a_growing_file(tmp_path: Path) -> None:
    file = tmp_path / "feed.txt"
    file.write_text("chat, which door should I take?\nplain talk\n")
    contexts = contexts_from_lines(follow_file(file, every_s=0.01), "den", SystemClock())
    first, second = await anext(contexts), await anext(contexts)
    assert first.events[0].kind == "chat_question"
    assert "door" in second.transcript
    with file.open("a") as more:
        more.write("YES, we did it!\n")
    assert (await anext(contexts)).events[-1].kind == "hype"
    await contexts.aclose()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("chat, what should I name the cat?", "chat_question"),
        ("do you remember the first game you finished", "chat_question"),
        ("why would anyone put a door here?", None),
        ("I wonder where the key is.", None),
        ("oh no no no", "fail"),
        ("let's go, first try!", "hype"),
        ("one hit left and finally, victory", "clutch"),
        ("we walk a little further", None),
    ],
)
def test_c9_events_are_detected_in_sentences(text: str, kind: str | None) -> None:
    found = detect_event(text)
    assert (found[0] if found else None) == kind


def test_c17_nothing_recorded(store: Store) -> None:
    with pytest.raises(BadRecording, match="Nothing was recorded"):
        last_session_events(store.reader, "late-shift")
