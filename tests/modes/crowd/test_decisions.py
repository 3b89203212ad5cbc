"""C20: the cost per persona is the same for fifty and a thousand. Counts calls; `bench.persona_cost` measures time."""

from __future__ import annotations

import sys
from types import FrameType

from bench.persona_cost import crowd
from coterie.modes.crowd.session.replay import Simulation, admission_for
from coterie.modes.crowd.session.stream_context import StreamScript, script_contexts
from coterie.modes.crowd.settings import SHIPPED_CONFIGS, CrowdConfigs

START = 1_767_225_600_000
MINUTES = 0.5


def calls_per_persona(count: int) -> float:
    configs = CrowdConfigs()
    personas = crowd(count)
    room = configs.room("late-shift").model_copy(update={"roster": tuple(persona.name for persona in personas)})
    simulation = Simulation(room, personas, admission_for(room, personas, configs.moderator(room)), start_ms=START)
    script = StreamScript.read(SHIPPED_CONFIGS / "streams" / "left-door.toml")
    contexts = list(script_contexts(script, room.name, START, minutes=MINUTES))
    calls = 0

    def count_call(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count_call)
    try:
        simulation.run(MINUTES, contexts)
    finally:
        sys.setprofile(None)
    assert simulation.messages
    return calls / count


def test_c20_the_cost_per_persona_does_not_grow() -> None:
    assert calls_per_persona(1_000) <= 1.3 * calls_per_persona(50)
