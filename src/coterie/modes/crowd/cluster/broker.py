"""The connection to a NATS server, and the two streams a crowd keeps there.

What is asked of gateways waits in one until it has been dealt with; what gateways told everybody stays in the other for
a day. JetStream drops a message whose id it has seen in the last two minutes, per stream and across its subjects, so
every id names its room. The gateway's own log is the truth; the broker may lose its disk and nothing is gone but time.
"""

from __future__ import annotations

import asyncio
from typing import Any

from coterie.base.errors import MissingExtra
from coterie.modes.crowd.errors import NoBroker

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
