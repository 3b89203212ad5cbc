"""A room shared by several machines over NATS JetStream, with the same subjects and messages as the in-process bus.

The gateway's event log is authoritative. The broker only transports: if it loses its data, no message is lost.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from coterie.base.errors import CoterieError, MissingExtra
from coterie.eventstore import Bus
from coterie.modes.crowd.errors import MessageRefused, NoBroker
from coterie.modes.crowd.gateway import Gateway
from coterie.modes.crowd.protocol import AuditRecord, ChatMessage, ChatPost, StreamContext, Subjects, Trends

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
                    address, max_reconnect_attempts=-1, reconnect_time_wait=0.2, error_cb=_ignore_error
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


async def _ignore_error(_error: Exception) -> None:
    """Outages are handled by reconnecting."""


class ClusterGateway:
    """Connects a gateway to the broker: consumes posts and publishes messages, audits, contexts and trends.

    A post is acknowledged once it is stored and its sender was answered. After a crash the broker delivers it again,
    and the gateway recognises the sender's id. Messages stored but not published are published after the restart.
    """

    def __init__(self, broker: Broker, gateway: Gateway, bus: Bus) -> None:
        self._broker = broker
        self._gateway = gateway
        self._bus = bus
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
            except (Error, OSError):
                await asyncio.sleep(_RETRY_S)
                continue
            await asyncio.gather(*(self._handle_post(message) for message in batch))

    async def _handle_post(self, delivery: Any) -> None:
        from nats.errors import Error

        try:
            message = await self._gateway.post(ChatPost.from_json(delivery.data))
            answer = {"message": json.loads(message.to_json())}
        except MessageRefused as refused:
            answer = {"rule": refused.rule, "error": refused.what, "fix": refused.fix}
        except CoterieError as error:
            answer = {"rule": "shape", "error": error.what, "fix": error.fix}
        try:
            if inbox := (delivery.headers or {}).get("Answer-To"):
                await self._broker.nats.publish(inbox, json.dumps(answer).encode())
            await delivery.ack()
        except (Error, OSError):
            return  # the broker delivers the post again, and the gateway recognises its id

    async def _publish_updates(self) -> None:
        subjects = self._subjects
        async with self._bus.subscribe(f"*.*.{self._gateway.admission.room}", limit=100_000) as updates:
            last = await self._last_published()
            for message in await self._gateway.after(last):
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
        return ChatMessage.from_json(last.data or b"").number

    async def _publish(
        self, subject: str, body: ChatMessage | AuditRecord | StreamContext | Trends, key: str | None
    ) -> None:
        """Retry until it succeeds, so that messages stay in order."""
        from nats.errors import Error

        headers = {"Nats-Msg-Id": key} if key is not None else None
        while True:
            try:
                await self._broker.jetstream.publish(subject, body.to_json().encode(), headers=headers)
            except (Error, OSError):
                await asyncio.sleep(_RETRY_S)
            else:
                return


class ClusterClient:
    """Posts to a gateway in another process and reads its messages."""

    def __init__(self, broker: Broker, room: str) -> None:
        self._broker = broker
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
                # JetStream drops ids it has seen, so each attempt needs its own; the gateway knows the post by its id.
                key = f"{post.room}:{post.author.name}:{post.id}:{attempt}"
                try:
                    headers = {"Nats-Msg-Id": key, "Answer-To": inbox}
                    await self._broker.jetstream.publish(
                        self._subjects.ingest, post.to_json().encode(), stream=INGEST_STREAM, headers=headers
                    )
                    answer = json.loads((await answers.next_msg(timeout=_ANSWER_TIMEOUT_S)).data)
                except (Error, OSError, TimeoutError):
                    attempt += 1
                    await asyncio.sleep(0.1)
                    continue
                if "message" in answer:
                    return ChatMessage.model_validate(answer["message"])
                raise MessageRefused(answer["rule"], answer["error"], answer["fix"])
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
                if message.number > after:
                    after = message.number
                    yield message
        finally:
            await subscription.unsubscribe()
