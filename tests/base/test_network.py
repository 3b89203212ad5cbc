from __future__ import annotations

import pytest

from coterie.base.values import is_loopback, is_loopback_url


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.9.1", "::1"])
def test_loopback_hosts(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["", "0.0.0.0", "192.168.0.4", "example.org", "localhost.example.org"])
def test_other_hosts(host: str) -> None:
    assert not is_loopback(host)


def test_urls() -> None:
    assert is_loopback_url("http://[::1]:8080/v1")
    assert is_loopback_url("//localhost:8000")
    assert not is_loopback_url("https://example.org/v1")
    assert not is_loopback_url("http://[broken")
