"""`coterie agent`: remote agents that play characters."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.base.errors import ConfigError
from coterie.base.paths import Paths
from coterie.base.untrusted import one_line
from coterie.cli.common import new_app

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from coterie.messaging import AgentRegistry
    from coterie.modes.remote import AgentOutput, AgentTask

agent_app = new_app("agent")


@agent_app.command("list")
def list_agents() -> None:
    """List what agents.yaml configures, and what is wrong with it."""
    import coterie.app  # noqa: F401 - declares every kind of event
    from coterie.characters import CharacterQueries, NoSuchCharacter
    from coterie.eventstore import LogReader

    paths = Paths.locate()
    registry = _registry()
    if registry.problem is not None:
        raise registry.problem
    if not registry.file.exists():
        typer.echo(f"There is no {registry.file} yet; docs/agents.md describes it.")
        return
    reader = LogReader(paths.database) if paths.database.exists() else None
    try:
        for name, entry in registry.current.characters.items():
            where = f" at {entry.base_url}" if entry.base_url else ""
            missing = ""
            try:
                if reader is not None:
                    CharacterQueries(reader).find(name)
            except NoSuchCharacter:
                missing = f"  (there is no such character yet: coterie characters new {one_line(name, 60)})"
            typer.echo(f"{one_line(name, 60)}: {entry.backend or 'this server'}{where}{missing}")
        for person, character in registry.current.people.items():
            typer.echo(f"{one_line(person, 60)} talks with {one_line(character, 60)}")
    finally:
        if reader is not None:
            reader.close()


@agent_app.command()
def check(name: Annotated[str, typer.Argument(help="A character of agents.yaml.")]) -> None:
    """Connect to a remote agent and report whether it answers. Works while a server runs."""
    import asyncio

    from coterie.base.logging import LogSettings, setup_logging
    from coterie.messaging import REMOTE
    from coterie.modes.remote import AgentError, AgentsSettings, PushFrame, WebSocketConnection

    setup_logging(LogSettings(level="error"))  # a failure is printed once, as the error
    registry = _registry()
    if registry.problem is not None:
        raise registry.problem
    entry = next((item for key, item in registry.current.characters.items() if key.lower() == name.lower()), None)
    if entry is None or entry.backend != REMOTE:
        raise ConfigError(f"No remote agent plays {name}.", f"Add it to {registry.file}.")

    async def refuse(_: PushFrame) -> None:
        """Leave what the agent pushes for the server: it is sent again if it is not accepted."""
        raise ConnectionError

    async def connect() -> None:
        connection = WebSocketConnection(name, entry, AgentsSettings(), refuse)
        try:
            await connection.wait_connected()
        except AgentError as error:
            raise type(error)(error.what, f"Start it, or correct {registry.file}.") from None
        finally:
            await connection.close()

    asyncio.run(connect())
    typer.echo(f"{name} answers at {entry.base_url}.")


@agent_app.command()
def serve(
    command: Annotated[
        list[str] | None, typer.Argument(help="The program that answers: it reads the message and writes the reply.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 picks a free one.", min=0, max=65535)] = 8765,
    token_env: Annotated[
        str, typer.Option(help="The environment variable with the token that callers must show.")
    ] = "COTERIE_AGENT_TOKEN",  # noqa: S107 - its name, not the token
) -> None:
    """Run a remote agent: COMMAND reads each message and writes the reply. Without one, it echoes."""
    import asyncio
    import os

    from coterie.base.values import is_loopback
    from coterie.modes.remote import Agent

    token = os.environ.get(token_env)
    if token is None and not is_loopback(host):
        raise ConfigError("Other machines could talk to this agent without a token.", f"Set {token_env} to a token.")

    async def answer(task: AgentTask) -> AsyncIterator[AgentOutput]:
        if not command:
            yield f"{task.person.name} said: {task.text}"
            return
        async for part in _run(command, task):
            yield part

    async def listen() -> None:
        async with Agent(answer, token).serve(host, port) as url:
            typer.echo(f"Listening at {url}; enter it in agents.yaml as base_url. Stop with Ctrl-C.")
            await asyncio.Event().wait()

    try:
        asyncio.run(listen())
    except KeyboardInterrupt:
        sys.exit(0)


async def _run(command: list[str], task: AgentTask) -> AsyncIterator[str]:
    """Write the message to the program's standard input and yield its output as it comes.

    The chat and the person are in its environment.
    """
    import asyncio
    import codecs
    import os

    variables = {"COTERIE_CHAT": task.chat, "COTERIE_PERSON": task.person.name}
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, env={**os.environ, **variables})
    if process.stdin is None or process.stdout is None:
        raise OSError("no pipes")
    try:
        process.stdin.write(task.text.encode())
        process.stdin.close()
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        while chunk := await process.stdout.read(4_096):
            if text := decoder.decode(chunk):
                yield text
        if await process.wait():
            raise ChildProcessError(f"the program exited with {process.returncode}")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def _registry() -> AgentRegistry:
    from coterie.app import agent_registry

    return agent_registry(Paths.locate())
