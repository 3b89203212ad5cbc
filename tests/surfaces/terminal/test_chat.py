"""The full-screen chat, driven by key presses."""

from __future__ import annotations

import asyncio

from textual.pilot import Pilot
from textual.widgets import Input, Markdown, Static

from coterie.base.errors import CoterieError
from coterie.surfaces.terminal.chat import PastMessage, TerminalChat, TerminalConversation
from tests.contracts.surface_app import EchoConversation

HISTORY = [PastMessage("Mara", "*looks up*", mine=False), PastMessage("You", "Hello.", mine=True)]


def chat(echo: EchoConversation) -> TerminalChat:
    return TerminalChat(TerminalConversation(echo, "echo:1", "you", "Mara", lambda: HISTORY))


async def write(pilot: Pilot[None], text: str) -> None:
    pilot.app.query_one("#write", Input).value = text
    await pilot.press("enter")
    await pilot.pause()


async def wait_for_text(pilot: Pilot[None], text: str) -> None:
    async with asyncio.timeout(20):
        while text not in [widget.source for widget in pilot.app.query(Markdown)]:
            await pilot.pause(0.02)


def notices(pilot: Pilot[None]) -> list[str]:
    return [str(widget.content) for widget in pilot.app.query(Static) if widget.has_class("notice")]


async def test_p16_history_then_streamed_text() -> None:
    echo = EchoConversation(script={"Is the lamp lit?": "The **lamp** is lit.\n\n- and so\n- is the stove"})
    async with chat(echo).run_test() as pilot:
        assert [widget.source for widget in pilot.app.query(Markdown)] == ["*looks up*"]
        await write(pilot, "Is the lamp lit?")
        await wait_for_text(pilot, "The **lamp** is lit.\n\n- and so\n- is the stove")
        assert echo.received == [("echo:1", "Is the lamp lit?")]
        user_messages = [str(widget.content) for widget in pilot.app.query(Static) if widget.has_class("mine")]
        assert user_messages == ["> Hello.", "> Is the lamp lit?"]


async def test_p16_commands_and_errors() -> None:
    echo = EchoConversation(
        exceptions={"break": CoterieError("The model is away.", "Try again.")}, reply_errors={"half": "It broke off."}
    )
    async with chat(echo).run_test() as pilot:
        for text in ("/help", "/context", "/stop", "   "):
            await write(pilot, text)
        await write(pilot, "/retry")
        await wait_for_text(pilot, "again [echo:1]")
        await write(pilot, "break")
        await pilot.pause(0.1)
        await write(pilot, "half")
        await wait_for_text(pilot, "half [echo:1]")
        notes = notices(pilot)
        assert "/retry" in notes[0] and notes[1].startswith("about echo:1, with Echo") and "No reply" in notes[2]
        assert notes[3:] == ["The model is away. Try again.", "It broke off."]
        await write(pilot, "/quit")
    assert pilot.app.return_value is None


async def test_p16_one_reply_at_a_time_and_nothing_acts_on_the_terminal() -> None:
    echo = EchoConversation(script={"slow": "\x1b[2J[red]done[/red]"}, gate=asyncio.Event())
    async with chat(echo).run_test() as pilot:
        await write(pilot, "slow")
        await write(pilot, "too soon")
        assert "still speaking" in notices(pilot)[0]
        assert pilot.app.query_one("#write", Input).value == "too soon", "what was written is kept"
        await pilot.press("ctrl+r")
        assert "Wait for the reply" in notices(pilot)[1]
        assert echo.gate is not None
        echo.gate.set()
        await wait_for_text(pilot, "\\u001b[2J[red]done[/red]")
