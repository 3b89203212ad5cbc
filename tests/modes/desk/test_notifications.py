"""P2, D3: the desk on a surface, and results that are sent without a message."""

from __future__ import annotations

import asyncio
import base64

import pytest

from coterie.llm.messages import Finished, TextDelta, Tokens
from coterie.llm.recording import RecordedCall
from coterie.messaging.files import RoomFiles
from coterie.messaging.ports import NewChat, ReplyDelta, ReplyFinished, ReplyReaction, ReplyUpdate
from coterie.messaging.protocol import RoomRef
from coterie.messaging.rooms import Rooms
from coterie.modes.desk.agents import channel
from coterie.modes.desk.errors import BadSchedule, DeskError
from coterie.modes.desk.events import ScheduleTime
from coterie.modes.desk.service import DeskConversation
from tests.modes.desk.conftest import DeskHarness, Script, calls


async def bound_conversation(harness: DeskHarness, script: Script) -> tuple[DeskConversation, str]:
    await harness.begin()
    conversation = DeskConversation(harness.store, harness.desk, harness.characters)
    opened = await conversation.open("ana", harness.character, "Work")
    room = RoomRef(surface="matrix", id="!room")
    await Rooms(harness.store).bind(room, "ana", "desk", harness.character, opened, "Work")
    return conversation, opened.context


async def send_message(
    harness: DeskHarness, conversation: DeskConversation, room: str, text: str, key: str
) -> list[ReplyFinished]:
    async def read() -> list[ReplyFinished]:
        return [
            update
            async for update in conversation.send_message(room, text, person="ana", key=key)
            if isinstance(update, ReplyFinished)
        ]

    reading = asyncio.create_task(read())
    while not reading.done():
        await harness.settle()
        await asyncio.sleep(0.01)
    return await reading


async def test_p2_the_same_key_returns_the_same_answer(harness: DeskHarness, script: Script) -> None:
    conversation, room = await bound_conversation(harness, script)
    script.lines["channel"] = ["Good morning."]
    assert await send_message(harness, conversation, room, "Hello", "1") == [ReplyFinished("Good morning.", "Mara")]
    assert await send_message(harness, conversation, room, "Hello", "1") == [ReplyFinished("Good morning.", "Mara")]
    assert len(script.requests) == 1
    script.lines["channel"] = [calls(("skip", {"why": "nothing to add"}))]
    assert await send_message(harness, conversation, room, "Hm", "2") == [ReplyFinished("", "Mara")]
    assert harness.notifications == {}


async def test_d3_a_result_is_sent_to_the_surface_room_once(harness: DeskHarness, script: Script) -> None:
    conversation, room = await bound_conversation(harness, script)
    script.lines["channel"] = [calls(("spawn_worker", {"task": "x"}), ("reply", {"text": "On it."})), "It is done."]
    assert await send_message(harness, conversation, room, "Do it", "1") == [ReplyFinished("On it.", "Mara")]
    await harness.settle()
    assert [(sent.room.id, sent.text) for sent in harness.notifications.values()] == [("!room", "It is done.")]


async def test_p2_stop_cancels_all_processes_and_rename_changes_the_title(harness: DeskHarness, script: Script) -> None:
    conversation, room = await bound_conversation(harness, script)
    script.lines["channel"] = [
        calls(("spawn_worker", {"task": "wait", "interactive": True}), ("reply", {"text": "On it."}))
    ]
    await send_message(harness, conversation, room, "Do it", "1")
    await harness.settle()
    assert [name.split()[0] for name, _ in conversation.status(room).notes] == ["worker"]
    assert await conversation.stop(room)
    assert not await conversation.stop(room)
    assert harness.states(room) == ["cancelled"]
    await conversation.rename(room, "Play")
    assert conversation.status(room).title == "Play"
    with pytest.raises(DeskError):
        conversation.retry(room, person="ana")


async def updates_of(
    harness: DeskHarness, conversation: DeskConversation, room: str, text: str, key: str
) -> list[ReplyUpdate]:
    async def read() -> list[ReplyUpdate]:
        return [update async for update in conversation.send_message(room, text, person="ana", key=key)]

    reading = asyncio.create_task(read())
    while not reading.done():
        await harness.settle()
        await asyncio.sleep(0.01)
    return await reading


