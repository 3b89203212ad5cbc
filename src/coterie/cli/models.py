"""`coterie models` and `coterie secrets`: language models and the keys of their providers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.base.errors import ConfigError
from coterie.base.paths import Paths
from coterie.cli.common import ask_passphrase, new_app, open_secrets_store, read_secret

if TYPE_CHECKING:
    from coterie.llm import ModelsSettings

models_app = new_app("models")
secrets_app = new_app("secrets")

_SecretName = Annotated[str, typer.Argument(help="The name by which settings refer to it: secret:NAME.")]


@models_app.command("list")
def list_models() -> None:
    """Show the model of each role, the configured providers, and model servers found on this machine."""
    import asyncio

    from coterie.llm import PRESETS, Catalogue, Role, RoleUnset, find_local_servers

    settings = _settings()
    catalogue = Catalogue(settings)
    typer.secho("Roles", bold=True)
    for role in Role:
        try:
            chain = " → ".join(map(str, catalogue.chain(role)))
        except RoleUnset:
            chain = "(not set)"
        typer.echo(f"  {role.value:<11} {chain}")
    typer.secho("Providers", bold=True)
    for name in sorted({*PRESETS, *settings.providers} - {"openai-compatible"}):
        spec = catalogue.spec(name)
        needs_key = PRESETS[settings.providers[name].preset if name in settings.providers else name].needs_key
        key = "key is set" if spec.api_key else "no key" if needs_key else "needs no key"
        typer.echo(f"  {name:<11} {spec.base_url or 'in this installation'}  ({key})")
    typer.secho("Found on this machine", bold=True)
    servers = asyncio.run(find_local_servers())
    for server in servers:
        models = ", ".join(server.models) or "no models loaded"
        typer.echo(f"  {server.preset:<11} {server.base_url}  ({models})")
        if server.models:
            typer.echo(f"  {'':<11} → coterie models add {server.preset} --use narrative={server.models[0]}")
    if not servers:
        typer.echo("  no Ollama, LM Studio or llama.cpp server")


@models_app.command("test")
def test_model(
    which: Annotated[str, typer.Argument(help="A role, or provider/model.")] = "narrative",
) -> None:
    """Stream an answer, ask for JSON, and report the speed."""
    import asyncio

    from coterie.base.logging import LogSettings, setup_logging
    from coterie.llm import Catalogue, Role, Target, probe_model

    setup_logging(LogSettings(level="error"))
    settings = _settings()
    is_role = which in list(Role)
    target = Catalogue(settings).chain(Role(which))[0] if is_role else Target.parse(which)
    typer.secho(f"{target}:", bold=True)
    probe = asyncio.run(probe_model(settings, target, lambda text: typer.echo(text, nl=False)))
    answer = probe.answer
    typer.echo("\n")
    typer.echo(f"First token after   {answer.first_token_ms or 0:,.0f} ms (including loading)")
    typer.echo(f"Then                {probe.tokens_per_s:,.1f} tokens/s")
    counted = "estimated" if answer.tokens.estimated else "reported by the provider"
    typer.echo(f"Tokens              {answer.tokens.input} in, {answer.tokens.output} out ({counted})")
    if probe.memory_mb is not None:
        typer.echo(f"Memory              {probe.memory_mb:,.0f} MB, at most {settings.embedded.memory_mb:,} MB")
    if probe.structured.failure is None:
        typer.echo(f"JSON for a schema   {probe.structured.value.model_dump_json()}")
    else:
        typer.echo(
            f"JSON for a schema   failed ({probe.structured.failure.failure}): {probe.structured.failure.raw[:200]}"
        )
        raise typer.Exit(1)


@models_app.command("add")
def add_provider(
    name: Annotated[str, typer.Argument(help="The name of the provider.")],
    preset: Annotated[str | None, typer.Option(help="A known provider; NAME itself, if it is one.")] = None,
    base_url: Annotated[str | None, typer.Option(help="The base URL of its API, usually ending in /v1.")] = None,
    key: Annotated[
        str | None, typer.Option(help="A reference to its key: secret:NAME or env:NAME (never the key itself).")
    ] = None,
    use: Annotated[list[str] | None, typer.Option(help="ROLE=MODEL: use its MODEL for ROLE. May be repeated.")] = None,
) -> None:
    """Write a provider to the configuration file, and use it for roles."""
    from coterie.app import load_settings, write_example_config
    from coterie.base.config import edit_config
    from coterie.llm import PRESETS

    if key is not None and not key.startswith(("secret:", "env:")):
        raise ConfigError(
            "A key itself does not belong in the configuration file.",
            "Store it (coterie secrets set NAME) and give --key secret:NAME, or give --key env:VARIABLE.",
        )
    table = ("models", "providers", name)
    preset = preset or (name if name in PRESETS else "openai-compatible")
    changes: dict[tuple[str, ...], str] = {(*table, "preset"): preset}
    if base_url is not None:
        changes[*table, "base_url"] = base_url
    if key is not None:
        changes[*table, "api_key"] = key
    for pair in use or ():
        role, _, model = pair.partition("=")
        if not model:
            raise ConfigError(f"--use {pair} names no model.", "Write it as --use narrative=MODEL.")
        changes["models", "roles", role] = f"{name}/{model}"
    paths = Paths.locate()
    write_example_config(paths)
    edit_config(paths.config, changes, check=lambda: load_settings(paths, passphrase=ask_passphrase))
    typer.echo(f"{name} was written to {paths.config}. Try it: coterie models test {name}/MODEL")


def _settings() -> ModelsSettings:
    from coterie.app import load_settings

    return load_settings(Paths.locate(), passphrase=ask_passphrase).settings.models


@secrets_app.command("set")
def set_secret(
    name: _SecretName,
    tool: Annotated[
        list[str] | None,
        typer.Option(help="Make it available to this tool server only (`desk.tool_servers`). May be repeated."),
    ] = None,
    keyring: Annotated[
        bool, typer.Option("--keyring", help="Keep the encryption key in this machine's keyring (first secret only).")
    ] = False,
) -> None:
    """Store a secret. Its value is read without echo or from standard input, never from an argument."""
    value = read_secret(f"Value of {name}: ")
    open_secrets_store().set(name, value, grants=tuple(tool or ()), keyring=keyring)
    if not tool:
        typer.echo(f'Stored. Refer to it in the settings as "secret:{name}".')
        return
    variable = re.sub(r"[^A-Z0-9]", "_", name.upper())
    for server in tool:
        typer.echo(f"Stored for {server}. Refer to it in config.toml, below [desk.tool_servers.{server}].")
        typer.echo(f'For a program:  env.{variable} = "secret:{name}"')
        typer.echo(f'For an address: headers.Authorization = "secret:{name}"')


@secrets_app.command("list")
def list_secrets() -> None:
    """List the names of secrets; no passphrase is needed."""
    secrets = open_secrets_store().list()
    if not secrets:
        typer.echo("No secrets are stored. Store one: coterie secrets set NAME")
    for secret in secrets:
        audience = f"for {', '.join(secret.grants)}" if secret.grants else "for the settings"
        typer.echo(f"{secret.name}  ({audience})")


@secrets_app.command("rm")
def remove_secret(name: _SecretName) -> None:
    """Remove a secret."""
    open_secrets_store().remove(name)
    typer.echo(f"{name} was removed.")
