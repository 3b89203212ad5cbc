"""`coterie models` and `coterie secrets`."""

from __future__ import annotations

import asyncio
import io
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from coterie.base.errors import ConfigError
from coterie.base.paths import Paths
from coterie.base.supervisor import Supervisor
from coterie.cli import main
from coterie.llm.discovery import LocalServer
from coterie.modes.desk.agents.tools import McpServers
from coterie.settings import load_settings
from tests.llm.test_downloads import tiny_gguf
from tests.model_server import FileServer, serving_file

KEY = "sesame-street-key-000111222"
Run = Callable[..., tuple[int, str]]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COTERIE_HOME", str(tmp_path))
    monkeypatch.setenv("COTERIE_PASSPHRASE", "open sesame")
    return tmp_path


@pytest.fixture
def run(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def command(*arguments: str, given: str = "") -> tuple[int, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO(given))
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out + captured.err

    return command


def test_a_secret_is_set_listed_used_and_removed(run: Run, home: Path) -> None:
    assert run("secrets", "list") == (0, "No secrets are stored. Store one: coterie secrets set NAME\n")
    code, output = run("secrets", "set", "featherless", given=f"{KEY}\n")
    assert code == 0
    assert output == 'Stored. Refer to it in the settings as "secret:featherless".\n'
    assert run("secrets", "set", "mail", "--tool", "send_mail", given=f"{KEY}2\n")[0] == 0
    assert run("secrets", "list")[1] == "featherless  (for the settings)\nmail  (for send_mail)\n"
    (home / "config.toml").write_text('[models]\napi_key = "secret:featherless"\n')
    code, output = run("models", "list")
    assert code == 0
    assert "featherless/dphn/Dolphin-Mistral-24B-Venice-Edition" in output
    assert "key is set" in output
    assert KEY not in output
    assert run("secrets", "rm", "mail") == (0, "mail was removed.\n")
    assert run("secrets", "rm", "mail")[0] == 12


TINY = f'command = ["{sys.executable}", "-m", "tests.modes.desk.mcp_server"]'


def test_a_tool_secret_reaches_the_tool_server_it_was_stored_for_as_the_output_says(run: Run, home: Path) -> None:
    config = home / "config.toml"
    config.write_text(f"[desk.tool_servers.other]\n{TINY}\n\n[desk.tool_servers.tiny]\n{TINY}\n")
    code, output = run("secrets", "set", "granted", "--tool", "tiny", given=f"{KEY}\n")
    assert code == 0
    table, program, address = output.splitlines()
    assert table == "Stored for tiny. Refer to it in config.toml, below [desk.tool_servers.tiny]."
    line, header = program.removeprefix("For a program:  "), address.removeprefix("For an address: ")
    config.write_text(f"{config.read_text()}{line}\n")  # the last table is the one it names
    servers = load_settings(Paths.locate()).settings.desk.tool_servers

    async def environments() -> dict[str, str]:
        stop, supervisor = asyncio.Event(), Supervisor()
        connected = McpServers(servers)
        tasks = connected.start(supervisor, stop)
        async with asyncio.timeout(60):
            while not all(state.connected for state in connected.states.values()):
                await asyncio.sleep(0.02)
        seen = {tool.name: await tool.use() for tool in connected.tools if tool.name.endswith("_environment")}
        stop.set()
        await asyncio.gather(*(task.finish() for task in tasks))
        return seen

    pytest.importorskip("mcp", reason="needs coterie[mcp]")
    seen = asyncio.run(environments())
    assert seen["tiny_environment"].startswith(f"granted={KEY} ")
    assert seen["other_environment"].startswith("granted= ")

    config.write_text(f'[desk.tool_servers.tiny]\nurl = "http://127.0.0.1:9/mcp"\n{header}\n')
    headers = load_settings(Paths.locate()).settings.desk.tool_servers["tiny"].headers
    assert headers["Authorization"].get_secret_value() == KEY


def test_a_tool_secret_is_refused_to_other_settings_and_a_system_secret_to_tools(run: Run, home: Path) -> None:
    run("secrets", "set", "mine", "--tool", "tiny", given=f"{KEY}\n")
    run("secrets", "set", "ours", given=f"{KEY}2\n")
    config = home / "config.toml"
    for text, fix in (
        (f'[desk.tool_servers.other]\n{TINY}\nenv.X = "secret:mine"\n', "coterie secrets set mine --tool other"),
        (f'[desk.tool_servers.tiny]\n{TINY}\nenv.X = "secret:ours"\n', "coterie secrets set ours --tool tiny"),
        ('[models]\napi_key = "secret:mine"\n', "coterie secrets set mine"),
    ):
        config.write_text(text)
        with pytest.raises(ConfigError) as refused:
            load_settings(Paths.locate())
        assert refused.value.fix.endswith(fix)
        name, *tool = fix.removeprefix("coterie secrets set ").split()
        assert run("secrets", "set", name, *tool, given=f"{KEY}3\n")[0] == 0
        load_settings(Paths.locate())  # the advice worked


def test_a_wrong_passphrase_is_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("secrets", "set", "a", given=f"{KEY}\n")
    monkeypatch.setenv("COTERIE_PASSPHRASE", "close sesame")
    code, output = run("secrets", "set", "b", given=f"{KEY}\n")
    assert code == 12
    assert "does not open the secrets store" in output


def test_a_new_installation_lists_the_embedded_model(run: Run) -> None:
    code, output = run("models", "list")
    assert code == 0
    assert "narrative   embedded/smollm2" in output
    assert "draft       embedded/smollm2" in output


def test_local_model_servers_are_listed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def found() -> list[LocalServer]:
        return [LocalServer("ollama", "http://127.0.0.1:11434/v1", ("llama3:8b",))]

    monkeypatch.setattr("coterie.llm.find_local_servers", found)
    assert "→ coterie models add ollama --use narrative=llama3:8b" in run("models", "list")[1]


def test_a_provider_is_added_and_comments_stay(run: Run, home: Path) -> None:
    config = home / "config.toml"
    config.write_text("# mine\n[server]\nport = 8001  # because\n")
    code, _ = run("models", "add", "ollama", "--use", "narrative=llama3:8b", "--use", "classifier=qwen")
    assert code == 0
    url = "https://models.example/v1"
    assert run("models", "add", "work", "--base-url", url, "--key", "env:HOME", "--use", "worker=coder")[0] == 0
    text = config.read_text()
    assert text.startswith("# mine\n[server]\nport = 8001  # because\n")
    models = tomllib.loads(text)["models"]
    assert models["roles"] == {"narrative": "ollama/llama3:8b", "classifier": "ollama/qwen", "worker": "work/coder"}
    assert models["providers"]["work"] == {"preset": "openai-compatible", "base_url": url, "api_key": "env:HOME"}
    output = run("models", "list")[1]
    assert "narrative   ollama/llama3:8b" in output
    assert "worker      work/coder" in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("work",), "base_url"),
        (("work", "--preset", "opnai"), "known preset"),
        (("ollama", "--use", "narator=x"), "narator"),
        (("ollama", "--use", "narrative"), "names no model"),
        (("openai", "--key", KEY), "does not belong in the configuration file"),
        (("openai", "--key", "secret:nothing"), "coterie secrets set nothing"),
    ],
)
def test_an_invalid_provider_leaves_the_file_unchanged(
    run: Run, home: Path, arguments: tuple[str, ...], message: str
) -> None:
    config = home / "config.toml"
    config.write_text("[server]\nport = 8001\n")
    code, output = run("models", "add", *arguments)
    assert code == 2
    assert message in output
    assert KEY not in output
    assert config.read_text() == "[server]\nport = 8001\n"