@pytest.fixture
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Previews of every piece, as if time passed between them."""
    monkeypatch.setattr(channel, "_PREVIEW_EVERY_S", 0.0)


def streamed(*pieces: str) -> RecordedCall:
    """An answer whose text arrives in pieces."""
    chunks = tuple((0, TextDelta(text=piece)) for piece in pieces)
    end = Finished(reason="stop", tokens=Tokens(input=1, output=1), model="script")
    return RecordedCall(chunks=(*chunks, (0, end)))


@pytest.mark.usefixtures("without_pauses")
async def test_p5_a_long_reply_is_shown_while_it_is_written(harness: DeskHarness, script: Script) -> None:
    conversation, room = await bound_conversation(harness, script)
    pieces = [f"Paragraph {n}: {'the tide comes in slowly. ' * 20}\n\n" for n in range(4)]
    script.lines["channel"] = [streamed(*pieces)]
    updates = await updates_of(harness, conversation, room, "Tell me", "1")
    deltas, finished = [one.text for one in updates if isinstance(one, ReplyDelta)], updates[-1]
    assert isinstance(finished, ReplyFinished) and finished.text == "".join(pieces).strip()
    assert len(deltas) >= 2 and finished.text.startswith("".join(deltas))


@pytest.mark.usefixtures("without_pauses")
async def test_d18_no_part_of_a_secret_is_shown_before_it_is_recognised(harness: DeskHarness, script: Script) -> None:
    conversation, room = await bound_conversation(harness, script)
    secret = "sk-" + "a1B2c3D4" * 5
    for encoded in (secret, base64.b64encode(secret.encode()).decode(), secret.encode().hex(" ")):
        pieces = [f"{'All is well at the harbour. ' * 20}", *(encoded[at : at + 5] for at in range(0, len(encoded), 5))]
        tail = f" {'And so on. ' * 60}"
        script.lines["channel"] = [streamed(*pieces, tail), "I cannot say it."]
        updates = await updates_of(harness, conversation, room, f"Tell {encoded[:3]}", encoded)
        shown = "".join(one.text for one in updates if isinstance(one, ReplyDelta))
        assert "harbour" in shown, "what comes before is shown"
        assert encoded[:10] not in shown and "And so on" not in shown
        assert isinstance(updates[-1], ReplyFinished) and updates[-1].text == "I cannot say it."


async def test_p6_a_file_that_was_made_is_sent_with_the_reply(harness: DeskHarness, script: Script) -> None:
    conversation, room = await bound_conversation(harness, script)
    folder = harness.desk.workspace(room).folder
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "plan.txt").write_text("Repair the lamp.")
    (folder / "keys.txt").write_text("sk-" + "a1B2c3D4" * 5)
    (folder.parent / "foreign.txt").write_text("of somebody else")
    refused = [("send_file", {"path": path}) for path in ("keys.txt", "../foreign.txt", "/etc/passwd", "none.txt")]
    script.lines["channel"] = [
        calls(("send_file", {"path": "plan.txt"}), *refused, ("reply", {"text": "Here is the plan."}))
    ]
    (finished,) = await send_message(harness, conversation, room, "The plan?", "1")
    (file,) = finished.attachments
    assert (file.name, file.media_type, file.size) == ("plan.txt", "text/plain", 16)
    files = RoomFiles(harness.workspaces.folder(harness.character), None, lambda *_: "people/ana")
    with files.open(file.path, RoomRef(surface="matrix", id="!room")) as opened:
        assert opened.read() == b"Repair the lamp."
    again = await send_message(harness, conversation, room, "The plan?", "1")
    assert again == [finished], "the same key returns the same files"


async def test_p6_a_file_of_a_worker_is_sent_when_its_result_arrives(harness: DeskHarness, script: Script) -> None:
    conversation, room = await bound_conversation(harness, script)
    script.lines["channel"] = [
        calls(("spawn_worker", {"task": "write"}), ("reply", {"text": "On it."})),
        calls(("send_file", {"path": "report.txt"}), ("reply", {"text": "Done."})),
    ]
    script.lines["worker"] = [
        calls(("file", {"action": "write", "path": "report.txt", "text": "All is well."})),
        "I wrote it.",
    ]
    await send_message(harness, conversation, room, "Write a report", "1")
    await harness.settle()
    (sent,) = harness.notifications.values()
    assert sent.text == "Done." and [file.path for file in sent.attachments] == ["people/ana/report.txt"]


async def test_p1_a_reaction_reaches_the_surface(harness: DeskHarness, script: Script) -> None:
    conversation, room = await bound_conversation(harness, script)
    script.lines["channel"] = [calls(("react", {"emoji": "👍"}), ("skip", {}))]
    updates = await updates_of(harness, conversation, room, "Thanks", "1")
    assert updates == [ReplyReaction("👍"), ReplyFinished("", "Mara")]


async def test_d15_a_schedule_delivers_to_any_room_of_the_person(harness: DeskHarness, script: Script) -> None:
    _, room = await bound_conversation(harness, script)
    other = RoomRef(surface="telegram", id="77/5")
    elsewhere = NewChat("room:elsewhere", ())
    await Rooms(harness.store).bind(other, "ana", "story", harness.character, elsewhere, "Kitchen")
    foreign = RoomRef(surface="telegram", id="88")
    await Rooms(harness.store).bind(foreign, "bea", "story", harness.character, NewChat("room:bea", ()), "Hall")
    hourly = ScheduleTime(every_s=3600)
    with pytest.raises(BadSchedule, match="no single room"):
        await harness.desk.schedules.set(room, "Report", hourly, to="telegram: Hall")
    await harness.desk.schedules.set(room, "Report", hourly, to="telegram: Kitchen")
    script.lines["channel"] = [calls(("reply", {"text": "All is well."}))]
    harness.clock.advance(3601)
    await harness.settle()
    assert [(sent.room, sent.text) for sent in harness.notifications.values()] == [(other, "All is well.")]
    script.lines["channel"] = [
        calls(
            ("schedule", {"prompt": "Tea", "every_minutes": 60, "to": "Kitchen"}),
            ("schedule", {"prompt": "Spy", "every_minutes": 60, "to": "Hall"}),
            ("reply", {"text": "Noted."}),
        )
    ]
    await harness.say(room, "Remind me of tea in the kitchen")
    targets = {one.prompt: one.to for one in harness.desk.schedules.queries.all(room)}
    assert targets == {"Report": other, "Tea": other}
