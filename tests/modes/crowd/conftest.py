"""A small room that is the same in every test: four regulars, a short stream, simulated time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from coterie.modes.crowd.personas import Persona
from coterie.modes.crowd.protocol import ChatAuthor, ChatPost
from coterie.modes.crowd.session.replay import Simulation, admission_for
from coterie.modes.crowd.session.stream_context import Script, script_contexts
from coterie.modes.crowd.settings import SHIPPED_CONFIGS, CrowdConfigs, RoomConfig

Play = Callable[..., Simulation]
START = 1_767_225_600_000


@pytest.fixture(scope="session")
def roster() -> CrowdConfigs:
    return CrowdConfigs()


@pytest.fixture(scope="session")
def room(roster: CrowdConfigs) -> RoomConfig:
    return roster.room("late-shift")


@pytest.fixture(scope="session")
def script() -> Script:
    return Script.read(SHIPPED_CONFIGS / "streams" / "left-door.toml")


@pytest.fixture
def play(roster: CrowdConfigs, room: RoomConfig, script: Script) -> Play:
    def played(
        minutes: float = 5,
        *,
        people: Sequence[tuple[float, str, str]] = (),
        stream: bool = True,
        personas: Sequence[Persona] | None = None,
        seed: int = 7,
        workers: int = 1,
        rules: RoomConfig | None = None,
        told: Script | None = None,
    ) -> Simulation:
        """`people` are seconds, name and text."""
        here = rules or room
        everybody = list(personas) if personas is not None else roster.personas_in(here)
        door = admission_for(here, everybody, roster.moderator(here))
        simulation = Simulation(here, everybody, door, seed=seed, start_ms=START, workers=workers)
        heard = script_contexts(told or script, here.name, START, minutes=minutes) if stream else ()
        posts = [
            (
                START + round(at * 1_000),
                ChatPost(id=f"p{number}", room=here.name, author=ChatAuthor(name=name, kind="human"), text=text),
            )
            for number, (at, name, text) in enumerate(people)
        ]
        simulation.run(minutes, heard, posts)
        return simulation

    return played
