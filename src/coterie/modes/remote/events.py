"""Chats with an agent, and what it did on the way to its answers."""

from __future__ import annotations

from typing import Literal

from coterie.eventstore import Payload
from coterie.messaging.protocol import Attachment


class RemoteOpened(Payload, kind="remote_opened"):
    """A chat with a character that an agent plays."""

    character: str
    """The character's id."""
    person: str
    """Whose chat it is: a person's id; `you` is the owner."""
    title: str
    """The name it was given, else the character's."""


class RemoteRenamed(Payload, kind="remote_renamed"):
    """A chat with a remote agent got another name."""

    title: str
    """What it is called from now on."""


class AgentActed(Payload, kind="agent_acted"):
    """What an agent says it did before it answered."""

    what: Literal["tool_call", "tool_result", "progress"]
    """It used a tool, got its result, or told how far it is."""
    name: str = ""
    """The tool's, cut after 200 characters; empty for progress."""
    text: str = ""
    """In the agent's words, secrets masked, cut after 2,000 characters."""


class AgentSentFile(Payload, kind="agent_sent_file"):
    """A file for the person, kept in the character's workspace."""

    file: Attachment
    """What it is called, and where it was put."""
