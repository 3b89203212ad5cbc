"""The crowd's errors.

CrowdError
├── MessageRefused      a message was not admitted; `rule` names the rule
├── IdentityRefused     a token or a name is not valid
├── BadWireMessage      a message does not match its schema
├── AlreadyLive         a session is running in this room
├── NoBroker            the broker or the gateway behind it does not answer
├── LogBehindBroker     another log than this one belongs to the room
├── AudioUnavailable    audio cannot be read or transcribed
├── VideoUnavailable    video cannot be read or watched
└── DriftRefused        there is no such snapshot
BadCrowdConfig          a persona's or a room's file is wrong
└── NoSuchCrowd         there is no room or persona of that name
BadRecording            a session cannot be replayed from this log
"""

from __future__ import annotations

from coterie.base.errors import ConfigError, CoterieError, LogError


class CrowdError(CoterieError):
    pass


class MessageRefused(CrowdError):
    """A message was not admitted. The sender gets this error, and the audit has a record."""

    http_status = 422

    def __init__(self, rule: str, what: str, fix: str, retry_after_s: float | None = None) -> None:
        super().__init__(what, fix)
        self.rule = rule
        self.retry_after_s = retry_after_s


class IdentityRefused(CrowdError):
    http_status = 403


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


class LogBehindBroker(CrowdError):
    pass


class AudioUnavailable(CrowdError):
    pass


class VideoUnavailable(CrowdError):
    pass


class DriftRefused(CrowdError):
    pass
