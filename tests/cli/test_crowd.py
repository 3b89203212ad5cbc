"""`coterie crowd`: the demo, a live room, its replay and its decisions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from coterie.app import all_projections
from coterie.base.clock import SystemClock
from coterie.base.paths import Paths
from coterie.modes.crowd import ChatIdentity, ChatTokens
from coterie.modes.crowd.settings import SHIPPED_CONFIGS
from tests.cli.conftest import Call


@pytest.fixture(autouse=True)
def real_projections(home: Paths, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("coterie.app.all_projections", all_projections)
    yield


@pytest.fixture
def fast_room(home: Paths) -> str:
    """The name of a room with short delays."""
    folder = home.root / "configs" / "rooms"
    folder.mkdir(parents=True)
    tempo = "[tempo]\ntick_s = 0.05\nlines_per_minute = 900\nrest_s = 0.5\ntyping_per_s = 5000\n"
    (folder / "dash.toml").write_text(f"name = 'dash'\ntitle = 'Dash'\n{tempo}")
    return "dash"


def test_rooms_lists_rooms_and_personas(call: Call) -> None:
    answer = call("crowd", "rooms")
    assert answer.code == 0
    assert "late-shift: The late shift" in answer.out
    assert "50 personas" in answer.out


def test_c20_the_demo_works_without_a_model_and_stores_nothing(
    call: Call, home: Paths, fast_room: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coterie.modes.crowd.session.stream_sources.can_synthesise", lambda: False)
    answer = call("crowd", "demo", "--terminal", "--no-model", "--room", fast_room, "--speed", "20", "--seconds", "4")
    assert answer.code == 0, answer.err
    assert "♪ okay, good evening everyone" in answer.out
    assert re.search(r"^\w+: .+ event \d\.\d\+\d\.\d s", answer.out, re.MULTILINE)
    assert not home.database.exists()


def test_c17_run_replay_decisions_and_a_changed_persona(
    call: Call, home: Paths, fast_room: str, tmp_path: Path
) -> None:
    file = tmp_path / "talk.srt"
    cues = [f"{n}\n00:00:00,{n}00 --> 00:00:09,000\nchat, which door should we open?\n" for n in range(1, 9)]
    file.write_text("\n".join(cues))
    answer = call("crowd", "run", str(file), "--room", fast_room, "--no-model", "--seconds", "4")
    assert answer.code == 0, answer.err
    again = call("crowd", "replay", "--room", fast_room)
    assert again.code == 0, again.err
    assert re.search(r"Identical: \d+ messages, \d+ ticks, SHA-256 [0-9a-f]{64}", again.out)
    speaker = re.findall(r"^(\w+): .+ event", answer.out, re.MULTILINE)[0]
    assert "base" in call("crowd", "decisions", speaker, "--room", fast_room).out
    changed = tmp_path / f"{speaker}.toml"
    text = (SHIPPED_CONFIGS / "personas" / f"{speaker}.toml").read_text(encoding="utf-8")
    changed.write_text(re.sub(r"talkativeness = .*", "talkativeness = 0.0", text), encoding="utf-8")
    other = call("crowd", "replay", "--room", fast_room, "--change", str(changed))
    assert other.code == 0, other.err
    assert f"- {speaker}:" in other.out


def test_missing_rooms_files_and_recordings_are_reported(call: Call, fast_room: str) -> None:
    assert "There is no room nowhere" in call("crowd", "demo", "--port", "0", "--room", "nowhere").err
    missing = call("crowd", "run", "no-such-file.srt", "--room", fast_room, "--no-model")
    assert missing.code == 2
    assert "There is no file" in missing.err
    assert "Nothing was recorded" in call("crowd", "replay", "--room", fast_room).err


def test_c5_characters_are_created_from_personas(call: Call, home: Paths) -> None:
    answer = call("crowd", "create-characters", "salt_lamp", "nonna_exe")
    assert answer.code == 0, answer.err
    assert "Created the character salt_lamp." in answer.out
    assert "nonna_exe" in call("characters", "list").out
    assert "There is no persona nobody" in call("crowd", "create-characters", "nobody").err


def test_c5_a_character_is_added_to_a_room(call: Call, fast_room: str) -> None:
    call("crowd", "create-characters", "salt_lamp")
    assert "There is no character called Orla" in call("crowd", "add-character", "Orla", "--room", fast_room).err
    assert (
        "Added salt_lamp to dash as salt_lamp" in call("crowd", "add-character", "salt_lamp", "--room", fast_room).out
    )
    call("characters", "new", "Orla Quint")
    answer = call("crowd", "add-character", "orla quint", "--room", fast_room)
    assert "Added Orla Quint to dash as orla_quint" in answer.out, answer.err
    assert "orla_quint" in call("crowd", "rooms").out
    assert "orla_quint is a character already." in call("crowd", "create-characters", "orla_quint").out


def test_c4_invite_creates_a_token_for_a_guest_and_refuses_names_of_others(call: Call, home: Paths) -> None:
    invited = call("crowd", "invite", "ana", "--room", "late-shift")
    assert invited.code == 0, invited.err
    token = invited.out.splitlines()[-1]
    assert ChatTokens.from_folder(home.root, SystemClock()).check(token, "late-shift") == ChatIdentity("ana")
    for name in ("salt_lamp", "SaIt Lamp", "streamer", "you", "", "a:b"):
        refused = call("crowd", "invite", name)
        assert refused.code != 0
        assert "Choose another name" in refused.err
    assert "There is no room nowhere" in call("crowd", "invite", "ana", "--room", "nowhere").err
    (home.root / "crowd.key").write_bytes(b"")
    assert "damaged" in call("crowd", "invite", "ana").err
