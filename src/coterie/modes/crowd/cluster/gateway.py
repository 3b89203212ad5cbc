"""The gateway of a room for clients, persona workers and readers on other machines, and the client of it.

Whoever can publish to `chat.ingest.ROOM` is a stranger: a post counts only with a token, under the token's name, as a
human's. A persona worker has a token of its own, with which it posts for the room's personas.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import Any

from pydantic import BaseModel, ValidationError

from coterie.base.errors import CoterieError
from coterie.base.logging import get_logger
from coterie.base.supervisor import describe
from coterie.eventstore import Bus, Payload
from coterie.modes.crowd.cluster.broker import INGEST_STREAM, Broker, Leases, encode
from coterie.modes.crowd.errors import BadWireMessage, IdentityRefused, LogBehindBroker, MessageRefused, NoBroker
from coterie.modes.crowd.events import CrowdTicked, CrowdWritten
from coterie.modes.crowd.gateway import ChatTokens, Gateway
from coterie.modes.crowd.protocol import (
    AuditRecord,
    ChatMessage,
    ChatPost,
    SenderPost,
    Subjects,
    parse_post_answer,
)

_BATCH_SIZE = 200
_FETCH_TIMEOUT_S = 1.0
_ACK_WAIT_S = 10
_RETRY_S = 0.3
_ANSWER_TIMEOUT_S = 2.0
TOKEN_HEADER, KIND_HEADER, _ANSWER_HEADER = "Chat-Token", "Event-Kind", "Answer-To"
_INBOX_PREFIX = "_INBOX."
"""Answers are sent to inboxes only: a sender must not make the gateway publish on a subject of the room."""
_MAX_DELIVERIES = 5
"""A post whose handling fails this often is given up."""
_MAX_POST_BYTES = 16_384
_MAX_RECORD_BYTES = 1_000_000
_MAX_RECORDED = 5_000
_PAGE_SIZE = 1_000
_LATE_MS = 15_000
"""A persona's line that is older is not posted any more."""
_ALL = 2**62
_RECORDS: dict[str, type[CrowdTicked] | type[CrowdWritten]] = {kind.kind: kind for kind in (CrowdTicked, CrowdWritten)}
_log = get_logger(__name__)


class RecallQuestion(BaseModel):
    """What a persona worker asks the gateway's memory."""

    persona: str
    recipient: str = ""
    answered_text: str = ""
    about: str = ""
    topics: tuple[str, ...] = ()


def record_key(payload: CrowdTicked | CrowdWritten) -> tuple[object, ...]:
    """The same for a record that a broker delivers twice."""
    if isinstance(payload, CrowdTicked):
        return payload.tick, payload.at_ms, payload.personas
    return payload.persona, payload.tick, payload.at_ms


