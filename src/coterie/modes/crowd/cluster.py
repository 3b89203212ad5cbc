"""A room shared by several machines over NATS JetStream, with the same subjects and messages as the in-process bus.

The gateway's event log is authoritative. The broker only transports: if it loses its data, no message is lost. Whoever
can publish to `chat.ingest.ROOM` is a stranger: a post counts only with a token, under the token's name, as a human's.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from coterie.base.errors import CoterieError, MissingExtra
from coterie.base.logging import get_logger
from coterie.base.supervisor import describe
from coterie.eventstore import Bus
from coterie.modes.crowd.errors import BadWireMessage, IdentityRefused, MessageRefused, NoBroker
from coterie.modes.crowd.gateway import ChatTokens, Gateway
from coterie.modes.crowd.protocol import (
    AuditRecord,
    ChatMessage,
    ChatPost,
    SenderPost,
    StreamContext,
    Subjects,
    Trends,
    parse_post_answer,
)

INGEST_STREAM, OUTPUT_STREAM = "CROWD_INGEST", "CROWD_OUTPUT"
_INGEST_SUBJECTS = ("chat.ingest.*",)
_OUTPUT_SUBJECTS = ("chat.firehose.*", "stream.context.*", "chat.trends.*", "chat.audit.*")
_RETENTION_S = 86_400
_DUPLICATE_WINDOW_S = 120
_TIMEOUT_S = 5
_BATCH_SIZE = 200
_FETCH_TIMEOUT_S = 1.0
_ACK_WAIT_S = 10
_RETRY_S = 0.3
_ANSWER_TIMEOUT_S = 2.0
_TOKEN_HEADER, _ANSWER_HEADER = "Chat-Token", "Answer-To"
_INBOX_PREFIX = "_INBOX."
"""Answers are sent to inboxes only: a sender must not make the gateway publish on a subject of the room."""
_MAX_DELIVERIES = 5
"""A post whose handling fails this often is given up."""
_MAX_POST_BYTES = 16_384
_PAGE_SIZE = 1_000
_log = get_logger(__name__)


class Broker:
    """A connection to a NATS server with the crowd's two streams: posts until handled, and output for a day."""

    def __init__(self, connection: Any, stream: Any) -> None:
        self.nats = connection
        self.jetstream = stream

    @classmethod
    async def connect(cls, address: str) -> Broker:
        """Connect and create the streams. Reconnects by itself after an outage."""
        try:
            import nats
            from nats.errors import Error
            from nats.js.api import RetentionPolicy, StreamConfig
        except ImportError:
            raise MissingExtra("cluster", "A crowd on several machines") from None
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                connection = await nats.connect(
                    address,
                    max_reconnect_attempts=-1,
                    reconnect_time_wait=0.2,
                    error_cb=_ErrorLog().log_error,
                    reconnected_cb=_log_reconnect,
                )
        except (OSError, Error, TimeoutError) as error:
            raise NoBroker(
                f"The NATS server at {address} does not answer ({error}).", "Start it with JetStream: nats-server -js"
            ) from error
        jetstream = connection.jetstream(timeout=_TIMEOUT_S)
        for name, subjects, retention in (
            (INGEST_STREAM, _INGEST_SUBJECTS, RetentionPolicy.WORK_QUEUE),
            (OUTPUT_STREAM, _OUTPUT_SUBJECTS, RetentionPolicy.LIMITS),
        ):
            await jetstream.add_stream(
                StreamConfig(
                    name=name,
                    subjects=list(subjects),
                    retention=retention,
                    max_age=_RETENTION_S,
                    duplicate_window=_DUPLICATE_WINDOW_S,
                )
            )
        return cls(connection, jetstream)

    async def close(self) -> None:
        await self.nats.close()


class _ErrorLog:
    """Logs errors of the connection. Reconnecting repeats the same one many times, so each is logged once in a row."""

    def __init__(self) -> None:
        self._last = ""

    async def log_error(self, error: Exception) -> None:
        if (what := repr(error)) != self._last:
            self._last = what
            _log.warning("broker connection failed", error=describe(error)[0])


async def _log_reconnect() -> None:
    _log.info("broker connected again")


