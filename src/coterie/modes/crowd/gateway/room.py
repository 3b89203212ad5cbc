"""A gateway and everybody who listens to it: the firehose, passed on to its readers in ticks."""

from __future__ import annotations

from coterie.kernel import Bus
from coterie.modes.crowd.gateway.fanout import Fanout
from coterie.modes.crowd.gateway.gateway import Gateway
from coterie.modes.crowd.protocol import Subjects


class ChatRoom:
    def __init__(self, gateway: Gateway, bus: Bus) -> None:
        self.gateway = gateway
        self.fanout = Fanout(gateway.latest, last_sent=gateway.admission.last_number)
        self._bus = bus

    async def run(self) -> None:
        """Pass the firehose on, until cancelled."""
        async with self._bus.subscribe(Subjects(self.gateway.admission.room).firehose, limit=100_000) as firehose:
            async for message in firehose:
                self.fanout.send([message.body])
