"""Listening: sound in, contexts out, each as soon as its words are understood.

Hearing goes on while words are being understood, in a thread of their own. If understanding falls behind, what waits
is joined and understood at once: late is worse than coarse.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from coterie.base.clock import Clock, to_micros
from coterie.modes.crowd.listening.recogniser import Recogniser
from coterie.modes.crowd.listening.sound import CHUNK_S, SAMPLE_RATE
from coterie.modes.crowd.listening.utterances import Utterance, UtteranceDetector
from coterie.modes.crowd.listening.wording import fixed_sentences
from coterie.modes.crowd.protocol import StreamContext
from coterie.modes.crowd.session.moments import detect_event
from coterie.modes.crowd.session.script import RollingContext

_MAX_JOINED_S = 20.0
_MAX_LINE_CHARS = 500


async def transcribe_stream(
    sound: AsyncIterator[bytes],
    recogniser: Recogniser,
    room: str,
    clock: Clock,
    utterances: UtteranceDetector | None = None,
) -> AsyncIterator[StreamContext]:
    """Contexts of a room from pieces of sound, until it ends. Their windows end when the words did."""
    cutting = utterances or UtteranceDetector()
    heard: asyncio.Queue[tuple[Utterance, int] | None] = asyncio.Queue()

    async def hear() -> None:
        number = 0
        try:
            async for piece in sound:
                number += 1
                if (utterance := cutting.add(piece)) is not None:
                    ago_ms = round((number * CHUNK_S - utterance.end_s) * 1_000)
                    heard.put_nowait((utterance, _now(clock) - ago_ms))
            if (utterance := cutting.finish()) is not None:
                heard.put_nowait((utterance, _now(clock)))
        finally:
            heard.put_nowait(None)

    rolling = RollingContext(room)
    loop = asyncio.get_running_loop()
    hearing = asyncio.create_task(hear())
    try:
        with ThreadPoolExecutor(1, thread_name_prefix="recogniser") as aside:
            while (waiting := await _next(heard)) is not None:
                utterance, ended_ms = waiting
                text = await loop.run_in_executor(aside, recogniser.transcribe, utterance.samples)
                for sentence in fixed_sentences(text):
                    if line := sentence[:_MAX_LINE_CHARS]:
                        kind, confidence = detect_event(line) or (None, 0.0)
                        yield rolling.add(line, ended_ms, kind, confidence)
        await hearing  # what went wrong with the sound is told here
    finally:
        hearing.cancel()
        await asyncio.gather(hearing, return_exceptions=True)


async def _next(heard: asyncio.Queue[tuple[Utterance, int] | None]) -> tuple[Utterance, int] | None:
    """The next utterance, with those behind it if they have to hurry."""
    first = await heard.get()
    while first is not None and not heard.empty():
        second = heard.get_nowait()
        if second is None:
            heard.put_nowait(None)
            break
        first = (_concatenate(first[0], second[0]), second[1])
    return first


def _concatenate(one: Utterance, other: Utterance) -> Utterance:
    pause = np.zeros(round(0.3 * SAMPLE_RATE), dtype=np.float32)
    samples = np.concatenate([one.samples, pause, other.samples])[-round(_MAX_JOINED_S * SAMPLE_RATE) :]
    return Utterance(samples, one.start_s, other.end_s)


def _now(clock: Clock) -> int:
    return to_micros(clock.now()) // 1_000
