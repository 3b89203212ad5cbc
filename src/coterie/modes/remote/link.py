"""The line to one remote agent: a WebSocket that the house opens, keeps open, and opens again. P12

Messages that are under way when the line breaks are sent again on the next one, with what we have of their answers. An
agent that cannot be reached, or of which nothing is heard, is given up on for a message after a few seconds: a person
waits at the other end. The line itself is tried for as long as the agent stands in the registry.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosedError, InvalidStatus, WebSocketException

from coterie.base.logging import get_logger
from coterie.base.masking import mask
from coterie.engine.agents import AgentEntry
from coterie.kernel.jobs import backoff_s
from coterie.modes.remote.errors import AgentError, AgentGarbled, AgentRefused, AgentSilent, AgentUnreachable
from coterie.modes.remote.line import Anew, Asking, News
from coterie.modes.remote.settings import AgentsSettings
from coterie.modes.remote.wire import (
    LARGEST_FRAME,
    PIECE,
    VERSION,
    Beat,
    Done,
    Failed,
    FilePiece,
    FromAgent,
    Hello,
    Push,
    Settled,
    Stop,
    ToAgent,
    from_agent,
    packed,
)

OnPush = Callable[[Push], Awaitable[None]]
_QUICK_S = 0.1
_ITS_FAULT = frozenset({1002, 1003, 1007, 1009})
"""With these we hang up by ourselves: what came was no frame, no text, or too large."""
_log = get_logger(__name__)


class _Open:
    """A message whose answer is under way."""

    def __init__(self, asking: Asking) -> None:
        self.asking = asking
        self.news: asyncio.Queue[News | Beat | AgentError] = asyncio.Queue()
        self.after = 0
        """The number of the last step that we have."""
        self.epoch = ""
        self.trouble: AgentError | None = None
        """What went wrong since anything was last heard of it."""


class AgentLink:
    def __init__(self, name: str, entry: AgentEntry, settings: AgentsSettings, on_push: OnPush) -> None:
        """`name` is the character's, for what people are told."""
        self._name = name
        self._entry = entry
        self._settings = settings
        self._on_push = on_push
        self._open: dict[str, _Open] = {}
        self._socket: ClientConnection | None = None
        self._epoch = ""
        self._trouble: AgentError | None = None
        self._hurry = asyncio.Event()
        self._known = asyncio.Event()
        """Set once it is known how things stand: there is a line, or there can be none."""
        self._keeping: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._keeping is None:
            self._keeping = asyncio.create_task(self._keep(), name=f"agent {self._name}")

    async def close(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)

    async def ask(self, asking: Asking) -> AsyncIterator[News]:
        self.start()
        message = asking.say.id
        under_way = self._open[message] = _Open(asking)
        try:
            if self._socket is None:
                self._hurry.set()
            else:
                await self._begin(self._socket, under_way)
            while True:
                try:
                    news = await asyncio.wait_for(under_way.news.get(), self._settings.patience_s)
                except TimeoutError:
                    raise self._nothing_came(under_way.trouble) from None
                if isinstance(news, AgentError):
                    raise news
                if not isinstance(news, Beat):
                    yield news
                if isinstance(news, Done | Failed):
                    return
        finally:
            self._open.pop(message, None)

    async def stop(self, message: str) -> None:
        if (under_way := self._open.get(message)) is not None:
            # Whether the agent listens or not: nobody waits for it any more.
            under_way.news.put_nowait(Done(message=message, number=under_way.after + 1))
        await self._tell(Stop(message=message))

    async def settle(self, message: str) -> None:
        await self._tell(Settled(message=message))

    async def reached(self) -> None:
        """Until the line stands; the reason if it does not in time. For `coterie agent check`."""
        self.start()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._known.wait(), self._settings.patience_s)
        if self._socket is None:
            raise self._nothing_came(self._trouble)

    # --- the line --------------------------------------------------------------------------------------------

    async def _keep(self) -> None:
        tries = 0
        while True:
            try:
                async with self._connected() as socket:
                    tries = 0
                    await self._listen(socket)
            except AgentUnreachable as error:
                self._gave_trouble(error)
            except AgentError as error:
                self._gave_trouble(error, at_once=True)
            except InvalidStatus as error:
                self._gave_trouble(*self._refusal(error.response.status_code))
            except ConnectionClosedError as error:
                garbled = error.sent is not None and error.sent.code in _ITS_FAULT
                told = f"The line to {self._name} broke off."
                trouble = AgentGarbled(str(error)) if garbled else AgentUnreachable(told)
                self._gave_trouble(trouble, at_once=garbled, cause=str(error))
            except (OSError, WebSocketException, TimeoutError) as error:
                told = f"{self._name} cannot be reached at the moment."
                self._gave_trouble(AgentUnreachable(told), cause=f"{type(error).__name__}: {error}")
            except Exception:
                _log.exception("the line to an agent failed", agent=self._name)
                self._gave_trouble(AgentUnreachable(f"The line to {self._name} does not work."))
            finally:
                self._socket = None
            tries += 1
            # While somebody waits, soon; otherwise with growing pauses, until somebody does.
            pause = _QUICK_S if self._open else backoff_s(tries, longest=self._settings.longest_pause_s)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._hurry.wait(), pause)
            self._hurry.clear()

    def _connected(self) -> connect:
        token = self._entry.token
        headers = {"Authorization": f"Bearer {token.get_secret_value()}"} if token is not None else {}
        return connect(
            self._entry.base_url,
            additional_headers=headers,
            open_timeout=self._settings.patience_s,
            close_timeout=1.0,
            ping_interval=self._settings.heartbeat_s,
            ping_timeout=self._settings.heartbeat_s,
            max_size=LARGEST_FRAME,
            proxy=None,
        )

    async def _listen(self, socket: ClientConnection) -> None:
        await socket.send(Hello(name=self._name).line())
        async with asyncio.timeout(self._settings.patience_s):
            hello = from_agent(await socket.recv())
        if not isinstance(hello, Hello) or hello.version != VERSION:
            raise AgentGarbled(f"{self._name} speaks another protocol than I do.", "Whoever runs me has to look.")
        self._epoch, self._socket, self._trouble = hello.epoch, socket, None
        self._known.set()
        _log.info("an agent is there", agent=self._name)
        # Beside the reading: a large file on its way must not keep others from being heard.
        sending = [asyncio.create_task(self._begin(socket, one)) for one in self._open.values()]
        try:
            async for frame in socket:
                await self._take(socket, from_agent(frame))
        finally:
            for task in sending:
                task.cancel()
            await asyncio.gather(*sending, return_exceptions=True)
        raise AgentUnreachable(f"The line to {self._name} broke off.")

    async def _begin(self, socket: ClientConnection, under_way: _Open) -> None:
        """Send a message, for the first time or again. What breaks here breaks the line, and it is sent on the next."""
        if under_way.after and under_way.epoch != self._epoch:
            under_way.after = 0
            under_way.news.put_nowait(Anew())
        under_way.epoch = self._epoch
        asking = under_way.asking
        try:
            await socket.send(asking.say.model_copy(update={"after": under_way.after}).line())
            for number, attachment in enumerate(asking.attachments):
                if asking.read is None:
                    break
                waiting = b""
                async for chunk in asking.read(attachment):
                    waiting += chunk
                    while len(waiting) >= PIECE:
                        piece, waiting = waiting[:PIECE], waiting[PIECE:]
                        await socket.send(FilePiece(message=asking.say.id, file=number, data=packed(piece)).line())
                        under_way.news.put_nowait(Beat())  # it is we who are busy
                last = FilePiece(message=asking.say.id, file=number, data=packed(waiting), last=True)
                await socket.send(last.line())
        except WebSocketException:
            return

    async def _take(self, socket: ClientConnection, frame: FromAgent) -> None:
        if isinstance(frame, Hello):
            return
        if isinstance(frame, Push):
            await self._on_push(frame)
            await socket.send(Settled(push=frame.id).line())
            return
        if isinstance(frame, Beat):
            for message in frame.messages:
                if (under_way := self._open.get(message)) is not None:
                    under_way.news.put_nowait(frame)
            return
        under_way = self._open.get(frame.message)
        if under_way is None or frame.number <= under_way.after:
            return  # nobody waits for it any more, or it was told before
        if frame.number != under_way.after + 1:
            raise AgentGarbled(f"{self._name} left something out.")
        under_way.after, under_way.trouble = frame.number, None
        under_way.news.put_nowait(frame)

    async def _tell(self, frame: ToAgent) -> None:
        """What it need not hear: a line that breaks takes it along."""
        if self._socket is not None:
            with suppress(WebSocketException):
                await self._socket.send(frame.line())

    # --- trouble ---------------------------------------------------------------------------------------------

    def _gave_trouble(self, error: AgentError, at_once: bool = False, cause: str = "") -> None:
        """Remembered for whoever gives up waiting; told at once where waiting cannot help."""
        if str(error) != str(self._trouble):
            _log.warning("an agent gives trouble", agent=self._name, error=mask(str(error)), cause=mask(cause))
        self._trouble = error
        for under_way in self._open.values():
            under_way.trouble = error
            if at_once:
                under_way.news.put_nowait(self._for_people(error))
        if at_once:
            self._known.set()

    def _nothing_came(self, trouble: AgentError | None) -> AgentError:
        if trouble is not None:
            return self._for_people(trouble)
        if self._socket is None:
            return AgentUnreachable(f"{self._name} cannot be reached at the moment.")
        return AgentSilent(f"{self._name} does not answer.")

    def _for_people(self, error: AgentError) -> AgentError:
        """How a frame was wrong is for the log; that something is wrong is for the person."""
        if isinstance(error, AgentGarbled):
            return AgentGarbled(f"What {self._name} answered cannot be understood.")
        return error

    def _refusal(self, status: int) -> tuple[AgentError, bool]:
        if status in (401, 403):
            return AgentRefused(f"{self._name} does not let me in.", "Whoever runs me has to look at its token."), True
        return AgentUnreachable(f"{self._name} is not well: it answered {status}."), False
