from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from coterie.app import all_projections
from coterie.base.paths import Paths
from coterie.characters.cards import export_card, import_card
from coterie.characters.identity import Identity
from coterie.eventstore import Store
from tests.cli.conftest import Call


@pytest.fixture(autouse=True)
def real_projections(home: Paths, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """These commands need the real projections, not the samples."""
    monkeypatch.setattr("coterie.app.all_projections", all_projections)
    yield


def test_s1_a_character_from_options_is_listed_and_shown_with_its_versions(call: Call, home: Paths) -> None:
    created = call("characters", "new", "Ada", "--persona", "Repairs clocks.", "--trait", "slow")
    assert created.code == 0, created.err
    assert "coterie chat Ada" in created.out
    assert "Ada" in call("characters", "list").out
    shown = call("characters", "show", "ada").out
    assert "Repairs clocks." in shown
    assert "version 1 (now)" in shown
    (folder,) = (home.root / "workspaces").iterdir()
    assert {file.name for file in folder.iterdir()} == {"SOUL.md", "IDENTITY.md", "USER.md"}


def test_s10_ready_made_characters_are_suggested_and_created(call: Call) -> None:
    assert "--ready" in call("characters", "list").out
    assert call("characters", "new", "--ready", "teodor").code == 0
    assert "Teodor Vask" in call("characters", "list").out
    assert call("characters", "new", "--ready", "nobody").code == 21


def test_s9_a_card_is_imported_and_exported(call: Call, tmp_path: Path) -> None:
    card = Identity(name="Nils", persona="A ferryman.").to_card()
    (tmp_path / "nils.png").write_bytes(export_card(card, "png").data)
    assert call("characters", "new", "--card", str(tmp_path / "nils.png")).code == 0
    assert call("characters", "export", "Nils", str(tmp_path / "out.charx")).code == 0
    assert import_card((tmp_path / "out.charx").read_bytes(), "x").card.data == card.data
    assert call("characters", "export", "Nils", str(tmp_path / "out.charx")).code == 20, "not over what is there"
    assert call("characters", "export", "Nils", str(tmp_path / "whole.json"), "--whole").code == 0
    assert json.loads((tmp_path / "whole.json").read_text())["format"] == "coterie-character"
    assert call("characters", "new", "--card", str(tmp_path / "whole.json")).code == 0
    assert call("characters", "list").out.count("Nils") == 2


def test_s9_a_sillytavern_chat_is_imported(call: Call, tmp_path: Path, home: Paths) -> None:
    call("characters", "new", "--ready", "io")
    lines = [
        {"user_name": "Ana"},
        {"is_user": True, "mes": "Hi"},
        {"is_user": False, "mes": "Hello", "swipes": ["No", "Hello"]},
    ]
    (tmp_path / "chat.jsonl").write_text("\n".join(map(json.dumps, lines)))
    answer = call("characters", "import-chat", str(tmp_path / "chat.jsonl"), "--as", "io", "--title", "Old")
    assert answer.code == 0, answer.err
    assert "Imported 2 turns into “Old”." in answer.out
    assert call("verify").code == 0


def test_invalid_arguments_are_refused(call: Call, tmp_path: Path) -> None:
    assert call("characters", "new").code == 2
    assert call("characters", "new", "A", "--ready", "io").code == 2
    assert call("characters", "new", "--card", str(tmp_path / "none.png")).code == 20
    call("characters", "new", "--ready", "io")
    assert call("characters", "show", "nobody").code == 21
    assert call("characters", "import-chat", str(tmp_path / "none"), "--as", "io").code == 20


def test_reading_works_while_another_process_owns_the_store(call: Call, home: Paths) -> None:
    call("characters", "new", "--ready", "io")
    owner = Store.open(home.database, projections=all_projections())
    try:
        assert "Io" in call("characters", "list").out
        assert call("characters", "show", "io").code == 0
        assert call("characters", "new", "--ready", "maren").code == 4
        refused = call("chat", "io")
        assert refused.code == 4
        assert "server that runs" in refused.err
    finally:
        owner.close()


def test_control_characters_in_a_name_are_escaped(call: Call) -> None:
    call("characters", "new", "Eve\x1b[2J", "--persona", "p\x07")
    assert "\x1b" not in call("characters", "list").out
    assert "\x07" not in call("characters", "show", "Eve\x1b[2J").out


def test_d11_delete_asks_for_the_name_and_lists_what_is_kept(call: Call) -> None:
    call("characters", "new", "Ada")
    assert call("characters", "delete", "Ada", "--confirm", "Eve").code == 21
    assert "Ada" in call("characters", "list").out
    deleted = call("characters", "delete", "ada", "--confirm", "Ada")
    assert deleted.code == 0, deleted.err
    assert "kept" in deleted.out
    assert "Ada" not in call("characters", "list").out
    assert call("characters", "show", "Ada").code == 21
