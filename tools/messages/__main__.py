"""`python -m tools.messages` writes the catalogue; with `--check` it only says whether it is out of date.

`python -m tools.messages LANGUAGE` adds new messages to the translation into this language, and begins one if there is
none.
"""

from __future__ import annotations

import sys

from tools.messages.catalogue import TEMPLATE, template, update_translation


def main() -> int:
    check = "--check" in sys.argv[1:]
    text = template()
    outdated = not TEMPLATE.is_file() or TEMPLATE.read_text(encoding="utf-8") != text
    if outdated:
        print(f"{'out of date' if check else 'written'}: {TEMPLATE.name}")
    if check:
        return int(outdated)
    TEMPLATE.parent.mkdir(parents=True, exist_ok=True)
    TEMPLATE.write_text(text, encoding="utf-8")
    for language in sys.argv[1:]:
        path, done, total = update_translation(language)
        print(f"written: {language}/{path.name}, {done} of {total} messages translated")
    return 0


if __name__ == "__main__":
    sys.exit(main())
