"""`python -m bench [--quick] [NAME …]` runs every bench and writes the figures to docs/benchmarks.md."""

from __future__ import annotations

import json
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.lib.figures_page import page
from bench.lib.report import arguments, finish, log

_NOT_FIGURES = ("train_ranking",)
_PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"


def names() -> list[str]:
    modules = pkgutil.iter_modules([str(Path(__file__).parent)])
    found = [module.name for module in modules if not module.ispkg]
    return [name for name in found if not name.startswith("_") and name not in _NOT_FIGURES]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("names", nargs="*", help="only these; the page is then left as it is")
    options = parser.parse_args()
    figures: dict[str, dict[str, Any]] = {}
    selected = options.names or names()
    for name in selected:
        log(f"── {name}")
        command = [sys.executable, "-m", f"bench.{name}", *(["--quick"] if options.quick else [])]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        lines = done.stdout.strip().splitlines()
        log("\n".join(lines))
        try:
            figures[name] = json.loads(lines[-1])
        except (IndexError, ValueError):
            figures[name] = {"failed": f"exit status {done.returncode}"}
        if not options.names:
            # Written after each bench, so that an interrupted run keeps its figures.
            _PAGE.write_text(page(figures, quick=options.quick, missing=len(selected) - len(figures)))
    finish(figures)


if __name__ == "__main__":
    main()
