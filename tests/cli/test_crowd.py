"""`coterie crowd`: a demo that keeps nothing, a room that is kept, replayed, asked why and asked what if."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from coterie.app import all_projections
from coterie.base.paths import Paths
from coterie.modes.crowd.settings import SHIPPED_CONFIGS
from tests.cli.conftest import Call


@pytest.fixture(autouse=True)
def views(home: Paths, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("coterie.app.all_projections", all_projections)
    yield


@pytest.fixture
def hurried(home: Paths) -> str:
    """A room of our own that goes quickly."""
    folder = home.root / "configs" / "rooms"
    folder.mkdir(parents=True)
    tempo = "[tempo]\ntick_s = 0.05\nlines_per_minute = 900\nrest_s = 0.5\ntyping_per_s = 5000\n"
    (folder / "dash.toml").write_text(f"name = 'dash'\ntitle = 'Dash'\n{tempo}")
    return "dash"


def test_rooms_tells_who_is_where(call: Call) -> None:
    told = call("crowd", "rooms")
    assert told.code == 0
    assert "late-shift: The late shift" in told.out
    assert "50 personas" in told.out


def test_c20_the_demo_talks_without_a_model_and_keeps_nothing(
    call: Call, home: Paths, hurried: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coterie.modes.crowd.session.stream_sources.can_synthesise", lambda: False)
    told = call("crowd", "demo", "--terminal", "--no-model", "--room", hurried, "--speed", "20", "--seconds", "4")
    assert told.code == 0, told.err
    assert "♪ okay, good evening everyone" in told.out
    assert re.search(r"^\w+: .+ event \d\.\d\+\d\.\d s", told.out, re.MULTILINE)
    assert not home.database.exists()


def test_c17_run_replay_why_and_what_if(call: Call, home: Paths, hurried: str, tmp_path: Path) -> None:
    file = tmp_path / "talk.srt"
    cues = [f"{n}\n00:00:00,{n}00 --> 00:00:09,000\nchat, which door should we open?\n" for n in range(1, 9)]
    file.write_text("\n".join(cues))
    told = call("crowd", "run", str(file), "--room", hurried, "--no-model", "--seconds", "4")
    assert told.code == 0, told.err
    again = call("crowd", "replay", "--room", hurried)
    assert again.code == 0, again.err
    assert re.search(r"Identical: \d+ messages, \d+ ticks, SHA-256 [0-9a-f]{64}", again.out)
    speaker = re.findall(r"^(\w+): .+ event", told.out, re.MULTILINE)[0]
    assert "base" in call("crowd", "decisions", speaker, "--room", hurried).out
    changed = tmp_path / f"{speaker}.toml"
    text = (SHIPPED_CONFIGS / "personas" / f"{speaker}.toml").read_text(encoding="utf-8")
    changed.write_text(re.sub(r"talkativeness = .*", "talkativeness = 0.0", text), encoding="utf-8")
    other = call("crowd", "replay", "--room", hurried, "--change", str(changed))
    assert other.code == 0, other.err
    assert f"- {speaker}:" in other.out


def test_what_is_not_there_is_said(call: Call, hurried: str) -> None:
    assert "There is no room nowhere" in call("crowd", "demo", "--room", "nowhere").err
    missing = call("crowd", "run", "no-such-file.srt", "--room", hurried, "--no-model")
    assert missing.code == 2
    assert "There is no file" in missing.err
    assert "Nothing was recorded" in call("crowd", "replay", "--room", hurried).err


def test_c5_personas_join_the_cast(call: Call, home: Paths) -> None:
    told = call("crowd", "create-characters", "salt_lamp", "nonna_exe")
    assert told.code == 0, told.err
    assert "Created the character salt_lamp." in told.out
    assert "nonna_exe" in call("characters", "list").out
    assert "There is no persona nobody" in call("crowd", "create-characters", "nobody").err


def test_c5_somebody_of_the_cast_sits_in_a_room(call: Call, hurried: str) -> None:
    call("crowd", "create-characters", "salt_lamp")
    assert "There is no character called Orla" in call("crowd", "add-character", "Orla", "--room", hurried).err
    assert "Added salt_lamp to dash as salt_lamp" in call("crowd", "add-character", "salt_lamp", "--room", hurried).out
    call("characters", "new", "Orla Quint")
    told = call("crowd", "add-character", "orla quint", "--room", hurried)
    assert "Added Orla Quint to dash as orla_quint" in told.out, told.err
    assert "orla_quint" in call("crowd", "rooms").out
    assert "orla_quint is a character already." in call("crowd", "create-characters", "orla_quint").out
