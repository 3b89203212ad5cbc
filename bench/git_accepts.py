"""Processes commit changes to one branch and are killed at random: count lost and repeated commits.

Each process proposes and accepts one change after the other and keeps a journal, in place of the event log. Restarted
after a kill, it searches for the commit of the last change by its trailer.
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
from functools import partial
from pathlib import Path
from typing import Any

from bench.lib.report import arguments, finish, log, progress, scratch_folder
from coterie.modes.draft.committer import Committer
from coterie.modes.draft.git import (
    CHANGE_TRAILER,
    MAIN_BRANCH,
    THREAD_TRAILER,
    CommitMessage,
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
        committer.write(document(part), MAIN_BRANCH, partial(_replace, text), ANN, CommitMessage("Begin"), _now())


def _replace(text: str, _: DocumentVersion | None) -> str:
    return text


def work(folder: Path, journal: Path, process: int, each: int) -> None:
    repository = DocumentRepository(folder)
    committer = Committer(repository)
    rows = journal.read_text().split("\n")[:-1] if journal.exists() else []
    accepted = {row.split()[1] for row in rows if row.startswith("accepted")}
    bases = {row.split()[1]: row.split()[2] for row in rows if row.startswith("proposed")}
    with journal.open("a", buffering=1) as file:
        for number in range(each):
            change = f"{process}-{number}"
            if change in accepted:
                continue
            if change in bases:
                before = repository.find_changes(MAIN_BRANCH, {change}, until=bases[change]).get(change)
            else:
                before = None
                print(f"proposed {change} {repository.head(MAIN_BRANCH)}", file=file)
            if before is None:
                accept(committer, process, number, change)
            print(f"accepted {change}", file=file)


def accept(committer: Committer, process: int, number: int, change: str) -> None:
    def edit(version: DocumentVersion | None) -> str:
        assert version is not None
        return version.text.replace(line(process, number, "open"), line(process, number, "done"))

    message = CommitMessage(
        "Close a line", "It was open for long.", {CHANGE_TRAILER: change, THREAD_TRAILER: f"thread-{process}"}
    )
    if committer.write(document(process), MAIN_BRANCH, edit, ANN, message, _now()) is None:
        raise SystemExit(f"{change} was committed before, but its commit was not found.")


def run(folder: Path, accepts: int, processes: int, wanted_kills: int) -> dict[str, Any]:
    each = -(-accepts // processes)
    repository = folder / "text"
    prepare(repository, processes, each)
    rng = random.Random(3)
    running: dict[int, subprocess.Popen[bytes]] = {}
    done: set[int] = set()
    kills, rows, began = 0, 0, time.monotonic()
    between = each * processes / max(wanted_kills, 1)
    # Kills are counted by accepts, not by time: on a slow machine, a timer would kill processes before they begin.
    next_kill = rng.expovariate(1 / between) if wanted_kills else float("inf")
    while len(done) < processes:
        for process in set(range(processes)) - done - set(running):
            running[process] = _start(folder, process, each)
        time.sleep(0.02)
        for process, child in list(running.items()):
            if child.poll() is not None:
                if child.returncode != 0:
                    raise SystemExit(f"Process {process} ended with {child.returncode}.")
                done.add(process)
                del running[process]
        rows = sum(journal.read_bytes().count(b"accepted") for journal in folder.glob("*.journal"))
        if running and rows >= next_kill:
            victim = rng.choice(list(running))
            os.kill(running[victim].pid, signal.SIGKILL)
            running[victim].wait()
            del running[victim]
            kills += 1
            next_kill = rows + rng.expovariate(1 / between)
        progress(rows, each * processes, f"accepts, {kills} kills")
    return {
        **verify(repository, folder, processes, each),
        "kills": kills,
        "seconds": round(time.monotonic() - began, 1),
    }


def _start(folder: Path, process: int, each: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "bench.git_accepts", "--work", str(process), "--each", str(each), str(folder)]
    return subprocess.Popen(command)


def verify(repository: Path, folder: Path, processes: int, each: int) -> dict[str, Any]:
    documents = DocumentRepository(repository)
    commits = Counter(
        one.trailers[CHANGE_TRAILER] for one in documents.walk(MAIN_BRANCH) if CHANGE_TRAILER in one.trailers
    )
    rows = [
        row.split()[1]
        for journal in folder.glob("*.journal")
        for row in journal.read_text().splitlines()
        if row[:1] == "a"
    ]
    left_open = sum(documents.read(document(part), MAIN_BRANCH).text.count(" is open.") for part in range(DOCUMENTS))
    fsck = subprocess.run(
        ["git", "-C", str(repository), "fsck", "--strict", "--no-dangling"], capture_output=True, text=True, check=False
    )
    return {
        "accepts": len(rows),
        "lost": len(set(rows) - set(commits)) + left_open + processes * each - len(rows),
        "doubled": sum(times - 1 for times in commits.values()) + len(rows) - len(set(rows)),
        "fsck_clean": fsck.returncode == 0 and not fsck.stderr.strip() and not fsck.stdout.strip(),
    }


def _now() -> datetime:
    return datetime.now(UTC)


def options(parser: argparse.ArgumentParser) -> argparse.Namespace:
    parser.add_argument("--accepts", type=int, default=10_000)
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--kills", type=int, default=300, help="about how many processes to kill")
    parser.add_argument("--work", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--each", type=int, help=argparse.SUPPRESS)
    parser.add_argument("folder", nargs="?", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    chosen = options(arguments(__doc__))
    if chosen.work is not None:
        folder = Path(chosen.folder)
        work(folder / "text", folder / f"{chosen.work}.journal", chosen.work, chosen.each)
        return
    accepts, processes, kills = (400, 4, 12) if chosen.quick else (chosen.accepts, chosen.processes, chosen.kills)
    with scratch_folder() as name:
        figures = run(Path(name), accepts, processes, kills)
    log(", ".join(f"{key} {value}" for key, value in figures.items()))
    finish(figures)


if __name__ == "__main__":
    main()
