"""The page that `make bench` writes, and the interface of every bench module."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from bench import log
from bench.__main__ import names
from bench.lib.figures_page import page
from coterie.eventstore import Store

BENCHES = Path(__file__).resolve().parent.parent / "bench"


def test_the_page_lists_every_figure_and_the_machine() -> None:
    text = page({"log": {"ratio_16": 0.7381, "appends_per_s": {"1": 2390, "16": 15885}, "peer": None}}, quick=True)
    assert "| ratio_16 | 0.7381 |" in text
    assert "| appends_per_s · 16 | 15,885 |" in text
    assert "| peer | – |" in text
    assert "Python 3." in text
    assert "small (`--quick`)" in text
    assert "in full" not in text


@pytest.mark.parametrize("name", names())
def test_a_bench_has_a_docstring_and_a_main_function(name: str) -> None:
    bench = importlib.import_module(f"bench.{name}")
    assert (bench.__doc__ or "").strip()
    assert callable(bench.main)
    assert 'if __name__ == "__main__":' in (BENCHES / f"{name}.py").read_text()


async def test_both_sides_of_the_log_bench_write_all_events(tmp_path: Path) -> None:
    assert await log.ours(tmp_path, producers=2, events=10) > 0
    assert log.bare(tmp_path, producers=2, events=10) > 0
    for name in ("ours.db", "bare.db"):
        store = Store.open(tmp_path / name)
        assert store.query("SELECT count(*) FROM event") == [(10,)]
        store.close()
