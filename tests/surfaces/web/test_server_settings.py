from __future__ import annotations

import pytest

from coterie.base.errors import ConfigError
from coterie.surfaces.web.server_settings import ServerSettings, check_binding


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost"])
def test_p17_loopback_hosts_are_accepted(host: str) -> None:
    check_binding(ServerSettings(host=host))


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "192.168.1.5", "example.org", "", "localhost.example.org", "127.0.0.1.x"]
)
def test_p17_other_machines_are_refused(host: str) -> None:
    with pytest.raises(ConfigError, match="other machines can reach") as caught:
        check_binding(ServerSettings(host=host))
    assert "127.0.0.1" in caught.value.fix
