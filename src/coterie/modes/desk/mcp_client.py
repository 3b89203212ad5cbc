"""Servers of tools (MCP) that workers may use: programs on this machine, or addresses.

Each has a task of its own that connects, asks for its tools, and connects again after a pause when it is lost. What a
tool gives comes from outside and is marked as data; a tool needs the person's yes unless the settings say that it may
do without. A server sees only the environment or the headers that are set for it. D19, D20
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict, create_model

from coterie.base.errors import ConfigError
from coterie.base.logging import get_logger
from coterie.base.redaction import redact
from coterie.eventstore.jobs import backoff_s
from coterie.modes.desk.agents.tools import AgentTool
from coterie.modes.desk.errors import McpServerError
from coterie.modes.desk.sandbox.commands import OUTPUT_BYTES
from coterie.modes.desk.settings import McpServerSettings

if TYPE_CHECKING:
    from mcp.client import Client
    from mcp_types import CallToolResult
    from mcp_types import Tool as Offered

_LONGEST_PAUSE_S = 300.0
_MISSING = "Servers of tools need the package mcp, which is not installed."
_NAME = re.compile(r"[^A-Za-z0-9_-]+")
_log = get_logger(__name__)


@dataclass(frozen=True)
class McpServerState:
    name: str
    connected: bool
    tools: tuple[str, ...] = ()
    why: str = ""
    """Why it is not connected."""


class McpServers:
    def __init__(self, servers: Mapping[str, McpServerSettings], changed: Callable[[], None]) -> None:
        """`changed` is called when there are other tools than before."""
        self._servers = servers
        self._changed = changed
        self._tools: dict[str, Sequence[AgentTool]] = {}
        self.states = {name: McpServerState(name, connected=False, why="It was not tried yet.") for name in servers}

    @property
    def tools(self) -> list[AgentTool]:
        return [tool for tools in self._tools.values() for tool in tools]

    async def run(self, stop: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group:
            for name, settings in self._servers.items():
                group.create_task(self._keep(name, settings, stop))

    async def _keep(self, name: str, settings: McpServerSettings, stop: asyncio.Event) -> None:
        failures = 0
        while not stop.is_set():
            try:
                async with _connected(settings) as client:
                    await self._learn(name, settings, client)
                    failures = 0
                    await _until_lost(client, stop, settings.timeout_s)
            except (Exception, BaseExceptionGroup) as error:
                failures += 1
                self._lost(name, redact(_reason(error)))
            if not stop.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), backoff_s(max(failures, 1), maximum=_LONGEST_PAUSE_S))
        self._lost(name, "Coterie is stopping.")

    async def _learn(self, name: str, settings: McpServerSettings, client: Client) -> None:
        offered: list[Offered] = []
        page = await client.list_tools()
        offered += page.tools
        while page.next_cursor:
            page = await client.list_tools(cursor=page.next_cursor)
            offered += page.tools
        self._tools[name] = [_tool(name, settings, client, one) for one in offered]
        self.states[name] = McpServerState(name, connected=True, tools=tuple(one.name for one in offered))
        self._changed()

    def _lost(self, name: str, why: str) -> None:
        _log.warning("tool server is away", server=name, why=why)
        self._tools.pop(name, None)
        self.states[name] = McpServerState(name, connected=False, why=why)
        self._changed()


@asynccontextmanager
async def _connected(settings: McpServerSettings) -> AsyncIterator[Client]:
    try:
        import httpx2
        from mcp.client import Client
        from mcp.client.stdio import StdioServerParameters, stdio_client
        from mcp.client.streamable_http import streamable_http_client
    except ImportError:
        raise ConfigError(_MISSING, "Install it: pip install 'coterie[mcp]'") from None
    async with AsyncExitStack() as stack:
        if settings.command:
            program, *arguments = settings.command
            environment = {key: value.get_secret_value() for key, value in settings.env.items()}
            # What it writes aside is its own: it may hold anything, and our log is not the place for it.
            aside = stack.enter_context(os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
            parameters = StdioServerParameters(command=program, args=arguments, env=environment)
            server: Any = stdio_client(parameters, errlog=aside)
        else:
            headers = {key: value.get_secret_value() for key, value in settings.headers.items()}
            http = httpx2.AsyncClient(headers=headers, trust_env=False, timeout=settings.timeout_s)
            server = streamable_http_client(settings.url, http_client=await stack.enter_async_context(http))
        yield await stack.enter_async_context(Client(server, read_timeout_seconds=settings.timeout_s))


async def _until_lost(client: Client, stop: asyncio.Event, every_s: float) -> None:
    """A server that has gone is found out by asking it now and then; asking for its tools asks no model."""
    while not stop.is_set():
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), every_s)
        if not stop.is_set():
            await client.list_tools()


def _tool(server: str, settings: McpServerSettings, client: Client, offered: Offered) -> AgentTool:
    name = _NAME.sub("_", f"{server}_{offered.name}")[:64]

    async def use(**arguments: Any) -> str:
        try:
            async with asyncio.timeout(settings.timeout_s):
                return _told(await client.call_tool(offered.name, arguments))
        except TimeoutError:
            raise McpServerError(f"{name} took longer than {settings.timeout_s:g} s.", "Try less at once.") from None
        except Exception as error:
            raise McpServerError(f"{name} failed: {redact(_reason(error))}", "Try something else.") from error

    schema = dict(offered.input_schema)
    # The server's own schema is what the model sees; the server checks what it is given.
    config = ConfigDict(extra="allow", json_schema_extra=lambda shown: shown.update(schema))
    arguments = create_model(name, __config__=config)
    asks = offered.name not in settings.without_asking
    return AgentTool(
        name, offered.description or offered.name, arguments, use, untrusted_result=True, needs_confirmation=asks
    )


def _told(result: CallToolResult) -> str:
    parts = [getattr(block, "text", None) or f"[{block.type}]" for block in result.content]
    text = "\n".join(parts)
    text = text if len(text) <= OUTPUT_BYTES else f"{text[:OUTPUT_BYTES]}\n[cut]"
    return f"Error: {text}" if result.is_error else text or "[no output]"


def _reason(error: BaseException) -> str:
    """Of what went wrong together, the first thing."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__