class ClusterGateway:
    """Connects a gateway to the broker: consumes posts and records, publishes messages and audits.

    A post is acknowledged once it is stored and its sender was answered. After a crash the broker delivers it again,
    and the gateway recognises the sender's id. Messages stored but not published are published after the restart.
    """

    def __init__(self, broker: Broker, gateway: Gateway, bus: Bus, tokens: ChatTokens, *, database: str = "") -> None:
        """`database` names the locked database of the gateway's log, on which machine it is."""
        self.broker = broker
        self._database = database
        self.tokens = tokens
        self._gateway = gateway
        self._bus = bus
        self._warned_of_inbox = False
        self._subjects = Subjects(gateway.admission.room)
        self._recorded: OrderedDict[tuple[object, ...], None] = OrderedDict()
        self.on_record: Callable[[Payload], None] = lambda _: None
        """Called with what persona workers have recorded."""
        self.answer_recall: Callable[[RecallQuestion], Sequence[str]] = lambda _: ()
        """Called with the questions of persona workers."""
        self.ready = asyncio.Event()
        """Set while this process is the gateway of the room."""

    async def run(self) -> None:
        """Wait until no other process is the room's gateway, then run until cancelled or the lease is lost."""
        leases = Leases(self.broker, owner=self._database)
        key = f"gateway.{self._subjects.room}"
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(leases.run())
            if not await leases.take(key):
                _log.info("another process is the gateway of the room, waiting", room=self._subjects.room)
                await leases.wait_for(key)
            await self._check_log()
            await self._remember_records()
            recalls = await self.broker.nats.subscribe(self._subjects.recall, cb=self._handle_recall)
            try:
                tasks.create_task(self._publish_updates())
                tasks.create_task(self._consume_posts())
                self.ready.set()
                await leases.wait_until_lost(key)
                raise NoBroker(
                    f"This process is no longer the gateway of {self._subjects.room}.",
                    "It continues once the broker answers and no other gateway runs.",
                )
            finally:
                self.ready.clear()
                with suppress(Exception):
                    await recalls.unsubscribe()

    async def _check_log(self) -> None:
        """A gateway whose log lacks messages that readers have seen would give their numbers to others."""
        published, stored = await self._last_published(), self._gateway.admission.last_number
        if published > stored:
            raise LogBehindBroker(
                f"Readers of {self._subjects.room} have seen message {published}, and this log ends at {stored}.",
                "Run the gateway with the data folder that it had before, or use another NATS server.",
            )

    async def _remember_records(self) -> None:
        for payload in await self._gateway.recent_events(list(_RECORDS), _MAX_RECORDED):
            if isinstance(payload, CrowdTicked | CrowdWritten):
                self._is_new(payload)

    def _is_new(self, payload: CrowdTicked | CrowdWritten) -> bool:
        key = record_key(payload)
        if key in self._recorded:
            return False
        self._recorded[key] = None
        if len(self._recorded) > _MAX_RECORDED:
            self._recorded.popitem(last=False)
        return True

    async def _consume_posts(self) -> None:
        from nats.errors import Error
        from nats.errors import TimeoutError as NoMessageYet
        from nats.js.api import ConsumerConfig

        # One consumer for both: a decision is stored before the line that follows from it.
        durable = f"gateway-{self._subjects.room}"
        subjects = [self._subjects.ingest, self._subjects.record]
        config = ConsumerConfig(durable_name=durable, ack_wait=_ACK_WAIT_S, filter_subjects=subjects)
        await self.broker.jetstream.add_consumer(INGEST_STREAM, config)
        posts = await self.broker.jetstream.pull_subscribe_bind(durable, INGEST_STREAM)
        while True:
            try:
                batch = await posts.fetch(_BATCH_SIZE, timeout=_FETCH_TIMEOUT_S)
            except NoMessageYet:
                continue
            except (Error, OSError) as error:
                _log.warning("posts cannot be fetched, trying again", error=repr(error))
                await asyncio.sleep(_RETRY_S)
                continue
            await asyncio.gather(
                *(
                    self._handle_record(message)
                    if message.subject == self._subjects.record
                    else self._handle_post(message)
                    for message in batch
                )
            )

    async def _handle_record(self, delivery: Any) -> None:
        """Store an event of a persona worker; it is acknowledged once it is durable."""
        from nats.errors import Error

        headers: dict[str, str] = delivery.headers or {}
        try:
            identity = self.tokens.check(headers.get(TOKEN_HEADER, ""), self._subjects.room)
            if identity.role != "worker" or len(delivery.data) > _MAX_RECORD_BYTES:
                raise IdentityRefused("This token is not one of a persona worker.", "Use coterie crowd invite --worker")
            payload = _RECORDS[headers.get(KIND_HEADER, "")].model_validate_json(delivery.data)
        except (IdentityRefused, ValidationError, KeyError):
            self._gateway.audit_stranger("record", "It is not a record of a persona worker.")
        else:
            if self._is_new(payload):
                self._gateway.record(payload)
                try:
                    self.on_record(payload)
                except Exception:  # it is stored; that it cannot be shown must not stop the room
                    _log.exception("a record cannot be shown", room=self._subjects.room, kind=payload.kind)
            await self._gateway.flush()
        with suppress(Error, OSError):
            await delivery.ack()

    async def _handle_recall(self, question: Any) -> None:
        from nats.errors import Error

        try:
            identity = self.tokens.check((question.headers or {}).get(TOKEN_HEADER, ""), self._subjects.room)
            asked = RecallQuestion.model_validate_json(question.data)
            found = list(self.answer_recall(asked)) if identity.role == "worker" else []
        except (IdentityRefused, ValidationError):
            found = []
        except Exception:
            _log.exception("recall failed", room=self._subjects.room)
            found = []
        with suppress(Error, OSError):
            await question.respond(encode(found))

    async def _handle_post(self, delivery: Any) -> None:
        from nats.errors import Error

        headers: dict[str, str] = delivery.headers or {}
        try:
            answer = await self._answer(delivery.data, headers.get(TOKEN_HEADER, ""))
        except Exception as error:
            await self._retry_or_give_up(delivery, error)
            return
        try:
            inbox = headers.get(_ANSWER_HEADER, "")
            if inbox.startswith(_INBOX_PREFIX):
                await self.broker.nats.publish(inbox, json.dumps(answer).encode())
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
            identity = self.tokens.check(token, self._gateway.admission.room)
            if identity.role == "worker":
                message = await self._post_for_persona(ChatPost.from_json(data))
            else:
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

    async def _post_for_persona(self, post: ChatPost) -> ChatMessage:
        if post.author.kind != "persona" or not self._gateway.admission.is_persona(post.author.name):
            raise MessageRefused("name", f"{post.author.name} is not a persona of this room.", "Post for one of them.")
        posted_ms = post.trace.posted_ms if post.trace is not None and post.trace.posted_ms is not None else 0
        late = posted_ms < self._gateway.now_ms() - _LATE_MS
        if late and self._gateway.admission.sent(post) is None:
            raise MessageRefused(
                "late", "The line was posted too late.", "If all are, set the clocks of both machines."
            )
        return await self._gateway.post(post)

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
        async with self._bus.subscribe(f"*.*.{self._gateway.admission.room}", limit=100_000) as updates:
            last = await self._last_published()
            while missed := await self._gateway.after(last, _PAGE_SIZE):
                for message in missed:
                    await self._publish_message(message)
                    last = message.number
            async for update in updates:
                body = update.body
                if isinstance(body, ChatMessage):
                    if body.number > last:
                        await self._publish_message(body)
                        last = body.number
                elif isinstance(body, AuditRecord):
                    await self.broker.publish(self._subjects.audit, body.to_json().encode())

    async def _publish_message(self, message: ChatMessage) -> None:
        await self.broker.publish(self._subjects.firehose, message.to_json().encode(), {"Nats-Msg-Id": message.id})

    async def _last_published(self) -> int:
        """The number of the last message on the broker, or 0."""
        last = await self.broker.last(self._subjects.firehose)
        if last is None:
            return 0
        try:
            return ChatMessage.from_json(last.data).number
        except BadWireMessage as error:
            # Somebody else published there. Readers skip what they have, so repeating the latest is harmless.
            _log.error("firehose has a message that is not from a gateway", room=self._subjects.room, error=error.what)
            return max(0, self._gateway.admission.last_number - _PAGE_SIZE)


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
                    headers = {"Nats-Msg-Id": key, _ANSWER_HEADER: inbox, TOKEN_HEADER: self._token}
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
        async for received in self._broker.follow(self._subjects.firehose, history=_ALL):
            try:
                message = ChatMessage.from_json(received.data)
            except BadWireMessage as error:
                _log.error("firehose has a message that is not from a gateway", error=error.what)
                continue
            if message.number > after:
                after = message.number
                yield message
