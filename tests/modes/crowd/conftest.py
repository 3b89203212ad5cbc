"""A simulated session of the shipped room, the same in every test."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from coterie.modes.crowd.personas import Persona
from coterie.modes.crowd.protocol import ChatAuthor, ChatPost
from coterie.modes.crowd.session.replay import Simulation, admission_for
from coterie.modes.crowd.session.stream_context import StreamScript, script_contexts
from coterie.modes.crowd.settings import SHIPPED_CONFIGS, CrowdConfigs, RoomConfig

Play = Callable[..., Simulation]
START = 1_767_225_600_000


@pytest.fixture(scope="session")
def configs() -> CrowdConfigs:
    return CrowdConfigs()


@pytest.fixture(scope="session")
def room(configs: CrowdConfigs) -> RoomConfig:
    return configs.room("late-shift")


@pytest.fixture(scope="session")
def script() -> StreamScript:
    return StreamScript.read(SHIPPED_CONFIGS / "streams" / "left-door.toml")


@pytest.fixture
def play(configs: CrowdConfigs, room: RoomConfig, script: StreamScript) -> Play:
    def played(
        minutes: float = 5,
        *,
        people: Sequence[tuple[float, str, str]] = (),
        stream: bool = True,
        personas: Sequence[Persona] | None = None,
        seed: int = 7,
        workers: int = 1,
        rules: RoomConfig | None = None,
        stream_script: StreamScript | None = None,
    ) -> Simulation:
        """Run a simulation; `people` are seconds, name and text."""
        config = rules or room
        members = list(personas) if personas is not None else configs.personas_in(config)
        admission = admission_for(config, members, configs.moderator(config))
        simulation = Simulation(config, members, admission, seed=seed, start_ms=START, workers=workers)
        contexts = script_contexts(stream_script or script, config.name, START, minutes=minutes) if stream else ()
        posts = [
            (
                START + round(at * 1_000),
                ChatPost(id=f"p{number}", room=config.name, author=ChatAuthor(name=name, kind="human"), text=text),
            )
            for number, (at, name, text) in enumerate(people)
        ]
        simulation.run(minutes, contexts, posts)
        return simulation

    return played
