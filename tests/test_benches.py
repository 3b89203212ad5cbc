"""The page that `make bench` writes, and that every bench can be asked for help."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from bench.__main__ import names
from bench.lib.figures_page import page

BENCHES = Path(__file__).resolve().parent.parent / "bench"


def test_the_page_shows_every_figure_with_its_bench_and_machine() -> None:
    told = page({"log": {"ratio_16": 0.7381, "appends_per_s": {"1": 2390, "16": 15885}, "peer": None}}, quick=True)
    assert "| ratio_16 | 0.7381 |" in told
    assert "| appends_per_s · 16 | 15,885 |" in told
    assert "| peer | – |" in told
    assert "Python 3." in told
    assert "small (`--quick`)" in told
    assert "ran whole" not in told


@pytest.mark.parametrize("name", names())
def test_a_bench_says_what_it_measures_and_can_be_started(name: str) -> None:
    bench = importlib.import_module(f"bench.{name}")
    assert (bench.__doc__ or "").strip()
    assert callable(bench.main)
    assert 'if __name__ == "__main__":' in (BENCHES / f"{name}.py").read_text()
