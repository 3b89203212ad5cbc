"""Settings from a file, the database and the environment, and the errors of invalid ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import pytest
from pydantic import Field, SecretStr, model_validator

from coterie.base.config import LoadedSettings, Section, load_config
from coterie.base.errors import ConfigError
from coterie.base.ids import new_id
from coterie.base.redaction import REDACTED, redact


class Server(Section):
    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)
    names: list[str] = Field(default_factory=list)


class Provider(Section):
    url: str = ""
    key: SecretStr | None = None
    weight: float = 1.0


class Llm(Section):
    provider: dict[str, Provider] = Field(default_factory=dict)
    token: SecretStr = SecretStr("")
    order: list[Provider] = Field(default_factory=list)
    spare: Provider | None = None

    @model_validator(mode="after")
    def _spare_needs_providers(self) -> Self:
        if self.spare is not None and not self.provider:
            raise ValueError("a spare without providers")
        return self


class Model(Section):
    server: Server = Server()
    llm: Llm = Llm()


def write(folder: Path, text: str) -> Path:
    path = folder / "config.toml"
    path.write_text(text, encoding="utf-8")
    return path


def load(folder: Path, text: str, **layers: Any) -> LoadedSettings[Model]:
    return load_config(Model, file=write(folder, text), **layers)


def load_error(folder: Path, text: str, **layers: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        load(folder, text, **layers)
    assert caught.value.fix
    return caught.value.what


def test_defaults_apply_without_any_source(tmp_path: Path) -> None:
    result = load_config(Model, file=tmp_path / "none.toml")
    assert result.settings == Model()
    assert result.origin("server.port") == "default"


def test_later_layers_override_and_origins_are_recorded(tmp_path: Path) -> None:
    result = load(
        tmp_path,
        '[server]\nhost = "::1"\nport = 1\nnames = ["file"]\n',
        database={"server.port": 2, "server.names": ["page"]},
        environ={"COTERIE_SERVER__NAMES": '["a", "b"]', "COTERIE_HOME": "/x", "UNRELATED__THING": "y"},
    )
    assert result.settings.server == Server(host="::1", port=2, names=["a", "b"])
    assert result.origin("server.host") == "config.toml line 2"
    assert result.origin("server.port") == "set on the settings page"
    assert result.origin("server.names") == "environment variable COTERIE_SERVER__NAMES"


def test_a_number_from_the_environment_is_a_number(tmp_path: Path) -> None:
    assert load_config(Model, environ={"COTERIE_SERVER__PORT": "9000"}).settings.server.port == 9000


def test_nested_tables_quoted_keys_lists_and_tables_of_sections(tmp_path: Path) -> None:
    text = """
