"""Run the Discord surface: check the token, register the commands, follow the gateway, and catch up on what was missed.

Discord does not repeat messages that were missed. The id of the last stored message is kept with it; after a start, and
after a session that could not be resumed, the rooms are read from a little before it, and what is known already is
recognised by its id.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import datetime
from typing import Any, Literal

import aiohttp
import discord
import httpx
import yarl
from discord import app_commands
from discord.gateway import DiscordWebSocket
from discord.http import Route

from coterie.base.ids import new_id
from coterie.base.logging import get_logger
from coterie.base.redaction import redact
from coterie.base.supervisor import Supervisor
from coterie.conversation import RoomError
from coterie.messaging import (
    Account,
    BadFile,
    CommandInfo,
    ConnectionState,
    Incoming,
    IncomingMessage,
    MemberChange,
    MessageRouter,
    MessengerConnection,
    MessengerStatus,
    PlatformRateLimited,
    PlatformRefused,
    PlatformUnreachable,
    Quarantine,
    RoomFiles,
    RoomRef,
    SurfaceError,
    SurfaceSynced,
    list_commands,
)
from coterie.surfaces.discord.messages import (
    SURFACE,
    account_of,
    read_button,
    read_command,
    read_message,
    room_ref,
)
from coterie.surfaces.discord.settings import API_URL, DiscordSettings
from coterie.surfaces.discord.setup import NEEDS_CONTENT, DiscordBot, ask_who_the_bot_is
from coterie.surfaces.discord.surface import DiscordSurface, checked, discord_error

GUILDS_WAIT_S = 1.0
"""How long to wait for the next server before all of them count as known."""
_OVERLAP_MS = 5 * 60 * 1000
"""How far before the last stored message rooms are read: ids of different rooms are not quite in order."""
_MAX_MISSED = 5_000
_CURSOR_EVERY_S = 60.0
"""The position is stored with every message for a character, and otherwise this often."""
_READ_AT_ONCE = 4
_PRIVATE_THREAD_PEOPLE = 2
_MAX_DESCRIPTION = 100
_Item = discord.Message | Literal["connected", "ready"]
_log = get_logger(__name__)
logging.getLogger("discord").setLevel(logging.ERROR)
discord.VoiceClient.warn_nacl = discord.VoiceClient.warn_dave = False


class DiscordService:
    def __init__(
        self,
        router: MessageRouter,
        settings: DiscordSettings,
        files: Callable[[str], RoomFiles],
        supervisor: Supervisor | None = None,
    ) -> None:
        """`files` gives the files of a character."""
        self._router = router
        self._settings = settings
        self._files = files
        self._info: DiscordBot | None = None
        self._connection = MessengerConnection(
            "Discord", self._follow, supervisor or Supervisor(), on=settings.token is not None
        )

    @property
    def status(self) -> MessengerStatus:
        return self._connection.status

    def configure(self, settings: DiscordSettings) -> None:
        """Use these settings from now on, without a restart."""
        self._settings = settings
        self._connection.configure(on=settings.token is not None)

    def running(self) -> AbstractAsyncContextManager[None]:
        """Run in the background; without a token, wait for one."""
        return self._connection.running()

    async def _follow(self) -> None:
        async with self.connected() as connection:
            await connection.follow()

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[GatewayConnection]:
        """Check the token, log in and attach; the caller follows the gateway."""
        info = self._info = await ask_who_the_bot_is(self._settings)
        self._connection.identify(info.name, info.link, "" if info.reads_content else NEEDS_CONTENT)
        await _use_server(self._settings.api_url)
        client = _client(info)
        try:
            token = self._settings.token.get_secret_value().strip() if self._settings.token is not None else ""
            await checked(client.login(token))
            surface = DiscordSurface(client, self._files_in, self._has_rooms, self._is_bound)
            connection = GatewayConnection(self, client, surface)
            await connection.register_commands()
            self._router.attach(surface)
            try:
                yield connection
            finally:
                self._router.detach(surface)
        finally:
            await client.close()

    # --- for the connection --------------------------------------------------------------------------------------

    @property
    def router(self) -> MessageRouter:
        return self._router

    def set_state(self, state: ConnectionState) -> None:
        self._connection.set_state(state)

    def received_at(self, at: datetime) -> None:
        self._connection.received_at(at)

    def cursor(self) -> int | None:
        """The id of the last message that was stored; none for another bot than last time."""
        identity, _, last = (self._router.inbound.inbox.cursor(SURFACE) or "").partition(":")
        return int(last) if self._info is not None and identity == str(self._info.id) and last.isdecimal() else None

    def cursor_at(self, message: int) -> SurfaceSynced:
        return SurfaceSynced(surface=SURFACE, cursor=f"{self._info.id if self._info is not None else 0}:{message}")

    def files_in(self, room: RoomRef) -> RoomFiles:
        return self._files_in(room)

    def _files_in(self, room: RoomRef) -> RoomFiles:
        binding = self._router.chats.rooms.find(room)
        return self._files(binding.character if binding is not None else "shared")

    def _has_rooms(self, channels: Sequence[int]) -> bool:
        return any(self._is_bound(room_ref(channel)) for channel in channels)

    def _is_bound(self, room: RoomRef) -> bool:
        return self._router.chats.rooms.find(room) is not None


class GatewayConnection:
    """A logged-in client: what the gateway tells becomes events in the inbox, in order."""

    def __init__(self, service: DiscordService, client: discord.Client, surface: DiscordSurface) -> None:
        self._service = service
        self._client = client
        self._surface = surface
        self._queue: asyncio.Queue[_Item] = asyncio.Queue()
        self._stored_at = 0.0
        self._private: dict[int, bool] = {}
        """Private threads, and whether nobody but one person and we are in it."""
        for handler in (
            *(self.on_connect, self.on_ready, self.on_resumed, self.on_disconnect, self.on_message),
            *(self.on_interaction, self.on_raw_member_remove, self.on_raw_thread_member_remove),
        ):
            setattr(client, handler.__name__, handler)
        self.caught_up = asyncio.Event()
        """Set while nothing is missing."""

    async def follow(self) -> None:
        """Follow the gateway until the connection is lost: then an error says why."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._receive())
                await self._client.connect(reconnect=False)
                raise PlatformUnreachable("Discord closed the connection.", ambiguous=False)
        except ExceptionGroup as errors:
            error = errors.exceptions[0]
            raise _as_ours(error) from error

    async def wait_received(self) -> None:
        """Wait until everything that the gateway told so far is stored."""
        await self._queue.join()

    async def register_commands(self) -> None:
        """Discord shows them while people write; the same list again changes nothing."""
        tree = app_commands.CommandTree(self._client)
        for command in list_commands(", ".join(self._service.router.chats.modes)):
            tree.add_command(_slash_command(command, self._on_command))
        await checked(tree.sync())

    # --- what the library calls ----------------------------------------------------------------------------------

    async def on_connect(self) -> None:
        self._queue.put_nowait("connected")

    async def on_ready(self) -> None:
        self._queue.put_nowait("ready")

    async def on_resumed(self) -> None:
        self._service.set_state("connected")

    async def on_disconnect(self) -> None:
        self._service.set_state("connecting")

    async def on_message(self, message: discord.Message) -> None:
        self._queue.put_nowait(message)

    async def on_raw_member_remove(self, payload: discord.RawMemberRemoveEvent) -> None:
        """Somebody left a server, and with it every channel."""
        rooms = self._service.router.chats.rooms.on_surface(SURFACE)
        for binding in rooms:
            channel = self._client.get_channel(int(binding.room.id))
            if getattr(getattr(channel, "guild", None), "id", None) == payload.guild_id:
                await self._member_left(binding.room, payload.user, str(payload.guild_id))

    async def on_raw_thread_member_remove(self, payload: discord.RawThreadMembersUpdate) -> None:
        self._private.pop(payload.thread_id, None)
        for user in payload.data.get("removed_member_ids", []):
            person = await checked(self._client.fetch_user(int(user)))
            await self._member_left(room_ref(payload.thread_id), person, str(payload.guild_id))

    async def on_interaction(self, interaction: discord.Interaction[Any]) -> None:
        """A pressed button. It is acknowledged first: Discord waits three seconds only."""
        if interaction.type is not discord.InteractionType.component:
            return
        with suppress(discord.HTTPException):  # too late: it is handled all the same
            await interaction.response.defer()
        group = await self._is_group(interaction.channel or await self._surface.channel(interaction.channel_id or 0))
        event = read_button(interaction, group=group)
        if event is not None:
            await self._service.router.inbound.accept([event])
            with suppress(discord.HTTPException):  # the question is answered: its buttons go
                await interaction.edit_original_response(view=None)

    async def _on_command(self, interaction: discord.Interaction[Any], name: str, arguments: str) -> None:
        """A slash command. Discord shows that we think about it until it is stored."""
        with suppress(discord.HTTPException):  # too late: it is handled all the same
            await interaction.response.defer(ephemeral=True, thinking=True)
        group = await self._is_group(interaction.channel or await self._surface.channel(interaction.channel_id or 0))
        event = read_command(interaction, name, arguments, group=group)
        if event is not None:
            await self._service.router.inbound.accept([event])
        with suppress(discord.HTTPException):
            await interaction.delete_original_response()

    async def _member_left(self, room: RoomRef, user: discord.abc.User, server: str) -> None:
        change = MemberChange(
            account=account_of(user), room=room, key=f"left {new_id()}", server=server, group=True, change="left"
        )
        await self._service.router.inbound.accept([change])

    # --- messages ------------------------------------------------------------------------------------------------

    async def _receive(self) -> None:
        """Store messages in the order in which they come; not before what was missed is stored."""
        waiting: list[discord.Message] = []
        while True:
            items = [await self._queue.get()]
            while not self._queue.empty():
                items.append(self._queue.get_nowait())
            for item in items:
                if item == "connected":
                    self.caught_up.clear()
                elif item == "ready":
                    await self._catch_up()
                    self.caught_up.set()
                    self._service.set_state("connected")
                else:
                    waiting.append(item)
            if self.caught_up.is_set() and waiting:
                await self._store(waiting)
                waiting = []
            for _ in items:
                self._queue.task_done()

    async def _store(self, messages: Sequence[discord.Message], *, with_cursor: bool = True) -> None:
        own = self._client.user
        quarantine = Quarantine(SURFACE, (PlatformUnreachable, PlatformRateLimited))
        incoming: list[Incoming] = []
        for message in messages:
            # The library leaves out what it could not read.
            text = getattr(message, "content", None)
            with quarantine.reading(text, room=str(message.channel.id), event_id=str(message.id)):
                if own is None or message.author.id == own.id:
                    continue
                for event in read_message(message, own, group=await self._is_group(message.channel)):
                    if isinstance(event, MemberChange):
                        self._private.pop(message.channel.id, None)
                    incoming.append(await self._complete(event, message))
        now = asyncio.get_running_loop().time()
        inbound = self._service.router.inbound
        last = max((message.id for message in messages), default=0)
        is_due = incoming or quarantine.skipped or now - self._stored_at > _CURSOR_EVERY_S
        cursor = self._service.cursor_at(max(last, self._service.cursor() or 0)) if with_cursor and is_due else None
        if incoming or quarantine.skipped or cursor is not None:
            await inbound.accept(incoming, cursor, quarantine.skipped)
        if cursor is not None:
            self._stored_at = now
        if incoming:
            self._service.received_at(max(message.created_at for message in messages))

    async def _catch_up(self) -> None:
        """Store what came while we were away, room by room, and then the position after it."""
        cursor = self._service.cursor()
        newest = cursor or discord.utils.time_snowflake(discord.utils.utcnow(), high=True)
        if cursor is not None:
            after = max(cursor - (_OVERLAP_MS << 22), 0)
            limit = asyncio.Semaphore(_READ_AT_ONCE)

            async def read(channel: Any) -> int:
                async with limit:
                    return await self._read_missed(channel, after)

            found = await asyncio.gather(*[read(channel) for channel in await self._rooms_with_news(after)])
            newest = max([newest, *found])
        await self._service.router.inbound.accept([], self._service.cursor_at(newest))

    async def _rooms_with_news(self, after: int) -> list[Any]:
        """The channels and threads with newer messages, the rooms of chats, and the direct chats of known people."""
        found: dict[int, Any] = {}
        for guild in self._client.guilds:
            channels: list[Any] = [*guild.text_channels, *guild.voice_channels, *guild.threads]
            found |= {channel.id: channel for channel in channels if (channel.last_message_id or 0) > after}
        known = {channel.id for guild in self._client.guilds for channel in (*guild.channels, *guild.threads)}
        rooms = {int(binding.room.id) for binding in self._service.router.chats.rooms.on_surface(SURFACE)}
        for room in rooms - known:
            with suppress(PlatformRefused):  # it is gone, or we are no longer in it
                found[room] = await self._surface.channel(room)
        people = self._service.router.people
        for person in people.all():
            for surface, account, _ in people.identities(person.id):
                if surface == SURFACE:
                    with suppress(PlatformRefused):
                        chat = await self._surface.direct_room(Account(surface=SURFACE, id=account))
                        if chat is not None and int(chat.id) not in found:
                            found[int(chat.id)] = await self._surface.channel(int(chat.id))
        return list(found.values())

    async def _read_missed(self, channel: Any, after: int) -> int:
        """Store a room's messages since then; returns the id of the last."""
        messages: list[discord.Message] = []

        async def read() -> None:
            async for message in channel.history(after=discord.Object(after), limit=_MAX_MISSED, oldest_first=True):
                messages.append(message)  # noqa: PERF401

        quarantine = Quarantine(SURFACE, (PlatformUnreachable, PlatformRateLimited))
        try:
            await checked(read(), timeout_s=300.0)
        except PlatformRefused as error:
            _log.info("a room could not be read", room=channel.id, error=redact(str(error)))
            return after
        except Exception as error:  # the library cannot read a message; those before it are stored
            last = messages[-1].id if messages else after
            quarantine.add("missed messages", error, room=str(channel.id), event_id=f"after {last}")
            await self._service.router.inbound.accept([], None, quarantine.skipped)
        if len(messages) == _MAX_MISSED:
            _log.warning("a room has more missed messages than are read", room=channel.id, read=_MAX_MISSED)
        await self._store(messages, with_cursor=False)
        return max((message.id for message in messages), default=after)

    async def _complete(self, event: Incoming, message: discord.Message) -> Incoming:
        """With its files saved."""
        inbound = self._service.router.inbound
        is_new = isinstance(event, IncomingMessage) and inbound.inbox.find(event) is None
        if not (isinstance(event, IncomingMessage) and is_new and message.attachments):
            return event
        if not (inbound.is_known(event.account) and self._service.router.chats.is_for_character(event)):
            return event
        saved = []
        for file in message.attachments:
            try:
                files, sender = self._service.files_in(event.room), self._service.router.chats.sender(event).id
                media_type = file.content_type or "application/octet-stream"
                async with _download(file.url) as chunks:
                    saved.append(await files.save(event.room, file.filename, chunks, media_type, sender=sender))
            except httpx.TransportError as error:  # the message is read again
                raise PlatformUnreachable(f"Discord's files cannot be reached ({type(error).__name__}).") from error
            except (RoomError, SurfaceError) as error:
                _log.warning("a file was not saved", room=event.room.id, error=redact(str(error)))
                text = f"{event.text}\n(a file came with this and could not be saved: {error.what})".strip()
                event = event.model_copy(update={"text": text})
        return event.model_copy(update={"attachments": tuple(saved)}) if saved else event

    async def _is_group(self, channel: Any) -> bool:
        """Whether others read what is written there: not in a direct chat, nor in a private thread with one person."""
        if isinstance(channel, discord.DMChannel):
            return False
        if not (isinstance(channel, discord.Thread) and channel.is_private()):
            return True
        if channel.id not in self._private:
            with suppress(PlatformRefused):
                thread = await checked(self._client.fetch_channel(channel.id))
                count = getattr(thread, "member_count", _PRIVATE_THREAD_PEOPLE + 1)
                self._private[channel.id] = count <= _PRIVATE_THREAD_PEOPLE
        return not self._private.get(channel.id, False)


