"""Routes a prompt for a role to the first model of the role's chain that can answer.

Transient failures are retried (after 500 ms, then 1 s: three attempts), then the next model of the chain is asked. A
rate-limited model is in cooldown for all callers. A request that is itself at fault (400, 401, 402, 403 …) is neither
retried nor sent to another model, which would only cost more and hide the reason. Once part of a reply has been shown,
no other model may finish it; the partial text is kept on the error. Spending caps are checked before each call, and
each call is recorded in the ledger. Prompts and answers pass redaction here, whatever model is called.
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
from coterie.base.redaction import StreamRedactor, redact
from coterie.eventstore import Store
from coterie.llm.embedded.gguf import memory_needed_mb
from coterie.llm.embedded.provider import EmbeddedProvider
from coterie.llm.embedded.script import Similarity
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
    TextDelta,
    ThinkingDelta,
    Tokens,
)
from coterie.llm.model_info import ModelInfoStore
from coterie.llm.recording import RecordingProvider, ReplayProvider, read_recording
from coterie.llm.samplers import Sampler, apply_sampler
from coterie.llm.settings import Catalogue, EmbeddedSettings, ModelsSettings, ProviderSpec, Role, Target
from coterie.llm.tokens import TokenCounter
from coterie.llm.usage import Ledger, ModelCalled, Outcome

_TIMEOUT_FIX = "Try again, or choose a quicker model; the limits are first_token_s, idle_s and deadline_s in [models]."


async def stream_attempt(
    provider: Provider, request: CompletionRequest, spec: ProviderSpec, partial: PartialAnswer, deadline: float
) -> AsyncGenerator[Chunk, None]:
    """Stream one attempt with one model, enforcing its time limits and that it produces output.

    Secrets in its text are redacted, also those that arrive in several chunks. Tool calls are left as they are: code
    that runs a tool refuses arguments with a secret, which is better than running it with others.
    """
    texts, thoughts = StreamRedactor(), StreamRedactor()

    def held_back() -> list[Chunk]:
        text, thinking = texts.flush(), thoughts.flush()
        return [*([ThinkingDelta(thinking=thinking)] if thinking else []), *([TextDelta(text=text)] if text else [])]

    def redacted(chunk: Chunk) -> list[Chunk]:
        match chunk:
            case TextDelta(text=text):
                shown = texts.filter(text)
                return [chunk if shown == text else TextDelta(text=shown)] if shown else []
            case ThinkingDelta(thinking=thinking):
                shown = thoughts.filter(thinking)
                return [chunk if shown == thinking else ThinkingDelta(thinking=shown)] if shown else []
            case _:
                return [*held_back(), chunk]

    async with aclosing(_read_in_time(provider, request, spec, deadline)) as chunks:
        try:
            async for received in chunks:
                for chunk in redacted(received):
                    partial.add(chunk)
                    partial.redacted = texts.found_secret
                    if isinstance(chunk, Finished) and not partial.has_content:
                        raise _empty_answer_error(f"{provider.name}/{request.model}", chunk)
                    yield chunk
        except ModelError:
            for chunk in held_back():
                partial.add(chunk)
                yield chunk
            raise


async def _read_in_time(
    provider: Provider, request: CompletionRequest, spec: ProviderSpec, deadline: float
) -> AsyncGenerator[Chunk, None]:
    """The provider's chunks up to `Finished`.

    Only the wait for the next chunk counts, not the time the consumer takes. Bytes that do not complete a chunk do not
    reset the limit, so an answer that arrives byte by byte times out like silence does.
    """
    target = f"{provider.name}/{request.model}"
    loop = asyncio.get_running_loop()
    problem, limit = "did not begin to answer", loop.time() + spec.first_token_s
    async with aclosing(provider.stream(request)) as chunks:
        while True:
            if deadline < limit:
                problem, limit = "did not finish", deadline
            try:
                async with asyncio.timeout_at(limit):
                    chunk = await anext(chunks)
            except TimeoutError:
                raise TimedOut(f"{target} {problem} in time.", _TIMEOUT_FIX) from None
            except StopAsyncIteration:
                raise BadAnswer(f"{target} stopped without ending its answer.", "Try again.") from None
            yield chunk
            if isinstance(chunk, Finished):
                return
            problem, limit = "stopped sending", loop.time() + spec.idle_s


def _empty_answer_error(target: str, end: Finished) -> ModelError:
    if end.reason == "length":
        return EmptyAnswer(f"{target} used up its tokens before it wrote any text.", "Raise max_tokens.")
    if end.reason == "filter":
        what = f"{target}'s content filter blocked the answer."
        return EmptyAnswer(what, "Choose another model, or change the request.")
    return EmptyAnswer(f"{target} returned an empty answer.", "Try again, or choose another model.")


class Cooldowns:
    """Which models are in cooldown and until when. One table per process: a rate limit applies to all callers."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until: dict[Target, float] = {}

    def start(self, target: Target, seconds: float) -> None:
        """Start a cooldown. A longer one that is already running is not shortened."""
        until = self._clock.monotonic() + seconds
        self._until[target] = max(until, self._until.get(target, until))

    def remaining(self, target: Target) -> float:
        """Seconds until the model may be called again; 0 if it may be called now."""
        until = self._until.get(target)
        if until is None:
            return 0.0
        seconds = until - self._clock.monotonic()
        if seconds <= 0:
            del self._until[target]
            return 0.0
        return seconds


