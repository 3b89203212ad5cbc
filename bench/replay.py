"""Whether replaying a crowd session gives the same session across processes, hash seeds and worker counts.

One session (fifty personas, a stream, people) is simulated in new processes with different hash seeds and worker
counts. Each records itself, replays its record and prints the SHA-256 of messages and decisions. Then one persona is
changed, and the replay reports the differences.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys

from bench.lib.report import arguments, finish, log
from coterie.modes.crowd.events import CrowdTicked
from coterie.modes.crowd.protocol import ChatAuthor, ChatPost
from coterie.modes.crowd.session.replay import Replay, Simulation, admission_for, firehose_hash
from coterie.modes.crowd.session.stream_context import StreamScript, script_contexts
from coterie.modes.crowd.settings import SHIPPED_CONFIGS, CrowdConfigs


def run_session(minutes: float, workers: int) -> Simulation:
    configs = CrowdConfigs()
    room = configs.room("late-shift")
    personas = configs.personas_in(room)
    simulation = Simulation(
        room, personas, admission_for(room, personas, configs.moderator(room)), seed=77, workers=workers
    )
    awake = [persona.name for persona in personas if not persona.is_asleep(simulation.start_ms)]
    people = [
        (
            simulation.start_ms + 20_000 + number * 17_000,
            ChatPost(
                id=f"p{number}",
                room=room.name,
                author=ChatAuthor(name=f"person{number % 5}", kind="human"),
                text=f"@{awake[number % len(awake)]} what about number {number}?",
            ),
        )
        for number in range(round(minutes * 60 / 17) - 2)
    ]
    script = StreamScript.read(SHIPPED_CONFIGS / "streams" / "left-door.toml")
    simulation.run(minutes, script_contexts(script, room.name, simulation.start_ms, minutes=minutes), people)
    return simulation


def session_hashes(minutes: float, workers: int) -> dict[str, str]:
    """Hashes of a session and of its replay."""
    simulation = run_session(minutes, workers)
    decisions = hashlib.sha256()
    for event in simulation.events:
        if isinstance(event, CrowdTicked):
            decisions.update(event.model_dump_json().encode())
    replayed = Replay(simulation.events, CrowdConfigs().moderator(simulation.session.room)).run()
    if not replayed.identical:
        raise SystemExit("the replay differs from what was recorded")
    return {"firehose": firehose_hash(simulation.messages), "decisions": decisions.hexdigest(), "replay": replayed.hash}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument(
        "--one", nargs=2, type=float, metavar=("MINUTES", "WORKERS"), help="hashes of one session as JSON"
    )
    options = parser.parse_args()
    if options.one:
        finish(session_hashes(options.one[0], int(options.one[1])))
        return
    minutes = 6 if options.quick else 30
    hashes = set()
    runs = 0
    for hash_seed in ("0", "1", "4242"):
        for workers in (1, 2, 5):
            done = subprocess.run(
                [sys.executable, "-m", "bench.replay", "--one", str(minutes), str(workers)],
                env={**os.environ, "PYTHONHASHSEED": hash_seed},
                capture_output=True,
                text=True,
                check=True,
            )
            found = json.loads(done.stdout.splitlines()[-1])
            hashes.add(tuple(sorted(found.items())))
            runs += 1
            short = found["firehose"][:16], found["replay"][:16]
            log(f"hash seed {hash_seed:>4}, {workers} workers: firehose {short[0]}, replay {short[1]}")
    simulation = run_session(minutes, 1)
    personas = CrowdConfigs().personas()
    loud = personas["salt_lamp"].model_copy(
        update={"traits": personas["salt_lamp"].traits.model_copy(update={"talkativeness": 1.0, "warmth": 1.0})}
    )
    other = Replay(
        simulation.events, CrowdConfigs().moderator(simulation.session.room), changed={"salt_lamp": loud}
    ).run()
    log(
        f"with a louder salt_lamp: of {len(simulation.messages)} lines {len(other.only_recorded())} are missing,"
        f" and {len(other.only_replayed())} are new"
    )
    finish({"runs": runs, "distinct_hashes": len(hashes)})


if __name__ == "__main__":
    main()
