"""The gateway's end: takes what is asked over the broker, and tells everybody what became of it.

A post is acknowledged to the broker only when it is durable here and its sender was answered, so a gateway that dies is
given it again; the gateway knows the sender's id and says the same message twice to nobody. What was durable and not
yet told when it died is told when it comes back: the broker knows up to which number everybody has heard.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from coterie.base.errors import CoterieError
from coterie.kernel import Bus
from coterie.modes.crowd.cluster.broker import INGEST_STREAM, OUTPUT_STREAM, Broker
from coterie.modes.crowd.errors import MessageRefused
from coterie.modes.crowd.gateway import Gateway
from coterie.modes.crowd.protocol import AuditRecord, ChatMessage, ChatPost, StreamContext, Subjects, Trends

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
