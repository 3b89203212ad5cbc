"""The port by which messengers are set up: what a person enters, whether it works, and how the connection stands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol

from coterie.messaging.errors import TRIED_AGAIN, PlatformUnreachable

_TEST_TIMEOUT_S = 4.5
ConnectionState = Literal["off", "connecting", "connected", "retrying"]


@dataclass(frozen=True)
class MessengerField:
    """A value that a person enters to connect a messenger."""

    name: str
    """The name of its setting, within the messenger's section."""
    label: str
    is_secret: bool = False
    default: str = ""
    hint: str = ""
    optional: bool = False


@dataclass(frozen=True)
class MessengerQuestion:
    """A question about the connection that the owner answers on the page."""

    id: str
    text: str
    choices: tuple[tuple[str, str], ...]
    """The value and the label of each."""


@dataclass(frozen=True)
class MessengerStatus:
    """How the connection to a messenger stands."""

    state: ConnectionState
    account: str = ""
    """Who the bot is."""
    link: str = ""
    """The address that opens a chat with it."""
    problem: str = ""
    """Why it does not work, in a sentence."""
    fix: str = ""
    last_message: datetime | None = None
    note: str = ""
    """What would work better with another setting of the platform; empty for nothing."""
    questions: tuple[MessengerQuestion, ...] = ()


@asynccontextmanager
async def testing_connection(platform: str) -> AsyncIterator[None]:
    """For what a person has just entered: an answer within five seconds, and what the person can do about a failure."""
    fix = "Check the network and the address, then connect again."
    try:
        async with asyncio.timeout(_TEST_TIMEOUT_S):
            yield
    except TimeoutError:
        raise PlatformUnreachable(f"{platform} does not answer in time.", fix, ambiguous=False) from None
    except PlatformUnreachable as error:
        if error.fix != TRIED_AGAIN:
            raise
        raise PlatformUnreachable(error.what, fix, ambiguous=False) from error


@dataclass(frozen=True)
class OpenChat:
    """How the owner begins a chat with the bot and links their account."""

    link: str
    """The address to open."""
    write: str = ""
    """What to write to the bot there; empty if the link itself carries the code."""


class SaveSettings(Protocol):
    async def __call__(self, section: str, values: Mapping[str, Any], secrets: Mapping[str, str]) -> None:
        """Write the settings of a section; secrets go to the encrypted store, and the settings refer to them."""
        ...


class Messenger(Protocol):
    """A messenger that can be connected while the server runs. Each has a class of its own in its surface."""

    name: str
    label: str
    about: str
    """How to get what is to be entered, in one or two sentences."""
    fields: tuple[MessengerField, ...]

    @property
    def status(self) -> MessengerStatus: ...

    async def connect(self, values: Mapping[str, str]) -> MessengerStatus:
        """Test the values, save them and use them from now on. A `CoterieError` if they do not work; then nothing
        changes."""
        ...

    def open_chat(self, code: str) -> OpenChat:
        """Where to talk to the bot, with a code that links the account. Needs a connection."""
        ...

    async def answer(self, question: str, choice: str) -> None:
        """Answer a question of the status. `NoSuchQuestion` if it is no longer open."""
        ...

    async def reset(self, mode: str, *, dry_run: bool) -> list[str]:
        """Forget the rooms; returns what was done, step by step. `NoSuchMode` if the messenger has no such way."""
        ...

    async def disconnect(self) -> None:
        """Forget what was entered; chats are kept."""
        ...

    def running(self) -> AbstractAsyncContextManager[None]:
        """Connect in the background, if it is set up."""
        ...
