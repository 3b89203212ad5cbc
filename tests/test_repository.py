"""The files of the repository: sizes, licences, locks, docstrings, and nothing private."""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections import Counter
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

import coterie

ROOT = Path(__file__).parents[1]
LARGEST_FILE = 1_000_000
"""Bytes. Larger files belong in a package or a release, not into the repository."""
BINARIES = ("docs/*", "*/vendor/*", "src/coterie/memory/models/*.npz", "bench/models/*.npz")
"""Where binary files may be: images of the documentation, vendored fonts, and weights of the trained rankers."""


def tracked() -> list[Path]:
    """Tracked files and new ones that are not ignored."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    return [path for path in paths if path.is_file()]


def lines_matching(pattern: str) -> list[str]:
    found = []
    for path in tracked():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), start=1):
            if re.search(pattern, line) and path != Path(__file__):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}")
    return found


def is_binary(data: bytes) -> bool:
    try:
        return "\0" in data.decode("utf-8")
    except UnicodeDecodeError:
        return True


def unwanted_files(files: dict[str, bytes]) -> dict[str, str]:
    """Names of files that must not be in the repository, and why."""
    unwanted = {}
    for name, data in files.items():
        if name.endswith(".whl"):
            unwanted[name] = "a wheel"
        elif len(data) > LARGEST_FILE:
            unwanted[name] = "over 1 MB"
        elif is_binary(data) and not any(fnmatchcase(name, allowed) for allowed in BINARIES):
            unwanted[name] = "a binary"
    return unwanted


def test_no_large_files_no_stray_binaries_no_wheels() -> None:
    files = {path.relative_to(ROOT).as_posix(): path.read_bytes() for path in tracked()}
    assert unwanted_files(files) == {}


def test_unwanted_files_are_recognised() -> None:
    files = {
        "docs/screenshot.webp": b"\xff\0",
        "src/coterie/surfaces/web/static/vendor/font.woff2": b"\xff\0",
        "README.md": "Größe".encode(),
        "some-1.0-py3-none-any.whl": b"PK",
        "docs/film.webm": b"\xff" * (LARGEST_FILE + 1),
        "src/coterie/data.bin": b"\0",
        "tests/models/other.npz": b"\xff",
    }
    assert unwanted_files(files) == {
        "some-1.0-py3-none-any.whl": "a wheel",
        "docs/film.webm": "over 1 MB",
        "src/coterie/data.bin": "a binary",
        "tests/models/other.npz": "a binary",
    }


def test_the_listing_of_files_works() -> None:
    assert ROOT / "pyproject.toml" in tracked()
    assert lines_matching("^# Two commands matter")


def test_no_registry_addresses() -> None:
    assert lines_matching(r"https?://[^\s\"']*(py[p]i|pythonh[o]sted|artifactory|nexus|/simple\b)") == []
    assert lines_matching(r"(--index-url|--extra-index-url|--find-links|--trusted-host)[ =]") == []


def test_no_paths_of_a_machine() -> None:
    assert lines_matching(r"(?<![\w.])/(home|Users)/\w") == []
    assert lines_matching(r"(?<![\w.])/(root|work)/\w") == []
    assert lines_matching(r"[A-Z]:\\Users\\") == []


@pytest.mark.parametrize("lock", ["run", "dev"])
def test_locks_hold_only_names_and_versions(lock: str) -> None:
    line = re.compile(r"^[a-z0-9][a-z0-9._-]*(\[[a-z0-9,-]+\])?==[0-9][\w.!+-]*( ; [\w.'\" <>=!()]+)?$")
    lines = (ROOT / "locks" / f"{lock}.txt").read_text().splitlines()
    assert lines
    assert [entry for entry in lines if not line.match(entry)] == []


def test_every_run_dependency_is_pinned_the_same_for_development() -> None:
    run, dev = ((ROOT / "locks" / f"{lock}.txt").read_text().splitlines() for lock in ("run", "dev"))
    assert set(run) <= set(dev)


def test_the_licence_is_apache_2() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text
    assert project()["license"] == "Apache-2.0"


def test_the_versions_agree() -> None:
    assert project()["version"] == coterie.__version__


def project() -> dict[str, object]:
    found: dict[str, object] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found


def test_no_module_is_longer_than_700_lines() -> None:
    long = {
        str(path.relative_to(ROOT)): count
        for path in (ROOT / "src").rglob("*.py")
        if (count := len(path.read_text().splitlines())) > 700
    }
    assert long == {}


def test_no_folder_has_more_than_20_modules_side_by_side() -> None:
    folders = Counter(
        str(path.parent.relative_to(ROOT)) for path in (ROOT / "src").rglob("*.py") if path.name != "__init__.py"
    )
    assert {folder: count for folder, count in folders.items() if count > 20} == {}


def test_no_two_classes_have_the_same_name() -> None:
    places: dict[str, list[str]] = {}
    for path in sorted((ROOT / "src").rglob("*.py")):
        for name in re.findall(r"^class (\w+)", path.read_text(), re.MULTILINE):
            places.setdefault(name, []).append(str(path.relative_to(ROOT)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_decision_records_are_numbered_without_gaps() -> None:
    numbers = sorted(int(path.name[:4]) for path in (ROOT / "docs" / "adr").glob("[0-9]*.md"))
    assert numbers == list(range(1, len(numbers) + 1))


def test_every_module_has_a_docstring() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in (ROOT / "src").rglob("*.py")
        if not path.read_text().lstrip().startswith('"""')
    ]
    assert silent == []


def test_the_run_lock_contains_its_extras() -> None:
    """`make run` installs everything that the demo and the live chat need."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (recipe,) = [line for line in (ROOT / "Makefile").read_text().splitlines() if line.endswith("-o locks/run.txt")]
    wanted = list(project["dependencies"])
    for extra in re.findall(r"--extra (\w+)", recipe):
        wanted += project["optional-dependencies"][extra]
    pinned = {line.partition("==")[0] for line in (ROOT / "locks" / "run.txt").read_text().splitlines()}
    assert {"crowd", "audio"} <= set(re.findall(r"--extra (\w+)", recipe))
    assert {re.split(r"[\[<>=;~ ]", each)[0].lower().replace(".", "-") for each in wanted} <= pinned
