"""A connection to NATS JetStream: the crowd's streams, leases and running sessions.

The gateway's event log is authoritative. The broker only transports: if it loses its data, no message is lost.
"""

from __future__ import annotations

import asyncio
import json
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic import BaseModel

from coterie.base.errors import MissingExtra
from coterie.base.ids import new_id
from coterie.base.logging import get_logger
from coterie.base.supervisor import describe
from coterie.modes.crowd.errors import NoBroker
from coterie.modes.crowd.events import CrowdEdited, CrowdOpened
from coterie.modes.crowd.personas import Persona
from coterie.modes.crowd.settings import RoomConfig

INGEST_STREAM, OUTPUT_STREAM = "CROWD_INGEST", "CROWD_OUTPUT"
_INGEST_SUBJECTS = ("chat.ingest.*", "chat.record.*")
_OUTPUT_SUBJECTS = ("chat.firehose.*", "stream.context.*", "chat.trends.*", "chat.audit.*")
_LEASES, _SESSIONS = "CROWD_LEASES", "CROWD_SESSIONS"
_RETENTION_S = 86_400
_DUPLICATE_WINDOW_S = 120
_TIMEOUT_S = 5
_RETRY_S = 0.3
_WAIT_S = 0.5
_POLL_S = 0.5
LEASE_S = 3.0
"""A process that does not renew its lease for this long has lost it."""
_RENEW_S = 1.0
_MARGIN_S = 0.3
"""A holder stops this much earlier than others may begin."""
_MAX_SESSION_BYTES = 20_000_000
_WRONG_SEQUENCE = (10071, 10164)
_log = get_logger(__name__)


class Received(NamedTuple):
    """A message of the output stream."""

    data: bytes
    sequence: int
    at_ms: int
    """When the broker stored it, in milliseconds since 1970: the same for every reader."""


class StalePublisher(Exception):
    """Another process has published on this subject since."""


