"""A character's folder: words of a person's own in the prompt. D11"""

from __future__ import annotations

from pathlib import Path

from coterie.characters.service import OwnerProfile
from coterie.characters.workspace import Workspaces
from tests.modes.story.conftest import ScriptedModel, StoryHarness


async def test_d11_words_come_from_the_folder_then_the_shared_one_then_the_form(
    stage: StoryHarness, script: ScriptedModel, tmp_path: Path
) -> None:
    workspaces = Workspaces(tmp_path / "workspaces", tmp_path / "shared")
    stage.story.prompts.workspaces = workspaces
    bot = await stage.create_character(persona="Keeps a lighthouse.")
    folder = workspaces.prepare(bot, OwnerProfile("Ana", "she/her", "A cartographer."))
    room = await stage.start_chat(bot)

    await stage.say(room, "One.")
    assert "Delete this line" not in script.prompt()
    assert script.prompt().count("Keeps a lighthouse.") == 1  # a template that nobody touched says nothing
    assert script.prompt().count("A cartographer.") == 1

    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "SOUL.md").write_text("Speaks in short sentences.")
    await stage.say(room, "Two.")
    assert "Speaks in short sentences." in script.prompt()

    (folder / "SOUL.md").write_text("Never hurries. {{char}} hums.")
    (folder / "IDENTITY.md").write_text("Guards the old mill.")
    (folder / "USER.md").write_text("A tax inspector.")
    await stage.say(room, "Three.")
    told = script.prompt()
    assert "Never hurries. Mara hums." in told
    assert "Guards the old mill." in told
    assert "A tax inspector." in told
    for gone in ("short sentences", "Keeps a lighthouse", "cartographer"):
        assert gone not in told

    (folder / "SOUL.md").write_bytes(b"\xff\xfe broken but readable")
    (folder / "USER.md").unlink()
    await stage.say(room, "Four.")
    assert "broken but readable" in script.prompt()
    assert "A cartographer." in script.prompt()
