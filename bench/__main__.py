"""`python -m bench [--quick]`: every figure, one after the other, and a summary."""

from __future__ import annotations

import json
import pkgutil
import subprocess
import sys
from pathlib import Path

from bench._report import arguments, finish, say


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("names", nargs="*", help="only these")
    options = parser.parse_args()
    package = Path(__file__).parent
    found = [module.name for module in pkgutil.iter_modules([str(package)]) if not module.name.startswith("_")]
    figures: dict[str, object] = {}
    for name in options.names or found:
        say(f"── {name}")
        command = [sys.executable, "-m", f"bench.{name}", *(["--quick"] if options.quick else [])]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        lines = done.stdout.strip().splitlines()
        say("\n".join(lines))
        try:
            figures[name] = json.loads(lines[-1])
        except (IndexError, ValueError):
            figures[name] = {"failed": done.returncode}
    finish(figures)


if __name__ == "__main__":
    main()
