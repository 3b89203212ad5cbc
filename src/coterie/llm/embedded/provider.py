"""The bundled model: llama.cpp's server with SmolLM2 in a child process, without a key or network access.

The process is started by the first request and stopped after a while without requests. If it crashes or hangs, the
calls in progress fail with `ModelCrashed`, and the next call starts a new process.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import sys
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from coterie.base.clock import Clock, SystemClock
from coterie.base.logging import get_logger
from coterie.base.redaction import redact
from coterie.base.supervisor import run_once
from coterie.llm.embedded.gguf import find_weights
from coterie.llm.embedded.script import (
    MAX_TOKENS,
    TEMPERATURES,
    Candidate,
    ChosenLine,
    Similarity,
    author_line,
    fixed_reply,
    label,
    script_text,
    select,
)
from coterie.llm.errors import BadAnswer, BadRequest, ModelCrashed, ModelUnavailable, ServerFault, Unreachable
from coterie.llm.hosted import HostedProvider, check_real_requests, import_libraries
from coterie.llm.messages import Chunk, CompletionRequest, Finished, Priority, Prompt, Script, TextDelta, Tokens
from coterie.llm.settings import EMBEDDED_MODEL, EmbeddedSettings, ProviderSpec

_log = get_logger(__name__)
_HEALTH_TIMEOUT_S = 5.0
_PASSED_VARIABLES = (
    "PATH",
    "HOME",
    "LANG",
    "TMPDIR",
    "PYTHONPATH",
    "LD_LIBRARY_PATH",
    "DYLD_LIBRARY_PATH",
    "SYSTEMROOT",
)


@dataclass(eq=False)
class _Waiting:
    priority: Priority
    owner: str
    since: float
    number: int
    turn: asyncio.Future[None]


class FairQueue:
    """Admits requests to a fixed number of slots.

    Lower priority numbers go first. Within one priority, owners take turns, so that a room with many jobs does not
    block another. A request that has waited longer than `max_wait_s` gets the priority of a person. If there are
    several slots, the last free one is reserved for people, so that they do not wait for background work.
    """

    def __init__(self, slots: int, clock: Clock, max_wait_s: float = 30.0) -> None:
        self._slots = slots
        self._clock = clock
        self._max_wait_s = max_wait_s
        self._in_use = 0
        self._waiting: list[_Waiting] = []
        self._sequence = 0
        self._last_turn: dict[str, int] = {}

    @property
    def idle(self) -> bool:
        return not self._in_use and not self._waiting

    @asynccontextmanager
    async def slot(self, priority: Priority, owner: str) -> AsyncIterator[None]:
        self._sequence += 1
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = _Waiting(priority, owner, self._clock.monotonic(), self._sequence, turn)
        self._waiting.append(waiting)
        self._start_next()
        try:
            await turn
        except asyncio.CancelledError:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
            elif not turn.cancelled():
                self._release()  # cancelled just after it was admitted: free the slot
            raise
        try:
            yield
        finally:
            self._release()

    def _release(self) -> None:
        self._in_use -= 1
        self._start_next()

    def _start_next(self) -> None:
        while (free := self._slots - self._in_use) > 0 and self._waiting:
            first = min(self._waiting, key=self._sort_key)
            if self._slots > 1 and free == 1 and self._effective_priority(first) > Priority.PERSON:
                return
            self._waiting.remove(first)
            if first.turn.done():
                continue  # cancelled, but its task has not run yet to remove itself
            self._in_use += 1
            self._last_turn[first.owner] = self._sequence = self._sequence + 1
            if len(self._last_turn) > 10_000:
                self._last_turn.clear()
            first.turn.set_result(None)

    def _effective_priority(self, waiting: _Waiting) -> int:
        overdue = self._clock.monotonic() - waiting.since >= self._max_wait_s
        return Priority.PERSON if overdue else waiting.priority

    def _sort_key(self, waiting: _Waiting) -> tuple[int, int, int]:
        return self._effective_priority(waiting), self._last_turn.get(waiting.owner, 0), waiting.number


class EmbeddedProcess:
    """The child process: start it, check that it responds, kill it."""

    def __init__(self, process: asyncio.subprocess.Process, url: str, key: str, stderr_tail: deque[str]) -> None:
        self._process = process
        self._stderr_tail = stderr_tail
        self.url = url
        self.key = key

    @classmethod
    async def start(cls, settings: EmbeddedSettings, weights: Path) -> EmbeddedProcess:
        key = secrets.token_urlsafe(24)
        redact.register(key)
        options = {
            "weights": str(weights),
            "name": EMBEDDED_MODEL,
            "context": settings.context,
            "slots": settings.slots,
            "candidates": settings.candidates,
            "threads": settings.threads or _default_threads(),
            "memory_mb": settings.memory_mb,
            "key": key,
        }
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "coterie.llm.embedded.server",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=_environment(),
            start_new_session=True,
        )
        stderr_tail: deque[str] = deque(maxlen=20)
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise RuntimeError("The process was started without its pipes.")
        run_once("error output of the embedded model", _collect_stderr(process.stderr, stderr_tail))
        try:
            process.stdin.write(json.dumps(options).encode() + b"\n")
            async with asyncio.timeout(settings.start_s):
                status = json.loads(await process.stdout.readline() or b"{}")
        except (TimeoutError, OSError, ValueError):
            status = {}
        except asyncio.CancelledError:
            _kill(process)
            raise
        if "url" not in status:
            _kill(process)
            await process.wait()
            _log.error("embedded_model_not_started", error=status.get("error"), stderr=list(stderr_tail))
            raise ModelCrashed(
                f"The embedded model could not be loaded ({status.get('error') or 'it gave no reason'}).",
                "Check embedded.memory_mb and embedded.model in [models]; the log has its error output.",
            )
        _log.info("embedded_model_started", pid=process.pid, weights=weights.name)
        return cls(process, status["url"], key, stderr_tail)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_exited(self) -> bool:
        return self._process.returncode is not None

    @property
    def memory_mb(self) -> float:
        import psutil

        try:
            return float(psutil.Process(self.pid).memory_info().rss / 1024**2)
        except psutil.NoSuchProcess:
            return 0.0

    async def responds(self, timeout_s: float) -> bool:
        import httpx

        try:
            async with httpx.AsyncClient(trust_env=False, timeout=timeout_s) as client:
                return (await client.get(f"{self.url}/health")).status_code < 500
        except httpx.HTTPError:
            return False

    async def wait_for_exit(self) -> bool:
        """Wait up to a second for the process to exit: a broken connection is often noticed before the exit."""
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                await self._process.wait()
        if self.has_exited:
            _log.warning("embedded_model_died", code=self._process.returncode, stderr=list(self._stderr_tail))
        return self.has_exited

    async def kill(self) -> None:
        _kill(self._process)
        await self._process.wait()


def _environment() -> dict[str, str]:
    """Only the variables that the process needs, so that API keys in the environment are not passed on."""
    kept = {name: os.environ[name] for name in _PASSED_VARIABLES if name in os.environ}
    # With active waiting, any other load on the machine slows the model: 5 instead of 35 tokens/s.
    return {**kept, "OMP_WAIT_POLICY": "passive"}


def _default_threads() -> int:
    """All cores but one: the threads synchronise at every token, so one busy core slows them all."""
    return max(1, (os.cpu_count() or 2) - 1)


async def _collect_stderr(stream: asyncio.StreamReader, stderr_tail: deque[str]) -> None:
    while line := await stream.readline():
        stderr_tail.append(line.decode(errors="replace").rstrip())


def _kill(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.kill()


@dataclass
class _RunningModel:
    process: EmbeddedProcess
    client: HostedProvider
    chunks_received: int = 0
    """All chunks received so far; a growing number shows that the process is alive."""


class EmbeddedProvider:
    """The provider `embedded`: queues calls and starts, watches and unloads the process."""

    name = "embedded"

    def __init__(
        self, settings: EmbeddedSettings, clock: Clock | None = None, similarity: Similarity | None = None
    ) -> None:
        """`similarity` helps to choose among candidates of a reply."""
        self._settings = settings
        self._similarity = similarity
        self._queue = FairQueue(settings.slots, clock or SystemClock())
        self._start_lock = asyncio.Lock()
        self._running: _RunningModel | None = None
        self._unload_timer: asyncio.TimerHandle | None = None
        self._stop_tasks: set[asyncio.Task[None]] = set()

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk, None]:
        check_real_requests(f"{self.name}/{request.model}")
        async with self._queue.slot(request.priority, request.owner):
            self._cancel_unload()
            try:
                running = await self._start()
                watch = run_once("watch the embedded model", self._kill_if_hung(running))
                try:
                    script = request.prompt.script
                    answer = running.client.stream(request) if script is None else self._write_line(running, request)
                    async with aclosing(answer) as chunks:
                        async for chunk in chunks:
                            running.chunks_received += 1
                            yield chunk
                except ModelUnavailable as error:
                    if await running.process.wait_for_exit():
                        raise ModelCrashed(
                            "The embedded model's process died while it was answering.",
                            "Try again: the next request starts a new process.",
                        ) from error
                    raise
                finally:
                    watch.cancel()
            finally:
                self._schedule_unload()

    @property
    def process(self) -> EmbeddedProcess | None:
        """The process, while it runs."""
        return self._running.process if self._running and not self._running.process.has_exited else None

    def unload_when_idle(self) -> None:
        """Unload the model now, or as soon as its last call has ended; a later call loads it again."""
        self._settings = self._settings.model_copy(update={"idle_unload_s": 0.01})
        if self._queue.idle:
            self._unload()

    async def close(self) -> None:
        self._cancel_unload()
        await self._stop_current()
        await asyncio.gather(*self._stop_tasks)

    async def _start(self) -> _RunningModel:
        async with self._start_lock:
            if self._running is not None and self._running.process.has_exited:
                await self._stop_current()
            if self._running is None:
                weights = find_weights(self._settings.model)
                # Loading the model and importing the client libraries take a second or more each: do both at once.
                process, _ = await asyncio.gather(
                    EmbeddedProcess.start(self._settings, weights), asyncio.to_thread(import_libraries, "openai")
                )
                self._running = _RunningModel(process, HostedProvider(_local_spec(process)))
            return self._running

    async def _write_line(self, running: _RunningModel, request: CompletionRequest) -> AsyncGenerator[Chunk, None]:
        """The next line of a script: the best of several candidates, or a line that needs no model."""
        script = request.prompt.script
        assert script is not None  # noqa: S101 - the caller has checked it
        choose = self._settings.candidates > 1
        selection, tokens = fixed_reply(script) if choose else None, Tokens()
        for temperature in TEMPERATURES if selection is None else ():
            candidates, used = await self._complete(running, request.prompt, script, temperature)
            running.chunks_received += 1
            tokens = Tokens(input=tokens.input + used.input, output=tokens.output + used.output)
            if not choose:
                selection = ChosenLine(candidates[0].text.strip(), "")
                break
            # Rules and vectors take milliseconds, but the first call loads the vectors.
            selection = await asyncio.to_thread(select, script, candidates, self._similarity)
            if selection is not None:
                break
        selection = selection or author_line(script)
        _log.info("line_selected", owner=request.owner, how=selection.description)
        for piece in re.findall(r"\S+\s*", selection.text):
            yield TextDelta(text=piece)
        yield Finished(reason="stop", tokens=tokens, model=request.model, selection=selection.description)

    async def _complete(
        self, running: _RunningModel, prompt: Prompt, script: Script, temperature: float
    ) -> tuple[list[Candidate], Tokens]:
        import httpx

        names = [label(script, name) for name in (script.speaker, *script.others)]
        body = {
            "prompt": script_text(script),
            "n": self._settings.candidates,
            "n_predict": min(MAX_TOKENS, prompt.max_tokens or MAX_TOKENS),
            "stop": ["\n", *(f" {name}:" for name in names)],
            "temperature": temperature,
            "n_probs": 1,
            "cache_prompt": True,
            **({} if prompt.seed is None else {"seed": prompt.seed}),
        }
        headers = {"authorization": f"Bearer {running.process.key}"}
        try:
            async with httpx.AsyncClient(trust_env=False, timeout=None, headers=headers) as client:  # noqa: S113 - the router has the limits
                response = await client.post(f"{running.process.url}/completion", json=body)
        except httpx.HTTPError as error:
            raise Unreachable("The connection to the embedded model was lost.", "Try again.") from error
        if response.status_code == 400:
            raise BadRequest("The embedded model refused the prompt: it is too long.", "Shorten the message.")
        if response.status_code != 200:
            raise ServerFault(f"The embedded model failed ({response.status_code}).", "Try again.")
        try:
            return _read_candidates(response.json())
        except (KeyError, TypeError, ValueError) as error:
            raise BadAnswer("The embedded model sent an invalid response.", "Try again.") from error

    async def _kill_if_hung(self, running: _RunningModel) -> None:
        """Kill the process if it sends nothing and does not answer health checks.

        Sending nothing alone is normal: the model may be reading a long prompt.
        """
        while not running.process.has_exited:
            before = running.chunks_received
            await asyncio.sleep(self._settings.stall_s)
            if running.chunks_received == before and not await running.process.responds(_HEALTH_TIMEOUT_S):
                # This breaks the connections of all waiting calls, which then fail with ModelCrashed.
                await running.process.kill()

    async def _stop_current(self) -> None:
        # Reset first, so that a call that arrives meanwhile starts a new process.
        running, self._running = self._running, None
        if running is not None:
            await _stop(running)

    def _cancel_unload(self) -> None:
        if self._unload_timer is not None:
            self._unload_timer.cancel()
            self._unload_timer = None

    def _schedule_unload(self) -> None:
        self._cancel_unload()
        loop = asyncio.get_running_loop()
        self._unload_timer = loop.call_later(self._settings.idle_unload_s, self._unload)

    def _unload(self) -> None:
        if self._queue.idle and self._running is not None:
            running, self._running = self._running, None
            task = run_once("stop the embedded model", _stop(running))
            self._stop_tasks.add(task)
            task.add_done_callback(self._stop_tasks.discard)


def _read_candidates(completions: Any) -> tuple[list[Candidate], Tokens]:
    results: list[dict[str, Any]] = completions if isinstance(completions, list) else [completions]
    candidates = []
    for result in results:
        logs = [float(token["logprob"]) for token in result.get("completion_probabilities", ())]
        candidates.append(Candidate(str(result["content"]), sum(logs) / len(logs) if logs else 0.0))
    written = sum(int(result["tokens_predicted"]) for result in results)
    return candidates, Tokens(input=int(results[0]["tokens_evaluated"]), output=written)


async def _stop(running: _RunningModel) -> None:
    await running.client.close()
    await running.process.kill()


def _local_spec(process: EmbeddedProcess) -> ProviderSpec:
    return ProviderSpec(
        name=EmbeddedProvider.name,
        protocol="openai",
        base_url=f"{process.url}/v1",
        api_key=SecretStr(process.key),
        native_schema=True,
        free=True,
        flat_rate=False,
        first_token_s=0,
        idle_s=0,
    )
