"""Everybody else's end: posting to a gateway elsewhere, and hearing what it tells, from any number on.

A post is sent until it is answered; sent twice it is still said once. Hearing resumes after the last number heard, and
whatever comes twice is heard once.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

from coterie.modes.crowd.cluster.broker import INGEST_STREAM, OUTPUT_STREAM, Broker
from coterie.modes.crowd.errors import MessageRefused, NoBroker
from coterie.modes.crowd.protocol import ChatMessage, ChatPost, Subjects

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
