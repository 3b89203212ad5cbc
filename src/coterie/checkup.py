"""Looking the whole house over: what the doctor knows of every room, and what these settings ask of the machine."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from coterie import app
from coterie.app import Settings, agent_registry, load_settings
from coterie.base.clock import Clock, SystemClock
from coterie.base.errors import CoterieError
from coterie.base.paths import Paths
from coterie.llm import Catalogue, check_providers
from coterie.modes.desk import Sandbox
from coterie.ops import (
    CheckResult,
    Doctor,
    RequiredPackage,
    clock_check,
    deliveries_check,
    packages_check,
    port_check,
    providers_check,
    tools_check,
)


def build_doctor(paths: Paths, clock: Clock | None = None) -> Doctor:
    try:
        settings = load_settings(paths).settings
    except CoterieError:  # what is wrong with the settings is a finding of its own
        settings = Settings()
    now = clock or SystemClock()

    def sandbox() -> Iterator[CheckResult]:
        standing = asyncio.run(Sandbox(settings.desk).status())
        if standing.state == "confined":
            yield CheckResult("Sandbox", "ok", "commands are confined by bubblewrap")
        else:
            yield CheckResult("Sandbox", "bad" if standing.state == "off" else "note", standing.reason, standing.fix)

    def agents() -> Iterator[CheckResult]:
        if (problem := agent_registry(paths).problem) is not None:
            yield CheckResult("Agents", "bad", problem.what, problem.fix)

    more = [
        port_check(paths, settings.server.host, settings.server.port),
        packages_check(_needs(settings)),
        providers_check(lambda: asyncio.run(check_providers(Catalogue(settings.models)))),
        sandbox,
        tools_check(),
        agents,
    ]
    return Doctor(
        paths,
        app.all_projections(),
        now,
        more,
        log_checks=[clock_check(paths, now), deliveries_check(paths)],
    )


def _needs(settings: Settings) -> list[RequiredPackage]:
    """What must be installed for these settings."""
    needs = [RequiredPackage("xllamacpp", "", "the embedded model")]
    if settings.desk.tool_servers:
        needs.append(RequiredPackage("mcp", "mcp", "[desk.tool_servers]"))
    return needs
