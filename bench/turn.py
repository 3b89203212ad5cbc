"""Overhead of a turn without the model, in a short chat and in one of 20,000 turns.

Measured are the two periods that a person waits for: from the request to the call of the provider, and from its last
token to the durable reply. The model is scripted and answers at once; jobs run between turns. The long chat is written
into the log with every event that its turns would have left.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import random
import tempfile
import time
from collections.abc import AsyncGenerator
from pathlib import Path

from bench.lib.report import arguments, finish, log, median, percentile, progress
from bench.lib.story_fixture import StoryFixture, scripted_model
from coterie.base.ids import new_id
from coterie.characters.service import OWNER, Character
from coterie.conversation.events import AssistantTokens, AssistantTurn, AssistantTurnStarted, Segment, UserTurn
from coterie.eventstore import NewEvent
from coterie.llm.messages import Chunk, CompletionRequest
from coterie.memory.events import MemoryAdded
from coterie.memory.index.embedders import static_embedder
from coterie.modes.story.events import ClockMoved, RelationshipUpdated
from coterie.modes.story.queries import Chat

_SMALL, _LARGE = 200, 20_000
_BATCH = 100


class Watched:
    """The scripted provider, which records when it was called and when its reply was complete."""

    name = "embedded"

    def __init__(self) -> None:
        self._player = scripted_model()
        self.calls = 0
        """All calls, of small models too."""
        self.asked = 0.0
        self.done = 0.0

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk, None]:
        reply = request.prompt.output_schema is None
        self.calls += 1
        if reply:
            self.asked = time.perf_counter()
        async for chunk in self._player.stream(request):
            if reply:
                self.done = time.perf_counter()
            yield chunk

    async def close(self) -> None:
        await self._player.close()


@functools.cache
def _language() -> tuple[list[str], list[float]]:
    """Words with a frequency distribution like that of natural text: few are frequent, most are rare."""
    vocabulary = static_embedder().wordpieces.vocabulary
    pieces = sorted((index, piece[1:]) for piece, index in vocabulary.items() if piece[0] == "▁")
    words = [word for _, word in pieces if len(word) > 2 and word.isascii() and word.isalpha()]
    return words, list(itertools.accumulate(1 / (rank + 3) for rank in range(len(words))))


def sentence(chance: random.Random) -> str:
    words, heaped = _language()
    return f"{' '.join(chance.choices(words, cum_weights=heaped, k=chance.randint(12, 40)))}."


def exchange(chat: Chat, character: Character, chance: random.Random) -> list[NewEvent]:
    """What one exchange leaves in the log."""
    room, turn, reply = chat.room, new_id(), new_id()
    question, answer = sentence(chance), sentence(chance)
    present = (OWNER, character.id)
    segments = (Segment(kind="dialogue", text=question),)
    drafts = [
        NewEvent(
            room, UserTurn(turn=turn, author=OWNER, text=question, segments=segments, present=present), OWNER, turn=turn
        ),
        NewEvent(
            room,
            AssistantTurnStarted(reply=reply, speaker=character.id, answers=turn, present=present),
            character.id,
            turn=reply,
        ),
        NewEvent(room, AssistantTokens(reply=reply, text=answer), character.id, turn=reply),
        NewEvent(room, AssistantTurn(reply=reply, text=answer, model="embedded/script"), character.id, turn=reply),
    ]
    for text, speaker, source in ((question, "Ana", turn), (answer, "Mara", reply)):
        memory = MemoryAdded(
            id=new_id(),
            owner=character.id,
            text=text,
            scene=chat.scene,
            speaker=speaker,
            witnesses=(character.id, OWNER),
            sources=(source,),
            happened=chat.clock,
        )
        drafts.append(NewEvent(room, memory, "story", turn=reply))
    edge = RelationshipUpdated(world=chat.world, of=character.id, toward=OWNER, chat=room, when=chat.clock)
    drafts += [
        NewEvent(room, edge, "story", turn=reply),
        NewEvent(room, ClockMoved(minutes=2), "story", turn=reply),
    ]
    return drafts


async def write_past(fixture: StoryFixture, room: str, character: Character, turns: int, chance: random.Random) -> None:
    chat = fixture.story.chats.chat(room)
    exchanges = turns // 2
    for start in range(0, exchanges, _BATCH):
        batch = [exchange(chat, character, chance) for _ in range(min(_BATCH, exchanges - start))]
        await fixture.store.append([draft for exchange in batch for draft in exchange])
        progress(start + _BATCH, exchanges, f"exchanges of the chat of {turns:,} turns")


async def settle(fixture: StoryFixture) -> None:
    while await fixture.worker.drain():
        pass


async def measure(folder: Path, turns: int, rounds: int) -> tuple[list[float], list[float], float, float]:
    """Overhead before and after the model, in ms per turn; opening the last 50 turns; and model calls per turn."""
    chance = random.Random(turns)
    watched = Watched()
    fixture = StoryFixture(folder / f"{turns}.db", watched)
    character = await fixture.create_character()
    room = await fixture.open_chat(character)
    await write_past(fixture, room, character, turns, chance)
    started = time.perf_counter()
    chat = fixture.story.chats.chat(room)
    opened = fixture.story.timeline.latest(room, 50)
    fixture.story.chats.activities(room), fixture.story.relationships.in_world(chat.world)
    opening = (time.perf_counter() - started) * 1_000
    assert len(opened) == 50
    before: list[float] = []
    after: list[float] = []
    for number in range(rounds + 3):
        question = sentence(chance)
        began = time.perf_counter()
        await fixture.story.send_message(room, question)
        await fixture.story.replies.wait(room)
        ended = time.perf_counter()
        if number >= 3:  # the first turns load tokenizer, price list and memories
            before.append((watched.asked - began) * 1_000)
            after.append((ended - watched.done) * 1_000)
        await settle(fixture)
        progress(number + 1, rounds + 3, f"turns in the chat of {turns:,}")
    await fixture.close()
    return before, after, opening, watched.calls / (rounds + 3)


async def run(rounds: int) -> dict[str, object]:
    p95: dict[str, float] = {}
    opening = 0.0
    calls: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        for turns in (_SMALL, _LARGE):
            before, after, opening, called = await measure(Path(name), turns, rounds)
            total = [b + a for b, a in zip(before, after, strict=True)]
            calls[str(turns)] = round(called, 2)
            p95[str(turns)] = round(percentile(total, 0.95), 2)
            log(
                f"{turns:>6} turns: before the model {median(before):.1f} ms, after it {median(after):.1f} ms (median);"
                f" together p95 {p95[str(turns)]} ms; opening the last 50 {opening:.1f} ms;"
                f" {called:.2f} model calls per turn"
            )
    return {
        "overhead_p95_ms": p95,
        "calls_per_turn": calls,
        "ratio": round(p95[str(_LARGE)] / p95[str(_SMALL)], 2),
        "open_last_50_ms": round(opening, 2),
    }


def main() -> None:
    options = arguments(__doc__).parse_args()
    finish(asyncio.run(run(40 if options.quick else 200)))


if __name__ == "__main__":
    main()
