"""Texts of a character's workspace in the prompt."""

from __future__ import annotations

from pathlib import Path

from coterie.characters.service import OwnerProfile
from coterie.characters.workspace import Workspaces
from tests.modes.story.conftest import ScriptedModel, StoryHarness


async def test_d11_texts_come_from_the_workspace_then_the_shared_folder_then_the_form(
    harness: StoryHarness, script: ScriptedModel, tmp_path: Path
) -> None:
    workspaces = Workspaces(tmp_path / "workspaces", tmp_path / "shared")
    harness.story.prompts.workspaces = workspaces
    character = await harness.create_character(persona="Keeps a lighthouse.")
    folder = workspaces.prepare(character, OwnerProfile("Ana", "she/her", "A cartographer."))
    room = await harness.start_chat(character)

    await harness.say(room, "One.")
    assert "Delete this line" not in script.prompt()
    assert script.prompt().count("Keeps a lighthouse.") == 1  # an unchanged template is not used
    assert script.prompt().count("A cartographer.") == 1

    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "SOUL.md").write_text("Speaks in short sentences.")
    await harness.say(room, "Two.")
    assert "Speaks in short sentences." in script.prompt()

    (folder / "SOUL.md").write_text("Never hurries. {{char}} hums.")
    (folder / "IDENTITY.md").write_text("Guards the old mill.")
    (folder / "USER.md").write_text("A tax inspector.")
    await harness.say(room, "Three.")
    prompt = script.prompt()
    assert "Never hurries. Mara hums." in prompt
    assert "Guards the old mill." in prompt
    assert "A tax inspector." in prompt
    for gone in ("short sentences", "Keeps a lighthouse", "cartographer"):
        assert gone not in prompt

    (folder / "SOUL.md").write_bytes(b"\xff\xfe broken but readable")
    (folder / "USER.md").unlink()
    await harness.say(room, "Four.")
    assert "broken but readable" in script.prompt()
    assert "A cartographer." in script.prompt()
