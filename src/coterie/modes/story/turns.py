"""Every reply there was in one place, whether it counts or not: what a person swipes through. S22"""

from __future__ import annotations

from coterie.conversation.events import AssistantTurn, AssistantTurnStarted
from coterie.conversation.turns import TurnQueries
from coterie.eventstore import AnyEvent, Store


class Alternatives:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._timeline = TurnQueries(store)

    async def for_turn(self, room: str, turn: str) -> list[AssistantTurn]:
        """Every reply to a message, or in a reply's place, oldest first, the chosen one among them."""
        asked = self._timeline.turn(room, turn)
        if not asked.by_person and asked.answers is not None:
            asked = self._timeline.turn(room, asked.answers)
        answers, after = (asked.id, asked.seq) if asked.by_person else (None, 0)
        return (await self._answers(room, after)).get(answers, [])

    async def for_chat(self, room: str) -> dict[str | None, list[AssistantTurn]]:
        """The same for every message of a chat; openings are under None."""
        return await self._answers(room, 0)

    async def _answers(self, room: str, after: int) -> dict[str | None, list[AssistantTurn]]:
        asked: dict[str, str | None] = {}
        found: dict[str | None, list[AssistantTurn]] = {}
        for event in await self._reply_events(room, after):
            if isinstance(event.payload, AssistantTurnStarted):
                asked[event.payload.reply] = event.payload.answers
            elif isinstance(event.payload, AssistantTurn) and event.payload.reply in asked:
                found.setdefault(asked[event.payload.reply], []).append(event.payload)
        return found

    async def _reply_events(self, room: str, after: int) -> list[AnyEvent]:
        """Every reply after a point, those before a fork included."""
        kinds = [AssistantTurnStarted.kind, AssistantTurn.kind]
        own: list[AnyEvent] = []
        while page := await self._store.read(room, after=own[-1].seq if own else after, kinds=kinds):
            own += page
        origin = self._store.reader.fork_origin(room)
        if origin is None or after >= origin[1]:
            return own
        return [*(event for event in await self._reply_events(origin[0], after) if event.seq <= origin[1]), *own]
