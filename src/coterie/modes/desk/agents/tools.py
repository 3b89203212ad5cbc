"""Tools that a model may call: Python functions, and tools of MCP servers.

The schema that the model sees and the validation of its arguments come from the same signature. Arguments that contain
a secret are refused, results from outside are marked as untrusted, and tools that send or spend need confirmation.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from coterie.base.errors import ConfigError, CoterieError
from coterie.base.logging import get_logger
from coterie.base.redaction import redact
from coterie.base.supervisor import SupervisedTask, Supervisor, pause, report_problem, report_recovery
from coterie.eventstore import backoff_s
from coterie.llm import ToolCall
from coterie.llm import ToolSpec as ToolSchema
from coterie.modes.desk.errors import BadTool, McpServerError, NotConfirmed
from coterie.modes.desk.sandbox.sandbox import OUTPUT_BYTES
from coterie.modes.desk.settings import McpServerSettings
from coterie.modes.desk.text_safety import LeakGuard, mark_untrusted

if TYPE_CHECKING:
    from mcp.client import Client
    from mcp_types import CallToolResult
    from mcp_types import Tool as McpTool

_MAX_BACKOFF_S = 300.0
_MISSING = "MCP servers need the package mcp, which is not installed."
_MAX_REASON = 500
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")
_log = get_logger(__name__)

Use = Callable[..., Awaitable[str]]


@dataclass(frozen=True)
class AgentTool:
    name: str
    description: str
    arguments: type[BaseModel]
    use: Use
    untrusted_result: bool = False
    """Its result comes from a file, a program or a page."""
    needs_confirmation: bool = False
    """It sends or spends something: a person must allow each call."""

    @property
    def schema(self) -> ToolSchema:
        return _schema(self.name, self.description, self.arguments)


def make_tool(
    use: Use, *, name: str = "", untrusted_result: bool = False, needs_confirmation: bool = False
) -> AgentTool:
    """A tool with the name, docstring and parameters of a function."""
    tool_name = name or getattr(use, "__name__", "tool")
    return AgentTool(
        tool_name,
        inspect.cleandoc(use.__doc__ or ""),
        _arguments_model(_Signature(use), tool_name),
        use,
        untrusted_result,
        needs_confirmation,
    )


class _Signature:
    """Cache key of a function: closures over the same code share one arguments model."""

    def __init__(self, use: Use) -> None:
        self.use = use
        self._code = getattr(use, "__code__", use)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Signature) and self._code == other._code

    def __hash__(self) -> int:
        return hash(self._code)


@functools.lru_cache(maxsize=256)
def _arguments_model(signature: _Signature, name: str) -> type[BaseModel]:
    hints = get_type_hints(signature.use, include_extras=True)
    fields: dict[str, Any] = {
        parameter.name: (hints[parameter.name], ... if parameter.default is parameter.empty else parameter.default)
        for parameter in inspect.signature(signature.use).parameters.values()
    }
    return create_model(name, __config__=ConfigDict(extra="forbid"), **fields)


@functools.lru_cache(maxsize=256)
def _schema(name: str, description: str, arguments: type[BaseModel]) -> ToolSchema:
    parameters = arguments.model_json_schema()
    parameters.pop("title", None)
    for field in parameters.get("properties", {}).values():
        field.pop("title", None)
    return ToolSchema(name=name, description=description, parameters=parameters)


class Toolbox:
    """The tools of one process. Whatever a tool raises is returned to the model as text, so that its turn goes on."""

    def __init__(self, tools: Iterable[AgentTool], guard: LeakGuard | None = None) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._guard = guard or LeakGuard()

    @property
    def schemas(self) -> tuple[ToolSchema, ...]:
        return tuple(tool.schema for tool in self._tools.values())

    def needs_confirmation(self, call: ToolCall) -> bool:
        tool = self._tools.get(call.name)
        return tool is not None and tool.needs_confirmation

    async def use(self, call: ToolCall, *, confirmed: bool = False) -> str:
        try:
            return await self._use(call, confirmed)
        except CoterieError as error:
            return f"Error: {error.what} {error.fix}"
        except Exception as error:
            _log.exception("a tool failed", tool=call.name)
            reason = redact(_error_text(error))[:_MAX_REASON]
            return f"Error: {call.name} failed unexpectedly ({reason}). Try it with other arguments, or without it."

    async def _use(self, call: ToolCall, confirmed: bool) -> str:
        tool = self._tools.get(call.name)
        if tool is None:
            raise BadTool(f"There is no tool {call.name!r}.", f"Available: {', '.join(self._tools)}.")
        if tool.needs_confirmation and not confirmed:
            raise NotConfirmed(f"{call.name} needs a confirmation.", "Ask the person, and wait for the answer.")
        self._guard.check(call.arguments, f"the arguments of {call.name}")
        try:
            arguments = tool.arguments.model_validate_json(call.arguments or "{}")
        except ValidationError as error:
            problems = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'arguments'}: {e['msg']}" for e in error.errors())
            raise BadTool(f"Invalid arguments for {call.name}: {problems}.", "Correct them.") from None
        values = {name: getattr(arguments, name) for name in type(arguments).model_fields}
        result = await tool.use(**values, **(arguments.model_extra or {}))
        return mark_untrusted(result, call.name) if tool.untrusted_result else result


@dataclass(frozen=True)
class McpServerState:
    name: str
    connected: bool
    tools: tuple[str, ...] = ()
    why: str = ""
    """Why it is not connected."""


class McpServers:
    """Connects to the configured MCP servers and offers their tools to workers.

    Each server has a task that connects, lists the tools and reconnects with backoff. A tool needs confirmation unless
    the settings exempt it. A server sees only the environment variables or headers that are set for it.
    """

    def __init__(self, servers: Mapping[str, McpServerSettings]) -> None:
        self._servers = servers
        self._tools: dict[str, Sequence[AgentTool]] = {}
        self.states = {name: McpServerState(name, connected=False, why="Not connected yet.") for name in servers}

    @property
    def tools(self) -> list[AgentTool]:
        return [tool for tools in self._tools.values() for tool in tools]

    def start(self, supervisor: Supervisor, stop: asyncio.Event) -> list[SupervisedTask]:
        """Start the tasks, which end when `stop` is set."""
        return [
            supervisor.start(f"MCP server: {name}", partial(self._keep_connected, name, settings, stop))
            for name, settings in self._servers.items()
        ]

    async def _keep_connected(self, name: str, settings: McpServerSettings, stop: asyncio.Event) -> None:
        failures = 0
        while not stop.is_set():
            try:
                async with _connect(settings) as client:
                    await self._load_tools(name, settings, client)
                    failures = 0
                    report_recovery()
                    await _poll_until_lost(client, stop, settings.timeout_s)
            except (Exception, BaseExceptionGroup) as error:
                failures += 1
                why = redact(_error_text(error))
                self._mark_disconnected(name, why)
                report_problem(
                    f"The MCP server {name} is not connected: {why}",
                    f"Check [desk.tool_servers.{name}] in the settings. It is tried again automatically.",
                )
            await pause(stop, backoff_s(max(failures, 1), maximum=_MAX_BACKOFF_S))
        self._mark_disconnected(name, "Coterie is stopping.")

    async def _load_tools(self, name: str, settings: McpServerSettings, client: Client) -> None:
        offered: list[McpTool] = []
        page = await client.list_tools()
        offered += page.tools
        while page.next_cursor:
            page = await client.list_tools(cursor=page.next_cursor)
            offered += page.tools
        self._tools[name] = [_make_mcp_tool(name, settings, client, tool) for tool in offered]
        self.states[name] = McpServerState(name, connected=True, tools=tuple(tool.name for tool in offered))

    def _mark_disconnected(self, name: str, why: str) -> None:
        _log.warning("MCP server is not connected", server=name, why=why)
        self._tools.pop(name, None)
        self.states[name] = McpServerState(name, connected=False, why=why)


@asynccontextmanager
async def _connect(settings: McpServerSettings) -> AsyncIterator[Client]:
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
            # Its standard error may contain anything, so it is not logged.
            error_log = stack.enter_context(os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
            parameters = StdioServerParameters(command=program, args=arguments, env=environment)
            server: Any = stdio_client(parameters, errlog=error_log)
        else:
            headers = {key: value.get_secret_value() for key, value in settings.headers.items()}
            http = httpx2.AsyncClient(headers=headers, trust_env=False, timeout=settings.timeout_s)
            server = streamable_http_client(settings.url, http_client=await stack.enter_async_context(http))
        yield await stack.enter_async_context(Client(server, read_timeout_seconds=settings.timeout_s))


async def _poll_until_lost(client: Client, stop: asyncio.Event, every_s: float) -> None:
    """Raises once the server no longer lists its tools."""
    while not stop.is_set():
        await pause(stop, every_s)
        if not stop.is_set():
            await client.list_tools()


def _make_mcp_tool(server: str, settings: McpServerSettings, client: Client, offered: McpTool) -> AgentTool:
    name = _NOT_IN_NAMES.sub("_", f"{server}_{offered.name}")[:64]

    async def use(**arguments: Any) -> str:
        try:
            async with asyncio.timeout(settings.timeout_s):
                return _result_text(await client.call_tool(offered.name, arguments))
        except TimeoutError:
            raise McpServerError(
                f"{name} took longer than {settings.timeout_s:g} s.", "Try a smaller request."
            ) from None
        except Exception as error:
            raise McpServerError(f"{name} failed: {redact(_error_text(error))}", "Try something else.") from error

    schema = dict(offered.input_schema)
    # The model sees the server's schema, and the server validates the arguments.
    config = ConfigDict(extra="allow", json_schema_extra=lambda shown: shown.update(schema))
    arguments = create_model(name, __config__=config)
    needs_confirmation = offered.name not in settings.without_asking
    return AgentTool(
        name,
        offered.description or offered.name,
        arguments,
        use,
        untrusted_result=True,
        needs_confirmation=needs_confirmation,
    )


def _result_text(result: CallToolResult) -> str:
    parts = [getattr(block, "text", None) or f"[{block.type}]" for block in result.content]
    text = "\n".join(parts)
    text = text if len(text) <= OUTPUT_BYTES else f"{text[:OUTPUT_BYTES]}\n[truncated]"
    return f"Error: {text}" if result.is_error else text or "[no output]"


def _error_text(error: BaseException) -> str:
    """The first error of a group as text."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__
