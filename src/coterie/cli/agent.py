"""`coterie agent`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.cli._app import new_app

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from coterie.messaging.agents import AgentRegistry
    from coterie.modes.remote.agent import AgentOutput, AgentTask

app = new_app("Remote agents: who plays which character; try one, or be one.")


@app.command("list")
def show() -> None:
    """Everything agents.yaml says, and what is wrong with it."""
    import coterie.app  # noqa: F401 - declares the kinds of every room
    from coterie.base.paths import Paths
    from coterie.base.text import one_line
    from coterie.characters.errors import NoSuchCharacter
    from coterie.characters.service import CharacterQueries
    from coterie.eventstore import LogReader

    home = Paths.locate()
    registry = _registry()
    if registry.problem is not None:
        raise registry.problem
    if not registry.file.exists():
        typer.echo(f"There is no {registry.file} yet; docs/agents.md tells what stands in it.")
        return
    reader = LogReader(home.database) if home.database.exists() else None
    try:
        for name, entry in registry.current.characters.items():
            where = f" at {entry.base_url}" if entry.base_url else ""
            missing = ""
            try:
                if reader is not None:
                    CharacterQueries(reader).find(name)
            except NoSuchCharacter:
                missing = f"  (not in the cast yet: coterie cast new {one_line(name, 60)})"
            typer.echo(f"{one_line(name, 60)}: {entry.backend or 'as usual'}{where}{missing}")
        for who, character in registry.current.people.items():
            typer.echo(f"{one_line(who, 60)} talks with {one_line(character, 60)}")
    finally:
        if reader is not None:
            reader.close()


@app.command()
def check(name: Annotated[str, typer.Argument(help="A character of agents.yaml.")]) -> None:
    """Call a remote agent and say whether it answers. Works while a server runs."""
    import asyncio

    from coterie.base.errors import ConfigError
    from coterie.base.logging import LogSettings, setup_logging
    from coterie.messaging.agents import REMOTE
    from coterie.modes.remote.connections import AgentsSettings, WebSocketConnection
    from coterie.modes.remote.protocol import AgentError, PushFrame

    setup_logging(LogSettings(level="error"))  # what is wrong is said once
    registry = _registry()
    if registry.problem is not None:
        raise registry.problem
    entry = next((one for known, one in registry.current.characters.items() if known.lower() == name.lower()), None)
    if entry is None or entry.backend != REMOTE:
        raise ConfigError(f"No remote agent plays {name}.", f"Write it into {registry.file}.")

    async def leave(_: PushFrame) -> None:
        """What it has to tell is for the server to hear."""
        raise ConnectionError

    async def call() -> None:
        link = WebSocketConnection(name, entry, AgentsSettings(), leave)
        try:
            await link.wait_connected()
        except AgentError as error:
            raise type(error)(error.what, f"Start it, or correct {registry.file}.") from None
        finally:
            await link.close()

    asyncio.run(call())
    typer.echo(f"{name} answers at {entry.base_url}.")


@app.command()
def serve(
    command: Annotated[
        list[str] | None, typer.Argument(help="What answers: it reads the message and writes the reply.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 picks a free one.", min=0, max=65535)] = 8765,
    token_env: Annotated[
        str, typer.Option(help="The environment variable with the token that callers must show.")
    ] = "COTERIE_AGENT_TOKEN",  # noqa: S107 - its name, not the token
) -> None:
    """Be a remote agent: each message goes to COMMAND, what that writes is the reply. Without one, it echoes."""
    import asyncio
    import os

    from coterie.base.errors import ConfigError
    from coterie.base.network import is_loopback
    from coterie.modes.remote.agent import Agent

    token = os.environ.get(token_env)
    if token is None and not is_loopback(host):
        raise ConfigError("Whoever can reach it could talk to this agent.", f"Set {token_env} to a token of yours.")

    async def answer(asked: AgentTask) -> AsyncIterator[AgentOutput]:
        if not command:
            yield f"{asked.person.name} said: {asked.text}"
            return
        async for part in _run(command, asked):
            yield part

    async def listen() -> None:
        async with Agent(answer, token).serve(host, port) as url:
            typer.echo(f"Listening at {url}; write it into agents.yaml as base_url. Stop with Ctrl-C.")
            await asyncio.Event().wait()

    try:
        asyncio.run(listen())
    except KeyboardInterrupt:
        sys.exit(0)


async def _run(command: list[str], asked: AgentTask) -> AsyncIterator[str]:
    """The message on its standard input, what it writes as it writes it. Who and where are in its environment."""
    import asyncio
    import codecs
    import os

    told = {"COTERIE_CHAT": asked.chat, "COTERIE_PERSON": asked.person.name}
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, env={**os.environ, **told})
    if process.stdin is None or process.stdout is None:
        raise OSError("no pipes")
    try:
        process.stdin.write(asked.text.encode())
        process.stdin.close()
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        while chunk := await process.stdout.read(4_096):
            if text := decoder.decode(chunk):
                yield text
        if await process.wait():
            raise ChildProcessError(f"it ended with {process.returncode}")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def _registry() -> AgentRegistry:
    from coterie.app import agent_registry
    from coterie.base.paths import Paths

    return agent_registry(Paths.locate())
