"""Converting Matrix events to neutral messages, and Markdown to HTML."""

from __future__ import annotations

from typing import Any

import pytest

from coterie.messaging.protocol import IncomingCommand, IncomingMessage
from coterie.surfaces.matrix.schemas import read_event, to_html

BOT = "@bot:here"


def read(content: Any, **more: Any) -> object:
    event = {"type": "m.room.message", "sender": "@ana:here", "event_id": "$1", "origin_server_ts": 0, **more}
    return read_event("!r", {**event, "content": content}, BOT)


def test_p1_only_messages_to_us_are_read() -> None:
    text = {"msgtype": "m.text", "body": "hello"}
    assert isinstance(read(text), IncomingMessage)
    assert read(text, sender=BOT) is None
    assert read({**text, "msgtype": "m.notice"}) is None
    assert read({**text, "m.relates_to": {"rel_type": "m.replace", "event_id": "$0"}}) is None
    assert read({}) is None and read(text, type="m.room.name") is None
    for nonsense in ({"m.relates_to": "x"}, {"m.relates_to": {"m.in_reply_to": "x"}}, {"body": 7}):
        with pytest.raises(ValueError):
            read({**text, **nonsense})


def test_p8_a_command_begins_with_the_prefix_and_a_letter() -> None:
    command = read({"msgtype": "m.text", "body": "!Rename  The kitchen"})
    assert isinstance(command, IncomingCommand) and (command.name, command.arguments) == ("rename", " The kitchen")
    for body in ("!", "!!", "! new", "!?", "not !new"):
        assert isinstance(read({"msgtype": "m.text", "body": body}), IncomingMessage)


def test_p5_markdown_becomes_html_and_html_stays_text() -> None:
    assert to_html("plain words") is None
    assert to_html("a **bold** word") == "<p>a <strong>bold</strong> word</p>"
    html = to_html('<script>alert("x")</script> <b>&</b>')
    assert html is not None and "<script" not in html and "<b>" not in html
    link = to_html("[x](javascript:alert(1)) ![y](https://evil.example/t.png)")
    assert link is None or ("javascript:" not in link.split("<a")[-1].split(">")[0] and "<img" not in link)
