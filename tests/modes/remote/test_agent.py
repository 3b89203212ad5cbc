"""The server and the bundled agent over real sockets."""

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


class PlayedAgent:
    """An agent whose handler waits for the test if the message contains `slow`."""

    def __init__(self) -> None:
        self.tasks: list[AgentTask] = []
        self.go_on = asyncio.Event()
        self.halfway = asyncio.Event()
        self.agent = Agent(self.answer, TOKEN)

    async def answer(self, task: AgentTask) -> AsyncIterator[AgentOutput]:
        self.tasks.append(task)
        yield "One, "
        yield AgentStep(ToolCallStep, "the pantry", "look")
        yield AgentStep(ToolResultStep, "empty", "look")
        yield AgentStep(ProgressStep, "still looking")
        if "slow" in task.text:
            self.halfway.set()
            await self.go_on.wait()
        yield f"two: {task.text} from {task.person.name}."

    def cut(self) -> None:
        assert self.agent._server is not None
        self.agent._server.transport.abort()


@pytest.fixture
def played() -> PlayedAgent:
    return PlayedAgent()


async def recorded_steps(harness: RemoteHarness) -> list[AgentActed]:
    binding = harness.router.chats.rooms.get(RoomRef(surface="loopback", id="desk"))
    events = await harness.store.read(binding.context, kinds=[AgentActed.kind])
    return [event.payload for event in events if isinstance(event.payload, AgentActed)]


async def test_p12_a_message_is_answered_with_text_tool_calls_and_progress(
    harness: RemoteHarness, played: PlayedAgent
) -> None:
    async with played.agent.serve() as url:
        harness.remote(url)
        assert await harness.ask("Hello") == ["One, two: Hello from You."]
        assert [(step.what, step.name, step.text) for step in await recorded_steps(harness)] == [
            ("tool_call", "look", "the pantry"),
            ("tool_result", "look", "empty"),
            ("progress", "", "still looking"),
        ]
        (task,) = played.tasks
        assert task.person.id == OWNER and task.chat.startswith("room:")
        async with asyncio.timeout(10):
            while played.agent._tasks:
                await asyncio.sleep(0.01)  # the agent discards what the server has stored


async def test_p12_a_lost_connection_loses_no_step_and_repeats_none(
    harness: RemoteHarness, played: PlayedAgent
) -> None:
    harness.settings = PATIENT
    await harness.crash()
    async with played.agent.serve() as url:
        harness.remote(url)
        await harness.say("slow one")
        await played.halfway.wait()
        for _ in range(3):
            played.cut()
            await asyncio.sleep(0.05)
        played.go_on.set()
        await harness.router.wait_idle()
        assert harness.platform.shown("desk") == ["One, two: slow one from You."]
        assert len(played.tasks) == 1 and len(await recorded_steps(harness)) == 3


async def test_p12_the_server_crashes_while_the_agent_works(harness: RemoteHarness, played: PlayedAgent) -> None:
    harness.settings = PATIENT
    async with played.agent.serve() as url:
        harness.remote(url)
        await harness.crash()
        await harness.say("slow one")
        await played.halfway.wait()
        await harness.crash()
        played.go_on.set()
        await harness.router.wait_idle()
        assert harness.platform.shown("desk") == ["One, two: slow one from You."]
        assert len(played.tasks) == 1, "it was sent again under the same id"
        assert len(await recorded_steps(harness)) == 3


async def test_p12_the_agent_restarts_and_begins_the_reply_again(harness: RemoteHarness, played: PlayedAgent) -> None:
    harness.settings = PATIENT
    await harness.crash()
    async with played.agent.serve() as url:
        harness.remote(url)
        port = int(url.rpartition(":")[2])
        await harness.say("slow one")
        await played.halfway.wait()
    again = PlayedAgent()
    again.go_on.set()
    async with again.agent.serve(port=port):
        await harness.router.wait_idle()
        assert harness.platform.shown("desk") == ["One, two: slow one from You."], "nothing of the first attempt stays"


async def test_p12_the_token_is_required(harness: RemoteHarness, played: PlayedAgent) -> None:
    async with played.agent.serve() as url:
        harness.register(backend="remote", base_url=url, token="another-token-9f3b")
        assert "refuses the token" in (await harness.ask("Hello"))[0]
        harness.register(backend="remote", base_url=url)
        assert "refuses the token" in (await harness.ask("Hello", key="2"))[1]
        assert played.tasks == []
        harness.remote(url)
        assert (await harness.ask("Hello", key="3"))[-1].startswith("One, "), "changes apply without a restart"


