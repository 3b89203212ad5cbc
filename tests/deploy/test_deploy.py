"""The files to run Coterie for others with, as far as they can be checked without a container engine."""

from __future__ import annotations

import configparser
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from coterie.base.paths import Paths
from coterie.cli import main as command_line
from coterie.settings import load_settings

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"


def compose(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / name).read_text())
    return found


def test_what_the_image_copies_is_there_and_in_the_makefiles_versions() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    copied = [path for line in re.findall(r"^COPY (?!--from)(.+)$", text, re.MULTILINE) for path in line.split()[:-1]]
    assert copied
    assert [path for path in copied if not (ROOT / path).exists()] == []
    assert [path for path in re.findall(r"-r (\S+)", text) if not (ROOT / path).exists()] == []
    (makefile,) = re.findall(r"^UV_VERSION := (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert re.findall(r"uv==(\S+)", text) == [makefile]
    assert "/health" in text


@pytest.mark.parametrize("name", ["compose.yaml", "compose.matrix.yaml"])
def test_every_variable_of_a_compose_file_is_a_setting(name: str, tmp_path: Path) -> None:
    given = compose(name)["services"]["coterie"]["environment"]
    environ = {variable: re.sub(r"\$\{[^}]*\}", "long enough", value) for variable, value in given.items()}
    loaded = load_settings(Paths.locate({"COTERIE_HOME": str(tmp_path)}), environ=environ)
    assert sum("environment variable" in origin for origin in loaded.origins.values()) == len(environ)


def test_the_whole_stack_names_only_services_there_are() -> None:
    app, stack = compose("compose.yaml"), compose("compose.matrix.yaml")
    services = {**app["services"], **stack["services"]}
    assert set(stack["services"]["coterie"]["depends_on"]) <= set(services)
    volumes = {**app["volumes"], **stack["volumes"]}
    mounted = {volume.partition(":")[0] for one in services.values() for volume in one.get("volumes", [])}
    assert mounted <= set(volumes)
    dockerfile = (DEPLOY / app["services"]["coterie"]["build"]["context"] / "deploy" / "Dockerfile").resolve()
    assert dockerfile.exists()


def test_the_unit_starts_what_make_install_made() -> None:
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(DEPLOY / "coterie.service")
    assert unit["Service"]["ExecStart"] == "%h/coterie/.venv/bin/coterie serve"
    assert callable(command_line)
    assert unit["Install"]["WantedBy"] == "default.target"
