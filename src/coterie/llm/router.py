"""The one door to models: a role and a prompt go in, an answer comes out, whoever of the chain gave it.

Passing trouble is tried again (500 ms, then 1 s: three tries), then the next model of the chain is asked. A
rate-limited model rests for everyone. A request that is itself at fault (400, 401, 402, 403 …) is never tried
elsewhere: it would only cost more and hide the reason. Once somebody has seen part of a reply, no other model may
finish it; the partial text is kept on the error instead. Every call to a provider is written in the ledger, and the
cap is asked first.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import tzinfo
from pathlib import Path

from coterie.base.clock import Clock, SystemClock
from coterie.base.ids import new_id
from coterie.base.logging import get_logger
from coterie.eventstore import Store
from coterie.llm.catalogue import Catalogue, ProviderSpec, Target
from coterie.llm.embedded.provider import EmbeddedProvider
from coterie.llm.errors import (
    BadAnswer,
    ChainFailed,
    EmptyAnswer,
    ModelError,
    ModelUnavailable,
    OutOfCredit,
    RateLimited,
    TimedOut,
)
from coterie.llm.events import ModelCalled, Outcome
from coterie.llm.hosted import HostedProvider, import_libraries
from coterie.llm.messages import (
    Chunk,
    CompletionRequest,
    Finished,
    ModelAnswer,
    PartialAnswer,
    Priority,
    Prompt,
    Provider,
    StreamedReply,
    Tokens,
)
from coterie.llm.recording import RecordingProvider, ReplayProvider, read_recording
from coterie.llm.roles import Role
from coterie.llm.settings import ModelsSettings
from coterie.llm.tokens import TokenCounter
from coterie.llm.usage import Ledger

# One try with one model, watched: it must begin in time, go on in time, end in time, and say something.
#
# Only the wait for the next chunk is under the clock, never the time its reader takes, and an event that is dripped
# byte by byte is not a chunk: a slow drip runs out of time like silence does.


_TIMEOUT_FIX = "Try again, or choose a quicker model; the limits are first_token_s, idle_s and deadline_s in [models]."


async def stream_attempt(
    provider: Provider, request: CompletionRequest, spec: ProviderSpec, partial: PartialAnswer, deadline: float
) -> AsyncGenerator[Chunk, None]:
    target = f"{provider.name}/{request.model}"
    loop = asyncio.get_running_loop()
    late, limit = "did not begin to answer", loop.time() + spec.first_token_s
    async with aclosing(provider.stream(request)) as chunks:
        while True:
            if deadline < limit:
                late, limit = "did not finish", deadline
            try:
                async with asyncio.timeout_at(limit):
                    chunk = await anext(chunks)
            except TimeoutError:
                raise TimedOut(f"{target} {late} in time.", _TIMEOUT_FIX) from None
            except StopAsyncIteration:
                raise BadAnswer(f"{target} stopped without ending its answer.", "Try again.") from None
            partial.add(chunk)
            if isinstance(chunk, Finished):
                if not partial.has_content:
                    raise _empty_answer_error(target, chunk)
                yield chunk
                return
            late, limit = "fell silent and did not go on", loop.time() + spec.idle_s
            yield chunk


def _empty_answer_error(target: str, end: Finished) -> ModelError:
    if end.reason == "length":
        return EmptyAnswer(f"{target} used up its tokens before it said anything.", "Raise max_tokens.")
    if end.reason == "filter":
        return EmptyAnswer(f"{target}'s filter held the answer back.", "Choose another model, or ask otherwise.")
    return EmptyAnswer(f"{target} answered with nothing.", "Try again, or choose another model.")


# Which models rest, and for how long. One table for the whole process: a limit that one caller met holds for all.


class Cooldowns:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until: dict[Target, float] = {}

    def start(self, target: Target, seconds: float) -> None:
        """A longer rest that was asked for before is not cut short."""
        until = self._clock.monotonic() + seconds
        self._until[target] = max(until, self._until.get(target, until))

    def remaining(self, target: Target) -> float:
        """Seconds until the model may be asked again; 0 when it may."""
        until = self._until.get(target)
        if until is None:
            return 0.0
        left = until - self._clock.monotonic()
        if left <= 0:
            del self._until[target]
            return 0.0
        return left


_log = get_logger(__name__)

MAX_ATTEMPTS = 3
FIRST_RETRY_DELAY_S = 0.5
_WARM_UP_AFTER_S = 2.0
_SHORT_COOLDOWN_S = 1.0
"""A rest this short is waited out; for a longer one the next model is asked."""
_DEFAULT_ANSWER_TOKENS = 1024
"""Tokens held back from the cap for an answer whose length nobody limited."""


@dataclass(frozen=True)
class Caller:
    """On whose behalf a call is made: what the ledger and the queue know people by."""

    room: str = ""
    character: str = ""


@dataclass
class _Call:
    role: Role
    prompt: Prompt
    caller: Caller
    priority: Priority
    chain: tuple[Target, ...]
    deadline: float
    streamed: bool
    """Whether somebody sees the chunks as they come."""
    started: float
    id: str = field(default_factory=new_id)
    partial: PartialAnswer = field(default_factory=PartialAnswer)
    failures: list[ModelError] = field(default_factory=list)


class Models:
    def __init__(
        self,
        settings: ModelsSettings,
        *,
        clock: Clock | None = None,
        store: Store | None = None,
        zone: tzinfo | None = None,
        providers: Mapping[str, Provider] | None = None,
        wrap: Callable[[Provider], Provider] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Usage is written to `store`; without one it is counted for this process only, by days of `zone`.

        `providers` stand in for those of the same name; `wrap` is put around each (a recorder, say).
        """
        self.catalogue = Catalogue(settings)
        self.tokens = TokenCounter(self.catalogue)
        self._settings = settings
        self._clock = clock or SystemClock()
        self.ledger = Ledger(self.catalogue, self._clock, store, zone)
        self._cooldowns = Cooldowns(self._clock)
        self._wrap = wrap
        self._sleep = sleep
        self._overrides = dict(providers or {})
        self._providers: dict[str, Provider] = {}
        self._connections: dict[str, object] = {}
        self._replaced: list[Provider] = []
        self._prepared: set[Target] = set()

    def stream(
        self,
        role: Role,
        prompt: Prompt,
        *,
        caller: Caller = Caller(),  # noqa: B008 - it is immutable
        task: str | None = None,
        priority: Priority | None = None,
        deadline_s: float | None = None,
    ) -> StreamedReply:
        """A reply to show while it comes."""
        call = self._new_call(role, prompt, caller, task, priority, deadline_s, streamed=True)
        return StreamedReply(call.partial, self._run(call))

    async def ask(
        self,
        role: Role,
        prompt: Prompt,
        *,
        caller: Caller = Caller(),  # noqa: B008 - it is immutable
        task: str | None = None,
        priority: Priority | None = None,
        deadline_s: float | None = None,
    ) -> ModelAnswer:
        """A whole answer. Since nobody watches, one that breaks off halfway is tried again too."""
        call = self._new_call(role, prompt, caller, task, priority, deadline_s, streamed=False)
        async with StreamedReply(call.partial, self._run(call)) as reply:
            return await reply.finish()

    @property
    def settings(self) -> ModelsSettings:
        return self._settings

    def warm_up(self) -> None:
        """Import, in a moment and aside, what the first call will need: nobody should wait seconds for that.

        A thread of its own that nothing waits for, so that a program which ends soon ends at once.
        """
        chains = (self.catalogue.chain(role) for role in (Role.NARRATIVE, Role.CLASSIFIER))
        protocols = {self.catalogue.spec(target.provider).protocol for chain in chains for target in chain}
        timer = threading.Timer(_WARM_UP_AFTER_S, import_libraries, protocols)
        timer.daemon = True
        timer.start()

    async def close(self) -> None:
        providers, self._providers = [*self._replaced, *self._providers.values()], {}
        self._replaced.clear()
        for provider in providers:
            await provider.close()

    def cooldown_remaining(self, target: Target) -> float:
        """Seconds until a rate-limited model may be asked again; 0 when it may."""
        return self._cooldowns.remaining(target)

    def context_window(self, role: Role, task: str | None = None) -> int | None:
        """How many tokens a prompt and its answer may have together: the least of the chain, as far as it is known."""
        known = [self.catalogue.details(target).context for target in self.catalogue.chain(role, task)]
        return min((context for context in known if context is not None), default=None)

    def provider(self, name: str) -> Provider:
        """The one of that name, made anew where its address or key was changed meanwhile."""
        spec = None if name in self._overrides else self.catalogue.spec(name)
        reached = spec and (spec.protocol, spec.base_url, spec.api_key, spec.native_schema)
        if name not in self._providers or self._connections.get(name) != reached:
            if name in self._providers:
                self._replaced.append(self._providers[name])  # somebody may still be listening to it
            made = self._overrides.get(name) or self._create_provider(name)
            if self._settings.record:
                made = RecordingProvider(made, Path(self._settings.record).expanduser(), self._clock)
            self._providers[name] = self._wrap(made) if self._wrap else made
            self._connections[name] = reached
        return self._providers[name]

    def _create_provider(self, name: str) -> Provider:
        if self._settings.replay:
            return ReplayProvider(name, read_recording(Path(self._settings.replay).expanduser()), speed=1.0)
        spec = self.catalogue.spec(name)
        return (
            EmbeddedProvider(self._settings.embedded, self._clock)
            if spec.protocol == "embedded"
            else HostedProvider(spec)
        )

    def _new_call(
        self,
        role: Role,
        prompt: Prompt,
        caller: Caller,
        task: str | None,
        priority: Priority | None,
        deadline_s: float | None,
        *,
        streamed: bool,
    ) -> _Call:
        now = asyncio.get_running_loop().time()
        return _Call(
            role=role,
            prompt=prompt,
            caller=caller,
            priority=role.priority if priority is None else priority,
            chain=self.catalogue.chain(role, task),
            deadline=now + (self._settings.deadline_s if deadline_s is None else deadline_s),
            streamed=streamed,
            started=now,
        )

    async def _run(self, call: _Call) -> AsyncGenerator[Chunk | ModelAnswer, None]:
        for target in call.chain:
            for n in range(MAX_ATTEMPTS):
                if not await self._wait_for_turn(call, target, n):
                    break
                try:
                    async with aclosing(self._attempt(call, target)) as chunks:
                        async for chunk in chunks:
                            yield chunk
                    return
                except ModelUnavailable as error:
                    call.failures.append(error)
                    _log.warning("model_failed", model=str(target), role=call.role, error=type(error).__name__)
                    if call.partial.has_content and call.streamed:
                        raise
                    self._cool_down_if_limited(target, error, last=n == MAX_ATTEMPTS - 1)
                    if not error.retryable or _now() >= call.deadline:
                        break
            if _now() >= call.deadline:
                break
        raise self._chain_error(call)

    async def _wait_for_turn(self, call: _Call, target: Target, n: int) -> bool:
        """Wait before a further try; False where the model rests for long, or time runs out."""
        wait = FIRST_RETRY_DELAY_S * 2 ** (n - 1) if n else 0.0
        rest = self._cooldowns.remaining(target)
        if rest > _SHORT_COOLDOWN_S:
            call.failures.append(_cooldown_error(target, rest))
            return False
        wait = max(wait, rest)
        if _now() + wait >= call.deadline:
            if not call.failures:
                call.failures.append(TimedOut(f"No time was left to ask {target}.", "Allow more time."))
            return False
        if wait:
            await self._sleep(wait)
            if rest := self._cooldowns.remaining(target):  # Somebody else met the limit meanwhile.
                call.failures.append(_cooldown_error(target, rest))
                return False
        return True

    async def _attempt(self, call: _Call, target: Target) -> AsyncGenerator[Chunk | ModelAnswer, None]:
        spec = self.catalogue.spec(target.provider)
        owner = call.caller.room or call.caller.character
        request = CompletionRequest(model=target.model, prompt=call.prompt, priority=call.priority, owner=owner)
        await self._prepare(target)
        counted = self.tokens.count_prompt(target, call.prompt)
        expected = Tokens(input=counted, output=call.prompt.max_tokens or _DEFAULT_ANSWER_TOKENS)
        call.partial.restart(str(target))
        with self.ledger.reserve(target, expected) as hold:
            began, first = _now(), None
            outcome: Outcome = "stopped"
            error, end = "", None
            try:
                async with aclosing(
                    stream_attempt(self.provider(target.provider), request, spec, call.partial, call.deadline)
                ) as chunks:
                    async for chunk in chunks:
                        if first is None:
                            first = _now()
                        if isinstance(chunk, Finished):
                            outcome, end = "answered", chunk
                        else:
                            yield chunk
            except ModelError as failure:
                outcome, error = "failed", type(failure).__name__
                raise
            finally:
                tokens = self._count_tokens(call, target, counted, end, error)
                price = self.ledger.prices.price(target, tokens)
                written = self.ledger.settle(
                    hold,
                    ModelCalled(
                        call=call.id,
                        day=self.ledger.today,
                        role=call.role.value,
                        provider=target.provider,
                        model=target.model,
                        room=call.caller.room,
                        character=call.caller.character,
                        outcome=outcome,
                        error=error,
                        tokens_in=tokens.input,
                        tokens_out=tokens.output,
                        tokens_cached=tokens.cached,
                        estimated=tokens.estimated,
                        usd_micros=price.usd_micros,
                        priced=price.basis,
                        first_token_ms=_ms(began, first),
                        total_ms=_ms(began, _now()) or 0.0,
                    ),
                )
                if outcome != "answered":
                    await asyncio.shield(written)
        try:
            yield ModelAnswer(
                text=call.partial.text,
                thinking=call.partial.thinking,
                calls=tuple(call.partial.calls),
                reason=end.reason if end else "stop",
                tokens=tokens,
                model=str(target),
                first_token_ms=_ms(call.started, first),
                total_ms=_ms(call.started, _now()) or 0.0,
            )
        finally:  # whoever was answered may write down what was said in the same commit
            await asyncio.shield(written)

    async def _prepare(self, target: Target) -> None:
        """Load price list and tokenizer off the event loop: the first of a model's calls must not hold others up."""
        if target not in self._prepared:
            await asyncio.to_thread(self.ledger.prices.price, target, Tokens())
            await self.tokens.prepare(target)
            self._prepared.add(target)

    def _count_tokens(self, call: _Call, target: Target, counted: int, end: Finished | None, error: str) -> Tokens:
        """What the provider says, else what we count. A request it turned away before a word cost nothing."""
        if end is not None and not end.tokens.estimated:
            self.tokens.calibrate(target, counted, end.tokens.input)
            return end.tokens
        if error and not call.partial.has_content:
            return Tokens()
        written = self.tokens.count(target, call.partial.text + call.partial.thinking)
        return Tokens(input=counted, output=written, estimated=True)

    def _cool_down_if_limited(self, target: Target, error: ModelError, *, last: bool) -> None:
        if isinstance(error, OutOfCredit) or (isinstance(error, RateLimited) and (last or error.retry_after)):
            self._cooldowns.start(target, error.retry_after or self._settings.rate_limit_cooldown_s)

    def _chain_error(self, call: _Call) -> ModelError:
        if len(call.chain) == 1:
            return call.failures[-1]
        waits = [self._cooldowns.remaining(target) for target in call.chain]
        told = " ".join(dict.fromkeys(failure.what for failure in call.failures))
        return ChainFailed(
            f"None of the {len(call.chain)} models for {call.role.value} could answer. {told}",
            "Try again in a little while, or set another fallback in the settings.",
            failures=tuple(call.failures),
            retry_after=min(waits) or None,
        )


def _cooldown_error(target: Target, seconds: float) -> RateLimited:
    return RateLimited(
        f"{target} rests after a rate limit, for another {math.ceil(seconds)} s.",
        "Wait until then, or set a fallback model in the settings.",
        status=429,
        retry_after=seconds,
    )


def _now() -> float:
    return asyncio.get_running_loop().time()


def _ms(began: float, until: float | None) -> float | None:
    return None if until is None else round((until - began) * 1000, 3)