async def test_p12_pushes_reach_the_right_room_once(harness: RemoteHarness, played: PlayedAgent) -> None:
    async with played.agent.serve() as url:
        harness.remote(url)
        harness.agents.sync_registry()
        await harness.ask("Hello")
        await harness.ask("Hello", room="other", key="2")
        chat = played.tasks[0].chat
        await played.agent.push(chat, "task_done", "The bread is baked.")
        await played.agent.push("room:of-somebody-else", "task_done", "This is not delivered.")
        await played.agent.push(chat, "task_error", "The oven is off.")
        async with asyncio.timeout(10):
            while played.agent._pushes:
                await asyncio.sleep(0.01)
        await harness.router.wait_idle()
        assert harness.platform.shown("desk")[1:] == ["Helper: The bread is baked.", "Helper: The oven is off."]
        assert len(harness.platform.shown("other")) == 1
        # The acknowledgement of a push is lost: it is sent again on the next connection, and shown once.
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
        await harness.router.wait_idle()
        assert harness.platform.shown("desk")[3:] == ["Helper: Half of it."]


async def test_p12_files_both_ways(harness: RemoteHarness, tmp_path: Path) -> None:
    received: list[tuple[str, bytes]] = []
    output = tmp_path / "../output.bin"
    output.write_bytes(bytes(range(256)) * 2_000)

    async def answer(task: AgentTask) -> AsyncIterator[AgentOutput]:
        received.extend((info.name, path.read_bytes()) for info, path in task.files)
        yield "Here."
        yield OutputFile(output, "../../out of here.bin", "application/x-test")

    async with Agent(answer, TOKEN).serve() as url:
        harness.remote(url)
        room, files = RoomRef(surface="loopback", id="desk"), harness.files(harness.characters.find("Helper").id)

        async def chunks() -> AsyncIterator[bytes]:
            for _ in range(10):
                yield b"abc" * 30_000

        sent = await files.save(room, "plan.txt", chunks(), "text/plain")
        empty = await files.save(room, "nothing.txt", _none(), "text/plain")
        who = Account(surface="loopback", id="ana")
        message = IncomingMessage(account=who, room=room, key="1", text="Look.", attachments=(sent, empty))
        await harness.platform.deliver(message)
        await harness.router.wait_idle()
    assert received == [("plan.txt", b"abc" * 300_000), ("nothing.txt", b"")]
    (queued,) = harness.router.delivery.outbox.answers_to(harness.router.inbound.inbox.find(message) or 0)
    (file,) = queued.outgoing.attachments  # type: ignore[union-attr]
    assert b"".join([chunk async for chunk in files.read(file, message.room)]) == output.read_bytes()
    assert file.path.startswith("files/remote-") and "/../" not in file.path and file.media_type == "application/x-test"


async def _none() -> AsyncIterator[bytes]:
    for _ in range(0):
        yield b""


async def test_p12_stop_ends_a_reply_and_retry_asks_again(harness: RemoteHarness, played: PlayedAgent) -> None:
    harness.settings = PATIENT
    await harness.crash()
    async with played.agent.serve() as url:
        harness.remote(url)
        await harness.say("slow one")
        await played.halfway.wait()
        await harness.say("!stop", key="2")
        await harness.router.wait_idle()
        assert harness.platform.shown("desk") == ["One, "]
        played.go_on.set()
        await harness.ask("!retry", key="3")
        assert harness.platform.shown("desk")[1:] == ["One, two: slow one from You."]
        assert len(played.tasks) == 2 and played.tasks[0].id != played.tasks[1].id


async def test_p12_heartbeats_keep_a_long_reply_from_timing_out(
    harness: RemoteHarness, played: PlayedAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents, "HEARTBEAT_S", 0.05)
    harness.settings = AgentsSettings(silence_timeout_s=0.4)
    harness.surfaces = harness.surfaces.model_copy(update={"slow_notice_s": 0.2})
    await harness.crash()

    async def answer(task: AgentTask) -> AsyncIterator[AgentOutput]:
        await asyncio.sleep(1.2)
        yield "At last."

    async with Agent(answer, TOKEN).serve() as url:
        harness.remote(url)
        shown = await harness.ask("Think.")
        assert "takes longer" in shown[0] and shown[1:] == ["At last."]


async def test_p12_a_stand_in_says_its_lines_in_turn(harness: RemoteHarness) -> None:
    harness.register(backend="stand-in", says=["The first.", "You said {text}"], latency_s=0.01)
    for number, text in enumerate(["a", "b", "c"]):
        await harness.ask(text, key=str(number))
    assert harness.platform.shown("desk") == ["The first.", "You said b", "The first."]


async def test_p12_a_character_without_an_agent_is_an_error_message(harness: RemoteHarness) -> None:
    harness.register(backend="stand-in", latency_s=0)
    await harness.ask("Hello")
    harness.registry.file.write_text("characters: {}\n")
    assert "No agent plays Helper" in (await harness.ask("Still there?", key="2"))[-1]