class ClusterGateway:
    """Connects a gateway to the broker: consumes posts and publishes messages, audits, contexts and trends.

    A post is acknowledged once it is stored and its sender was answered. After a crash the broker delivers it again,
    and the gateway recognises the sender's id. Messages stored but not published are published after the restart.
    """

    def __init__(self, broker: Broker, gateway: Gateway, bus: Bus, tokens: ChatTokens) -> None:
        self._broker = broker
        self._gateway = gateway
        self._bus = bus
        self._tokens = tokens
        self._warned_of_inbox = False
        self._subjects = Subjects(gateway.admission.room)

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._publish_updates())
            tasks.create_task(self._consume_posts())

    async def _consume_posts(self) -> None:
        from nats.errors import Error
        from nats.errors import TimeoutError as NoMessageYet
        from nats.js.api import ConsumerConfig

        posts = await self._broker.jetstream.pull_subscribe(
            self._subjects.ingest,
            durable=f"gateway-{self._gateway.admission.room}",
            stream=INGEST_STREAM,
            config=ConsumerConfig(ack_wait=_ACK_WAIT_S),
        )
        while True:
            try:
                batch = await posts.fetch(_BATCH_SIZE, timeout=_FETCH_TIMEOUT_S)
            except NoMessageYet:
                continue
            except (Error, OSError) as error:
                _log.warning("posts cannot be fetched, trying again", error=repr(error))
                await asyncio.sleep(_RETRY_S)
                continue
            await asyncio.gather(*(self._handle_post(message) for message in batch))

    async def _handle_post(self, delivery: Any) -> None:
        from nats.errors import Error

        headers: dict[str, str] = delivery.headers or {}
        try:
            answer = await self._answer(delivery.data, headers.get(_TOKEN_HEADER, ""))
        except Exception as error:
            await self._retry_or_give_up(delivery, error)
            return
        try:
            inbox = headers.get(_ANSWER_HEADER, "")
            if inbox.startswith(_INBOX_PREFIX):
                await self._broker.nats.publish(inbox, json.dumps(answer).encode())
            elif inbox and not self._warned_of_inbox:  # once, since senders decide how many there are
                self._warned_of_inbox = True
                _log.warning("answer not sent to a subject that is no inbox", room=self._gateway.admission.room)
            await delivery.ack()
        except (Error, OSError, ValueError) as error:
            # The broker delivers the post again, and the gateway recognises its id.
            _log.warning("post not acknowledged", room=self._gateway.admission.room, error=describe(error)[0])

    async def _answer(self, data: bytes, token: str) -> dict[str, Any]:
        """Handle a post. Who sent it is decided by its token; its author, kind and badges are ignored."""
        try:
            if len(data) > _MAX_POST_BYTES:
                raise MessageRefused("length", "This is too long for a message.", "Shorten it.")
            identity = self._tokens.check(token, self._gateway.admission.room)
            message = await self._gateway.post_from(identity, SenderPost.from_json(data))
        except MessageRefused as refused:
            return {"rule": refused.rule, "error": refused.what, "fix": refused.fix}
        except IdentityRefused as refused:
            self._gateway.audit_stranger("identity", refused.what)
            return {"rule": "identity", "error": refused.what, "fix": refused.fix}
        except BadWireMessage as error:
            self._gateway.audit_stranger("shape", "It is not a post.")
            return {"rule": "shape", "error": error.what, "fix": error.fix}
        return {"message": json.loads(message.to_json())}

    async def _retry_or_give_up(self, delivery: Any, error: Exception) -> None:
        """The broker delivers a post again that could not be handled, such as on a full disk, but not forever."""
        from nats.errors import Error

        attempts = delivery.metadata.num_delivered
        _log.error(
            "crowd post failed",
            room=self._gateway.admission.room,
            attempts=attempts,
            error=describe(error)[0],
            exc_info=None if isinstance(error, CoterieError) else error,
        )
        with suppress(Error, OSError):
            await (delivery.term() if attempts >= _MAX_DELIVERIES else delivery.nak(delay=_RETRY_S))

    async def _publish_updates(self) -> None:
        subjects = self._subjects
        async with self._bus.subscribe(f"*.*.{self._gateway.admission.room}", limit=100_000) as updates:
            last = await self._last_published()
            while missed := await self._gateway.after(last, _PAGE_SIZE):
                for message in missed:
                    await self._publish(subjects.firehose, message, message.id)
                    last = message.number
            async for update in updates:
                body = update.body
                if isinstance(body, ChatMessage):
                    if body.number > last:
                        await self._publish(subjects.firehose, body, body.id)
                        last = body.number
                elif isinstance(body, AuditRecord | StreamContext | Trends):
                    await self._publish(update.subject, body, None)

    async def _last_published(self) -> int:
        """The number of the last message on the broker, or 0."""
        from nats.js.errors import NotFoundError

        try:
            last = await self._broker.jetstream.get_last_msg(OUTPUT_STREAM, self._subjects.firehose)
        except NotFoundError:
            return 0
        try:
            return ChatMessage.from_json(last.data or b"").number
        except BadWireMessage as error:
            # Somebody else published there. Readers skip what they have, so repeating the latest is harmless.
            _log.error("firehose has a message that is not from a gateway", room=self._subjects.room, error=error.what)
            return max(0, self._gateway.admission.last_number - _PAGE_SIZE)

    async def _publish(
        self, subject: str, body: ChatMessage | AuditRecord | StreamContext | Trends, key: str | None
    ) -> None:
        """Retry until it succeeds, so that messages stay in order."""
        from nats.errors import Error

        headers = {"Nats-Msg-Id": key} if key is not None else None
        failed = False
        while True:
            try:
                await self._broker.jetstream.publish(subject, body.to_json().encode(), headers=headers)
            except (Error, OSError) as error:
                if not failed:
                    _log.warning("broker does not take messages, trying again", subject=subject, error=repr(error))
                failed = True
                await asyncio.sleep(_RETRY_S)
            else:
                return


