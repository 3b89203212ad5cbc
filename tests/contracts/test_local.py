"""The backends of one machine against the contracts: SQLite for the log and the jobs, the in-process bus."""

from __future__ import annotations

import pytest

from coterie.eventstore import Bus, Jobs, LocalBus, Log, Store
from tests.contracts.bus_contract import BusContract
from tests.contracts.jobs_contract import JobsContract
from tests.contracts.log_contract import LogContract


class TestSqliteLog(LogContract):
    @pytest.fixture
    def log(self, store: Store) -> Log:
        return store


class TestSqliteJobs(JobsContract):
    @pytest.fixture
    def log(self, store: Store) -> Log:
        return store

    @pytest.fixture
    def jobs(self, store: Store) -> Jobs:
        return store.jobs


class TestLocalBus(BusContract):
    @pytest.fixture
    def bus(self) -> Bus:
        return LocalBus()
