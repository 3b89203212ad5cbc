"""Dispatching by type and key, and failing handlers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import structlog

from coterie.base.errors import CoterieError
from coterie.base.redaction import redact
from coterie.messaging.protocol import (
    Account,
    Incoming,
    IncomingCallback,
    IncomingCommand,
    IncomingMessage,
    MemberChange,
    Outgoing,
    OutgoingNotification,
    RoomRef,
)
from coterie.messaging.routing import HANDLER_FAILED, Handler, MessageDispatcher


def handler_for_text(text: str) -> Handler:
    async def handler(incoming: Any) -> AsyncIterator[Outgoing]:
        yield OutgoingNotification(room=incoming.room, text=text)

    return handler


def base(surface: str = "matrix") -> dict[str, Any]:
    return {"account": Account(surface=surface, id="ana"), "room": RoomRef(surface=surface, id="r"), "key": "1"}


async def answers(dispatcher: MessageDispatcher, incoming: Incoming) -> list[str]:
    return [out.text async for out in dispatcher.dispatch(incoming) if isinstance(out, OutgoingNotification)]


async def test_p1_the_most_specific_handler_is_chosen() -> None:
    dispatcher = MessageDispatcher()
    dispatcher.on(IncomingCommand)(handler_for_text("any command"))
    dispatcher.on(IncomingCommand, "new")(handler_for_text("new"))
    dispatcher.on(IncomingCommand, "new", surface="telegram")(handler_for_text("new on telegram"))
    dispatcher.on(IncomingCallback, "yes")(handler_for_text("yes"))
    dispatcher.on(MemberChange, "left")(handler_for_text("left"))
    dispatcher.on(IncomingMessage)(handler_for_text("talk"))
    assert await answers(dispatcher, IncomingCommand(**base(), name="new")) == ["new"]
    assert await answers(dispatcher, IncomingCommand(**base("telegram"), name="new")) == ["new on telegram"]
    assert await answers(dispatcher, IncomingCommand(**base("telegram"), name="help")) == ["any command"]
    assert await answers(dispatcher, IncomingCallback(**base(), action="yes")) == ["yes"]
    assert await answers(dispatcher, IncomingCallback(**base(), action="other")) == []
    assert await answers(dispatcher, MemberChange(**base(), change="left")) == ["left"]
    assert await answers(dispatcher, IncomingMessage(**base(), text="*")) == ["talk"]


async def test_p1_a_failure_is_a_sentence_and_its_cause_is_in_the_log() -> None:
    dispatcher = MessageDispatcher()
    redact.register("hunter2-hunter2")

    @dispatcher.on(IncomingMessage)
    async def fail(incoming: IncomingMessage) -> AsyncIterator[Outgoing]:
        yield OutgoingNotification(room=incoming.room, text="before")
        if incoming.text == "ours":
            raise CoterieError("The key hunter2-hunter2 is wrong.", "Set another.")
        raise KeyError("deep inside")

    with structlog.testing.capture_logs() as logs:
        ours = await answers(dispatcher, IncomingMessage(**base(), text="ours"))
        theirs = await answers(dispatcher, IncomingMessage(**base(), text="theirs"))
    assert ours == ["before", "The key [secret] is wrong. Set another."]
    assert theirs == ["before", HANDLER_FAILED]
    assert [entry["event"] for entry in logs] == ["not handled", "handler failed"]
    assert logs[1]["exc_info"]
