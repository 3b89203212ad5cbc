"""D22: names and descriptions in prompts, the rest when it is needed, switched from any surface."""

from __future__ import annotations

from pathlib import Path

import pytest

from coterie.modes.desk.errors import NoSuchSkill
from tests.modes.desk.conftest import Script, Stage, calls

TEXT = '---\nname: invoices\ndescription: "How invoices are written here."\n---\n# Invoices\nUse the template.\n'


def put(stage: Stage, name: str = "invoices", text: str = TEXT) -> Path:
    folder = stage.workspaces.folder(stage.character) / "skills" / name
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(text)
    return folder


async def test_d22_only_names_and_descriptions_stand_in_prompts_until_one_is_read(stage: Stage, script: Script) -> None:
    room = await stage.begin()
    folder = put(stage)
    (folder / "template.txt").write_text("Invoice no. {n}")
    config = stage.workspaces.folder(stage.character) / "config"
    config.mkdir()
    (config / "invoices.json").write_text('{"currency": "EUR"}')
    script.lines["channel"] = [
        calls(("read_skill", {"name": "invoices"})),
        calls(("read_skill", {"name": "invoices", "file": "template.txt"})),
        calls(("read_skill", {"name": "invoices", "file": "../../SOUL.md"})),
        "I know how.",
    ]
    await stage.say(room, "Write an invoice")
    first, second, third, fourth = script.prompts("channel")
    assert "invoices: How invoices are written here." in first and "Use the template." not in first
    assert "Use the template." in second and '{"currency": "EUR"}' in second and "template.txt" in second
    assert "Invoice no. {n}" in third
    assert "has no file" in fourth


async def test_d22_workers_see_them_and_take_them_along(stage: Stage, script: Script) -> None:
    room = await stage.begin()
    folder = put(stage)
    (folder / "make.sh").write_text("echo made")
    script.lines["channel"] = [calls(("spawn_worker", {"task": "invoice"}), ("reply", {"text": "Yes."}))]
    script.lines["worker"] = [calls(("take_skill", {"name": "invoices"})), "Done."]
    await stage.say(room, "Go")
    assert "How invoices are written here." in script.prompts("worker")[0]
    assert (stage.desk.workspace_folder(stage.character) / "skills/invoices/make.sh").read_text() == "echo made"


async def test_d22_an_edit_counts_from_the_next_context_and_a_switch_at_once(stage: Stage, script: Script) -> None:
    room = await stage.begin()
    folder = put(stage)
    await stage.say(room, "Hello")
    (folder / "SKILL.md").write_text(TEXT.replace("How invoices are", "Where invoices get"))
    await stage.say(room, "Hello again")
    assert "Where invoices get written here." in script.prompts("channel")[-1]
    await stage.desk.skills.switch(stage.character, "invoices", on=False)
    stage.restart()
    await stage.say(room, "And again")
    assert "invoices" not in script.prompts("channel")[-1]
    with pytest.raises(NoSuchSkill):
        stage.desk.skills.read(stage.character, "invoices")
    await stage.desk.skills.switch(stage.character, "invoices", on=True)
    assert stage.desk.skills.read(stage.character, "invoices").startswith("# Invoices")
    with pytest.raises(NoSuchSkill):
        await stage.desk.skills.switch(stage.character, "cooking", on=True)


async def test_d22_links_lead_nowhere(stage: Stage, script: Script, tmp_path: Path) -> None:
    await stage.begin()
    secret = tmp_path / "secret.txt"
    secret.write_text("the secret")
    folder = put(stage)
    (folder / "more.txt").symlink_to(secret)
    linked = put(stage, "linked").parent / "whole"
    linked.symlink_to(tmp_path)
    assert [skill.name for skill in stage.desk.skills.all(stage.character)] == ["invoices", "linked"]
    with pytest.raises(NoSuchSkill):
        stage.desk.skills.read(stage.character, "invoices", "more.txt")
