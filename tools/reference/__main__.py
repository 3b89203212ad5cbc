"""`python -m tools.reference` writes every page; with `--check` it only lists those that are out of date.

Names of pages as arguments limit it to these.
"""

from __future__ import annotations

import sys

from tools.reference.pages import PAGES, ROOT


def main() -> int:
    check = "--check" in sys.argv[1:]
    names = [name for name in sys.argv[1:] if not name.startswith("-")] or list(PAGES)
    outdated = 0
    for name in names:
        path, text = ROOT / name, PAGES[name]()
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        outdated += 1
        print(f"{'out of date' if check else 'written'}: {name}")
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return int(check and outdated > 0)


if __name__ == "__main__":
    sys.exit(main())
