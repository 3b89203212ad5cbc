"""How well and how soon a stream is understood, with the embedded recogniser and speech that flite makes.

Word error rates of two voices over the held-out labelled sentences and the sample stream's script, each cut by voice
activity detection first. Then the sample stream plays at the pace of life, and each context is timed from the last
sound of its words. Then the held-out sentences again: does what was understood ask the chat something?

Words are compared as Whisper's normaliser leaves them. How much silence and loudness the recogniser gets, its search
and its second hearing were chosen on samples of the other half of the labelled sentences in all four voices of flite
(awb, kal16, rms, slt), and so were the signs of a question. That "chat" is heard as Chet, Chut or Jett was known from
all sentences; otherwise the held-out half was not listened to while choosing. It stands in the same file, though, and
whoever wrote the rules could read it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import edlib
import numpy as np
from whisper_normalizer.english import EnglishTextNormalizer

from bench._questions import labelled
from bench._report import arguments, finish, percentile, progress, say, scratch
from coterie.base.clock import SystemClock
from coterie.modes.crowd.configs import SHIPPED
from coterie.modes.crowd.listening import Recogniser, Sound, Utterances, listened, recogniser_named
from coterie.modes.crowd.listening.sample import Pcm, said, spoken_script
from coterie.modes.crowd.listening.sound import PIECE, RATE
from coterie.modes.crowd.listening.wording import put_right, sentences
from coterie.modes.crowd.session.moments import moment
from coterie.modes.crowd.session.script import Script

_VOICES = ("rms", "slt")
_PLAIN = EnglishTextNormalizer()
"""Whisper's, as usual where word errors are counted: spellings of one word, numbers and contractions are no error."""


def words(text: str) -> list[str]:
    return str(_PLAIN(text)).split()


def errors(wanted: Sequence[str], got: Sequence[str]) -> int:
    """Words put in, left out or wrong."""
    alphabet = {word: chr(0x4E00 + number) for number, word in enumerate({*wanted, *got})}
    as_letters = ["".join(alphabet[word] for word in each) for each in (wanted, got)]
    return int(edlib.align(*as_letters)["editDistance"]) if all(as_letters) else max(len(wanted), len(got))


def understood(speech: Pcm, recogniser: Recogniser) -> str:
    """What the ear would make of it: cut into utterances, each understood."""
    silence = np.zeros(RATE // 2, dtype=np.int16)
    whole = np.concatenate([silence, speech, silence])
    whole = np.pad(whole, (0, -len(whole) % PIECE)).astype("<i2")
    cutting = Utterances()
    found = [cutting.hear(piece.tobytes()) for piece in whole.reshape(-1, PIECE)]
    found.append(cutting.rest())
    return " ".join(put_right(recogniser.transcribe(each.samples)) for each in found if each is not None)


def f1(guessed: Sequence[bool], true: Sequence[bool]) -> float:
    both = sum(one and other for one, other in zip(guessed, true, strict=True))
    return 2 * both / max(sum(guessed) + sum(true), 1)


def asks(text: str) -> bool:
    """Whether one of the contexts that this makes is a question to the chat."""
    found = [moment(sentence) for sentence in sentences(text)]
    return any(each is not None and each[0] == "chat_question" for each in found)


async def delays(script: Script, recogniser: Recogniser, folder: Path) -> list[float]:
    """Seconds from the last sound of a context's words to the context."""
    file = folder / "stream.wav"
    ends = await asyncio.to_thread(spoken_script, script, file)
    clock = SystemClock()
    sound = Sound(str(file), clock)
    found: list[float] = []
    began = time.time()
    async for context in listened(sound.pieces(), recogniser, "bench", clock):
        now = time.time() - began
        # A line with a pause in it comes as several contexts: each is measured by when its own words ended.
        ended = context.window.end / 1_000 - began
        near = min(ends, key=lambda end: abs(end - ended))
        found.append(now - (near if abs(near - ended) < 0.5 else ended))
        progress(len(found), len(ends), "contexts")
    return found


async def run(quick: bool) -> dict[str, object]:
    recogniser = recogniser_named()
    script = Script.read(SHIPPED / "streams" / "left-door.toml")
    held_out = labelled(held_out=True)
    spoken = [line.say for line in script.line if line.say]
    if quick:
        held_out, spoken = held_out[::3], spoken[:3]
        script = script.model_copy(update={"line": script.line[:4]})
    sentences = [text for text, _ in held_out] + spoken
    rates: dict[str, float] = {}
    guesses: list[bool] = []
    cpu, length = 0.0, 0.0
    for voice in _VOICES:
        wrong = total = 0
        for number, text in enumerate(sentences):
            speech = said(text, voice)
            length += len(speech) / RATE
            before = time.process_time()
            got = understood(speech, recogniser)
            cpu += time.process_time() - before
            wrong += errors(words(text), words(got))
            total += len(words(text))
            if number < len(held_out):
                guesses.append(asks(got))
            progress(number + 1, len(sentences), voice)
        rates[voice] = round(wrong / total, 4)
        say(f"{voice}: {wrong} of {total} words wrong, {rates[voice]:.1%}")
    true = [label for _, label in held_out]
    by_ear = f1(guesses, true * len(_VOICES))
    by_eye = f1([asks(text) for text, _ in held_out], true)
    say(f"questions to the chat: F1 {by_ear:.3f} as understood, {by_eye:.3f} as written, {len(held_out)} sentences")
    say(f"{cpu / length:.2f} seconds of CPU for a second of speech")
    with scratch() as folder:
        late = await delays(script, recogniser, Path(folder))
    say(f"contexts {percentile(late, 0.5):.2f} s after their words, p95 {percentile(late, 0.95):.2f} s")
    return {
        "wer": rates,
        "context_p95_s": round(percentile(late, 0.95), 3),
        "context_p50_s": round(percentile(late, 0.5), 3),
        "question_f1": round(by_ear, 4),
        "question_f1_written": round(by_eye, 4),
        "cpu_per_second": round(cpu / length, 3),
    }


def main() -> None:
    options = arguments(__doc__).parse_args()
    finish(asyncio.run(run(options.quick)))


if __name__ == "__main__":
    main()
