"""A room on several machines, over NATS JetStream: the same subjects and shapes, between processes. C2"""

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

# The connection to a NATS server, and the two streams a crowd keeps there.
#
# What is asked of gateways waits in one until it has been dealt with; what gateways told everybody stays in the other for
# a day. JetStream drops a message whose id it has seen in the last two minutes, per stream and across its subjects, so
# every id names its room. The gateway's own log is the truth; the broker may lose its disk and nothing is gone but time.


INGEST_STREAM, OUTPUT_STREAM = "CROWD_INGEST", "CROWD_TOLD"
_INGEST_SUBJECTS = ("chat.ingest.*",)
_OUTPUT_SUBJECTS = ("chat.firehose.*", "stream.context.*", "chat.trends.*", "chat.audit.*")
_RETENTION_S = 86_400
_DUPLICATE_WINDOW_S = 120
_TIMEOUT_S = 5


class Broker:
    def __init__(self, connection: Any, stream: Any) -> None:
        self.nats = connection
        self.jetstream = stream

    @classmethod
    async def connect(cls, address: str) -> Broker:
        """Comes back by itself when the server does."""
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
    """Being without a server for a while is what reconnecting is for."""


# The gateway's end: takes what is asked over the broker, and tells everybody what became of it.
#
# A post is acknowledged to the broker only when it is durable here and its sender was answered, so a gateway that dies is
# given it again; the gateway knows the sender's id and says the same message twice to nobody. What was durable and not
# yet told when it died is told when it comes back: the broker knows up to which number everybody has heard.


_BATCH_SIZE = 200
_FETCH_TIMEOUT_S = 1.0
_ACK_WAIT_S = 10
_RETRY_S = 0.3


class ClusterGateway:
    def __init__(self, broker: Broker, gateway: Gateway, bus: Bus) -> None:
        self._broker = broker
        self._gateway = gateway
        self._bus = bus
        self._subjects = Subjects(gateway.admission.room)

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._publish_updates())
            tasks.create_task(self._consume_posts())

    async def _consume_posts(self) -> None:
        from nats.errors import Error
        from nats.errors import TimeoutError as NothingYet
        from nats.js.api import ConsumerConfig

        asked = await self._broker.jetstream.pull_subscribe(
            self._subjects.ingest,
            durable=f"gateway-{self._gateway.admission.room}",
            stream=INGEST_STREAM,
            config=ConsumerConfig(ack_wait=_ACK_WAIT_S),
        )
        while True:
            try:
                batch = await asked.fetch(_BATCH_SIZE, timeout=_FETCH_TIMEOUT_S)
            except NothingYet:
                continue
            except (Error, OSError):
                await asyncio.sleep(_RETRY_S)
                continue
            await asyncio.gather(*(self._handle_post(message) for message in batch))

    async def _handle_post(self, asked: Any) -> None:
        from nats.errors import Error

        try:
            said = await self._gateway.post(ChatPost.from_json(asked.data))
            answer = {"message": json.loads(said.to_json())}
        except MessageRefused as refused:
            answer = {"rule": refused.rule, "error": refused.what, "fix": refused.fix}
        except CoterieError as error:
            answer = {"rule": "shape", "error": error.what, "fix": error.fix}
        try:
            if inbox := (asked.headers or {}).get("Answer-To"):
                await self._broker.nats.publish(inbox, json.dumps(answer).encode())
            await asked.ack()
        except (Error, OSError):
            return  # the broker went away: it gives the post again, and the gateway knows it

    async def _publish_updates(self) -> None:
        subjects = self._subjects
        async with self._bus.subscribe(f"*.*.{self._gateway.admission.room}", limit=100_000) as heard:
            told = await self._last_published()
            for message in await self._gateway.after(told):
                await self._publish(subjects.firehose, message, message.id)
                told = message.number
            async for news in heard:
                body = news.body
                if isinstance(body, ChatMessage):
                    if body.number > told:
                        await self._publish(subjects.firehose, body, body.id)
                        told = body.number
                elif isinstance(body, AuditRecord | StreamContext | Trends):
                    await self._publish(news.subject, body, None)

    async def _last_published(self) -> int:
        """Up to which number everybody has heard."""
        from nats.js.errors import NotFoundError

        try:
            last = await self._broker.jetstream.get_last_msg(OUTPUT_STREAM, self._subjects.firehose)
        except NotFoundError:
            return 0
        return ChatMessage.from_json(last.data or b"").number

    async def _publish(
        self, subject: str, body: ChatMessage | AuditRecord | StreamContext | Trends, key: str | None
    ) -> None:
        """In order, and for as long as it takes: nobody may hear the next before this."""
        from nats.errors import Error

        headers = {"Nats-Msg-Id": key} if key is not None else None
        while True:
            try:
                await self._broker.jetstream.publish(subject, body.to_json().encode(), headers=headers)
            except (Error, OSError):
                await asyncio.sleep(_RETRY_S)
            else:
                return


# Everybody else's end: posting to a gateway elsewhere, and hearing what it tells, from any number on.
#
# A post is sent until it is answered; sent twice it is still said once. Hearing resumes after the last number heard, and
# whatever comes twice is heard once.


_ANSWER_TIMEOUT_S = 2.0


class ClusterClient:
    def __init__(self, broker: Broker, room: str) -> None:
        self._broker = broker
        self._subjects = Subjects(room)

    async def post(self, post: ChatPost, deadline_s: float = 30.0) -> ChatMessage:
        """The message as everybody sees it; `Refused` with its rule, or `NoBroker` when nobody answers in time."""
        from nats.errors import Error

        until = asyncio.get_running_loop().time() + deadline_s
        inbox = self._broker.nats.new_inbox()
        answers = await self._broker.nats.subscribe(inbox)
        attempt = 0
        try:
            while asyncio.get_running_loop().time() < until:
                # Each attempt is a message of its own to the broker; the gateway knows that it is the same post.
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
            "Is one running? coterie crowd gateway --room …",
        )

    async def firehose(self, after: int = 0) -> AsyncIterator[ChatMessage]:
        """Every message after a number, then each new one, in order and once."""
        from nats.errors import TimeoutError as NothingYet

        heard = await self._broker.jetstream.subscribe(
            self._subjects.firehose, stream=OUTPUT_STREAM, ordered_consumer=True
        )
        try:
            while True:
                try:
                    told = ChatMessage.from_json((await heard.next_msg(timeout=1)).data)
                except NothingYet:
                    continue
                if told.number > after:
                    after = told.number
                    yield told
        finally:
            await heard.unsubscribe()


__all__ = ["Broker", "ClusterClient", "ClusterGateway"]
