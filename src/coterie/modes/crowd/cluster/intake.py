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
from coterie.modes.crowd.cluster.broker import INGEST, TOLD, Broker
from coterie.modes.crowd.errors import Refused
from coterie.modes.crowd.gateway import Gateway
from coterie.modes.crowd.protocol import AuditRecord, ChatMessage, ChatPost, StreamContext, Subjects, Trends

_AT_ONCE = 200
_WAITING_S = 1.0
_AGAIN_S = 10
_RETRY_S = 0.3


class Intake:
    def __init__(self, broker: Broker, gateway: Gateway, bus: Bus) -> None:
        self._broker = broker
        self._gateway = gateway
        self._bus = bus
        self._subjects = Subjects(gateway.door.room)

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._tell())
            tasks.create_task(self._take())

    async def _take(self) -> None:
        from nats.errors import Error
        from nats.errors import TimeoutError as NothingYet
        from nats.js.api import ConsumerConfig

        asked = await self._broker.jetstream.pull_subscribe(
            self._subjects.ingest,
            durable=f"gateway-{self._gateway.door.room}",
            stream=INGEST,
            config=ConsumerConfig(ack_wait=_AGAIN_S),
        )
        while True:
            try:
                batch = await asked.fetch(_AT_ONCE, timeout=_WAITING_S)
            except NothingYet:
                continue
            except (Error, OSError):
                await asyncio.sleep(_RETRY_S)
                continue
            await asyncio.gather(*(self._deal_with(message) for message in batch))

    async def _deal_with(self, asked: Any) -> None:
        from nats.errors import Error

        try:
            said = await self._gateway.post(ChatPost.read(asked.data))
            answer = {"message": json.loads(said.wire())}
        except Refused as refused:
            answer = {"rule": refused.rule, "error": refused.what, "fix": refused.fix}
        except CoterieError as error:
            answer = {"rule": "shape", "error": error.what, "fix": error.fix}
        try:
            if inbox := (asked.headers or {}).get("Answer-To"):
                await self._broker.nats.publish(inbox, json.dumps(answer).encode())
            await asked.ack()
        except (Error, OSError):
            return  # the broker went away: it gives the post again, and the gateway knows it

    async def _tell(self) -> None:
        subjects = self._subjects
        async with self._bus.subscribe(f"*.*.{self._gateway.door.room}", limit=100_000) as heard:
            told = await self._announced()
            for message in await self._gateway.after(told):
                await self._announce(subjects.firehose, message, message.id)
                told = message.number
            async for news in heard:
                body = news.body
                if isinstance(body, ChatMessage):
                    if body.number > told:
                        await self._announce(subjects.firehose, body, body.id)
                        told = body.number
                elif isinstance(body, AuditRecord | StreamContext | Trends):
                    await self._announce(news.subject, body, None)

    async def _announced(self) -> int:
        """Up to which number everybody has heard."""
        from nats.js.errors import NotFoundError

        try:
            last = await self._broker.jetstream.get_last_msg(TOLD, self._subjects.firehose)
        except NotFoundError:
            return 0
        return ChatMessage.read(last.data or b"").number

    async def _announce(
        self, subject: str, body: ChatMessage | AuditRecord | StreamContext | Trends, key: str | None
    ) -> None:
        """In order, and for as long as it takes: nobody may hear the next before this."""
        from nats.errors import Error

        headers = {"Nats-Msg-Id": key} if key is not None else None
        while True:
            try:
                await self._broker.jetstream.publish(subject, body.wire().encode(), headers=headers)
            except (Error, OSError):
                await asyncio.sleep(_RETRY_S)
            else:
                return
