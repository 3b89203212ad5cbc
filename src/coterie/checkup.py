"""Looking the whole house over: what the doctor knows of every room, and what these settings ask of the machine."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from coterie import app
from coterie.app import Settings, load_settings, registry
from coterie.base.clock import Clock, SystemClock
from coterie.base.errors import CoterieError
from coterie.base.home import Home
from coterie.llm.catalogue import Catalogue
from coterie.llm.standing import standings
from coterie.modes.desk.sandbox import Sandbox
from coterie.ops import surroundings
from coterie.ops.deliveries import deliveries
from coterie.ops.doctor import Doctor, Finding
from coterie.ops.surroundings import Need


def checkup(home: Home, clock: Clock | None = None) -> Doctor:
    try:
        settings = load_settings(home).settings
    except CoterieError:  # what is wrong with the settings is a finding of its own
        settings = Settings()
    now = clock or SystemClock()

    def sandbox() -> Iterator[Finding]:
        standing = asyncio.run(Sandbox(settings.desk).standing())
        if standing.state == "confined":
            yield Finding("Sandbox", "ok", "commands are confined by bubblewrap")
        else:
            yield Finding("Sandbox", "bad" if standing.state == "off" else "note", standing.reason, standing.fix)

    def agents() -> Iterator[Finding]:
        if (problem := registry(home).problem) is not None:
            yield Finding("Agents", "bad", problem.what, problem.fix)

    more = [
        surroundings.port(home, settings.server.host, settings.server.port),
        surroundings.parts(_needs(settings)),
        surroundings.providers(lambda: asyncio.run(standings(Catalogue(settings.models)))),
        sandbox,
        surroundings.tools(),
        agents,
    ]
    return Doctor(home, app.all_views(), now, more, of_log=[surroundings.clock(home, now), deliveries(home)])


def _needs(settings: Settings) -> list[Need]:
    """What must be installed for these settings."""
    needs = [Need("xllamacpp", "", "the embedded model")]
    if settings.desk.tool_servers:
        needs.append(Need("mcp", "mcp", "[desk.tool_servers]"))
    return needs
