"""`coterie models` and `coterie secrets`: language models and the keys of their providers."""

from __future__ import annotations

import re
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.base.errors import ConfigError
from coterie.base.paths import Paths
from coterie.base.secrets import Protection
from coterie.cli.common import ask_passphrase, new_app, open_secrets_store, read_secret

if TYPE_CHECKING:
    from coterie.llm import DownloadSource, LocalModel, ModelDownloads, ModelsSettings

models_app = new_app("models")
secrets_app = new_app("secrets")

_SecretName = Annotated[str, typer.Argument(help="The name by which settings refer to it: secret:NAME.")]


@models_app.command("list")
def list_models() -> None:
    """Show the model of each role, the configured providers, and model servers found on this machine."""
    import asyncio

    from coterie.llm import PRESETS, Catalogue, LocalModels, Role, RoleUnset, find_local_servers

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
        typer.echo("  no Ollama, LM Studio, llama.cpp or vLLM server")
    downloaded = LocalModels(Paths.locate().models).all()
    if downloaded:
        typer.secho("Downloaded", bold=True)
    for model in downloaded:
        typer.echo(f"  {model.target}  ({model.bytes / 1e9:.2f} GB)")


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
    from coterie.base.config import edit_config
    from coterie.llm import PRESETS
    from coterie.settings import load_settings, write_example_config

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


@models_app.command("pull")
def pull_model(
    model: Annotated[str, typer.Argument(help="A name from the list, the URL of a GGUF file, or a file here.")] = "",
    sha256: Annotated[str, typer.Option(help="The checksum that the file must have.")] = "",
    use: Annotated[bool, typer.Option(help="Use it for every role without a model of its own.")] = True,
) -> None:
    """Download a model and use it. Without a name, list the models that fit this machine. An interrupted download is
    continued.
    """
    import asyncio

    from coterie.base.config import edit_config
    from coterie.llm import LocalModels, ModelDownloads, curated_models, download_source, memory_gb, model_fits
    from coterie.settings import load_settings, write_example_config

    if not model:
        total = memory_gb()
        for one in curated_models():
            note = "" if model_fits(one, total) else "  (too large for this machine)"
            typer.echo(f"{one.name:<40} {one.bytes / 1e9:4.1f} GB, needs {one.memory_gb:g} GB of memory{note}")
            typer.echo(f"  {one.good_at} Licence: {one.licence}.")
        return
    paths = Paths.locate()
    models = LocalModels(paths.models)
    if Path(model).expanduser().is_file():
        done = models.copy(Path(model).expanduser())
    else:
        done = asyncio.run(_pull(ModelDownloads(models), download_source(model, sha256)))
    typer.echo(f"{done.title} is in {done.file}.")
    if use:
        write_example_config(paths)
        check = partial(load_settings, paths, passphrase=ask_passphrase)
        edit_config(paths.config, {("models", "default"): str(done.target)}, check=check)
        typer.echo(f"It is now the model of every role ({done.target}). A running server uses it after a restart.")


async def _pull(downloads: ModelDownloads, source: DownloadSource) -> LocalModel:
    import asyncio

    task = downloads.start(source)
    shown = downloads.all()[0]
    bar = sys.stderr.isatty()
    while not task.done():
        await asyncio.wait([task], timeout=1)
        shown = next((one for one in downloads.all() if one.source.name == source.name), shown)
        if bar and shown.total:
            left = f", {shown.seconds_left:,.0f} s left" if shown.seconds_left is not None else ""
            share = f"{shown.done / shown.total:4.0%} of {shown.total / 1e9:.2f} GB"
            typer.echo(f"\r{share}, {shown.bytes_per_s / 1e6:.1f} MB/s{left}   ", nl=False, err=True)
    if bar:
        typer.echo(err=True)
    return task.result()


def _settings() -> ModelsSettings:
    from coterie.settings import load_settings

    return load_settings(Paths.locate(), passphrase=ask_passphrase).settings.models


@secrets_app.command("set")
def set_secret(
    name: _SecretName,
    tool: Annotated[
        list[str] | None,
        typer.Option(help="Make it available to this tool server only (`desk.tool_servers`). May be repeated."),
    ] = None,
) -> None:
    """Store a secret. Its value is read without echo or from standard input, never from an argument."""
    value = read_secret(f"Value of {name}: ")
    open_secrets_store().set(name, value, grants=tuple(tool or ()))
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
        audience = f"for {', '.join(secret.grants)}" if secret.grants else f"for {secret.address or 'the settings'}"
        typer.echo(f"{secret.name}  ({audience})")


@secrets_app.command("protect")
def protect_secrets(
    place: Annotated[Protection, typer.Argument(help="Where the key that encrypts the secrets is kept.")],
) -> None:
    """Encrypt all secrets anew: with a key in the system's keyring, in a file that only you can read, or a passphrase.

    With a passphrase, the server needs COTERIE_PASSPHRASE or COTERIE_PASSPHRASE_FILE at every start.
    """
    store = open_secrets_store()
    if store.protection is None:
        raise ConfigError("No secrets are stored.", "Store one first: coterie secrets set NAME")
    passphrase = read_secret("New passphrase: ") if place == "passphrase" else ""
    store.protect(place, passphrase)
    typer.echo(f"The secrets are now protected by a {_PLACES[place]}.")


_PLACES = {
    "keyring": "key in the system's keyring",
    "file": "key file that only you can read",
    "passphrase": "passphrase; set COTERIE_PASSPHRASE or COTERIE_PASSPHRASE_FILE before you start the server",
}


@secrets_app.command("rm")
def remove_secret(name: _SecretName) -> None:
    """Remove a secret."""
    open_secrets_store().remove(name)
    typer.echo(f"{name} was removed.")