class ClusterClient:
    """Posts to a gateway in another process and reads its messages."""

    def __init__(self, broker: Broker, room: str, token: str = "") -> None:
        """`token` is from `coterie crowd invite`; without one, a client can only read."""
        self._broker = broker
        self._token = token
        self._subjects = Subjects(room)

    async def post(self, post: ChatPost, deadline_s: float = 30.0) -> ChatMessage:
        """Post until answered and return the stored message.

        Raises `MessageRefused`, or `NoBroker` if no gateway answers within the deadline.
        """
        from nats.errors import Error

        until = asyncio.get_running_loop().time() + deadline_s
        inbox = self._broker.nats.new_inbox()
        answers = await self._broker.nats.subscribe(inbox)
        attempt = 0
        try:
            while asyncio.get_running_loop().time() < until:
                # JetStream drops ids it has seen, so each attempt needs its own, which nobody else can guess; the
                # gateway knows the post by its id.
                key = f"{inbox}:{attempt}"
                try:
                    headers = {"Nats-Msg-Id": key, _ANSWER_HEADER: inbox, _TOKEN_HEADER: self._token}
                    await self._broker.jetstream.publish(
                        self._subjects.ingest, post.to_json().encode(), stream=INGEST_STREAM, headers=headers
                    )
                    answer = (await answers.next_msg(timeout=_ANSWER_TIMEOUT_S)).data
                except (Error, OSError, TimeoutError):
                    attempt += 1
                    await asyncio.sleep(0.1)
                    continue
                return parse_post_answer(answer)
        finally:
            await answers.unsubscribe()
        raise NoBroker(
            f"No gateway of {post.room} answered within {deadline_s:.0f} s.",
            "Start one: coterie crowd gateway --room …",
        )

    async def firehose(self, after: int = 0) -> AsyncIterator[ChatMessage]:
        """Yield every message after a number, then each new one, in order and once."""
        from nats.errors import TimeoutError as NoMessageYet

        subscription = await self._broker.jetstream.subscribe(
            self._subjects.firehose, stream=OUTPUT_STREAM, ordered_consumer=True
        )
        try:
            while True:
                try:
                    message = ChatMessage.from_json((await subscription.next_msg(timeout=1)).data)
                except NoMessageYet:
                    continue
                except BadWireMessage as error:
                    _log.error("firehose has a message that is not from a gateway", error=error.what)
                    continue
                if message.number > after:
                    after = message.number
                    yield message
        finally:
            await subscription.unsubscribe()