llm.token = "t"
[llm.provider."my own"]
url = 'http://127.0.0.1'
[llm.provider.other]
weight = 0.5
[[llm.order]]
url = "first"
[[llm.order]]
url = "second"
"""
    result = load(tmp_path, text)
    assert set(result.settings.llm.provider) == {"my own", "other"}
    assert [provider.url for provider in result.settings.llm.order] == ["first", "second"]
    assert result.origin("llm.token") == "config.toml line 2"
    assert result.origin("llm.provider.my own.url") == "config.toml line 4"
    assert result.origin("llm.provider.other.weight") == "config.toml line 6"
    assert result.origin("llm.order") == "config.toml line 7"


def test_a_reference_to_the_environment_is_resolved(tmp_path: Path) -> None:
    text = '[server]\nport = "env:MY_PORT"\nnames = ["env:MY_NAME", "plain", "env:not a name"]\n'
    result = load(tmp_path, text, environ={"MY_PORT": "81", "MY_NAME": "mara"})
    assert result.settings.server.port == 81
    assert result.settings.server.names == ["mara", "plain", "env:not a name"]
    assert result.origin("server.port") == "config.toml line 2"


def test_a_missing_variable_is_named_with_its_origin(tmp_path: Path) -> None:
    what = load_error(tmp_path, '[server]\n\nhost = "env:NOT_THERE"\n')
    assert what == ("server.host (config.toml line 3) refers to the environment variable NOT_THERE, which is not set.")


def test_a_secret_is_resolved_and_then_redacted(tmp_path: Path) -> None:
    result = load(
        tmp_path, '[llm]\ntoken = "secret:openai"\n', secret=lambda name, _: {"openai": "very-hidden-1"}[name]
    )
    assert result.settings.llm.token.get_secret_value() == "very-hidden-1"
    assert redact("it is very-hidden-1") == f"it is {REDACTED}"


@pytest.mark.parametrize("store", [None, lambda *_: None])
def test_a_missing_secret_names_the_command_to_store_it(tmp_path: Path, store: Any) -> None:
    with pytest.raises(ConfigError, match="refers to the secret openai") as caught:
        load(tmp_path, '[llm]\ntoken = "secret:openai"\n', secret=store)
    assert caught.value.fix == "Store it with: coterie secrets set openai"


def test_secret_fields_are_redacted_at_every_depth(tmp_path: Path) -> None:
    load(
        tmp_path,
        '[llm]\ntoken = "plain-secret-1"\n[llm.provider.a]\nkey = "plain-secret-2"\n'
        '[[llm.order]]\nkey = "plain-secret-3"\n',
        environ={"COTERIE_LLM__PROVIDER__B__KEY": "plain-secret-4"},
    )
    for number in "1234":
        assert redact(f"plain-secret-{number}") == REDACTED


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (
            "[server]\n# a comment\nprot = 1\n",
            'server.prot (config.toml line 3) is not a setting; did you mean "port"?',
        ),
        ("\n[sevrer]\nport = 1\n", 'sevrer (config.toml line 3) is not a setting; did you mean "server"?'),
        ("[sevrer]\n", 'sevrer (config.toml line 1) is not a setting; did you mean "server"?'),
        ("[server]\nqqq = 1\n", "server.qqq (config.toml line 2) is not a setting; known here: host, names, port."),
        (
            "[llm.provider.a]\nurk = ''\n",
            'llm.provider.a.urk (config.toml line 2) is not a setting; did you mean "url"?',
        ),
        ("[llm.spare]\nurk = ''\n", 'llm.spare.urk (config.toml line 2) is not a setting; did you mean "url"?'),
        ("[[llm.order]]\nurk = ''\n", 'llm.order.0.urk (config.toml line 2) is not a setting; did you mean "url"?'),
    ],
)
def test_a_typo_names_the_key_the_line_and_what_was_meant(tmp_path: Path, text: str, what: str) -> None:
    assert load_error(tmp_path, text) == what


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("[server]\nport = 'many'\n", ["server.port (config.toml line 2) should be a valid integer", "not 'many'"]),
        (
            "[server]\nport = 70000\n",
            ["server.port (config.toml line 2) should be less than or equal to 65535", "70000"],
        ),
        ("[server]\n\nhost = 3\n", ["server.host (config.toml line 3) should be a valid string, not 3."]),
        ("server = 3\n", ["server (config.toml line 1) should be a valid dictionary", "not 3"]),
        ("[server]\nnames = 'one'\n", ["server.names (config.toml line 2) should be a valid list, not 'one'."]),
        ("[server]\nnames = ['a', 1]\n", ["server.names.1 (config.toml line 2) should be a valid string, not 1."]),
        (
            "[llm.provider.'a b']\nweight = 'x'\n",
            ["llm.provider.a b.weight (config.toml line 2) should be a valid number"],
        ),
        ("[llm.spare]\nurl = 'x'\n", ["llm (config.toml line 2) is not valid: a spare without providers."]),
    ],
)
def test_a_wrong_value_names_the_key_the_line_and_what_was_expected(
    tmp_path: Path, text: str, parts: list[str]
) -> None:
    what = load_error(tmp_path, text)
    for part in parts:
        assert part in what


def test_a_wrong_value_in_the_environment_names_the_variable() -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(Model, environ={"COTERIE_SERVER__PORT": "many"})
    assert "server.port (environment variable COTERIE_SERVER__PORT) should be a valid integer" in caught.value.what


def test_all_errors_are_reported_together(tmp_path: Path) -> None:
    what = load_error(tmp_path, "[server]\nprot = 1\nport = 'x'\n")
    assert "server.prot" in what
    assert "server.port" in what


def test_line_numbers_are_right_after_a_multi_line_string(tmp_path: Path) -> None:
    text = '[server]\nhost = """\nport = 1\n[llm]\n"""\nport = "x"\n'
    assert "server.port (config.toml line 6)" in load_error(tmp_path, text)


@pytest.mark.parametrize("text", ["[server\nport = 1", "port 1", 'host = "open', "port = 1\nport = 2"])
def test_invalid_toml_is_reported_with_its_line(tmp_path: Path, text: str) -> None:
    what = load_error(tmp_path, text)
    assert "config.toml is not valid TOML" in what
    assert "line" in what or "end of document" in what


def test_a_binary_file_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(Model, file=path)


def test_a_folder_instead_of_the_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(Model, file=tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "[llm]\ntoken = ['never-shown-9']\n",
        "[llm]\ntokn = 'never-shown-9'\n",
        "[llm.provider.a]\nkey = ['never-shown-9']\n",
        "[llm.provider]\na = {key = 'never-shown-9', weight = 'heavy'}\n",
        "[llm.provider]\na = {key = 'never-shown-9', weigth = 1}\n",
        "[server]\nport = 'env:HIDDEN'\n",
        "[server]\nport = 'secret:x'\n",
        "[llm]\ntoken = 'never-shown-9'\n[llm.spare]\nkey = 'never-shown-9'\n",
    ],
)
def test_a_secret_never_appears_in_an_error(tmp_path: Path, text: str) -> None:
    hidden = f"never-{new_id()}"  # not registered by any other test
    what = load_error(
        tmp_path, text.replace("never-shown-9", hidden), environ={"HIDDEN": hidden}, secret=lambda *_: hidden
    )
    assert hidden not in what


def test_settings_are_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        load_config(Model).settings.server.port = 1  # type: ignore[misc]


@pytest.mark.parametrize("text", ["port = " + "9" * 5_000, "a = " + "[" * 5_000])
def test_a_file_that_the_parser_of_toml_fails_on_is_not_valid_toml(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match="is not valid TOML"):
        load_config(Section, file=file)
