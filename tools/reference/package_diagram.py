"""docs/img/packages.svg: the packages by layer, and which imports which, read from the source."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path

from tools.reference.svg import box, label, path, svg_document

_ROOT = Path(__file__).parents[2]
_SOURCE = _ROOT / "src" / "coterie"
_LEFT, _TOP, _ROW, _CELL = 24, 84, 56, 84
_BOXES = 452
_DESCRIPTIONS = {
    "cli": "one module per command group",
    "app": "composition root: builds every service",
    "settings": "all settings, and how they are loaded",
    "ops": "snapshots · backups · metrics",
    "messaging": "inbox, outbox, routing, commands, files",
    "conversation": "turns, replies, live feed, search",
    "characters": "characters, people, cards",
    "memory": "records, recall, ranking, index",
    "llm": "roles, providers, usage",
    "eventstore": "events, log, projections, jobs, bus",
    "base": "errors, ids, clock, config, secrets",
}
"""Every package needs a description: a missing one stops the drawing."""


def layers() -> list[list[str]]:
    """The layers contract of import-linter, highest first."""
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    names = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    layers = [re.findall(r"\w+", layer) for layer in names]
    return [layer for layer in layers if layer != ["__main__"]]


@cache
def imports() -> Counter[tuple[str, str]]:
    """(Package, imported package) → number of importing files, with imports in functions and for types."""
    counts: Counter[tuple[str, str]] = Counter()
    for file in sorted(_SOURCE.rglob("*.py")):
        package = _package(file.relative_to(_SOURCE).with_suffix("").parts)
        if package is not None:
            counts.update((package, other) for other in _imported(file) if other != package)
    return counts


def package_diagram() -> str:
    rows = layers()
    order = [package for row in rows for package in row]
    grid_left = _LEFT + _BOXES + 128
    width = grid_left + _CELL * len(order) + 24
    height = _TOP + _ROW * len(rows) + 70
    parts = [
        label(_LEFT, 36, "Packages by layer", "title"),
        label(grid_left - 104, 36, "Imports: the row imports the column", "title"),
    ]
    for number, row in enumerate(rows):
        across = (_BOXES - 12 * (len(row) - 1)) / len(row)
        for place, package in enumerate(row):
            x, y = _LEFT + place * (across + 12), _TOP + number * _ROW
            parts += [
                box(x, y, across, _ROW - 10, "core" if package == "eventstore" else "package"),
                label(x + across / 2, y + 19, package, "name middle"),
                label(x + across / 2, y + 36, _inside(package), "sub middle"),
            ]
    parts += _grid(order, grid_left)
    description = "; ".join(
        f"{package} imports {', '.join(other for other in order if imports()[package, other]) or 'nothing'}"
        for package in order
    )
    foot = "Generated from the source. Higher layers import lower ones, never the reverse."
    parts.append(label(_LEFT, height - 24, foot, "sub"))
    parts += _legend(grid_left + _CELL * len(order) - 430, height - 24)
    return svg_document(width, height, "Packages and their imports", description, parts)


def _grid(order: list[str], left: float) -> list[str]:
    step = (_ROW * len(layers()) - 10) / len(order)
    parts = []
    for number, package in enumerate(order):
        y = _TOP + number * step
        if number % 2 == 0:
            parts.append(box(left - 104, y, 104 + _CELL * len(order), step, "band", 0))
        parts.append(label(left - 12, y + step / 2 + 5, package, "name end"))
        parts.append(label(left + (number + 0.5) * _CELL, _TOP - 12, package, "sub middle"))
    for number, package in enumerate(order):
        for place, other in enumerate(order):
            x, y = left + (place + 0.5) * _CELL, _TOP + (number + 0.5) * step
            if package == other:
                parts.append(path(f"M{x - 7:g} {y - 7:g}l14 14", "rule", tip=False))
            elif count := imports()[package, other]:
                parts.append(_dot(x, y, _size(count)))
    return parts


def _legend(x: float, y: float) -> list[str]:
    parts = []
    for radius, text in ((5, "1–4 files"), (9, "5–19 files"), (14, "20 files or more")):
        parts += [_dot(x, y - 4, radius), label(x + 20, y, text, "sub")]
        x += 150
    return parts


def _dot(x: float, y: float, radius: int) -> str:
    return f'<circle class="mark" cx="{x:g}" cy="{y:g}" r="{radius}"/>'


def _size(count: int) -> int:
    """Three sizes, so that the drawing does not change with every file."""
    return 5 if count < 5 else 9 if count < 20 else 14


def _inside(package: str) -> str:
    """The second line of a package's box: its subpackages, or a description."""
    if package in ("modes", "surfaces"):
        return " · ".join(file.parent.name for file in sorted((_SOURCE / package).glob("*/__init__.py")))
    return _DESCRIPTIONS[package]


def _package(parts: tuple[str, ...]) -> str | None:
    """The package of a file; none for `coterie/__init__` and `__main__`."""
    return None if parts[0].startswith("__") else parts[0]


def _imported(file: Path) -> set[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == "coterie":
            names += [f"coterie.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.append(node.module)
    packages = {name.split(".")[1] for name in names if name.startswith("coterie.")}
    return {package for package in packages if (_SOURCE / package).is_dir() or (_SOURCE / f"{package}.py").is_file()}
