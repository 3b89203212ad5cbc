"""Real servers, started once for all the tests that need them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.real.synapse import Synapse


@pytest.fixture(scope="session")
def synapse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Synapse]:
    pytest.importorskip("synapse", reason="matrix-synapse is not installed here")
    server = Synapse(tmp_path_factory.mktemp("synapse"))
    server.start()
    yield server
    server.stop()
