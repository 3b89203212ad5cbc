"""A reply whose proposals are recorded as it is given: a card is there the moment its block closes. F4, F5"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable

from coterie.conversation.events import AssistantTurn
from coterie.conversation.feed import Feed
from coterie.conversation.replies import LiveText
from coterie.conversation.turns import TurnQueries
from coterie.llm.errors import ModelError
from coterie.llm.messages import Chunk, ModelAnswer, StreamedReply, TextDelta
from coterie.modes.draft.edit_formats import EditBlock, ReplyParser, ReplyPart, ReplyText
from coterie.modes.draft.proposals import proposal_id

OnBlock = Callable[[int, EditBlock], Awaitable[None]]


class ReplyWithProposals(StreamedReply):
    """In place of the reply it is made from; `on_block` has recorded a proposal before the next words are told."""

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
            await self._pass_on(self._parser.end())
            raise
        if isinstance(chunk, TextDelta):
            await self._pass_on(self._parser.feed(chunk.text))
        return chunk

    async def _pass_on(self, pieces: list[ReplyPart]) -> None:
        for piece in pieces:
            if isinstance(piece, EditBlock):
                self._blocks += 1
                await self._on_block(self._blocks, piece)


# A reply on the wire, byte by byte the same whenever it is asked for. F15
#
# Text is cut into chunks by the text alone, never by when it came, and each frame has a number. Whoever comes back with
# the number of the last frame they have gets exactly the frames after it.


_CHUNK = re.compile(r"\S{1,48}\s{0,8}|\s{1,8}")


class ReplyChunker:
    """The visible words of a reply in pieces that do not depend on how it came."""

    def __init__(self, parser: ReplyParser) -> None:
        self._parser = parser
        self._rest = ""
        self.blocks = 0

    def feed(self, raw: str) -> list[str]:
        self._take(self._parser.feed(raw))
        return self._cut(over=False)

    def end(self) -> list[str]:
        self._take(self._parser.end())
        return self._cut(over=True)

    def _take(self, pieces: list[ReplyPart]) -> None:
        for piece in pieces:
            self._rest += piece.text if isinstance(piece, ReplyText) else ""
            self.blocks += isinstance(piece, EditBlock)

    def _cut(self, *, over: bool) -> list[str]:
        """What ends where more text came is certain; what ends where the text ends might yet grow."""
        found: list[str] = []
        at = 0
        while (chunk := _CHUNK.match(self._rest, at)) and (over or chunk.end() < len(self._rest)):
            found.append(chunk.group())
            at = chunk.end()
        self._rest = self._rest[at:]
        return found


async def sse_frames(
    feed: Feed, timeline: TurnQueries, room: str, reply: str, parser: ReplyParser, after: int = 0
) -> AsyncIterator[str]:
    """The frames of a reply from the one after `after` on, as they come; of one that ended long ago, at once."""
    number = 0
    chunks = ReplyChunker(parser)
    async for raw, over in _spoken(feed, timeline, room, reply):
        for text in [*chunks.feed(raw), *(chunks.end() if over else [])]:
            number += 1
            if number > after:
                yield sse_frame(number, base64.b64encode(text.encode("utf-8", "surrogatepass")).decode("ascii"))
    changes = [proposal_id(reply, place) for place in range(1, chunks.blocks + 1)]
    told = json.dumps({"message_id": reply, "change_ids": changes, "count": len(changes)}, separators=(",", ":"))
    for data, event in ((told, "changes"), ("DONE", "")):
        number += 1
        if number > after:
            yield sse_frame(number, data, event)


def sse_frame(number: int, data: str, event: str = "") -> str:
    return f"id: {number}\n" + (f"event: {event}\n" if event else "") + f"data: {data}\n\n"


async def _spoken(feed: Feed, timeline: TurnQueries, room: str, reply: str) -> AsyncIterator[tuple[str, bool]]:
    """A reply's words in order, each once, and whether that was all."""
    told = 0
    async with feed.follow(room) as following:
        turn = timeline.turn(room, reply)
        if turn.state != "open":
            yield turn.text, True
            return
        async for news in following:
            if isinstance(news, LiveText):
                if news.reply == reply and news.offset + len(news.text) > told:
                    yield news.text[told - news.offset :], False
                    told = news.offset + len(news.text)
            elif isinstance(news.payload, AssistantTurn) and news.payload.reply == reply:
                yield news.payload.text[told:], True
                return
