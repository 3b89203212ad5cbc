"""The surface contract on in-memory platforms, with and without deduplication by token."""

from __future__ import annotations

import pytest

from tests.contracts.loopback import Loopback
from tests.contracts.surface_app import SurfaceApp
from tests.contracts.surface_contract import SurfaceContract


class TestLoopback(SurfaceContract):
    @pytest.fixture
    def platform(self, app: SurfaceApp) -> Loopback:
        loopback = Loopback()
        loopback.reconnect(app.router)
        return loopback


class TestForgetfulLoopback(SurfaceContract):
    @pytest.fixture
    def platform(self, app: SurfaceApp) -> Loopback:
        loopback = Loopback(dedupes=False)
        loopback.reconnect(app.router)
        return loopback
