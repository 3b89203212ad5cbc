"""The Discord adapter: sends and edits messages, files, buttons and reactions over Discord's HTTP interface.

For a few minutes Discord shows one message for the same nonce; later a repeated send is recorded as possibly shown
twice.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from typing import Any, TypeVar

import aiohttp
import discord

from coterie.base.logging import get_logger
from coterie.base.redaction import redact
from coterie.messaging import (
    Account,
    Attachment,
    Button,
    Capabilities,
    Deliverable,
    EditPace,
    OutgoingMessage,
    OutgoingReaction,
    OutgoingUI,
    PlatformRateLimited,
    PlatformRefused,
    PlatformUnreachable,
    RoomFiles,
    RoomRef,
    SurfaceError,
)
from coterie.surfaces.discord.messages import SURFACE, room_ref
from coterie.surfaces.discord.setup import bad_token

T = TypeVar("T")
_MAX_TEXT = 2_000
_FENCE_END = "\n```"
_MAX_FILE = 10_000_000
_MAX_FILES = 10
_MAX_BUTTONS = 25
_MAX_TITLE = 100
_NONCE_WINDOW_S = 120.0
"""Discord does not say for how many minutes it knows a nonce."""
_CALL_TIMEOUT_S = 60.0
_UPLOAD_TIMEOUT_S = 300.0
_TOO_MANY_REQUESTS = 429
_log = get_logger(__name__)


def discord_error(error: Exception) -> SurfaceError:
    """What an error of the library means for a delivery or a connection."""
    match error:
        case SurfaceError():
            return error
        case discord.LoginFailure():
            return bad_token()
        case discord.RateLimited():
            return PlatformRateLimited("Discord limits the rate.", error.retry_after)
        case discord.ConnectionClosed():
            if error.code == 4004:
                return bad_token()
            return PlatformUnreachable(f"Discord closed the connection ({error.code}).", ambiguous=False)
        case discord.PrivilegedIntentsRequired():
            return PlatformRefused(
                "Discord does not give this bot what it asks for.",
                "Switch on Message Content Intent for it in the developer portal.",
            )
        case discord.HTTPException(status=401):
            return bad_token()
        case discord.HTTPException(status=429):
            header = error.response.headers.get("Retry-After", "")
            wait_s = float(header) if header.replace(".", "", 1).isdecimal() else 5.0
            return PlatformRateLimited("Discord limits the rate.", wait_s)
        case discord.DiscordServerError():
            return PlatformUnreachable(f"Discord answered {error.status}.", ambiguous=False)
        case discord.HTTPException():
            return PlatformRefused(
                f"Discord refused: {error.text[:200] or error.status}", "Check the bot's permissions in the channel."
            )
        case aiohttp.ClientConnectorError():
            return PlatformUnreachable("Discord cannot be reached.", ambiguous=False)
        case _:
            return PlatformUnreachable(f"Discord cannot be reached ({type(error).__name__}).")


async def checked(call: Awaitable[T], timeout_s: float = _CALL_TIMEOUT_S) -> T:
    """The result of a call of the library; its errors become ours."""
    try:
        async with asyncio.timeout(timeout_s):
            return await call
    except (discord.DiscordException, aiohttp.ClientError, OSError) as error:  # a timeout is an OSError
        raise discord_error(error) from error


class DiscordSurface:
    name = SURFACE

    def __init__(
        self,
        client: discord.Client,
        files: Callable[[RoomRef], RoomFiles],
        has_rooms: Callable[[Sequence[int]], bool],
        is_bound: Callable[[RoomRef], bool],
    ) -> None:
        """`files` gives the files of the character who answers in a room; `has_rooms` says whether a chat is held in
        one of these channels, `is_bound` in this room."""
        self.capabilities = Capabilities(
            max_length=_MAX_TEXT - len(_FENCE_END),
            length_unit="utf-16",
            max_file_bytes=_MAX_FILE,
            deduplicates=True,
            dedupe_window_s=_NONCE_WINDOW_S,
            can_edit=True,
            buttons=True,
            reactions=True,
            can_create_rooms=True,
            pace=EditPace(min_interval_s=0.2, max_interval_s=1.5, idle_s=0.5),
            typing_repeat_s=8.0,
        )
        self._client = client
        self._files = files
        self._has_rooms = has_rooms
        self._is_bound = is_bound

    async def send(self, outgoing: Deliverable, token: str) -> str:
        channel = self._messageable(outgoing.room)
        if isinstance(outgoing, OutgoingReaction) and outgoing.to.isdecimal():
            message = channel.get_partial_message(int(outgoing.to))
            await checked(message.add_reaction(outgoing.emoji))
            return f"{outgoing.to} {outgoing.emoji}"
        text = _text(outgoing)
        files = outgoing.attachments if isinstance(outgoing, OutgoingMessage) else ()
        options: dict[str, Any] = {}
        if isinstance(outgoing, OutgoingMessage) and outgoing.reply_to is not None and outgoing.reply_to.isdecimal():
            options["reference"] = discord.MessageReference(
                message_id=int(outgoing.reply_to), channel_id=int(outgoing.room.id), fail_if_not_exists=False
            )
        if isinstance(outgoing, OutgoingUI) and outgoing.buttons:
            options["view"] = _view(outgoing.buttons)
        if not text and not files:
            return ""
        first = ""
        for number, batch in enumerate(_batches(files)):
            with ExitStack() as opened:
                if batch:
                    options["files"] = self._open(outgoing.room, batch, opened)
                nonce = _nonce(f"{token}.f{number}" if number else token)
                timeout_s = _UPLOAD_TIMEOUT_S if batch else _CALL_TIMEOUT_S
                sent = await checked(channel.send(text or None, nonce=nonce, **options), timeout_s)
            first, text, options = first or str(sent.id), "", {}
        return first

    async def edit(self, outgoing: Deliverable, message: str, token: str) -> None:
        if isinstance(outgoing, OutgoingReaction):
            raise PlatformRefused("A reaction cannot be edited.", "Nothing needs to be done.")
        files = outgoing.attachments if isinstance(outgoing, OutgoingMessage) else ()
        partial = self._messageable(outgoing.room).get_partial_message(int(message))
        with ExitStack() as opened:
            options: dict[str, Any] = {}
            if files:  # they replace those of an earlier try
                options["attachments"] = self._open(outgoing.room, files[:_MAX_FILES], opened)
            timeout_s = _UPLOAD_TIMEOUT_S if files else _CALL_TIMEOUT_S
            await checked(partial.edit(content=_text(outgoing), **options), timeout_s)
        if len(files) > _MAX_FILES:
            rest = OutgoingMessage(room=outgoing.room, text="", attachments=files[_MAX_FILES:])
            await self.send(rest, f"{token}.files")

    async def preview(self, outgoing: OutgoingMessage, token: str) -> None:
        raise PlatformRefused("Discord has no previews.", "Messages are edited instead.")

    async def typing(self, room: RoomRef, on: bool) -> None:
        if on:  # it ends with the next message, or after ten seconds
            await checked(_typing(self._messageable(room)))

    async def create_room(self, person: Account, title: str, key: str, asked_in: RoomRef) -> RoomRef | None:
        """A thread of the channel, for this person only where the bot may make private ones; None where there are no
        threads."""
        channel = await self.channel(int(asked_in.id))
        parent = channel.parent if isinstance(channel, discord.Thread) else channel
        if not isinstance(parent, discord.TextChannel):
            return None
        name = title[:_MAX_TITLE] or "Chat"
        thread = self._thread_of(parent, name, key)
        try:
            if thread is None:
                thread = await self._create_thread(parent, name)
            await checked(thread.add_user(discord.Object(int(person.id))))
        except PlatformRefused as error:
            _log.info("no thread could be created", channel=parent.id, error=redact(str(error)))
            return None
        return room_ref(thread.id)

    async def _create_thread(self, parent: discord.TextChannel, name: str) -> discord.Thread:
        try:
            return await checked(parent.create_thread(name=name, type=discord.ChannelType.private_thread))
        except PlatformRefused:
            return await checked(parent.create_thread(name=name, type=discord.ChannelType.public_thread))

    def _thread_of(self, parent: discord.TextChannel, name: str, key: str) -> discord.Thread | None:
        """The thread that an earlier process created for the same command, and did not record."""
        asked = key.rpartition(" ")[2]
        own = self._client.user
        for thread in parent.threads:
            is_ours = own is not None and (thread.owner_id, thread.name) == (own.id, name)
            if is_ours and asked.isdecimal() and thread.id > int(asked) and not self._is_bound(room_ref(thread.id)):
                return thread
        return None

    async def rename_room(self, room: RoomRef, title: str) -> None:
        channel = await self.channel(int(room.id))
        if (
            isinstance(channel, discord.Thread) and channel.name != title[:_MAX_TITLE]
        ):  # a channel's name is its people's
            await checked(channel.edit(name=title[:_MAX_TITLE]))

    async def is_private(self, room: RoomRef, account: Account) -> bool:
        channel = await self.channel(int(room.id))
        recipients = channel.recipients if isinstance(channel, discord.DMChannel) else []
        return [str(user.id) for user in recipients] == [account.id]

    async def leave_room(self, room: RoomRef) -> None:
        """Leave the thread; or the server of a channel, unless there are other chats."""
        channel = await self.channel(int(room.id))
        if isinstance(channel, discord.Thread):
            await checked(channel.leave())
        elif isinstance(channel, discord.abc.GuildChannel):
            others = [*channel.guild.channels, *channel.guild.threads]
            if not self._has_rooms([other.id for other in others if other.id != channel.id]):
                await checked(channel.guild.leave())

    async def direct_room(self, person: Account) -> RoomRef | None:
        user = await checked(self._client.fetch_user(int(person.id)))
        return room_ref((await checked(user.create_dm())).id)

    async def channel(self, channel: int) -> Any:
        """A channel, thread or direct chat by its id."""
        return self._client.get_channel(channel) or await checked(self._client.fetch_channel(channel))

    def _messageable(self, room: RoomRef) -> discord.PartialMessageable:
        return self._client.get_partial_messageable(int(room.id))

    def _open(self, room: RoomRef, files: Sequence[Attachment], opened: ExitStack) -> list[discord.File]:
        contents: list[tuple[Any, Attachment]] = [
            (opened.enter_context(self._files(room).open(file.path, room)), file) for file in files
        ]
        return [discord.File(content, filename=file.name or "file") for content, file in contents]


async def _typing(channel: discord.PartialMessageable) -> None:
    await channel.typing()


def _nonce(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()[:25]


def _text(outgoing: Deliverable) -> str:
    """A message as Discord's Markdown, with a code block closed that goes on in the next part; notices without
    formatting."""
    if isinstance(outgoing, OutgoingReaction):  # to something that is no message, such as a command
        return outgoing.emoji
    if isinstance(outgoing, OutgoingMessage):
        text = outgoing.markdown.strip()
        return text + _FENCE_END if text.count("```") % 2 else text
    text = outgoing.text.strip()
    escaped = discord.utils.escape_markdown(text)
    return escaped if len(escaped.encode("utf-16-le")) // 2 <= _MAX_TEXT else text


def _view(buttons: Sequence[Button]) -> discord.ui.View:
    view = discord.ui.View(timeout=None)
    for button in buttons[:_MAX_BUTTONS]:
        custom_id = f"{button.action}:{button.payload}"
        if len(custom_id) <= 100:
            view.add_item(discord.ui.Button(label=button.label[:80], custom_id=custom_id))
    view.stop()  # the presses come as interactions, also after a restart
    return view


def _batches(files: Sequence[Attachment]) -> list[Sequence[Attachment]]:
    return [files[at : at + _MAX_FILES] for at in range(0, len(files), _MAX_FILES)] or [()]