@asynccontextmanager
async def _download(url: str) -> AsyncIterator[AsyncIterator[bytes]]:
    async with httpx.AsyncClient(timeout=60.0, trust_env=False) as http, http.stream("GET", url) as response:
        if not response.is_success:
            raise BadFile(f"Discord answered {response.status_code}.", "Send it again.")
        yield response.aiter_bytes()


def _client(info: DiscordBot) -> discord.Client:
    intents = discord.Intents.none()
    intents.guilds = intents.guild_messages = intents.dm_messages = True
    intents.message_content, intents.members = info.reads_content, info.sees_members
    return discord.Client(
        intents=intents,
        max_messages=None,
        chunk_guilds_at_startup=False,
        member_cache_flags=discord.MemberCacheFlags.none(),
        allowed_mentions=discord.AllowedMentions.none(),  # no text of a model notifies anybody
        guild_ready_timeout=GUILDS_WAIT_S,
        max_ratelimit_timeout=30.0,
    )


async def _use_server(api_url: str) -> None:
    """Use another server than Discord's; the library takes its address for the whole process."""
    api_url = api_url.rstrip("/")
    if api_url == Route.BASE:
        return
    Route.BASE = api_url
    if api_url == API_URL:
        DiscordWebSocket.DEFAULT_GATEWAY = yarl.URL("wss://gateway.discord.gg/")
        return
    try:
        async with httpx.AsyncClient(timeout=4.0, trust_env=False) as http:
            DiscordWebSocket.DEFAULT_GATEWAY = yarl.URL((await http.get(f"{api_url}/gateway")).json()["url"])
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
        Route.BASE = ""
        raise PlatformUnreachable(f"{api_url} does not say where its gateway is.", ambiguous=False) from error


def _slash_command(command: CommandInfo, run: Callable[[Any, str, str], Any]) -> app_commands.Command[Any, ..., Any]:
    async def without_text(interaction: discord.Interaction[Any]) -> None:
        await run(interaction, command.name, "")

    async def with_text(interaction: discord.Interaction[Any], text: str = "") -> None:
        await run(interaction, command.name, text)

    describe = app_commands.describe(text=command.arguments[:_MAX_DESCRIPTION])
    callback = describe(with_text) if command.arguments else without_text
    about = command.about[:_MAX_DESCRIPTION]
    return app_commands.Command(name=command.name, description=about, callback=callback)


def _as_ours(error: Exception) -> Exception:
    """Errors of the library as ours; others are faults, and stay as they are."""
    if isinstance(error, discord.DiscordException | aiohttp.ClientError | OSError):
        return discord_error(error)
    return error
