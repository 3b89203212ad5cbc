"""What OpenAI's clients send and expect, as far as a conversation needs it. Other fields are let through."""

from __future__ import annotations

from typing import Any

from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from coterie.llm.estimate import estimate, weights_for


class Said(BaseModel):
    model_config = ConfigDict(extra="ignore")

    role: str
    content: str | list[dict[str, Any]] | None = None

    def text(self) -> str:
        if isinstance(self.content, list):
            return "\n".join(str(part.get("text", "")) for part in self.content if part.get("type") == "text")
        return self.content or ""


class Asked(BaseModel):
    model_config = ConfigDict(extra="ignore")

    model: str
    messages: list[Said] = Field(min_length=1)
    stream: bool = False
    stream_options: dict[str, Any] | None = None
    user: str | None = Field(default=None, max_length=200)
    mode: str = Field(default="", max_length=40)
    """Ours: which kind of chat a new conversation is; the usual one without it."""

    def last(self) -> str:
        """What the person said just now."""
        text = self.messages[-1].text().strip() if self.messages[-1].role == "user" else ""
        if not text:
            raise ValueError("the last message has to be the user's, with some text")
        return text

    def first(self) -> str:
        return next((said.text() for said in self.messages if said.role == "user"), "")

    def goes_on(self) -> bool:
        return any(said.role == "assistant" for said in self.messages)

    def wants_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.get("include_usage"))


class _Shape:
    kind = ""

    def __init__(self, completion: str, asked: Asked, now: int) -> None:
        self._base = {"id": completion, "object": self.kind, "created": now, "model": asked.model}
        self._asked = asked

    def _usage(self, text: str) -> dict[str, int]:
        """What the conversation takes as text; a character's own prompt is another matter, told by the ledger."""
        weights = weights_for(self._asked.model)
        prompt = round(sum(estimate(said.text(), weights) for said in self._asked.messages))
        reply = round(estimate(text, weights))
        return {"prompt_tokens": prompt, "completion_tokens": reply, "total_tokens": prompt + reply}


class Whole(_Shape):
    kind = "chat.completion"

    def told(self, text: str, *, cut: bool) -> dict[str, object]:
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": "length" if cut else "stop", "logprobs": None}
        return {**self._base, "choices": [choice], "usage": self._usage(text)}


class Piece(_Shape):
    kind = "chat.completion.chunk"

    def begin(self) -> dict[str, object]:
        return self._told({"role": "assistant", "content": ""})

    def more(self, text: str) -> dict[str, object]:
        return self._told({"content": text})

    def end(self) -> dict[str, object]:
        return self._told({}, "stop")

    def usage(self, text: str) -> dict[str, object]:
        return {**self._base, "choices": [], "usage": self._usage(text)}

    def _told(self, delta: dict[str, str], finish: str | None = None) -> dict[str, object]:
        return {**self._base, "choices": [{"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}]}


def problem(status: int, message: str, kind: str, code: str | None = None) -> JSONResponse:
    """An error as these clients know it."""
    told = {"message": message, "type": kind, "param": None, "code": code}
    return JSONResponse({"error": told}, status_code=status)
