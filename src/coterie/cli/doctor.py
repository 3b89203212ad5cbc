"""`coterie doctor`."""

from __future__ import annotations

from typing import Annotated

import typer

from coterie.cli._app import new_app

app = new_app("Look everything over and say what to do.")

_MARKS = {"ok": ("✓", "green"), "note": ("·", "yellow"), "bad": ("✗", "red")}


@app.command()
def doctor(as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False) -> None:
    """Check this machine, the data folder, the configuration and the database. Exits with 1 if something is bad."""
    import json
    from dataclasses import asdict

    from coterie.app import load_settings
    from coterie.base.errors import ConfigError
    from coterie.base.paths import Paths
    from coterie.checkup import build_doctor
    from coterie.ops.doctor import CheckResult

    home = Paths.locate()
    findings = list(build_doctor(home).run())
    try:
        load_settings(home)
        findings.append(CheckResult("Settings", "ok", str(home.config)))
    except ConfigError as error:
        findings.append(CheckResult("Settings", "bad", error.what, error.fix))
    for finding in findings:
        if as_json:
            typer.echo(json.dumps(asdict(finding), ensure_ascii=False))
            continue
        mark, colour = _MARKS[finding.state]
        typer.echo(f"{typer.style(mark, fg=colour)} {typer.style(finding.about, bold=True)}: {finding.what}")
        if finding.fix:
            typer.echo(f"  → {finding.fix}")
    if any(finding.state == "bad" for finding in findings):
        raise typer.Exit(1)
