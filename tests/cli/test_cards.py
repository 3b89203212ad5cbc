"""`coterie cards`: a line per file, and the exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coterie.characters.cards import import_card
from coterie.cli import main
from tests.characters.cards.samples import FILES, SHARED, V1, V2, V3, charx_with, packed, png_with


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["cards", *arguments])
    return int(ended.value.code or 0)


def fill(folder: Path) -> None:
    (folder / "deeper").mkdir()
    (folder / "a.json").write_bytes(packed(V1))
    (folder / "b.png").write_bytes(png_with(V2))
    (folder / "deeper" / "c.charx").write_bytes(charx_with(V3, FILES))


def test_check_prints_a_line_per_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(tmp_path)
    assert run("check", str(tmp_path)) == 0
    assert capsys.readouterr().out.splitlines() == [
        "✓ a.json: Ada, V1, json, 0 lorebook entries, 0 assets",
        "✓ b.png: Ada, V2, png, 1 lorebook entries, 1 assets",
        "✓ deeper/c.charx: Ada, V3, charx, 1 lorebook entries, 2 assets",
        "3 of 3 can be imported.",
    ]


def test_check_fails_when_any_file_fails_and_gives_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(tmp_path)
    (tmp_path / "bad.json").write_text('{"spec": "chara_card_v2", "data": {}}')
    (tmp_path / "odd\x1b[2J.txt").write_text("hello")
    assert run("check", str(tmp_path)) == 1
    out = capsys.readouterr().out
    assert "✗ bad.json: The card's `name` is missing. →" in out
    assert "3 of 5" in out
    assert "\x1b[2J" not in out


def test_check_of_an_empty_or_missing_folder_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check", str(tmp_path)) == 1
    assert run("check", str(tmp_path / "nowhere")) == 20
    assert "does not exist" in capsys.readouterr().err


def test_check_does_not_read_a_file_of_100_mb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (tmp_path / "big.charx").open("wb") as file:
        file.truncate(200_000_000)
    assert run("check", str(tmp_path)) == 1
    assert "200 MB" in capsys.readouterr().out


@pytest.mark.skipif(not SHARED.is_dir(), reason=f"{SHARED} is not there: the shared example cards are not installed")
def test_check_of_the_shared_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check", str(SHARED)) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines if line.startswith("✗")] == [
        "✗ invalid_missing_name.json",
        "✗ invalid_missing_spec.json",
    ]
    assert len([line for line in lines if line.startswith("✓")]) == 7


def test_convert_chooses_the_format_by_the_extension(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(tmp_path)
    source = tmp_path / "b.png"
    for name in ("out.charx", "out.png", "out.json"):
        target = tmp_path / name
        assert run("convert", str(source), str(target)) == 0
        source = target
    assert json.loads(source.read_bytes()) == V2
    captured = capsys.readouterr()
    assert [line.split(", ")[2] for line in captured.out.splitlines()] == ["charx", "png", "json"]
    assert "not included" in captured.err


def test_convert_to_another_version(tmp_path: Path) -> None:
    fill(tmp_path)
    assert run("convert", str(tmp_path / "a.json"), str(tmp_path / "v3.json"), "--as", "v3") == 0
    assert import_card((tmp_path / "v3.json").read_bytes(), "v3.json").card.generation == 3


@pytest.mark.parametrize(
    ("target", "options", "reason"),
    [
        ("b.png", [], "exists already"),
        ("out.webp", [], "format"),
        ("out.json", ["--as", "v9"], "v9"),
        ("no/out.json", [], "written"),
    ],
)
def test_convert_refuses_with_a_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], target: str, options: list[str], reason: str
) -> None:
    fill(tmp_path)
    assert run("convert", str(tmp_path / "a.json"), str(tmp_path / target), *options) == 20
    assert reason in capsys.readouterr().err
