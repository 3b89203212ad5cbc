"""Chats with an agent, and what it did on the way to its answers."""

from __future__ import annotations

from typing import Literal

from coterie.engine.protocol import Attachment
from coterie.kernel import Payload


class RemoteOpened(Payload, kind="remote_opened"):
    """A chat with a character that an agent plays."""

    character: str
    person: str
    title: str


class RemoteRenamed(Payload, kind="remote_renamed"):
    """A chat with a remote agent got another name."""

    title: str


class AgentActed(Payload, kind="agent_acted"):
    """What an agent says it did before it answered."""

    what: Literal["tool_call", "tool_result", "progress"]
    name: str = ""
    text: str = ""


class AgentSentFile(Payload, kind="agent_sent_file"):
    """A file for the person, kept in the character's workspace."""

    file: Attachment
