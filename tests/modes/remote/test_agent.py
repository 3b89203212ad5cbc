"""The house and the agent that comes with it, over real sockets. P12"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coterie.characters.service import OWNER
from coterie.messaging.protocol import Account, IncomingMessage, RoomRef
from coterie.modes.remote import agent as agents
from coterie.modes.remote.agent import Agent, AgentOutput, AgentStep, AgentTask, OutputFile
from coterie.modes.remote.connections import AgentsSettings
from coterie.modes.remote.events import AgentActed
from coterie.modes.remote.protocol import ProgressStep, ToolCallStep, ToolResultStep
from tests.modes.remote.conftest import TOKEN, RemoteHarness

PATIENT = AgentsSettings(silence_timeout_s=20, max_retry_pause_s=0.05)


class Played:
    """An agent whose work waits for the test where it says so."""

    def __init__(self) -> None:
        self.asked: list[AgentTask] = []
        self.go_on = asyncio.Event()
        self.halfway = asyncio.Event()
        self.agent = Agent(self.answer, TOKEN)

    async def answer(self, asked: AgentTask) -> AsyncIterator[AgentOutput]:
        self.asked.append(asked)
        yield "One, "
        yield AgentStep(ToolCallStep, "the pantry", "look")
        yield AgentStep(ToolResultStep, "empty", "look")
        yield AgentStep(ProgressStep, "still looking")
        if "slow" in asked.text:
            self.halfway.set()
            await self.go_on.wait()
        yield f"two: {asked.text} from {asked.person.name}."

    def cut(self) -> None:
        assert self.agent._server is not None
        self.agent._server.transport.abort()


@pytest.fixture
def played() -> Played:
    return Played()


async def acted(house: RemoteHarness) -> list[AgentActed]:
    bound = house.board.chats.rooms.get(RoomRef(surface="loopback", id="desk"))
    events = await house.store.read(bound.context, kinds=[AgentActed.kind])
    return [event.payload for event in events if isinstance(event.payload, AgentActed)]


async def test_p12_a_message_goes_out_and_words_calls_and_progress_come_in(
    house: RemoteHarness, played: Played
) -> None:
    async with played.agent.serve() as url:
        house.remote(url)
        assert await house.told("Hello") == ["One, two: Hello from You."]
        assert [(act.what, act.name, act.text) for act in await acted(house)] == [
            ("tool_call", "look", "the pantry"),
            ("tool_result", "look", "empty"),
            ("progress", "", "still looking"),
        ]
        (asked,) = played.asked
        assert asked.person.id == OWNER and asked.chat.startswith("room:")
        async with asyncio.timeout(10):
            while played.agent._tasks:
                await asyncio.sleep(0.01)  # what the house has kept, the agent forgets


async def test_p12_a_line_that_breaks_loses_nothing_and_does_nothing_twice(
    house: RemoteHarness, played: Played
) -> None:
    house.settings = PATIENT
    await house.crash()
    async with played.agent.serve() as url:
        house.remote(url)
        await house.say("slow one")
        await played.halfway.wait()
        for _ in range(3):
            played.cut()
            await asyncio.sleep(0.05)
        played.go_on.set()
        await house.board.wait_idle()
        assert house.platform.shown("desk") == ["One, two: slow one from You."]
        assert len(played.asked) == 1 and len(await acted(house)) == 3


async def test_p12_the_house_dies_while_the_agent_works(house: RemoteHarness, played: Played) -> None:
    house.settings = PATIENT
    async with played.agent.serve() as url:
        house.remote(url)
        await house.crash()
        await house.say("slow one")
        await played.halfway.wait()
        await house.crash()
        played.go_on.set()
        await house.board.wait_idle()
        assert house.platform.shown("desk") == ["One, two: slow one from You."]
        assert len(played.asked) == 1, "it was sent again under the same id"
        assert len(await acted(house)) == 3


async def test_p12_the_agent_dies_and_begins_again(house: RemoteHarness, played: Played) -> None:
    house.settings = PATIENT
    await house.crash()
    async with played.agent.serve() as url:
        house.remote(url)
        port = int(url.rpartition(":")[2])
        await house.say("slow one")
        await played.halfway.wait()
    again = Played()
    again.go_on.set()
    async with again.agent.serve(port=port):
        await house.board.wait_idle()
        assert house.platform.shown("desk") == ["One, two: slow one from You."], "nothing of the first try stays"


async def test_p12_the_token_is_asked_for(house: RemoteHarness, played: Played) -> None:
    async with played.agent.serve() as url:
        house.register(backend="remote", base_url=url, token="another-token-9f3b")
        assert "does not let me in" in (await house.told("Hello"))[0]
        house.register(backend="remote", base_url=url)
        assert "does not let me in" in (await house.told("Hello", key="2"))[1]
        assert played.asked == []
        house.remote(url)
        assert (await house.told("Hello", key="3"))[-1].startswith("One, "), "changes apply without a restart"


async def test_p12_pushes_reach_the_right_room_once(house: RemoteHarness, played: Played) -> None:
    async with played.agent.serve() as url:
        house.remote(url)
        house.agents.sync_registry()
        await house.told("Hello")
        await house.told("Hello", room="other", key="2")
        chat = played.asked[0].chat
        await played.agent.push(chat, "task_done", "The bread is baked.")
        await played.agent.push("room:of-somebody-else", "task_done", "Nobody hears this.")
        await played.agent.push(chat, "task_error", "The oven is off.")
        async with asyncio.timeout(10):
            while played.agent._pushes:
                await asyncio.sleep(0.01)
        await house.board.wait_idle()
        assert house.platform.shown("desk")[1:] == ["Helper: The bread is baked.", "Helper: The oven is off."]
        assert len(house.platform.shown("other")) == 1
        # The answer to a push is lost: it is told again on the next line, and shown once.
        played.cut()
        await played.agent.push(chat, "task_progress", "Half of it.")
        lost = dict(played.agent._pushes)
        async with asyncio.timeout(10):
            while played.agent._pushes:
                await asyncio.sleep(0.01)
        played.agent._pushes.update(lost)
        played.cut()
        async with asyncio.timeout(10):
            while played.agent._pushes:
                await asyncio.sleep(0.01)
        await house.board.wait_idle()
        assert house.platform.shown("desk")[3:] == ["Helper: Half of it."]


async def test_p12_files_both_ways(house: RemoteHarness, tmp_path: Path) -> None:
    heard: list[tuple[str, bytes]] = []
    made = tmp_path / "../made.bin"
    made.write_bytes(bytes(range(256)) * 2_000)

    async def answer(asked: AgentTask) -> AsyncIterator[AgentOutput]:
        heard.extend((note.name, path.read_bytes()) for note, path in asked.files)
        yield "Here."
        yield OutputFile(made, "../../out of here.bin", "application/x-test")

    async with Agent(answer, TOKEN).serve() as url:
        house.remote(url)
        room, files = RoomRef(surface="loopback", id="desk"), house.files(house.roster.find("Helper").id)

        async def chunks() -> AsyncIterator[bytes]:
            for _ in range(10):
                yield b"abc" * 30_000

        sent = await files.save(room, "plan.txt", chunks(), "text/plain")
        empty = await files.save(room, "nothing.txt", _none(), "text/plain")
        who = Account(surface="loopback", id="ana")
        message = IncomingMessage(account=who, room=room, key="1", text="Look.", attachments=(sent, empty))
        await house.platform.deliver(message)
        await house.board.wait_idle()
    assert heard == [("plan.txt", b"abc" * 300_000), ("nothing.txt", b"")]
    (queued,) = house.board.delivery.outbox.answers_to(house.board.inbound.inbox.find(message) or 0)
    (file,) = queued.outgoing.attachments  # type: ignore[union-attr]
    assert b"".join([chunk async for chunk in files.read(file)]) == made.read_bytes()
    assert file.path.startswith("files/remote-") and "/../" not in file.path and file.media_type == "application/x-test"


async def _none() -> AsyncIterator[bytes]:
    for _ in range(0):
        yield b""


async def test_p12_stop_ends_it_and_retry_asks_anew(house: RemoteHarness, played: Played) -> None:
    house.settings = PATIENT
    await house.crash()
    async with played.agent.serve() as url:
        house.remote(url)
        await house.say("slow one")
        await played.halfway.wait()
        await house.say("!stop", key="2")
        await house.board.wait_idle()
        assert house.platform.shown("desk") == ["One, "]
        played.go_on.set()
        await house.told("!retry", key="3")
        assert house.platform.shown("desk")[1:] == ["One, two: slow one from You."]
        assert len(played.asked) == 2 and played.asked[0].id != played.asked[1].id


async def test_p12_an_agent_that_works_long_is_heard_of_and_not_given_up(
    house: RemoteHarness, played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents, "HEARTBEAT_S", 0.05)
    house.settings = AgentsSettings(silence_timeout_s=0.4)
    house.surfaces = house.surfaces.model_copy(update={"slow_notice_s": 0.2})
    await house.crash()

    async def answer(asked: AgentTask) -> AsyncIterator[AgentOutput]:
        await asyncio.sleep(1.2)
        yield "At last."

    async with Agent(answer, TOKEN).serve() as url:
        house.remote(url)
        shown = await house.told("Think.")
        assert "takes longer" in shown[0] and shown[1:] == ["At last."]


async def test_p12_without_an_agent_a_stand_in_speaks_its_script(house: RemoteHarness) -> None:
    house.register(backend="stand-in", says=["The first.", "You said {text}"], latency_s=0.01)
    for n, said in enumerate(["a", "b", "c"]):
        await house.told(said, key=str(n))
    assert house.platform.shown("desk") == ["The first.", "You said b", "The first."]


async def test_p12_who_is_no_longer_played_is_a_sentence(house: RemoteHarness) -> None:
    house.register(backend="stand-in", latency_s=0)
    await house.told("Hello")
    house.registry.file.write_text("characters: {}\n")
    assert "Nobody plays Helper" in (await house.told("Still there?", key="2"))[-1]
