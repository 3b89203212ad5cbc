"""Streamed replies: record proposals while the model writes, and stream the visible text to clients."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable

from coterie.conversation import Feed, TurnQueries
from coterie.llm import Chunk, ModelAnswer, ModelError, StreamedReply, TextDelta
from coterie.modes.draft.edit_formats import EditBlock, ReplyParser, ReplyPart, TextPart
from coterie.modes.draft.proposals import proposal_id

OnBlock = Callable[[int, EditBlock], Awaitable[None]]
_CHUNK = re.compile(r"\S{1,48}\s{0,8}|\s{1,8}")


class ReplyWithProposals(StreamedReply):
    """Wraps a reply; `on_block` is awaited for each edit block before the stream goes on."""

    def __init__(self, reply: StreamedReply, parser: ReplyParser, on_block: OnBlock) -> None:
        self._reply = reply
        self._parser = parser
        self._on_block = on_block
        self._blocks = 0

    @property
    def text(self) -> str:
        return self._reply.text

    @property
    def model(self) -> str:
        return self._reply.model

    @property
    def answer(self) -> ModelAnswer:
        return self._reply.answer

    async def stop(self) -> None:
        await self._reply.stop()

    async def __anext__(self) -> Chunk:
        try:
            chunk = await anext(self._reply)
        except (StopAsyncIteration, ModelError):
            await self._handle_blocks(self._parser.end())
            raise
        if isinstance(chunk, TextDelta):
            await self._handle_blocks(self._parser.feed(chunk.text))
        return chunk

    async def _handle_blocks(self, parts: list[ReplyPart]) -> None:
        for part in parts:
            if isinstance(part, EditBlock):
                self._blocks += 1
                await self._on_block(self._blocks, part)


class ReplyChunker:
    """Cuts the visible text of a reply into chunks that depend on the text only, not on how it arrived."""

    def __init__(self, parser: ReplyParser) -> None:
        self._parser = parser
        self._rest = ""
        self.blocks = 0

    def feed(self, raw: str) -> list[str]:
        self._add(self._parser.feed(raw))
        return self._cut(complete=False)

    def end(self) -> list[str]:
        self._add(self._parser.end())
        return self._cut(complete=True)

    def _add(self, parts: list[ReplyPart]) -> None:
        for part in parts:
            self._rest += part.text if isinstance(part, TextPart) else ""
            self.blocks += isinstance(part, EditBlock)

    def _cut(self, *, complete: bool) -> list[str]:
        """A chunk at the end of the text is returned only when the text is complete: it could still grow."""
        chunks: list[str] = []
        position = 0
        while (chunk := _CHUNK.match(self._rest, position)) and (complete or chunk.end() < len(self._rest)):
            chunks.append(chunk.group())
            position = chunk.end()
        self._rest = self._rest[position:]
        return chunks


async def sse_frames(
    feed: Feed, timeline: TurnQueries, room: str, reply: str, parser: ReplyParser, after: int = 0
) -> AsyncIterator[str]:
    """The server-sent events of a reply, numbered, from the one after `after` on.

    A reply that failed or broke off has an event `incomplete` with the reason. The same reply always gives the same
    frames, so a client can resume from the last number it has. Without a reply, there are only the last two.
    """
    number = 0
    chunker = ReplyChunker(parser)
    async for raw, complete in _raw_text(feed, timeline, room, reply) if reply else _no_text():
        for text in [*chunker.feed(raw), *(chunker.end() if complete else [])]:
            number += 1
            if number > after:
                yield sse_frame(number, base64.b64encode(text.encode("utf-8", "surrogatepass")).decode("ascii"))
    ids = [proposal_id(reply, block) for block in range(1, chunker.blocks + 1)]
    last = [(_json({"message_id": reply, "change_ids": ids, "count": len(ids)}), "changes"), ("DONE", "")]
    turn = timeline.turn(room, reply) if reply else None
    if turn is not None and turn.state == "truncated":
        last.insert(1, (_json({"message_id": reply, "why": turn.why, "status": turn.status}), "incomplete"))
    for data, event in last:
        number += 1
        if number > after:
            yield sse_frame(number, data, event)


def _json(value: dict[str, object]) -> str:
    return json.dumps(value, separators=(",", ":"))


async def _no_text() -> AsyncIterator[tuple[str, bool]]:
    yield "", True


def sse_frame(number: int, data: str, event: str = "") -> str:
    return f"id: {number}\n" + (f"event: {event}\n" if event else "") + f"data: {data}\n\n"


async def _raw_text(feed: Feed, timeline: TurnQueries, room: str, reply: str) -> AsyncIterator[tuple[str, bool]]:
    """The raw text of a reply as it arrives, each part with whether it is the last one."""
    async with feed.follow(room) as following:
        turn = timeline.turn(room, reply)
        if turn.state != "open":
            yield turn.text, True
            return
        async for text in following.reply_text(reply):
            yield text, False
        yield "", True