class Broker:
    """A connection to a NATS server with the crowd's two streams: posts until handled, and output for a day."""

    def __init__(self, connection: Any, jetstream: Any, leases: Any, sessions: Any) -> None:
        self.nats = connection
        self.jetstream = jetstream
        self.leases = leases
        self.sessions = sessions
        self.reconnects = 0

    @classmethod
    async def connect(cls, address: str) -> Broker:
        """Connect and create the streams. Reconnects by itself after an outage."""
        try:
            import nats
            from nats.errors import Error
            from nats.js.api import KeyValueConfig
        except ImportError:
            raise MissingExtra("cluster", "A crowd on several machines") from None
        opened: list[Broker] = []

        async def count_reconnect() -> None:
            for broker in opened:
                broker.reconnects += 1
            _log.info("broker connected again")

        try:
            async with asyncio.timeout(_TIMEOUT_S):
                connection = await nats.connect(
                    address,
                    max_reconnect_attempts=-1,
                    reconnect_time_wait=0.2,
                    error_cb=_ErrorLog().log_error,
                    reconnected_cb=count_reconnect,
                )
        except (OSError, Error, TimeoutError) as error:
            raise NoBroker(
                f"The NATS server at {address} does not answer ({error}).", "Start it with JetStream: nats-server -js"
            ) from error
        jetstream = connection.jetstream(timeout=_TIMEOUT_S)
        try:
            await _create_streams(jetstream)
            leases = await jetstream.create_key_value(KeyValueConfig(bucket=_LEASES, ttl=LEASE_S))
            sessions = await jetstream.create_key_value(KeyValueConfig(bucket=_SESSIONS))
        except (OSError, Error, TimeoutError) as error:
            await connection.close()
            raise NoBroker(
                f"The NATS server at {address} does not have JetStream ({error!r}).", "Start it with: nats-server -js"
            ) from error
        opened.append(cls(connection, jetstream, leases, sessions))
        return opened[0]

    async def close(self) -> None:
        await self.nats.close()

    async def publish(self, subject: str, data: bytes, headers: dict[str, str] | None = None) -> None:
        """Retry until it succeeds, so that what one publisher sends stays in order."""
        from nats.errors import Error

        failed = False
        while True:
            try:
                await self.jetstream.publish(subject, data, headers=headers)
            except (Error, OSError) as error:
                if not failed:
                    _log.warning("broker does not take messages, trying again", subject=subject, error=repr(error))
                failed = True
                await asyncio.sleep(_RETRY_S)
            else:
                return

    async def publish_after(self, subject: str, data: bytes, sequence: int) -> int:
        """Publish if the last message on the subject is the one with this sequence. Returns the new one.

        Raises `StalePublisher` if it is not, or if that cannot be known.
        """
        from nats.errors import Error
        from nats.js.errors import APIError

        try:
            headers = {"Nats-Expected-Last-Subject-Sequence": str(sequence)}
            stored = await self.jetstream.publish(subject, data, headers=headers)
        except APIError as error:
            if error.err_code not in _WRONG_SEQUENCE:
                raise
        except (Error, OSError):
            pass  # it may or may not be stored
        else:
            return int(stored.seq)
        last = await self.last(subject)
        if last is not None and last.data == data:
            return last.sequence
        raise StalePublisher(subject)

    async def last(self, subject: str) -> Received | None:
        """The last message on a subject of the output stream. Waits until the broker answers."""
        from nats.errors import Error
        from nats.js.errors import NotFoundError

        while True:
            try:
                found = await self.jetstream.get_last_msg(OUTPUT_STREAM, subject)
            except NotFoundError:
                return None
            except (Error, OSError):
                await asyncio.sleep(_RETRY_S)
            else:
                return Received(found.data or b"", int(found.seq), 0)

    async def follow(self, subject: str, *, history: int = 0) -> AsyncIterator[Received]:
        """Yield the messages on a subject, in order, also across outages of the broker.

        It begins among the last `history` messages of the whole stream; with 0, with the next new one.
        """
        from nats.errors import Error
        from nats.errors import TimeoutError as NoMessageYet
        from nats.js.api import ConsumerConfig, DeliverPolicy

        position: int | None = None
        while True:
            connection = self.reconnects
            subscription: Any = None
            try:
                last = (await self.jetstream.stream_info(OUTPUT_STREAM)).state.last_seq
                if position is None:
                    position = max(0, last - history)
                elif position > last:  # the broker has lost its data
                    position = 0
                config = ConsumerConfig(deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=position + 1)
                subscription = await self.jetstream.subscribe(
                    subject, stream=OUTPUT_STREAM, ordered_consumer=True, config=config
                )
                while self.reconnects == connection:
                    try:
                        message = await subscription.next_msg(timeout=_WAIT_S)
                    except NoMessageYet:
                        continue
                    position = int(message.metadata.sequence.stream)
                    yield Received(message.data, position, round(message.metadata.timestamp.timestamp() * 1_000))
            except (Error, OSError) as error:
                _log.warning("messages cannot be read, trying again", subject=subject, error=repr(error))
                await asyncio.sleep(_RETRY_S)
            finally:
                if subscription is not None:
                    with suppress(Error, OSError):
                        await subscription.unsubscribe()


async def _create_streams(jetstream: Any) -> None:
    from nats.js.api import RetentionPolicy, StreamConfig
    from nats.js.errors import BadRequestError

    for name, subjects, retention in (
        (INGEST_STREAM, _INGEST_SUBJECTS, RetentionPolicy.WORK_QUEUE),
        (OUTPUT_STREAM, _OUTPUT_SUBJECTS, RetentionPolicy.LIMITS),
    ):
        config = StreamConfig(
            name=name,
            subjects=list(subjects),
            retention=retention,
            max_age=_RETENTION_S,
            duplicate_window=_DUPLICATE_WINDOW_S,
        )
        try:
            await jetstream.add_stream(config)
        except BadRequestError:  # it exists, with the subjects of an earlier version
            await jetstream.update_stream(config)


