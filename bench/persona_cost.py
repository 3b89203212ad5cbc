"""CPU cost of a persona in a room of a thousand compared with a room of fifty, with scripted lines.

The same simulated minutes of the same stream, divided by personas and moments. Once with the tempo of the room's file,
and once with a tempo that grows with the number of personas. In the second case twenty personas share each phrase book,
so most lines were used already and others must be searched, which costs more by design.
"""

from __future__ import annotations

import time

from bench.lib.report import arguments, finish, log, median
from coterie.modes.crowd.personas import Persona
from coterie.modes.crowd.session.replay import Simulation, admission_for
from coterie.modes.crowd.session.stream_context import StreamScript, script_contexts
from coterie.modes.crowd.settings import SHIPPED_CONFIGS, CrowdConfigs

_START = 1_767_225_600_000


def crowd(many: int) -> list[Persona]:
    """So many, each with a name of its own."""
    shipped = list(CrowdConfigs().personas().values())
    return [
        shipped[at % len(shipped)].model_copy(update={"name": f"{shipped[at % len(shipped)].name[:20]}_{at}"})
        for at in range(many)
    ]


def cost(many: int, minutes: float, *, louder: bool = False) -> float:
    """Microseconds of CPU for one persona and one moment."""
    configs = CrowdConfigs()
    personas = crowd(many)
    room = configs.room("late-shift").model_copy(update={"configs": tuple(persona.name for persona in personas)})
    if louder:
        tempo = room.tempo.model_copy(update={"lines_per_minute": room.tempo.lines_per_minute * many / 50})
        room = room.model_copy(update={"tempo": tempo})
    simulation = Simulation(
        room, personas, admission_for(room, personas, configs.moderator(room)), seed=1, start_ms=_START
    )
    script = StreamScript.read(SHIPPED_CONFIGS / "streams" / "left-door.toml")
    contexts = list(script_contexts(script, room.name, _START, minutes=minutes))
    before = time.process_time()
    simulation.run(minutes, contexts)
    spent = time.process_time() - before
    return spent / (minutes * 60 / room.tempo.tick_s) / many * 1e6


def main() -> None:
    options = arguments(__doc__).parse_args()
    minutes = 1.0 if options.quick else 3.0
    # In turns, so that a busy machine is busy for all.
    rounds = [
        (cost(50, minutes), cost(1_000, minutes), cost(1_000, minutes, louder=True))
        for _ in range(3 if options.quick else 5)
    ]
    few, many, loud = (median([one[which] for one in rounds]) for which in range(3))
    log(f"a persona's moment: {few:.1f} µs among 50, {many:.1f} µs among 1,000, {loud:.1f} µs where each talks as much")
    finish(
        {
            "us_per_persona": {"50": round(few, 2), "1000": round(many, 2), "1000_louder": round(loud, 2)},
            "ratio": round(many / few, 3),
            "ratio_louder": round(loud / few, 3),
        }
    )


if __name__ == "__main__":
    main()
