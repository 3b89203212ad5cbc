"""`python -m tools.reference` writes every page; with `--check` it only says which are out of date."""

from __future__ import annotations

import sys

from tools.reference import PAGES, ROOT


def main() -> int:
    only_look = "--check" in sys.argv[1:]
    stale = 0
    for name, made in PAGES.items():
        path, text = ROOT / name, made()
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        stale += 1
        print(f"{'out of date' if only_look else 'written'}: {name}")
        if not only_look:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return int(only_look and stale > 0)


if __name__ == "__main__":
    sys.exit(main())
