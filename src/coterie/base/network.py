"""Checks of network addresses."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit


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