class _ErrorLog:
    """Logs errors of the connection. Reconnecting repeats the same one many times, so each is logged once in a row."""

    def __init__(self) -> None:
        self._last = ""

    async def log_error(self, error: Exception) -> None:
        if (what := repr(error)) != self._last:
            self._last = what
            _log.warning("broker connection failed", error=describe(error)[0])


@dataclass
class _Held:
    revision: int
    until: float
    """Until when this process holds it, by its monotonic clock."""


class Leases:
    """Roles of which each is held by at most one process at a time, such as the gateway of a room.

    The broker forgets an entry that is not renewed. Entries are created and renewed by compare-and-swap, and a holder
    stops by its own clock before the entry can be forgotten.
    """

    def __init__(self, broker: Broker, clock: Callable[[], float] = time.monotonic, *, owner: str = "") -> None:
        """`owner` names what only one process can have at a time, such as a locked database. A role whose holder had
        the same is taken at once: that process has ended.
        """
        self._entries = broker.leases
        self._jetstream = broker.jetstream
        self._owner = f"{owner} ".encode() if owner else b""
        self._holder = self._owner + new_id().encode()
        self._clock = clock
        self._held: dict[str, _Held] = {}

    def holds(self, key: str) -> bool:
        held = self._held.get(key)
        return held is not None and self._clock() < held.until

    async def take(self, key: str) -> bool:
        """Take a free role. Returns whether this process holds it now."""
        from nats.errors import Error
        from nats.js.errors import KeyNotFoundError, KeyWrongLastSequenceError

        if self.holds(key):
            return True
        until = self._clock() + LEASE_S - _MARGIN_S
        try:
            try:
                revision = await self._entries.create(key, self._holder)
            except KeyWrongLastSequenceError:
                entry = await self._entries.get(key)
                if not self._owner or not (entry.value or b"").startswith(self._owner):
                    return False
                revision = await self._entries.update(key, self._holder, last=entry.revision)
        except (KeyNotFoundError, KeyWrongLastSequenceError):
            return False
        except (Error, OSError):
            return False  # if it was created, it expires
        self._held[key] = _Held(revision, until)
        return self.holds(key)

    async def count(self, pattern: str) -> int:
        """How many processes hold a role that matches the pattern; 0 if the broker does not answer."""
        from nats.errors import Error

        try:
            info = await self._jetstream.stream_info(f"KV_{_LEASES}", subjects_filter=f"$KV.{_LEASES}.{pattern}")
        except (Error, OSError):
            return 0
        return len(info.state.subjects or {})

    async def wait_for(self, key: str) -> None:
        """Wait until this process holds a role."""
        while True:
            if await self.take(key):
                return
            await asyncio.sleep(_POLL_S)

    async def wait_until_lost(self, key: str) -> None:
        """Wait until this process does not hold a role any more."""
        while True:
            if not self.holds(key):
                return
            await asyncio.sleep(_POLL_S)

    async def release(self, key: str) -> None:
        """Let another process take a role at once."""
        from nats.errors import Error

        held = self._held.pop(key, None)
        if held is not None and self._clock() < held.until:
            with suppress(Error, OSError):
                async with asyncio.timeout(_RENEW_S):  # otherwise it expires
                    await self._entries.delete(key, last=held.revision)

    async def release_all(self) -> None:
        await asyncio.gather(*(self.release(key) for key in list(self._held)))

    async def run(self) -> None:
        """Renew what is held, until cancelled; then release it."""
        try:
            while True:
                await asyncio.sleep(_RENEW_S)
                await asyncio.gather(*(self._renew(key) for key in list(self._held)))
        finally:
            await self.release_all()

    async def _renew(self, key: str) -> None:
        from nats.errors import Error
        from nats.js.errors import KeyNotFoundError, KeyWrongLastSequenceError

        held = self._held.get(key)
        if held is None:
            return
        until = self._clock() + LEASE_S - _MARGIN_S
        try:
            try:
                revision = await self._entries.update(key, self._holder, last=held.revision)
            except KeyWrongLastSequenceError:
                # An earlier renewal may have been stored without an answer.
                entry = await self._entries.get(key)
                if entry.value != self._holder:
                    raise
                revision = await self._entries.update(key, self._holder, last=entry.revision)
        except (KeyWrongLastSequenceError, KeyNotFoundError):
            self._held.pop(key, None)
            _log.warning("lease lost", lease=key)
        except (Error, OSError) as error:
            _log.warning("lease not renewed", lease=key, error=repr(error))
        else:
            if self._held.get(key) is held:
                held.revision, held.until = revision, until


