"""Connects crowd rooms with Twitch channels.

What viewers write becomes messages of people, deletions and bans of Twitch's moderators become rulings, and, if the
room allows it, lines of personas are sent to the channel through one account.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict, deque
from contextlib import suppress
from functools import partial

from pydantic import Field, SecretStr

from coterie.base.config import PageSetting, ProtectedSetting, Section
from coterie.base.logging import get_logger
from coterie.base.supervisor import SupervisedTask, Supervisor, report_problem, report_recovery, run_once
from coterie.base.values import MAX_DURATION_S, parse_int64
from coterie.eventstore import Bus, WhenSlow
from coterie.modes.crowd import (
    ChatAuthor,
    ChatMessage,
    ChatPost,
    CrowdRuled,
    CrowdService,
    Gateway,
    MessageRefused,
    RoomTwitch,
    Ruling,
    room_subject,
)
from coterie.surfaces.twitch.irc import CHAT_URL, ChatConnection, ChatLogin, IrcLine

_READERS = 2
"""Connections that read the same channel: if one is lost, the other has what was written meanwhile."""
_MODERATOR = "Twitch"
_POST_PREFIX = "tw-"
_ID = re.compile(r"[0-9a-zA-Z-]{1,60}")
_COLOUR = re.compile(r"#[0-9a-f]{6}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]+")
_BADGES = frozenset(["broadcaster", "moderator", "vip", "subscriber", "founder", "partner", "staff"])
_MAX_TEXT = 500
_MAX_KNOWN = 20_000
"""Lines of which deletions and bans are followed."""
_MAX_STORING = 500
_BUSY_RETRY_S = 2.0
_BUSY_ATTEMPTS = 30
_WATCH_S = 2.0
_log = get_logger(__name__)


class TwitchSettings(Section):
    """The `[twitch]` section of the settings. Channels are set in the files of rooms."""

    url: ProtectedSetting[str] = CHAT_URL
    """The address of Twitch's chat."""
    account: ProtectedSetting[str] = Field(default="", pattern=r"^\w{0,25}$")
    """The account that sends lines of personas, if a room allows it."""
    token: ProtectedSetting[SecretStr] = SecretStr("")
    """Its OAuth token with the scopes `chat:read` and `chat:edit`."""
    per_30_s: PageSetting[int] = Field(default=15, ge=1, le=100)
    """Lines the account may send within 30 seconds. Twitch allows 20, or 100 for a moderator of the channel."""


