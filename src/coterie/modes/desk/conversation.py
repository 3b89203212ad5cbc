"""The desk held in a room of any surface. P2

What is said is recorded with the work of answering it; this only waits for the answer and hands it on.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from coterie.base.ids import new_id
from coterie.cast.roster import Characters
from coterie.engine.conversation import ChatStatus, NewChat, ReplyFinished, ReplyUpdate
from coterie.engine.protocol import Attachment
from coterie.engine.turns import TurnQueries
from coterie.kernel import NewEvent, Store
from coterie.modes.desk.desk import DeskService
from coterie.modes.desk.errors import DeskError
from coterie.modes.desk.events import DeskOpened, DeskRenamed

_GIVEN_UP = "I could not answer this, however often I tried. Whoever runs me finds the reason with `coterie doctor`."


class DeskConversation:
    mode = "desk"

    def __init__(self, store: Store, desk: DeskService, roster: Characters) -> None:
        self._store = store
        self._desk = desk
        self._roster = roster
        self._timeline = TurnQueries(store)

    async def open(self, person: str, character: str, title: str = "", *, at_once: bool = False) -> NewChat:
        room = f"room:{new_id()}"
        bot = self._roster.get(character)
        return NewChat(room, [NewEvent(room, DeskOpened(character=bot.id, person=person, title=title), person)])

    async def add_person(self, context: str, person: str) -> None:
        """Every message carries who wrote it."""

    async def remove_person(self, context: str, person: str) -> None:
        """Nothing is kept of who was in."""

    async def send_message(
        self, context: str, text: str, *, person: str, key: str, attachments: Sequence[Attachment] = ()
    ) -> AsyncIterator[ReplyUpdate]:
        chat = self._desk.queries.chat(context)
        if decided := await self._desk.confirmations.handle_answer(chat, text, person):
            yield ReplyFinished(decided, self._roster.get(chat.character).name)
            return
        turn = await self._desk.send_message(context, text, person=person, key=key)
        yield await self._answer(context, turn)

    def retry(self, context: str, *, person: str) -> AsyncIterator[ReplyUpdate]:
        raise DeskError("What was done at the desk cannot be done over.", "Say what should be different.")

    async def stop(self, context: str) -> bool:
        """Everything that goes on in this conversation."""
        busy = [process for process in self._desk.queries.processes(context) if process.active]
        for process in busy:
            await self._desk.processes.cancel(context, process.id)
        return bool(busy)

    def status(self, context: str) -> ChatStatus:
        chat = self._desk.queries.chat(context)
        busy = [process for process in self._desk.queries.processes(context) if process.active]
        notes = tuple((f"{process.kind} {process.id}", process.status or process.task) for process in busy)
        return ChatStatus(chat.title, self._roster.get(chat.character).name, self._timeline.count(context), notes)

    async def rename(self, context: str, title: str) -> None:
        await self._store.append([NewEvent(context, DeskRenamed(title=title))])

    async def _answer(self, room: str, turn: str) -> ReplyFinished:
        name = self._roster.get(self._desk.queries.chat(room).character).name
        answer = await self._desk.replies.wait(room, turn)
        if answer is not None:
            return ReplyFinished(answer.text, name, answer.why)
        return ReplyFinished("", name, _GIVEN_UP if self._desk.replies.given_up(turn) else "")
