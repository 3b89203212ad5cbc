"""What OpenAI's clients send and expect, as far as a conversation needs it. Other fields are let through."""

from __future__ import annotations

from typing import Any

from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from coterie.llm.tokens import estimate_tokens, token_weights_for


class CompletionMessage(BaseModel):
    model_config = ConfigDict(extra="ignore")

    role: str
    content: str | list[dict[str, Any]] | None = None

    def text(self) -> str:
        if isinstance(self.content, list):
            return "\n".join(str(part.get("text", "")) for part in self.content if part.get("type") == "text")
        return self.content or ""


class ChatCompletionRequest(BaseModel):
    model_config = ConfigDict(extra="ignore")

    model: str
    messages: list[CompletionMessage] = Field(min_length=1)
    stream: bool = False
    stream_options: dict[str, Any] | None = None
    user: str | None = Field(default=None, max_length=200)
    mode: str = Field(default="", max_length=40)
    """Ours: which kind of chat a new conversation is; the usual one without it."""

    def last_user_text(self) -> str:
        """What the person said just now."""
        text = self.messages[-1].text().strip() if self.messages[-1].role == "user" else ""
        if not text:
            raise ValueError("the last message has to be the user's, with some text")
        return text

    def first_user_text(self) -> str:
        return next((said.text() for said in self.messages if said.role == "user"), "")

    def has_reply(self) -> bool:
        return any(said.role == "assistant" for said in self.messages)

    def wants_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.get("include_usage"))


class _Renderer:
    kind = ""

    def __init__(self, completion: str, asked: ChatCompletionRequest, now: int) -> None:
        self._base = {"id": completion, "object": self.kind, "created": now, "model": asked.model}
        self._asked = asked

    def _usage(self, text: str) -> dict[str, int]:
        """What the conversation takes as text; a character's own prompt is another matter, told by the ledger."""
        weights = token_weights_for(self._asked.model)
        prompt = round(sum(estimate_tokens(said.text(), weights) for said in self._asked.messages))
        reply = round(estimate_tokens(text, weights))
        return {"prompt_tokens": prompt, "completion_tokens": reply, "total_tokens": prompt + reply}


class CompletionRenderer(_Renderer):
    kind = "chat.completion"

    def render(self, text: str, *, cut: bool) -> dict[str, object]:
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": "length" if cut else "stop", "logprobs": None}
        return {**self._base, "choices": [choice], "usage": self._usage(text)}


class ChunkRenderer(_Renderer):
    kind = "chat.completion.chunk"

    def begin(self) -> dict[str, object]:
        return self._render({"role": "assistant", "content": ""})

    def text(self, text: str) -> dict[str, object]:
        return self._render({"content": text})

    def end(self) -> dict[str, object]:
        return self._render({}, "stop")

    def usage(self, text: str) -> dict[str, object]:
        return {**self._base, "choices": [], "usage": self._usage(text)}

    def _render(self, delta: dict[str, str], finish: str | None = None) -> dict[str, object]:
        return {**self._base, "choices": [{"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}]}


def error_response(status: int, message: str, kind: str, code: str | None = None) -> JSONResponse:
    """An error as these clients know it."""
    told = {"message": message, "type": kind, "param": None, "code": code}
    return JSONResponse({"error": told}, status_code=status)
