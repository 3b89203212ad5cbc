"""Tools: functions that a model may call, described by their own types.

The schema a model sees is made from the function's signature and what checks its arguments is the same, so the two
cannot disagree. Each says whether its result comes from outside (then it is marked as data), and whether it sends or
spends (then a person is asked first). Arguments with a secret in them go nowhere. D18, D20
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from coterie.base.errors import CoterieError
from coterie.llm.messages import ToolCall
from coterie.llm.messages import ToolSpec as ToolSchema
from coterie.modes.desk.errors import BadTool, NotConfirmed
from coterie.modes.desk.text_safety import LeakGuard, mark_untrusted

Use = Callable[..., Awaitable[str]]


@dataclass(frozen=True)
class AgentTool:
    name: str
    description: str
    arguments: type[BaseModel]
    use: Use
    untrusted_result: bool = False
    """Its result comes from outside: a file, a program, a page."""
    needs_confirmation: bool = False
    """It sends or spends: a person has to say yes first."""

    @property
    def schema(self) -> ToolSchema:
        return _schema(self.name, self.description, self.arguments)


def make_tool(
    use: Use, *, name: str = "", untrusted_result: bool = False, needs_confirmation: bool = False
) -> AgentTool:
    """A tool from a function: its name, its docstring, its parameters."""
    named = name or getattr(use, "__name__", "tool")
    return AgentTool(
        named,
        inspect.cleandoc(use.__doc__ or ""),
        _arguments(_Signature(use), named),
        use,
        untrusted_result,
        needs_confirmation,
    )


class _Signature:
    """Of a function made anew for every process, the same as of the last one: it is worked out once."""

    def __init__(self, use: Use) -> None:
        self.use = use
        self._code = getattr(use, "__code__", use)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Signature) and self._code == other._code

    def __hash__(self) -> int:
        return hash(self._code)


@functools.lru_cache(maxsize=256)
def _arguments(signature: _Signature, name: str) -> type[BaseModel]:
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
    for described in parameters.get("properties", {}).values():
        described.pop("title", None)
    return ToolSchema(name=name, description=description, parameters=parameters)


class Toolbox:
    """The tools of one process. What goes wrong is told to the model in words: it can try something else."""

    def __init__(self, tools: Iterable[AgentTool], guard: LeakGuard | None = None) -> None:
        self._tools = {each.name: each for each in tools}
        self._guard = guard or LeakGuard()

    @property
    def schemas(self) -> tuple[ToolSchema, ...]:
        return tuple(each.schema for each in self._tools.values())

    def needs_confirmation(self, call: ToolCall) -> bool:
        found = self._tools.get(call.name)
        return found is not None and found.needs_confirmation

    async def use(self, call: ToolCall, *, confirmed: bool = False) -> str:
        try:
            return await self._use(call, confirmed)
        except CoterieError as error:
            return f"Error: {error.what} {error.fix}"

    async def _use(self, call: ToolCall, confirmed: bool) -> str:
        found = self._tools.get(call.name)
        if found is None:
            raise BadTool(f"There is no tool {call.name!r}.", f"There are: {', '.join(self._tools)}.")
        if found.needs_confirmation and not confirmed:
            raise NotConfirmed(f"{call.name} needs the person's yes.", "Ask them, and wait for the answer.")
        self._guard.check(call.arguments, f"the arguments of {call.name}")
        try:
            arguments = found.arguments.model_validate_json(call.arguments or "{}")
        except ValidationError as error:
            told = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'arguments'}: {e['msg']}" for e in error.errors())
            raise BadTool(f"These arguments do not fit {call.name}: {told}.", "Correct them.") from None
        given = {name: getattr(arguments, name) for name in type(arguments).model_fields}
        result = await found.use(**given, **(arguments.model_extra or {}))
        return mark_untrusted(result, call.name) if found.untrusted_result else result
