"""The doctor with the checks of all packages, configured by the settings."""

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
    except CoterieError:  # `coterie doctor` reports invalid settings itself
        settings = Settings()
    clock = clock or SystemClock()

    def sandbox() -> Iterator[CheckResult]:
        status = asyncio.run(Sandbox(settings.desk).status())
        if status.state == "confined":
            yield CheckResult("Sandbox", "ok", "commands are confined by bubblewrap")
        else:
            yield CheckResult("Sandbox", "bad" if status.state == "off" else "note", status.reason, status.fix)

    def agents() -> Iterator[CheckResult]:
        if (problem := agent_registry(paths).problem) is not None:
            yield CheckResult("Agents", "bad", problem.what, problem.fix)

    extra_checks = [
        port_check(paths, settings.server.host, settings.server.port),
        packages_check(_required_packages(settings)),
        providers_check(lambda: asyncio.run(check_providers(Catalogue(settings.models)))),
        sandbox,
        tools_check(),
        agents,
    ]
    return Doctor(
        paths,
        app.all_projections(),
        clock,
        extra_checks,
        log_checks=[clock_check(paths, clock), deliveries_check(paths)],
    )


def _required_packages(settings: Settings) -> list[RequiredPackage]:
    """The optional packages that these settings need."""
    packages = [RequiredPackage("xllamacpp", "", "the embedded model")]
    if settings.desk.tool_servers:
        packages.append(RequiredPackage("mcp", "mcp", "[desk.tool_servers]"))
    return packages
