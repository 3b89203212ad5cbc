"""C11: memories of personas in Coterie's memory and in Mem0, by the same contract."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from coterie.base.errors import MissingExtra
from coterie.memory import Memory
from coterie.modes.crowd.memory import BuiltInStore, Mem0Store
from coterie.modes.crowd.memory.mem0_store import open_mem0
from tests.contracts.persona_store_contract import PersonaStoreContract


class TestBuiltIn(PersonaStoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[BuiltInStore]:
        with Memory(tmp_path / "memory.db") as memory:
            yield BuiltInStore(memory)


@pytest.mark.skipif(
    find_spec("mem0") is None,
    reason="mem0ai needs an older protobuf than the tests: run `make mem0`, which has its own",
)
class TestMem0(PersonaStoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Mem0Store]:
        store = Mem0Store(tmp_path / "mem0")
        yield store
        store.close()


def test_c11_a_missing_extra_names_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mem0", None)
    with pytest.raises(MissingExtra, match=r"coterie\[mem0\]"):
        open_mem0(tmp_path)