class TwitchBridge:
    """One room and one channel."""

    def __init__(self, gateway: Gateway, bus: Bus, settings: TwitchSettings, channel: RoomTwitch) -> None:
        self._gateway = gateway
        self._bus = bus
        self._settings = settings
        self._channel = channel
        self._ids: OrderedDict[str, tuple[str, str]] = OrderedDict()
        """Twitch's id of a message → the id here, and its author's name here."""
        self._names: dict[str, str] = {}
        """The login of a viewer whose name looks like somebody else's → the name here."""
        self._ruled: OrderedDict[str, int] = OrderedDict()
        """The login of a viewer who was timed out or banned → when, by Twitch's clock in milliseconds."""
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._storing: dict[str, asyncio.Task[None]] = {}
        """Twitch's id of a message that is not durable yet → its task."""
        self._in_order = asyncio.Lock()
        """Of two readers, one must not handle a line while the other still handles an earlier one."""
        self._states: dict[int, str] = dict.fromkeys(range(_READERS), "")
        self._sent_at: deque[float] = deque()
        self.refused = 0
        """Lines of viewers that the room's moderation did not admit."""
        self.not_sent = 0
        """Lines of personas that were over the limit, or without a connection."""
        for message in gateway.latest(_MAX_KNOWN):
            if message.nonce is not None and message.nonce.startswith(_POST_PREFIX):
                self._remember(message.nonce.removeprefix(_POST_PREFIX), message)

    async def run(self) -> None:
        """Read the channel, and send to it if the room allows it, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for number in range(_READERS):
                connection = ChatConnection(
                    self._settings.url, self._channel.channel, on_state=partial(self._set_state, number)
                )
                tasks.create_task(self._read(connection))
            if self._channel.send != "nothing":
                tasks.create_task(self._send())

    def _set_state(self, reader: int, problem: str) -> None:
        self._states[reader] = problem
        if all(self._states.values()):
            report_problem(problem, f"It is tried again. Check that the channel {self._channel.channel} exists.")
        else:
            report_recovery()

    async def _read(self, connection: ChatConnection) -> None:
        async for line in connection.lines():
            try:
                async with self._in_order:
                    await self.handle(line)
            except Exception:
                _log.exception("twitch line not handled", channel=self._channel.channel, command=line.command)

    async def handle(self, line: IrcLine) -> None:
        """Handle a line of the channel. The same line from a second connection changes nothing."""
        match line.command:
            case "PRIVMSG":
                await self._post(line, line.nick)
            case "USERNOTICE":
                await self._notice(line)
            case "CLEARCHAT":
                await self._wait_until_stored()
                if len(line.params) > 1:
                    await self._rule_on_viewer(line)
                else:
                    await self._clear(line)
            case "CLEARMSG":
                await self._wait_until_stored()
                await self._delete(line)
            case "NOTICE":
                _log.warning("notice from twitch", channel=self._channel.channel, text=line.text[:200])

    async def _post(self, line: IrcLine, login: str) -> None:
        twitch_id, text = line.tags.get("id", ""), _clean(line.text)
        if not _ID.fullmatch(twitch_id) or not login or not text or login.lower() == self._settings.account.lower():
            return
        if not self._is_new(twitch_id):
            return
        login = login.lower()
        if (reply_to := line.tags.get("reply-parent-msg-id", "")) in self._storing:
            await asyncio.wait([self._storing[reply_to]])
        parent = self._ids.get(reply_to)
        name = self._names.get(login) or _display_name(line.tags.get("display-name", ""), login)
        post = ChatPost(
            id=_POST_PREFIX + twitch_id,
            room=self._gateway.admission.room,
            author=_author(line, name),
            text=text,
            reply_to=parent[0] if parent is not None else None,
        )
        if len(self._storing) >= _MAX_STORING:
            await asyncio.wait(self._storing.values(), return_when=asyncio.FIRST_COMPLETED)
        # Not awaited: the gateway keeps the order, and messages that follow share its commits.
        storing = run_once("line of a viewer", self._store_line(login, twitch_id, post, _sent_ms(line)))
        self._storing[twitch_id] = storing
        storing.add_done_callback(lambda _: self._storing.pop(twitch_id, None))
        await asyncio.sleep(0)  # it begins now, in the order of the lines

    async def _store_line(self, login: str, twitch_id: str, post: ChatPost, sent_ms: int) -> None:
        try:
            message = await self._admit(post)
        except MessageRefused as refused:
            if refused.rule == "name":  # the viewer is called like a persona or the owner
                name = self._names[login] = f"{post.author.name[:30]} (Twitch)"
                post = post.model_copy(update={"author": post.author.model_copy(update={"name": name})})
            elif not await self._pardon_lifted(refused.rule, login, post.author.name, sent_ms):
                self.refused += 1
                return
            try:
                message = await self._admit(post)
            except MessageRefused:
                self.refused += 1
                return
        self._remember(twitch_id, message)

    async def _pardon_lifted(self, rule: str, login: str, name: str, sent_ms: int) -> bool:
        """Pardon a viewer who writes after a timeout or ban on Twitch: it must have been lifted there.

        Twitch does not say so. What a moderator of the room decided since then stays.
        """
        if rule not in ("ban", "timeout"):
            return False
        rulings = await self._gateway.recent_events([CrowdRuled.kind], _MAX_KNOWN)
        about = (each for each in reversed(rulings) if isinstance(each, CrowdRuled) and _is_sanction(each, name))
        last = next(about, None)
        if last is None or last.by != _MODERATOR or sent_ms <= self._ruled.get(login, last.at_ms):
            return False
        await self._rule("pardon", name, "The viewer writes in the Twitch channel again.")
        return True

    async def _wait_until_stored(self) -> None:
        if self._storing:
            await asyncio.wait(list(self._storing.values()))

    async def _admit(self, post: ChatPost) -> ChatMessage:
        """Post to the room, again if it is too busy to store the message now."""
        guest = post.author.kind == "human"
        for _ in range(_BUSY_ATTEMPTS):
            try:
                return await self._gateway.post(post, guest=guest, relayed=True)
            except MessageRefused as refused:
                if refused.rule != "busy":
                    raise
                await asyncio.sleep(_BUSY_RETRY_S)
        return await self._gateway.post(post, guest=guest, relayed=True)

    async def _notice(self, line: IrcLine) -> None:
        """A raid, a subscription or an announcement: what Twitch says about it, and what the viewer wrote with it."""
        twitch_id = line.tags.get("id", "")
        if text := _clean(line.tags.get("system-msg", "")):
            if not _ID.fullmatch(twitch_id) or not self._is_new(f"{twitch_id}-notice"):
                return
            author = ChatAuthor(name=_MODERATOR, kind="system")
            post = ChatPost(
                id=f"{_POST_PREFIX}{twitch_id}-n"[:64], room=self._gateway.admission.room, author=author, text=text
            )
            with suppress(MessageRefused):
                await self._admit(post)
        if len(line.params) > 1:
            await self._post(line, line.tags.get("login", ""))

    async def _rule_on_viewer(self, line: IrcLine) -> None:
        login = line.text.lower()
        duration = line.tags.get("ban-duration", "")
        if not self._is_new(f"{login}-{duration}-{line.tags.get('tmi-sent-ts', '')}"):
            return
        self._ruled[login] = _sent_ms(line)
        if len(self._ruled) > _MAX_KNOWN:
            self._ruled.popitem(last=False)
        parsed = parse_int64(duration)
        seconds = None if parsed is None else min(float(parsed), MAX_DURATION_S)
        name = self._names.get(login, login)[:40]
        reason = "A moderator of the Twitch channel did this."
        await self._rule("timeout" if seconds is not None else "ban", name, reason, seconds=seconds)
        for twitch_id, (_, author) in list(self._ids.items()):
            if author.casefold() == name.casefold():
                await self._delete_message(twitch_id)

    async def _clear(self, line: IrcLine) -> None:
        """A moderator has cleared the whole chat of the channel."""
        if self._is_new(f"clear-{line.tags.get('tmi-sent-ts', '')}"):
            await asyncio.gather(*(self._delete_message(twitch_id) for twitch_id in list(self._ids)))

    async def _delete(self, line: IrcLine) -> None:
        if (twitch_id := line.tags.get("target-msg-id", "")) in self._ids:
            await self._delete_message(twitch_id)

    async def _delete_message(self, twitch_id: str) -> None:
        message, author = self._ids.pop(twitch_id)
        await self._rule("delete", author, "A moderator of the Twitch channel deleted it.", message=message)

    async def _rule(
        self, what: Ruling, who: str, reason: str, *, seconds: float | None = None, message: str = ""
    ) -> None:
        at_ms = self._gateway.now_ms()
        await self._gateway.moderate(
            CrowdRuled(what=what, at_ms=at_ms, who=who, seconds=seconds, by=_MODERATOR, reason=reason, message=message)
        )

    async def _send(self) -> None:
        login = ChatLogin(self._settings.account, self._settings.token.get_secret_value())
        if not (login.nick and login.token):
            report_problem("Lines cannot be sent to Twitch.", "Set twitch.account and twitch.token in the settings.")
            return
        connection = ChatConnection(self._settings.url, self._channel.channel, login)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch_sender(connection))
            subject = room_subject(self._gateway.admission.room)
            async with self._bus.subscribe(subject, limit=100, when_slow=WhenSlow.DROP_OLDEST) as messages:
                async for message in messages:
                    await self._send_line(connection, message.body)

    async def _watch_sender(self, connection: ChatConnection) -> None:
        async for line in connection.lines():
            if line.command == "NOTICE" and "authentication failed" in line.text.lower():
                report_problem("Twitch does not accept the token of the account.", "Set twitch.token again.")

    async def _send_line(self, connection: ChatConnection, message: ChatMessage) -> None:
        if message.author.kind != "persona":
            return
        if self._channel.send == "answers" and not self._is_answer(message):
            return
        now = asyncio.get_running_loop().time()
        while self._sent_at and self._sent_at[0] <= now - 30:
            self._sent_at.popleft()
        # A line that would be late is not sent at all. A leading sign would make it a command.
        if len(self._sent_at) >= self._settings.per_30_s:
            self.not_sent += 1
            return
        self._sent_at.append(now)
        if not await connection.say(f"{message.author.name}: {_clean(message.text)}"[:_MAX_TEXT]):
            self.not_sent += 1

    def _is_answer(self, message: ChatMessage) -> bool:
        """Whether it answers a viewer of the channel."""
        return any(message.reply_to == known for known, _ in reversed(self._ids.values()))

    def _is_new(self, key: str) -> bool:
        if key in self._seen:
            return False
        self._seen[key] = None
        if len(self._seen) > 2 * _MAX_KNOWN:
            self._seen.popitem(last=False)
        return True

    def _remember(self, twitch_id: str, message: ChatMessage) -> None:
        self._ids[twitch_id] = (message.id, message.author.name)
        if len(self._ids) > _MAX_KNOWN:
            self._ids.popitem(last=False)


class TwitchService:
    """A bridge for each room whose file names a channel. Edited files apply at once."""

    def __init__(self, crowd: CrowdService, bus: Bus, settings: TwitchSettings, supervisor: Supervisor) -> None:
        self._crowd = crowd
        self._bus = bus
        self._settings = settings
        self._supervisor = supervisor
        self._bridges: dict[str, tuple[RoomTwitch, SupervisedTask]] = {}

    async def run(self, stop: asyncio.Event) -> None:
        try:
            while not stop.is_set():
                await self.update()
                with suppress(TimeoutError):
                    async with asyncio.timeout(_WATCH_S):
                        await stop.wait()
        finally:
            for _, task in self._bridges.values():
                await task.stop()
            self._bridges.clear()

    async def update(self) -> None:
        """Start and stop bridges, as the files of the rooms say now."""
        wanted = {name: room.twitch for name, room in self._crowd.configs.rooms().items() if room.twitch.channel}
        for name, (channel, task) in list(self._bridges.items()):
            if wanted.get(name) != channel:
                await task.stop()
                del self._bridges[name]
        for name, channel in wanted.items():
            if name not in self._bridges:
                room = await self._crowd.room(name)
                bridge = TwitchBridge(room.gateway, self._bus, self._settings, channel)
                self._bridges[name] = (channel, self._supervisor.start(f"twitch: {name}", bridge.run))


def _author(line: IrcLine, name: str) -> ChatAuthor:
    badges = tuple(
        badge for each in line.tags.get("badges", "").split(",") if (badge := each.partition("/")[0]) in _BADGES
    )
    colour = line.tags.get("color", "").lower()
    return ChatAuthor(name=name, kind="human", badges=badges, colour=colour if _COLOUR.fullmatch(colour) else None)


def _sent_ms(line: IrcLine) -> int:
    """When Twitch sent it, by its clock; 0 if it does not say."""
    return parse_int64(line.tags.get("tmi-sent-ts", "")) or 0


def _is_sanction(ruling: CrowdRuled, name: str) -> bool:
    return ruling.what in ("ban", "timeout", "pardon") and ruling.who.casefold() == name.casefold()


def _display_name(display: str, login: str) -> str:
    """The name as the viewer spells it, if it is the login in another case: moderators name logins."""
    return display if display.lower() == login else login[:40]


def _clean(text: str) -> str:
    """One line. `/me` comes as a control sequence (CTCP ACTION)."""
    if text.startswith("\x01ACTION "):
        text = text.removeprefix("\x01ACTION ").rstrip("\x01")
    return " ".join(_CONTROL.sub(" ", text).split())[:_MAX_TEXT]
