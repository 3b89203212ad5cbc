"""The figures of a run as a Markdown page, with the machine and versions."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import platform
import subprocess
import textwrap
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from coterie.eventstore.sqlite.database import sqlite_version


def page(figures: Mapping[str, Mapping[str, Any]], *, quick: bool, missing: int = 0) -> str:
    how = "small (`--quick`), for orientation only" if quick else "in full"
    stopped = [f"The run was interrupted: {missing} benches are missing.", ""] if missing else []
    lines = [
        "# Benchmarks",
        "",
        f"Written by `make bench` on {datetime.now(UTC):%d %B %Y}. Do not edit this page.",
        f"Every bench ran {how}.",
        "",
        *stopped,
        f"- Machine: {_processor()}, {os.cpu_count()} cores, {psutil.virtual_memory().total / 2**30:.0f} GB",
        f"- {platform.system()} {platform.release()}, Python {platform.python_version()}, SQLite {sqlite_version()}",
        f"- Coterie {importlib.metadata.version('coterie')}, commit {_commit()}",
    ]
    for name in sorted(figures):
        lines += ["", f"## {name}", "", _about(name), "", "| figure | value |", "|---|---|"]
        lines += [f"| {key} | {_format(value)} |" for key, value in _flat(figures[name])]
    return "\n".join(lines) + "\n"


def _flat(figures: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in figures.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key} · ")
        else:
            yield f"{prefix}{key}", value


def _format(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1_000 else f"{value:,.0f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value).replace("|", "\\|")


def _about(name: str) -> str:
    text = importlib.import_module(f"bench.{name}").__doc__ or ""
    return textwrap.fill(" ".join(text.strip().partition("\n\n")[0].split()), 100)


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _commit() -> str:
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
