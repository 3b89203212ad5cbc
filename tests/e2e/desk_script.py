"""A scripted model for the desk: it starts the task that a message asks for."""

from __future__ import annotations

import asyncio

from coterie.llm.messages import CompletionRequest
from coterie.llm.recording import RecordedCall
from tests.modes.desk.conftest import Line, calls
from tests.surfaces.web.conftest import Paced

_DESK = ("channel", "branch", "worker", "cortex")


class DeskScript(Paced):
    """A task "dig" runs until `dug` is set, "mail" needs an approval, "draft" an answer."""

    def __init__(self) -> None:
        super().__init__()
        self.dug = asyncio.Event()

    def answer(self, request: CompletionRequest) -> RecordedCall:
        if request.model not in _DESK:
            return super().answer(request)
        line = self._line(request)
        return RecordedCall(say=line) if isinstance(line, str) else line

    def _line(self, request: CompletionRequest) -> Line:
        messages = request.prompt.messages
        last = messages[-1].text
        if request.model == "worker":
            return self._work(messages[1].text, [m.text for m in messages[2:] if m.role in ("tool", "user")])
        if request.model == "branch":
            return "It is worth it."
        if "Results of your own work" in last:
            return "It is done: the note has three words." if "three words" in last else calls(("skip", {}))
        if last.startswith("Please "):
            task = last.removeprefix("Please ")
            work = ("spawn_worker", {"task": task, "interactive": task.startswith("draft")})
            return calls(work, ("branch", {"thought": f"How to {task}"}), ("reply", {"text": f"I will {task}"}))
        return "Good morning. What should be done?"

    def _work(self, task: str, results: list[str]) -> Line:
        status = ("set_status", {"text": f"at it: {task}"})
        if task.startswith("dig"):
            return calls(status, ("dig", {}))
        if task.startswith("mail"):
            return "It went out." if results else calls(("send_mail", {"to": "bo@example.com"}))
        if task.startswith("draft"):
            return calls(("finish", {"result": f"Dear friend, {results[-1]}"})) if results else "Formal or friendly?"
        if len(results) < 1:
            return calls(status, ("file", {"action": "write", "path": "note.txt", "text": "one two three"}))
        return calls(("shell", {"command": "wc -w note.txt"})) if len(results) < 3 else "The note has three words."
