"""What can go wrong between a request and an answer, told apart by status and type, never by text.

ModelError                    what was already streamed is kept in `partial`
├── ModelUnavailable          passing trouble: worth another try, then the next model of the chain
│   ├── RateLimited           429; the model rests until `retry_after` has passed
│   ├── OutOfCredit           429 whose type says that the quota is used up
│   ├── Overloaded            503 or 529: too many people at once
│   ├── ServerFault           500, 502, 504
│   ├── Unreachable           no connection, or it broke
│   ├── TimedOut              the first token, the next one, or the whole took too long
│   ├── BadAnswer             what came back is not the protocol, or not JSON
│   ├── EmptyAnswer           the model said nothing
│   └── ModelCrashed          the embedded model's process died or hung; the next call starts it again
├── RequestRefused            the request or the account is at fault: no retry, no other model
│   ├── BadRequest            400, 413, 422
│   ├── KeyRejected           401
│   ├── PaymentNeeded         402
│   ├── NotAllowed            403
│   └── UnknownModel          404
├── ChainFailed               every model of the chain was tried or rests; `failures` says how
├── CapReached                today's cap on spending is used up
├── RequestsForbidden         real requests are switched off (tests)
├── NothingRecorded           the recording holds no answer for this request
└── RoleUnset                 a role, provider or model that the settings do not know
"""

from __future__ import annotations

from typing import ClassVar

from coterie.base.errors import CoterieError
from coterie.base.redaction import redact


class ModelError(CoterieError):
    http_status = 502
    retryable: ClassVar[bool] = False
    """Whether the same request may succeed a little later."""

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
    """Nobody in the chain could answer. `retry_after` is when the first of them may be asked again."""

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
    """What a provider answered with, if one did; of a whole chain, the last that did."""
    if isinstance(error, ChainFailed):
        return next((failure.status for failure in reversed(error.failures) if failure.status), None)
    return error.status if isinstance(error, ModelError) else None
