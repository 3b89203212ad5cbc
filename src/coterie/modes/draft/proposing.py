"""A reply whose proposals are recorded as it is given: a card is there the moment its block closes. F4, F5"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from coterie.llm.errors import ModelError
from coterie.llm.messages import Chunk, ModelAnswer, TextDelta
from coterie.llm.reply import StreamedReply
from coterie.modes.draft.blocks import EditBlock, ReplyParser, ReplyPart

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
