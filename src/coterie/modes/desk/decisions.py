"""A person's yes or no to what a worker wants to do, said in the conversation on whatever surface they are. D20

Only the words themselves count, from the person whose conversation it is: nothing a character, a file or anybody else
writes is looked at here.
"""

from __future__ import annotations

import re

from coterie.modes.desk.officebook import DeskChat, DeskQueries
from coterie.modes.desk.processes import Processes

_DECISION = re.compile(r"\s*(yes|no)(?:\s+(w\w+))?\s*[.!]?\s*", re.IGNORECASE)


def how_to_answer(worker: str) -> str:
    return f"Answer “yes” or “no”. (If more waits for you: “yes {worker}”.)"


class Confirmations:
    def __init__(self, book: DeskQueries, processes: Processes) -> None:
        self._book = book
        self._processes = processes

    async def handle_answer(self, chat: DeskChat, text: str, person: str) -> str:
        """What became of it; empty where it is no decision. Without a name it is one only if one worker asks."""
        said = _DECISION.fullmatch(text)
        if said is None or person != chat.person:
            return ""
        asking = {
            process.id: process.task for process in self._book.status_processes(chat.room) if process.needs_confirmation
        }
        if said[2] is None and len(asking) > 1:
            return "\n".join(["Which one?", *(f"“{said[1].lower()} {name}”: {task}" for name, task in asking.items())])
        worker = (said[2] or next(iter(asking), "")).lower()
        if worker not in asking:
            return ""
        allowed = said[1].lower() == "yes"
        await self._processes.confirm(chat.room, worker, allowed=allowed, actor=person)
        return f"“{asking[worker]}” goes on, {'as you allowed' if allowed else 'without it'}."
