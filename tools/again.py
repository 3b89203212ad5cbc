"""Runs again, alone and on a quiet machine, the one or two tests that failed among thousands.

Some tests drive a browser, a homeserver or a sandbox on a loaded machine. A race in one of them is a bug to be mended,
and is printed as one; it need not hold back everything else. More than two failures are no accident.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

MOST = 2
_FAILED = Path(".pytest_cache/v/cache/lastfailed")


def again(failed: list[str]) -> int:
    if not failed:
        print("No test failed: whatever ended the run, it was not one of them.", file=sys.stderr)
        return 1
    if len(failed) > MOST:
        print(f"{len(failed)} tests failed: that is no accident, and none is run again.", file=sys.stderr)
        return 1
    ended = subprocess.run([sys.executable, "-m", "pytest", "-n", "0", *failed])  # noqa: S603
    if ended.returncode == 0:
        print("Passed alone, failed in company: there is a race in the test or in what it tests. Mend it:", *failed)
    return ended.returncode


if __name__ == "__main__":
    sys.exit(again(list(json.loads(_FAILED.read_text())) if _FAILED.exists() else []))
