"""The desk's pages without a browser; without a working sandbox they show the reason. D16"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from coterie.cli import main
from coterie.llm.messages import CompletionRequest
from tests.modes.desk.conftest import Line, Script, calls
from tests.real.desk_server import open_desk

PAGE = {"Accept": "text/html"}


def respond(kind: str, request: CompletionRequest) -> Line:
    prompt = "\n".join(message.text for message in request.prompt.messages)
    if kind == "worker":
        return calls(("shell", {"command": "id"}), ("exec", {"argv": ["id"]})) if "Error:" not in prompt else "Refused."
    if request.prompt.messages[-1].text == "go":
        return calls(("spawn_worker", {"task": "run"}), ("reply", {"text": "Yes."}))
    return calls(("skip", {}))


def _doctor() -> None:
    with suppress(SystemExit):
        main(["doctor", "--json"])


def broken(folder: Path) -> None:
    """A sandbox that is installed but does not work, as in many containers."""
    folder.mkdir()
    (folder / "bwrap").write_text("#!/bin/sh\necho 'setting up uid map: Permission denied' >&2\nexit 1\n")
    (folder / "bwrap").chmod(0o755)


def hidden(folder: Path) -> None:
    folder.mkdir()


@pytest.mark.parametrize(("made", "reason"), [(hidden, "not installed"), (broken, "does not work")])
async def test_d16_without_a_sandbox_commands_are_refused_everywhere_with_the_reason(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    made: Callable[[Path], None],
    reason: str,
) -> None:
    made(tmp_path / "bin")
    for program in ("prlimit", "setpriv", "sh"):
        (tmp_path / "bin" / program).symlink_to(f"/usr/bin/{program}")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    async with open_desk(tmp_path / "home", Script(respond=respond)) as open_:
        assert reason in (await open_.ask("GET", "/desk/sandbox"))["reason"]
        desk = f"/desk/{(await open_.ask('POST', '/desk', {'character': 'Mara'}, 201))['id']}"
        assert (await open_.ask("GET", desk))["sandbox"]["state"] == "refused"
        await open_.ask("POST", f"{desk}/messages?wait=true", {"text": "go"})
        (worker,) = await open_.until(f"{desk}/processes", lambda found: found and found[0]["state"] == "done")
        done = (await open_.ask("GET", f"{desk}/processes/{worker['id']}"))["done"]
        assert [step["tool"] for step in done[:2]] == ["shell", "exec"]
        assert all("Commands are not run here" in step["text"] and reason in step["text"] for step in done[:2])
        for page in ("/desk", desk, f"{desk}/activity", "/ops"):
            shown = (await open_.client.get(page, headers=PAGE)).text
            assert "Commands are refused" in shown and reason in shown, page
    monkeypatch.setenv("COTERIE_HOME", str(tmp_path / "home"))
    await asyncio.to_thread(_doctor)  # it has an event loop of its own
    findings = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert any(one["about"] == "Sandbox" and reason in one["what"] and one["fix"] for one in findings)


async def test_the_files_that_workers_made_are_listed_and_downloaded(tmp_path: Path) -> None:
    def write(kind: str, request: CompletionRequest) -> Line:
        prompt = "\n".join(message.text for message in request.prompt.messages)
        if kind == "worker":
            made = [
                {"action": "write", "path": path, "text": "<script>1</script>"} for path in ("notes/plan.html", ".x")
            ]
            return "Written." if "plan.html" in prompt else calls(*(("file", one) for one in made))
        if request.prompt.messages[-1].text == "go":
            return calls(("spawn_worker", {"task": "write"}), ("reply", {"text": "Yes."}))
        return calls(("skip", {}))

    async with open_desk(tmp_path / "home", Script(respond=write)) as open_:
        desk = f"/desk/{(await open_.ask('POST', '/desk', {'character': 'Mara'}, 201))['id']}"
        assert await open_.ask("GET", f"{desk}/files") == []
        await open_.ask("POST", f"{desk}/messages?wait=true", {"text": "go"})
        await open_.until(f"{desk}/processes", lambda found: found and found[0]["state"] == "done")
        (file,) = await open_.ask("GET", f"{desk}/files")  # without the hidden one
        assert (file["name"], file["size"]) == ("notes/plan.html", 18)
        shown = (await open_.client.get(f"{desk}/activity", headers=PAGE)).text
        assert f'href="{desk}/files/notes/plan.html"' in shown
        answer = await open_.client.get(f"{desk}/files/notes/plan.html")
        assert answer.text == "<script>1</script>"
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["content-disposition"].startswith("attachment")
        (tmp_path / "secret.txt").write_text("secret")
        (next(tmp_path.rglob("plan.html")).parent / "link.txt").symlink_to(tmp_path / "secret.txt")
        for path in ("notes/link.txt", "..%2f..%2fcoterie.db", "%2fetc%2fpasswd", "none.txt", "notes"):
            refused = await open_.client.get(f"{desk}/files/{path}")
            assert refused.status_code in (400, 403, 404, 409, 422), path
            assert "secret" not in refused.text and "root:" not in refused.text
        assert [one["name"] for one in await open_.ask("GET", f"{desk}/files")] == ["notes/plan.html"]