def test_l1_a_model_is_pulled_by_name_from_a_mirror_and_used(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, output = run("models", "pull")
    assert code == 0
    assert "Licence: Apache-2.0." in output
    server = FileServer(tiny_gguf())
    server.cut_after = [500_000]
    with serving_file(server):
        monkeypatch.setenv("HF_ENDPOINT", server.address)
        code, output = run("models", "pull", "qwen2.5-0.5b-instruct-q4_k_m")
        assert code == 0, output
        assert server.ranges == ["", "bytes=500000-"]
    settings = load_settings(Paths.locate()).settings.models
    assert settings.default == ("embedded/qwen2.5-0.5b-instruct-q4_k_m",)
    assert "embedded/qwen2.5-0.5b-instruct-q4_k_m" in run("models", "list")[1]
    file = home / "mine.gguf"
    file.write_bytes(tiny_gguf())
    assert run("models", "pull", str(file), "--no-use")[0] == 0
    assert (home / "models" / "mine.gguf").read_bytes() == file.read_bytes()
    code, output = run("models", "pull", "no-such-model")
    assert code == 2
    assert "There is no model called no-such-model in the list." in output


def test_d19_the_store_is_protected_in_another_way(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COTERIE_PASSPHRASE")
    monkeypatch.setitem(sys.modules, "keyring", None)
    assert run("secrets", "protect", "passphrase", given="words\n")[0] == 2  # there is nothing to protect
    assert run("secrets", "set", "a", given=f"{KEY}\n")[0] == 0
    assert (home / "secrets.key").stat().st_mode & 0o777 == 0o600
    assert run("secrets", "protect", "passphrase", given="new words\n")[0] == 0
    assert not (home / "secrets.key").exists()
    monkeypatch.setenv("COTERIE_PASSPHRASE", "new words")
    (home / "config.toml").write_text('[models]\napi_key = "secret:a"\n')
    assert load_settings(Paths.locate()).settings.models.api_key is not None
