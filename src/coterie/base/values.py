"""Value types with ranges, for what comes from outside: requests, tools, model outputs, platforms, files.

One definition per kind of value, used by the API, events, tools and model outputs alike, so that what one accepts the
others can store, show and compute with. Shapes that are only read (responses, stored events) do not use the limits:
reading never fails on what was once accepted.
"""

from __future__ import annotations

import ipaddress
import math
from datetime import UTC, datetime, timedelta
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, StringConstraints

# Checks of network addresses.


def is_loopback(host: str) -> bool:
    """Whether a host is `localhost` or a loopback address. No name is resolved."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_loopback_url(url: str) -> bool:
    """Whether the host of a URL is a loopback one; False if the URL has no valid host."""
    try:
        return is_loopback(urlsplit(url).hostname or "")
    except ValueError:
        return False


_DEFAULT_PORTS = {"http": 80, "https": 443}


def url_origin(url: str) -> str:
    """Scheme, host and port of a URL, which together are the address that a request goes to; the URL if it has none."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or _DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        return url
    if not host:
        return url
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{'' if port is None else f':{port}'}"


MAX_INT64 = 2**63 - 1
"""The largest integer that the database stores."""

Int64 = Annotated[int, Field(ge=-(2**63), le=MAX_INT64)]
MAX_COUNT = 2**31 - 1
Count = Annotated[int, Field(ge=0, le=MAX_COUNT)]
"""A number of things, or an offset."""

MAX_DURATION_S = 10 * 366 * 86_400.0
DurationS = Annotated[float, Field(gt=0, le=MAX_DURATION_S, allow_inf_nan=False)]
"""A duration in seconds, at most about ten years."""

EARLIEST = datetime(100, 1, 1, tzinfo=UTC)
LATEST = datetime(9000, 1, 1, tzinfo=UTC)
"""Times between these can be converted to any time zone, moved by any duration and formatted."""


EARLIEST_SHOWN = datetime(1, 1, 2, tzinfo=UTC)
LATEST_SHOWN = datetime(9999, 12, 30, tzinfo=UTC)
"""Stored times between these can be read: they can be converted to any time zone."""


def is_text(value: str) -> bool:
    """Whether it can be encoded: a lone surrogate cannot be stored, sent or written to a file."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def replace_surrogates(value: str) -> str:
    """The text with lone surrogates replaced, for text from platforms and models that must not be refused."""
    return value if is_text(value) else value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def clamp_time(moment: datetime) -> datetime:
    """The nearest time in the supported range, in UTC. A time without a zone is taken as UTC."""
    try:
        aware = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError:
        return EARLIEST if moment.year < 5000 else LATEST
    return min(max(aware, EARLIEST), LATEST)


def parse_time(text: str) -> datetime | None:
    """A time in ISO 8601, in UTC; None if it is not one, or out of the supported range."""
    try:
        moment = _check_time(datetime.fromisoformat(text))
    except ValueError:
        return None
    return clamp_time(moment)


def parse_int64(text: str) -> int | None:
    """A non-negative integer in decimal digits; None if it is not one, or too large to be stored."""
    if not text.isascii() or not text.isdecimal() or len(text) > 19:
        return None
    number = int(text)
    return number if number <= MAX_INT64 else None


def add_seconds(moment: datetime, seconds: float) -> datetime:
    """A time moved by a duration, kept in the supported range."""
    if math.isnan(seconds):
        return moment
    limited = min(max(seconds, -4e11), 4e11)
    try:
        return clamp_time(moment + timedelta(seconds=limited))
    except OverflowError:
        return LATEST if seconds > 0 else EARLIEST


def _check_text(value: str) -> str:
    if not is_text(value):
        raise ValueError("it contains a character that cannot be stored (half of a surrogate pair)")
    return value


def _check_name(value: str) -> str:
    if any(ord(character) < 32 or ord(character) == 127 for character in value):
        raise ValueError("it contains control characters")
    return value


def _check_time(value: datetime) -> datetime:
    try:
        aware = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    except OverflowError:
        aware = None
    if aware is None or not EARLIEST <= aware <= LATEST:
        raise ValueError(f"it must be between the years {EARLIEST.year} and {LATEST.year}")
    return value


Text = Annotated[str, AfterValidator(_check_text)]
"""Text that can be stored and sent."""
ShownText = Annotated[str, AfterValidator(replace_surrogates)]
"""Text for people from a platform or a model: half characters are replaced, because the rest is still worth reading."""
Prose = Annotated[str, StringConstraints(max_length=200_000), AfterValidator(_check_text)]
"""A message, a description or another longer text."""
Key = Annotated[str, StringConstraints(max_length=200)]
"""The id or name of something that is looked up; what does not exist is refused there."""
FilePath = Annotated[str, StringConstraints(max_length=4_000)]
"""The path of a file or folder, or of a document in a workspace."""
Name = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=200),
    AfterValidator(_check_text),
    AfterValidator(_check_name),
]
"""A name or title: one line of at most 200 characters."""
Time = Annotated[datetime, AfterValidator(_check_time)]
"""A time in the supported range. It keeps its zone; a time without one stays without one."""
ClampedTime = Annotated[datetime, AfterValidator(clamp_time)]
"""A time that a platform states: moved into the supported range, in UTC."""