class RunningSession(BaseModel):
    """A session that persona workers take part in: how it began, and the latest edit of its rules and personas."""

    opened: CrowdOpened
    edit: CrowdEdited | None = None
    """An edit is followed by another one only after a tick has referred to it."""
    speaking: str = "model"
    """`model` or `phrasebook`."""

    @property
    def edit_number(self) -> int:
        return self.edit.number if self.edit is not None else 0

    @property
    def rules(self) -> RoomConfig:
        """The present rules."""
        return RoomConfig.model_validate(self.edit.rules if self.edit is not None else self.opened.rules)

    @property
    def personas(self) -> list[Persona]:
        """The present personas."""
        files = self.edit.personas if self.edit is not None else self.opened.personas
        return [Persona.model_validate(file) for file in files]

    def to_bytes(self) -> bytes:
        return zlib.compress(self.model_dump_json().encode())

    @classmethod
    def from_bytes(cls, data: bytes) -> RunningSession | None:
        """The session that an entry of the broker describes; None for what is not one."""
        unpacker = zlib.decompressobj()
        try:
            unpacked = unpacker.decompress(data, _MAX_SESSION_BYTES)
            if unpacker.unconsumed_tail:
                raise ValueError(f"it has more than {_MAX_SESSION_BYTES:,} bytes")
            return cls.model_validate_json(unpacked)
        except (ValueError, zlib.error) as error:
            _log.error("the session of a room cannot be read", error=repr(error)[:200])
            return None


class RunningSessions:
    """The session of each room, as its gateway has announced it."""

    def __init__(self, broker: Broker) -> None:
        self._entries = broker.sessions

    async def announce(self, session: RunningSession) -> None:
        """Waits until the broker has stored it."""
        await _retry(lambda: self._entries.put(session.opened.room, session.to_bytes()))

    async def withdraw(self, room: str) -> None:
        await self._entries.delete(room)

    async def get(self, room: str) -> RunningSession | None:
        """Raises an error of the connection if the broker does not answer."""
        from nats.js.errors import KeyNotFoundError

        try:
            entry = await self._entries.get(room)
        except KeyNotFoundError:
            return None
        return RunningSession.from_bytes(entry.value or b"")

    async def changes(self, room: str) -> AsyncIterator[RunningSession | None]:
        """Yield the session of a room, or None without one, now and whenever it changes."""
        from nats.errors import Error

        known: RunningSession | None = None
        first = True
        while True:
            try:
                current = await self.get(room)
            except (Error, OSError):
                await asyncio.sleep(_RETRY_S)
                continue
            if first or current != known:
                yield current
            known, first = current, False
            await asyncio.sleep(_POLL_S)


async def _retry(call: Callable[[], Awaitable[Any]]) -> None:
    from nats.errors import Error

    while True:
        try:
            await call()
        except (Error, OSError):
            await asyncio.sleep(_RETRY_S)
        else:
            return


def encode(value: object) -> bytes:
    return json.dumps(value).encode()