_log = get_logger(__name__)

MAX_ATTEMPTS = 3
FIRST_RETRY_DELAY_S = 0.5
_WARM_UP_AFTER_S = 2.0
_SHORT_COOLDOWN_S = 1.0
"""A cooldown this short is waited out; for a longer one the next model is asked."""
_DEFAULT_ANSWER_TOKENS = 1024
"""Tokens reserved from the cap for an answer without `max_tokens`."""


@dataclass(frozen=True)
class Caller:
    """The room and character a call is made for; used by the ledger and the queue."""

    room: str = ""
    character: str = ""
    sampler: Sampler | None = None
    """How the model picks its words, where that is set; it goes before the preset of the model."""


@dataclass
class _Call:
    role: Role
    prompt: Prompt
    caller: Caller
    priority: Priority
    chain: tuple[Target, ...]
    deadline: float
    streamed: bool
    """Whether the chunks are shown as they arrive."""
    started: float
    id: str = field(default_factory=new_id)
    partial: PartialAnswer = field(default_factory=PartialAnswer)
    failures: list[ModelError] = field(default_factory=list)


class Models:
    """The entry point to all models: `stream` for a reply to show as it arrives, `ask` for a complete answer."""

    def __init__(
        self,
        settings: ModelsSettings,
        *,
        clock: Clock | None = None,
        store: Store | None = None,
        zone: tzinfo | None = None,
        providers: Mapping[str, Provider] | None = None,
        info: ModelInfoStore | None = None,
        folder: Path | None = None,
        wrap: Callable[[Provider], Provider] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        similarity: Similarity | None = None,
    ) -> None:
        """Usage is recorded in `store`; without one it is counted for this process only. `zone` defines local days.

        `providers` replace configured providers of the same name; `wrap` is applied to each provider. `info` is what
        providers report about their models, and `folder` has the downloaded ones. `similarity` of texts helps the
        embedded model to choose among several candidates of a reply.
        """
        self.catalogue = Catalogue(settings, info, folder)
        self.tokens = TokenCounter(self.catalogue)
        self._settings = settings
        self._clock = clock or SystemClock()
        self.ledger = Ledger(self.catalogue, self._clock, store, zone)
        self._cooldowns = Cooldowns(self._clock)
        self._wrap = wrap
        self._sleep = sleep
        self._similarity = similarity
        self._overrides = dict(providers or {})
        self._providers: dict[str, Provider] = {}
        self._connections: dict[str, object] = {}
        self._replaced: list[Provider] = []
        self._prepared: set[Target] = set()
        self._unknown_contexts: set[Target] = set()
        self._warm_up: threading.Timer | None = None

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
        """Start a reply that is shown while it arrives."""
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
        on_text: Callable[[str], None] | None = None,
    ) -> ModelAnswer:
        """Return a complete answer. An answer that breaks off is retried.

        `on_text` is called with all of the text so far, for a preview; it starts over with a retry.
        """
        call = self._new_call(role, prompt, caller, task, priority, deadline_s, streamed=False)
        async with StreamedReply(call.partial, self._run(call)) as reply:
            async for _ in reply:
                if on_text is not None and reply.text:
                    on_text(reply.text)
            return await reply.finish()

    @property
    def settings(self) -> ModelsSettings:
        return self._settings

    def warm_up(self) -> None:
        """Import the provider libraries in a background thread, because that takes seconds.

        The thread is a daemon, so it does not delay the exit of a short-lived program.
        """
        chains = (self.catalogue.chain(role) for role in (Role.NARRATIVE, Role.CLASSIFIER))
        protocols = {self.catalogue.spec(target.provider).protocol for chain in chains for target in chain}
        self._warm_up = threading.Timer(_WARM_UP_AFTER_S, _import_in_advance, protocols)
        self._warm_up.daemon = True
        self._warm_up.start()

    async def close(self) -> None:
        if self._warm_up is not None:
            self._warm_up.cancel()
        providers, self._providers = [*self._replaced, *self._providers.values()], {}
        self._replaced.clear()
        for provider in providers:
            await provider.close()

    def sees(self, role: Role, target: Target) -> bool:
        """Whether a model gets pictures: it is known to see, or it was chosen for what is seen."""
        return role is Role.VISION or bool(self.catalogue.details(target).vision)

    def cooldown_remaining(self, target: Target) -> float:
        """Seconds until a rate-limited model may be called again; 0 if it may be called now."""
        return self._cooldowns.remaining(target)

    def context_window(self, role: Role, task: str | None = None) -> int | None:
        """The smallest known context size in the chain, in tokens; None if none is known."""
        chain = self.catalogue.chain(role, task)
        contexts = {target: self.catalogue.details(target).context for target in chain}
        for target in [target for target, context in contexts.items() if context is None]:
            if target not in self._unknown_contexts:
                self._unknown_contexts.add(target)
                _log.warning("context_window_unknown", model=str(target), fix=f'set it in [models.details."{target}"]')
        return min((context for context in contexts.values() if context is not None), default=None)

    def provider(self, target: Target) -> Provider:
        """The provider of a model; it is created again if its address, key or file has changed.

        Each embedded model has a provider of its own, because its process serves one file.
        """
        overridden = target.provider in self._overrides
        spec = None if overridden else self.catalogue.spec(target.provider)
        embedded = spec is not None and spec.protocol == "embedded" and not self._settings.replay
        name = str(target) if embedded else target.provider
        connection: object = spec and (spec.protocol, spec.base_url, spec.api_key, spec.native_schema)
        if embedded:
            connection = self._embedded_settings(target)
        if name not in self._providers or self._connections.get(name) != connection:
            if name in self._providers:
                self._replace(self._providers[name])
                self.tokens.forget(target)
            provider = self._overrides.get(target.provider) or self._create_provider(target)
            if self._settings.record:
                provider = RecordingProvider(provider, Path(self._settings.record).expanduser(), self._clock)
            self._providers[name] = self._wrap(provider) if self._wrap else provider
            self._connections[name] = connection
        return self._providers[name]

    def release_unused(self) -> None:
        """Unload embedded models that no role and no task uses any more, once their calls have ended."""
        chains = [self.catalogue.chain(role) for role in Role]
        chains += [self.catalogue.chain(Role.WORKER, task) for task in self._settings.tasks]
        used = {str(target) for chain in chains for target in chain}
        for name in [name for name in self._providers if name.startswith("embedded/") and name not in used]:
            self._replace(self._providers.pop(name))

    def _replace(self, provider: Provider) -> None:
        """Give up a provider from which a reply may still be streaming."""
        self._replaced.append(provider)
        if isinstance(provider, EmbeddedProvider):
            provider.unload_when_idle()

    def _create_provider(self, target: Target) -> Provider:
        name = target.provider
        if self._settings.replay:
            return ReplayProvider(name, read_recording(Path(self._settings.replay).expanduser()), speed=1.0)
        spec = self.catalogue.spec(name)
        if spec.protocol == "embedded":
            return EmbeddedProvider(self._embedded_settings(target), self._clock, self._similarity)
        return HostedProvider(spec)

    def _embedded_settings(self, target: Target) -> EmbeddedSettings:
        """A copy of the settings for one model: the running ones change in place."""
        settings = self._settings.embedded
        if not self.catalogue.is_downloaded(target):
            return settings.model_copy()
        weights = self.catalogue.weights(target)
        context = self.catalogue.details(target).context or settings.context
        memory_mb = max(settings.memory_mb, memory_needed_mb(weights, context, settings.slots))
        return settings.model_copy(update={"model": str(weights), "context": context, "memory_mb": memory_mb})

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
            prompt=redact.value(prompt),
            caller=caller,
            priority=role.priority if priority is None else priority,
            chain=self.catalogue.chain(role, task),
            deadline=now + (self._settings.deadline_s if deadline_s is None else deadline_s),
            streamed=streamed,
            started=now,
        )

    async def _run(self, call: _Call) -> AsyncGenerator[Chunk | ModelAnswer, None]:
        for target in call.chain:
            for attempt in range(MAX_ATTEMPTS):
                if not await self._wait_for_turn(call, target, attempt):
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
                    self._cool_down_if_limited(target, error, last=attempt == MAX_ATTEMPTS - 1)
                    if not error.retryable or _now() >= call.deadline:
                        break
            if _now() >= call.deadline:
                break
        raise self._chain_error(call)

    async def _wait_for_turn(self, call: _Call, target: Target, attempt: int) -> bool:
        """Wait before the next attempt. False if the model is in a long cooldown or the deadline would pass."""
        wait = FIRST_RETRY_DELAY_S * 2 ** (attempt - 1) if attempt else 0.0
        cooldown = self._cooldowns.remaining(target)
        if cooldown > _SHORT_COOLDOWN_S:
            call.failures.append(_cooldown_error(target, cooldown))
            return False
        wait = max(wait, cooldown)
        if _now() + wait >= call.deadline:
            if not call.failures:
                call.failures.append(TimedOut(f"No time was left to ask {target}.", "Allow more time."))
            return False
        if wait:
            await self._sleep(wait)
            if cooldown := self._cooldowns.remaining(target):  # another caller met the limit meanwhile
                call.failures.append(_cooldown_error(target, cooldown))
                return False
        return True

    async def _attempt(self, call: _Call, target: Target) -> AsyncGenerator[Chunk | ModelAnswer, None]:
        spec = self.catalogue.spec(target.provider)
        owner = call.caller.room or call.caller.character
        sampler = self.catalogue.sampler(target, call.caller.sampler)
        prompt = apply_sampler(call.prompt, sampler, self.catalogue.preset_name(target.provider))
        if not self.sees(call.role, target):
            prompt = prompt.without_images()
        request = CompletionRequest(model=target.model, prompt=prompt, priority=call.priority, owner=owner)
        await self._prepare(target)
        counted = self.tokens.count_prompt(target, prompt)
        expected = Tokens(input=counted, output=prompt.max_tokens or _DEFAULT_ANSWER_TOKENS)
        call.partial.restart(str(target))
        with self.ledger.reserve(target, expected) as reservation:
            began, first = _now(), None
            outcome: Outcome = "stopped"
            error, end = "", None
            try:
                async with aclosing(
                    stream_attempt(self.provider(target), request, spec, call.partial, call.deadline)
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
                    reservation,
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
                        selection=end.selection if end else "",
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
                redacted=call.partial.redacted,
                first_token_ms=_ms(call.started, first),
                total_ms=_ms(call.started, _now()) or 0.0,
            )
        finally:  # after the yield, so that the caller's own events can be part of the same group commit
            await asyncio.shield(written)

    async def _prepare(self, target: Target) -> None:
        """Load the price list and the tokenizer off the event loop, so that a first call does not block it."""
        if target not in self._prepared:
            await asyncio.to_thread(self.ledger.prices.price, target, Tokens())
            await self.tokens.prepare(target)
            self._prepared.add(target)

    def _count_tokens(self, call: _Call, target: Target, counted: int, end: Finished | None, error: str) -> Tokens:
        """The provider's count, else our own. A request that failed without output counts as zero."""
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
        reasons = " ".join(dict.fromkeys(failure.what for failure in call.failures))
        return ChainFailed(
            f"None of the {len(call.chain)} models for {call.role.value} could answer. {reasons}",
            "Try again in a little while, or set another fallback in the settings.",
            failures=tuple(call.failures),
            retry_after=min(waits) or None,
        )


def _cooldown_error(target: Target, seconds: float) -> RateLimited:
    return RateLimited(
        f"{target} is rate-limited for another {math.ceil(seconds)} s.",
        "Wait until then, or set a fallback model in the settings.",
        status=429,
        retry_after=seconds,
    )


def _import_in_advance(*protocols: str) -> None:
    try:
        import_libraries(*protocols)
    except Exception:  # the first call of a model says what is missing
        _log.warning("the libraries of the models were not imported in advance", exc_info=True)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _ms(began: float, until: float | None) -> float | None:
    return None if until is None else round((until - began) * 1000, 3)
