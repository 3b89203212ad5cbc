from __future__ import annotations

import json
import os

from coterie.base.paths import Paths
from tests.cli.conftest import Call


def test_a_healthy_installation_exits_with_0(sample_home: Paths, process: Call) -> None:
    answer = process("doctor")
    assert answer.code == 0
    assert "✓ Database: 62 events" in answer.out
    assert "✓ Settings:" in answer.out
    assert "· Backups: there are none yet\n  → Take one with `coterie backup`." in answer.out


def test_before_the_first_start(home: Paths, call: Call) -> None:
    answer = call("doctor", "--json")
    assert answer.code == 0
    results = {result["about"]: result for result in map(json.loads, answer.out.splitlines())}
    assert results["Database"]["state"] == "note"
    assert set(results["Database"]) == {"about", "state", "what", "fix"}


def test_a_damaged_database_exits_with_1_and_a_fix(sample_home: Paths, process: Call) -> None:
    os.truncate(sample_home.database, 8192)
    answer = process("doctor")
    assert answer.code == 1
    assert "✗ Database:" in answer.out
    assert "coterie restore" in answer.out


def test_a_typo_in_the_settings_is_found_and_the_other_checks_run(sample_home: Paths, call: Call) -> None:
    sample_home.config.write_text("[server]\nprot = 8000\n")
    answer = call("doctor")
    assert answer.code == 1
    assert "✗ Settings: server.prot (config.toml line 2)" in answer.out
    assert "✓ Database: 62 events" in answer.out
