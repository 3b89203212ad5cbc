"""Errors of model calls. They are classified by status and type, never by the text of a message.

ModelError                    text that was already streamed is kept in `partial`
├── ModelUnavailable          transient: retried, then the next model of the chain is asked
│   ├── RateLimited           429; the model is in cooldown until `retry_after` has passed
│   ├── OutOfCredit           429 whose type says that the quota is used up
│   ├── Overloaded            503 or 529
│   ├── ServerFault           500, 502, 504
│   ├── Unreachable           no connection, or it was lost
│   ├── TimedOut              the first token, the next one, or the whole took too long
│   ├── BadAnswer             the response does not follow the protocol, or is not JSON
│   ├── EmptyAnswer           the answer has no text and no tool call
│   └── ModelCrashed          the embedded model's process died or hung; the next call starts it again
├── RequestRefused            the request or the account is at fault: no retry, no fallback
│   ├── BadRequest            400, 413, 422
│   ├── KeyRejected           401
│   ├── PaymentNeeded         402
│   ├── Forbidden             403
│   └── UnknownModel          404
├── ChainFailed               all models of the chain failed or are in cooldown; see `failures`
├── CapReached                the daily spending cap is used up
├── RequestsForbidden         real requests are switched off (tests)
├── NothingRecorded           the recording has no answer for this request
└── RoleUnset                 a provider that the settings do not define
"""

from __future__ import annotations

from typing import ClassVar

from coterie.base.errors import CoterieError
from coterie.base.redaction import redact


class ModelError(CoterieError):
    http_status = 502
    retryable: ClassVar[bool] = False
    """Whether the same request may succeed later."""

    def __init__(
        self,
        what: str,
        fix: str,
        *,
        status: int | None = None,
        retry_after: float | None = None,
        partial: str = "",
    ) -> None:
        super().__init__(redact(what), redact(fix))
        self.status = status
        self.retry_after = retry_after
        self.partial = partial


class ModelUnavailable(ModelError):
    retryable = True


class RateLimited(ModelUnavailable):
    pass


class OutOfCredit(ModelUnavailable):
    retryable = False


class Overloaded(ModelUnavailable):
    pass


class ServerFault(ModelUnavailable):
    pass


class Unreachable(ModelUnavailable):
    pass


class TimedOut(ModelUnavailable):
    pass


class BadAnswer(ModelUnavailable):
    pass


class EmptyAnswer(ModelUnavailable):
    pass


class ModelCrashed(ModelUnavailable):
    pass


class RequestRefused(ModelError):
    pass


class BadRequest(RequestRefused):
    pass


class KeyRejected(RequestRefused):
    pass


class PaymentNeeded(RequestRefused):
    pass


class Forbidden(RequestRefused):
    pass


class UnknownModel(RequestRefused):
    pass


class ChainFailed(ModelError):
    """No model of the chain could answer. `retry_after` is when the first of them may be asked again."""

    retryable = True

    def __init__(
        self,
        what: str,
        fix: str,
        *,
        failures: tuple[ModelError, ...] = (),
        retry_after: float | None = None,
        partial: str = "",
    ) -> None:
        super().__init__(what, fix, retry_after=retry_after, partial=partial)
        self.failures = failures


class CapReached(ModelError):
    pass


class RequestsForbidden(ModelError):
    pass


class NothingRecorded(ModelError):
    pass


class RoleUnset(ModelError):
    http_status = 422


def status_of(error: Exception) -> int | None:
    """The HTTP status of a provider's response, if there was one; for a chain, the last one."""
    if isinstance(error, ChainFailed):
        return next((failure.status for failure in reversed(error.failures) if failure.status), None)
    return error.status if isinstance(error, ModelError) else None
