"""The subjects of a room on the bus. In one process or over a broker, the names are the same. C2"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Subjects:
    room: str

    @property
    def ingest(self) -> str:
        """Anyone → gateway."""
        return f"chat.ingest.{self.room}"

    @property
    def firehose(self) -> str:
        """Gateway → all."""
        return f"chat.firehose.{self.room}"

    @property
    def context(self) -> str:
        return f"stream.context.{self.room}"

    @property
    def trends(self) -> str:
        return f"chat.trends.{self.room}"

    @property
    def audit(self) -> str:
        return f"chat.audit.{self.room}"
