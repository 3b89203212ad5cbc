"""Many processes accept changes on one branch and are killed with -9 at random: is any lost, or made twice? F1, F8

Each process proposes and accepts one change after the other and keeps a journal, as the log would. Started again after
a kill it looks, by the change's trailer, whether the commit was made before the row was.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.lib.report import arguments, finish, log, progress, scratch_folder
from coterie.modes.draft.git import (
    CHANGE_TRAILER,
    MAIN_BRANCH,
    THREAD_TRAILER,
    CommitMessage,
    Committer,
    DocumentRepository,
    DocumentVersion,
    GitAuthor,
)

DOCUMENTS = 4
ANN = GitAuthor("Ann", "ann@example.org")


def document(number: int) -> str:
    return f"part{number % DOCUMENTS}.md"


def line(process: int, number: int, word: str) -> str:
    return f"Line {number} of {process} is {word}.\n"


def prepare(folder: Path, processes: int, each: int) -> None:
    committer = Committer(DocumentRepository(folder))
    for part in range(DOCUMENTS):
        mine = [process for process in range(processes) if process % DOCUMENTS == part]
        text = "".join(line(process, number, "open") for process in mine for number in range(each))
        committer.write(document(part), MAIN_BRANCH, lambda _, it=text: it, ANN, CommitMessage("Begin"), _now())  # type: ignore[misc]


def work(folder: Path, journal: Path, process: int, each: int) -> None:
    workspace = DocumentRepository(folder)
    committer = Committer(workspace)
    told = journal.read_text().split("\n")[:-1] if journal.exists() else []
    accepted = {row.split()[1] for row in told if row.startswith("accepted")}
    bases = {row.split()[1]: row.split()[2] for row in told if row.startswith("proposed")}
    with journal.open("a", buffering=1) as book:
        for number in range(each):
            change = f"{process}-{number}"
            if change in accepted:
                continue
            if change in bases:
                before = workspace.find_changes(MAIN_BRANCH, {change}, until=bases[change]).get(change)
            else:
                before = None
                print(f"proposed {change} {workspace.head(MAIN_BRANCH)}", file=book)
            if before is None:
                accept(committer, process, number, change)
            print(f"accepted {change}", file=book)


def accept(committer: Committer, process: int, number: int, change: str) -> None:
    def make(version: DocumentVersion | None) -> str:
        assert version is not None
        return version.text.replace(line(process, number, "open"), line(process, number, "done"))

    note = CommitMessage(
        "Close a line", "It was open for long.", {CHANGE_TRAILER: change, THREAD_TRAILER: f"thread-{process}"}
    )
    if committer.write(document(process), MAIN_BRANCH, make, ANN, note, _now()) is None:
        raise SystemExit(f"{change} was made before, and nobody noticed.")


def run(folder: Path, accepts: int, processes: int, wanted_kills: int) -> dict[str, Any]:
    each = -(-accepts // processes)
    repository = folder / "text"
    prepare(repository, processes, each)
    chance = random.Random(3)
    running: dict[int, subprocess.Popen[bytes]] = {}
    done: set[int] = set()
    kills, rows, began = 0, 0, time.monotonic()
    between = each * processes / max(wanted_kills, 1)
    # By what was accepted, not by the clock: where starting takes long, a clock would kill all before they begin.
    next_kill = chance.expovariate(1 / between) if wanted_kills else float("inf")
    while len(done) < processes:
        for process in set(range(processes)) - done - set(running):
            running[process] = _begin(folder, process, each)
        time.sleep(0.02)
        for process, child in list(running.items()):
            if child.poll() is not None:
                if child.returncode != 0:
                    raise SystemExit(f"Process {process} ended with {child.returncode}.")
                done.add(process)
                del running[process]
        rows = sum(book.read_bytes().count(b"accepted") for book in folder.glob("*.journal"))
        if running and rows >= next_kill:
            victim = chance.choice(list(running))
            os.kill(running[victim].pid, signal.SIGKILL)
            running[victim].wait()
            del running[victim]
            kills += 1
            next_kill = rows + chance.expovariate(1 / between)
        progress(rows, each * processes, f"accepts, {kills} kills")
    return {**judge(repository, folder, processes, each), "kills": kills, "seconds": round(time.monotonic() - began, 1)}


def _begin(folder: Path, process: int, each: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "bench.git_accepts", "--work", str(process), "--each", str(each), str(folder)]
    return subprocess.Popen(command)


def judge(repository: Path, folder: Path, processes: int, each: int) -> dict[str, Any]:
    workspace = DocumentRepository(repository)
    made = Counter(
        one.trailers[CHANGE_TRAILER] for one in workspace.walk(MAIN_BRANCH) if CHANGE_TRAILER in one.trailers
    )
    rows = [
        row.split()[1] for book in folder.glob("*.journal") for row in book.read_text().splitlines() if row[:1] == "a"
    ]
    left_open = sum(workspace.read(document(part), MAIN_BRANCH).text.count(" is open.") for part in range(DOCUMENTS))
    fsck = subprocess.run(
        ["git", "-C", str(repository), "fsck", "--strict", "--no-dangling"], capture_output=True, text=True, check=False
    )
    return {
        "accepts": len(rows),
        "lost": len(set(rows) - set(made)) + left_open + processes * each - len(rows),
        "doubled": sum(times - 1 for times in made.values()) + len(rows) - len(set(rows)),
        "fsck_clean": fsck.returncode == 0 and not fsck.stderr.strip() and not fsck.stdout.strip(),
    }


def _now() -> datetime:
    return datetime.now(UTC)


def options(parser: argparse.ArgumentParser) -> argparse.Namespace:
    parser.add_argument("--accepts", type=int, default=10_000)
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--kills", type=int, default=300, help="about how often to kill one of them")
    parser.add_argument("--work", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--each", type=int, help=argparse.SUPPRESS)
    parser.add_argument("folder", nargs="?", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    asked = options(arguments(__doc__))
    if asked.work is not None:
        folder = Path(asked.folder)
        work(folder / "text", folder / f"{asked.work}.journal", asked.work, asked.each)
        return
    accepts, processes, kills = (400, 4, 12) if asked.quick else (asked.accepts, asked.processes, asked.kills)
    with scratch_folder() as name:
        figures = run(Path(name), accepts, processes, kills)
    log(", ".join(f"{key} {value}" for key, value in figures.items()))
    finish(figures)


if __name__ == "__main__":
    main()
