"""The desk held in a room of any surface. P2

What is said is recorded with the work of answering it; this only waits for the answer and hands it on.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from coterie.base.ids import new_id
from coterie.cast.roster import Roster
from coterie.engine.conversation import Opened, Speech, Spoken, Standing
from coterie.engine.protocol import Attachment
from coterie.engine.turns import Timeline
from coterie.kernel import Draft, Store
from coterie.modes.desk.desk import Desk
from coterie.modes.desk.errors import DeskError
from coterie.modes.desk.events import DeskOpened, DeskRenamed

_GIVEN_UP = "I could not answer this, however often I tried. Whoever runs me finds the reason with `coterie doctor`."


class DeskConversation:
    mode = "desk"

    def __init__(self, store: Store, desk: Desk, roster: Roster) -> None:
        self._store = store
        self._desk = desk
        self._roster = roster
        self._timeline = Timeline(store)

    async def open(self, person: str, character: str, title: str = "", *, at_once: bool = False) -> Opened:
        room = f"room:{new_id()}"
        bot = self._roster.bot(character)
        return Opened(room, [Draft(room, DeskOpened(character=bot.id, person=person, title=title), person)])

    async def let_in(self, context: str, person: str) -> None:
        """Every message carries who wrote it."""

    async def let_go(self, context: str, person: str) -> None:
        """Nothing is kept of who was in."""

    async def say(
        self, context: str, text: str, *, person: str, key: str, attachments: Sequence[Attachment] = ()
    ) -> AsyncIterator[Speech]:
        chat = self._desk.book.chat(context)
        if decided := await self._desk.decisions.take(chat, text, person):
            yield Spoken(decided, self._roster.bot(chat.character).name)
            return
        turn = await self._desk.say(context, text, person=person, key=key)
        yield await self._answer(context, turn)

    def retry(self, context: str, *, person: str) -> AsyncIterator[Speech]:
        raise DeskError("What was done at the desk cannot be done over.", "Say what should be different.")

    async def stop(self, context: str) -> bool:
        """Everything that goes on in this conversation."""
        busy = [process for process in self._desk.book.processes(context) if process.busy]
        for process in busy:
            await self._desk.processes.cancel(context, process.id)
        return bool(busy)

    def standing(self, context: str) -> Standing:
        chat = self._desk.book.chat(context)
        busy = [process for process in self._desk.book.processes(context) if process.busy]
        notes = tuple((f"{process.kind} {process.id}", process.status or process.task) for process in busy)
        return Standing(chat.title, self._roster.bot(chat.character).name, self._timeline.count(context), notes)

    async def rename(self, context: str, title: str) -> None:
        await self._store.append([Draft(context, DeskRenamed(title=title))])

    async def _answer(self, room: str, turn: str) -> Spoken:
        name = self._roster.bot(self._desk.book.chat(room).character).name
        answer = await self._desk.answers.wait(room, turn)
        if answer is not None:
            return Spoken(answer.text, name, answer.why)
        return Spoken("", name, _GIVEN_UP if self._desk.answers.given_up(turn) else "")
