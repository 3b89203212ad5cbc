"""One table from what a provider's library raises to our errors: by status and type, never by searching the text."""

from __future__ import annotations

import json

from pydantic_ai.exceptions import (
    AgentRunError,
    ModelAPIError,
    ModelConnectionError,
    ModelHTTPError,
    ModelOverloadedError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelTimeoutError,
    UserError,
)

from coterie.llm.errors import (
    BadAnswer,
    BadRequest,
    Forbidden,
    KeyRejected,
    ModelError,
    OutOfCredit,
    Overloaded,
    PaymentNeeded,
    RateLimited,
    ServerFault,
    TimedOut,
    UnknownModel,
    Unreachable,
)

_RETRY_FIX = "Wait a little and try again, or set a fallback model in the settings."

_BY_STATUS: dict[int, tuple[type[ModelError], str, str]] = {
    400: (BadRequest, "did not accept the request", "Shorten or change it; the provider's words say what."),
    401: (
        KeyRejected,
        "rejected the API key",
        "Check the key in the settings, or store it: coterie secrets set NAME",
    ),
    402: (PaymentNeeded, "wants to be paid first", "Top up the account, or choose another model."),
    403: (Forbidden, "does not allow this", "Check what the key may do, or choose another model."),
    404: (UnknownModel, "does not know this model", "See what there is: coterie models list"),
    408: (TimedOut, "gave up waiting", _RETRY_FIX),
    409: (ServerFault, "is busy with itself", _RETRY_FIX),
    413: (BadRequest, "found the request too large", "Shorten it."),
    422: (BadRequest, "did not accept the request", "Shorten or change it; the provider's words say what."),
    425: (ServerFault, "is not ready yet", _RETRY_FIX),
    429: (RateLimited, "is limiting how often it may be asked", _RETRY_FIX),
    503: (Overloaded, "is overloaded", _RETRY_FIX),
    529: (Overloaded, "is overloaded", _RETRY_FIX),
}
_SERVER_FAULT = (ServerFault, "has a fault", _RETRY_FIX)
_LONGEST_QUOTE = 300


def map_error(error: AgentRunError | UserError, target: str) -> ModelError:
    if isinstance(error, ModelQuotaExceededError) and getattr(error, "status_code", 429) == 429:
        return OutOfCredit(
            f"{target} has no credit left{_quote(error)}.",
            "Top up the account, or choose another model.",
            status=429,
            retry_after=error.retry_after,
        )
    if isinstance(error, ModelHTTPError):
        default = _BY_STATUS[400] if error.status_code < 500 else _SERVER_FAULT
        kind, happened, fix = _BY_STATUS.get(error.status_code, default)
        return kind(
            f"{target} {happened} (status {error.status_code}){_quote(error)}.",
            fix,
            status=error.status_code,
            retry_after=error.retry_after,
        )
    if isinstance(error, ModelRateLimitError):
        return RateLimited(
            f"{target} is limiting how often it may be asked.", _RETRY_FIX, retry_after=error.retry_after
        )
    if isinstance(error, ModelOverloadedError):
        return Overloaded(f"{target} is overloaded.", _RETRY_FIX, retry_after=error.retry_after)
    if isinstance(error, ModelTimeoutError):
        return TimedOut(f"{target} did not answer in time.", _RETRY_FIX)
    if isinstance(error, ModelConnectionError):
        return Unreachable(f"The connection to {target} failed.", "Check the network and the provider's address.")
    if isinstance(error, ModelAPIError) and error.body is not None:
        return ServerFault(f"{target} broke off with an error{_quote(error)}.", _RETRY_FIX)
    if isinstance(error, UserError):
        return BadRequest(f"{target} cannot take this request: {error}.", "Choose another model for it.")
    return BadAnswer(f"{target} sent something that is not an answer.", _RETRY_FIX)


def _quote(error: AgentRunError) -> str:
    """The provider's own words, which often say best what is wrong."""
    body: object = getattr(error, "body", None)
    if isinstance(body, str):
        try:
            body = json.loads(body)
        except ValueError:
            return ""
    if isinstance(body, dict):
        inner = body.get("error", body)
        said = inner.get("message") if isinstance(inner, dict) else inner
        if isinstance(said, str) and said.strip():
            return f': "{said.strip()[:_LONGEST_QUOTE]}"'
    return ""
