"""Real paragraphs, quoted the way models quote: are they found, in the right place, to the character? F6

A span is correct when it begins and ends exactly where the paragraph does (after its bullet, where the noise took the
bullet away), or when the noise left a shorter piece of it that stands there letter by letter. `wrong_place` counts
spans that miss the paragraph, or share less than half of what both cover.
"""

from __future__ import annotations

import gzip
import json
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

from bench.lib.quote_noise import FORMATTING, NOISES, NOT_IN_CODE, WORDS, Paragraph, paragraphs
from bench.lib.report import arguments, finish, log, percentile, progress
from coterie.modes.draft.diff import Span
from coterie.modes.draft.locate import Match, locate

DATA = "../shared/data/edits_rfcs.jsonl.gz"


def histories(path: str) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def judge(document: str, quote: str, found: object, paragraph: Paragraph, took_sign: bool) -> str:
    if not isinstance(found, Match):
        return found.reason  # type: ignore[attr-defined, no-any-return]
    truth = Span(paragraph.after_sign if took_sign else paragraph.start, paragraph.end)
    literal = document[found.span.start : found.span.end] == quote and truth.contains(found.span)
    if found.span == truth or literal:
        return "correct"
    shared = min(found.span.end, truth.end) - max(found.span.start, truth.start)
    whole = max(found.span.end, truth.end) - min(found.span.start, truth.start)
    return "wrong edges" if shared > 0.5 * whole else "wrong place"


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("data", nargs="?", default=DATA)
    parser.add_argument("--per-document", type=int, default=60, help="paragraphs of each document, at most")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", default="", help="print what went wrong: a verdict such as 'wrong place'")
    options = parser.parse_args()
    documents = [history["versions"][-1] for history in histories(str(Path(options.data)))]
    verdicts: dict[str, Counter[str]] = {name: Counter() for name in NOISES}
    took: list[float] = []
    chance = random.Random(options.seed)
    for number, document in enumerate(documents):
        there = paragraphs(document)
        sample = chance.sample(there, min(len(there), 6 if options.quick else options.per_document))
        vocabulary = document.split()
        for paragraph in sample:
            for name, noise in NOISES.items():
                if name == "ellipsis" and len(paragraph.text.split()) < 20:
                    continue  # there is no middle to leave out
                if paragraph.has_code and name in NOT_IN_CODE:
                    continue
                quote = noise(paragraph.text, chance, vocabulary)
                started = time.perf_counter()
                found = locate(document, quote)
                took.append((time.perf_counter() - started) * 1_000)
                took_sign = paragraph.after_sign > paragraph.start and not _has_sign(quote, paragraph)
                verdict = judge(document, quote, found, paragraph, took_sign)
                verdicts[name][verdict] += 1
                if options.show and verdict == options.show:
                    log(f"--- {name}: {found}\n{quote!r}\n{paragraph}")
        progress(number + 1, len(documents), "documents")
    shares = {
        name: {v: round(n / count.total(), 5) for v, n in count.most_common()} for name, count in verdicts.items()
    }
    for name, share in shares.items():
        log(f"{name:>16}: {verdicts[name].total()} quotes, {share}")
    total = sum(count.total() for count in verdicts.values())
    finish(
        {
            "quotes": total,
            "formatting_correct": _share(verdicts, FORMATTING, "correct"),
            "words_correct": _share(verdicts, WORDS, "correct"),
            "wrong_place": _share(verdicts, tuple(NOISES), "wrong place"),
            "p50_ms": round(percentile(took, 0.5), 2),
            "p95_ms": round(percentile(took, 0.95), 2),
            "max_ms": round(max(took), 2),
            "by_noise": shares,
        }
    )


def _has_sign(quote: str, paragraph: Paragraph) -> bool:
    sign = paragraph.text[: paragraph.after_sign - paragraph.start].strip()
    return quote.replace("\\", "").lstrip().startswith(sign)


def _share(verdicts: dict[str, Counter[str]], names: tuple[str, ...], verdict: str) -> float:
    return round(sum(verdicts[n][verdict] for n in names) / sum(verdicts[n].total() for n in names), 5)


if __name__ == "__main__":
    main()
