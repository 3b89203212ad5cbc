"""One or two failures are looked at again; what fails again, or more than that, stays a failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.again import MOST, again

FAILS_ONCE = """
from pathlib import Path

def test_it():
    seen = Path("seen")
    before = seen.exists()
    seen.touch()
    assert before
"""


@pytest.fixture(autouse=True)
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "test_here.py").write_text(FAILS_ONCE)
    return tmp_path


def test_what_passes_alone_is_named_as_a_race(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (there / "seen").touch()
    assert again(["test_here.py::test_it"]) == 0
    assert "Mend it: test_here.py::test_it" in capsys.readouterr().out


def test_what_fails_again_is_a_failure() -> None:
    assert again(["test_here.py::test_it"]) == 1


@pytest.mark.parametrize("count", [0, MOST + 1])
def test_nothing_and_many_are_not_run_again(there: Path, count: int) -> None:
    assert again(["test_here.py::test_it"] * count) == 1
    assert not (there / "seen").exists()
