"""What can go wrong in a crowd, each with what to do next.

CrowdError
├── Refused             a message was not let in; `rule` says which rule it met
├── BadWire             what came over a subject or a socket does not fit its schema
├── AlreadyLive         an evening runs in this room
├── BadRoster           a persona's or a room's file is wrong
│   └── NoSuchCrowd     there is no room or persona of that name
├── BadRecording        a session cannot be replayed from this log
├── NoBroker            the broker or a gateway behind it does not answer
├── NoSound             a stream cannot be heard or understood
└── DriftRefused        a snapshot cannot be taken back to, or the persona is frozen
"""

from __future__ import annotations

from coterie.base.errors import ConfigError, CoterieError, LogError


class CrowdError(CoterieError):
    pass


class MessageRefused(CrowdError):
    """A message that was not let in. Its sender is told, and the audit has it."""

    http_status = 422

    def __init__(self, rule: str, what: str, fix: str, retry_after_s: float | None = None) -> None:
        super().__init__(what, fix)
        self.rule = rule
        self.retry_after_s = retry_after_s


class BadWireMessage(CrowdError):
    pass


class BadCrowdConfig(ConfigError):
    pass


class NoSuchCrowd(BadCrowdConfig):
    http_status = 404


class AlreadyLive(CrowdError):
    http_status = 409


class BadRecording(LogError):
    pass


class NoBroker(CrowdError):
    pass


class AudioUnavailable(CrowdError):
    pass


class DriftRefused(CrowdError):
    pass
